package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/core/onnx"
)

// marker is the environment variable that every process of a rig inherits; its value is the rig's folder.
const marker = "KALE_E2E_RIG"

// guardEnv makes this test binary wait for the end of the tests and then end what they left.
const guardEnv = "KALE_E2E_GUARD"

// bins are the programs under test, built once. They are built without the race detector: the tests' own processes have it, the product's are as
// they are shipped.
type bins struct {
	dir  string // kale, kale-trainer, kale-backend-local, kale-backend-nomad, kale-backend-slurm, kale-backend-processes
	bare string // a kale-trainer without deduplication
}

var (
	scratch  string // the tests' own folder; empty until the first program is built
	built    bins
	building sync.Once
	buildErr error
)

func TestMain(m *testing.M) {
	if root := os.Getenv(guardEnv); root != "" {
		guard(root)
		return
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	// Short: unix sockets lie below it.
	if scratch, err = os.MkdirTemp("", "kale-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	endGuard, err := startGuard(scratch)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the guard of the end-to-end tests:", err)
		return 1
	}
	code := m.Run()
	if left := endGuard(); left != "" {
		fmt.Fprintf(os.Stderr, "processes were left after the tests, and were killed:\n%s", left)
		code = max(code, 1)
	}
	return code
}

// startGuard starts a process that kills what the tests leave below root, and removes root, even when this process is killed: the product's own processes
// are made to outlive whoever started them. The returned function ends it and tells what it had to kill.
func startGuard(root string) (func() string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), guardEnv+"="+root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() string {
		in.Close()
		said, err := io.ReadAll(bufio.NewReader(out))
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return fmt.Sprintf("%s(the guard: %v)\n", said, err)
		}
		return string(said)
	}, nil
}

// guard waits for the end of its input, then kills every process of a rig below root, and says which; then it removes root.
func guard(root string) {
	signal.Ignore(syscall.SIGPIPE)       // whoever was to read what it says may be dead
	_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the tests, however they end
	defer func() {
		unmountBelow(root)
		if err := os.RemoveAll(root); err != nil {
			fmt.Println("  ", err)
		}
	}()
	told := map[int]bool{}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left := processes(root)
		if len(left) == 0 {
			return
		}
		for pid, cmdline := range left {
			if !told[pid] {
				fmt.Printf("  %d %s\n", pid, cmdline)
				told[pid] = true
			}
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
	}
}

// programs builds the programs, the first time that they are needed.
func programs(t *testing.T) bins {
	t.Helper()
	building.Do(func() {
		built = bins{dir: filepath.Join(scratch, "bin"), bare: filepath.Join(scratch, "bare", "kale-trainer")}
		const module = "github.com/kale-sched/kale/cmd/"
		buildErr = errors.Join(
			conformance.BuildAll(built.dir, module+"kale", module+"kale-trainer", module+"kale-backend-local", module+"kale-backend-nomad", module+"kale-backend-slurm"),
			goBuild("-o", filepath.Join(built.dir, "kale-backend-processes"), "github.com/kale-sched/kale/examples/backend-processes"),
			goBuild("-tags", "kale_nodedup", "-o", built.bare, module+"kale-trainer"),
		)
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return built
}

func goBuild(args ...string) error {
	if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", args, err, out)
	}
	return nil
}

// library finds ONNX Runtime for jobs whose model needs it, or skips the test.
func library(t *testing.T) string {
	t.Helper()
	path, err := onnx.Locate()
	if err != nil {
		t.Skipf("needs ONNX Runtime: run \"make deps\" (%v)", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		t.Fatal(err)
	}
	return path
}
