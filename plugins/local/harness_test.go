package local

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// binary is the real kale-backend-local, built once for all tests.
var binary string

// envRun marks every process that descends from this run of the tests.
const envRun = "KALE_TEST_RUN"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kale-backend-local-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the system's temporary folder: it may as well stay
	binary = filepath.Join(dir, "kale-backend-local")
	build := exec.Command("go", "build", "-o", binary, "github.com/kale-sched/kale/cmd/kale-backend-local")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the plugin: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(envRun, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	// Plugins and supervisors whose end was asked for are given a moment to be gone.
	deadline := time.Now().Add(20 * time.Second)
	for left := descendants(envRun + "=" + dir); len(left) > 0; left = descendants(envRun + "=" + dir) {
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "processes are left after the tests: %v\n", left)
			for pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return 1
		}
		time.Sleep(20 * time.Millisecond)
	}
	return code
}

// descendants gives the living processes, this one aside, with the variable in their environment.
func descendants(variable string) map[int]string {
	found := map[int]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return found
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !bytes.Contains(env, []byte(variable)) {
			continue // it has ended, or is none of ours
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // for the message only
		found[pid] = strings.ReplaceAll(string(cmdline), "\x00", " ")
	}
	return found
}

// slots is how many one-device workloads the tests' clusters hold.
const slots = 4

const envStarts = "KALE_TEST_STARTS"

// cluster is a state folder and what its processes leave in it.
type cluster struct{ dir string }

func newCluster(t *testing.T) cluster {
	c := cluster{dir: t.TempDir()}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for pid := range descendants(envStarts + "=" + c.dir) { // or the folder could not be removed
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return c
}

func (c cluster) state() string { return filepath.Join(c.dir, "state") }

func (c cluster) config(job string) backend.Config {
	return backend.Config{
		Job: job, Filename: "job.hcl", StartLine: 40, StartColumn: 19, StartByte: 900, StateDir: c.state(),
		Source: fmt.Appendf(nil, "\n  slots = %d\n  gpus  = \"none\"\n", slots),
	}
}

func (c cluster) badConfig(job string) (backend.Config, int) {
	cfg := c.config(job)
	cfg.Source = []byte("\n  slots = 4\n  gpus  = \"none\"\n  slotz = 1\n")
	return cfg, 43
}

// The shell programs. A read from a FIFO that nobody closes waits without a process of its own.
const (
	counted = `echo x >> "$` + envStarts + `/$KALE_TEST_NAME.starts"; echo started; `
	forEver = `p="$KALE_ALLOC_DIR/p"; [ -p "$p" ] || mkfifo "$p"; while :; do read x <> "$p"; done`
	steady  = `trap 'exit 0' TERM; ` + counted + forEver
)

func (c cluster) workload(job string, id backend.ID, p conformance.Program) backend.Workload {
	script := map[conformance.Program]string{
		conformance.Steady:   steady,
		conformance.ExitZero: counted + `exit 0`,
		conformance.Fenced:   counted + `exit 3`,
		conformance.Crash:    `trap 'exit 0' TERM; ` + counted + `[ -e crashed ] || { : > crashed; exit 1; }; ` + forEver,
		conformance.Stubborn: `trap '' TERM; ` + counted + forEver,
		conformance.Echo:     counted + `cat "$KALE_ALLOC_DIR/hello"; echo; echo "$GREETING"`,
	}[p]
	w := backend.Workload{
		ID: id, Argv: []string{"/bin/sh", "-c", script},
		Env: map[string]string{envStarts: c.dir, "KALE_TEST_NAME": job + "." + id.String()},
	}
	if p == conformance.Missing {
		w.Argv = []string{"kale-no-such-program"}
	}
	return w
}

func (c cluster) starts(t testing.TB, job string, id backend.ID) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, job+"."+id.String()+".starts"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(raw, []byte("\n"))
}

func testLogger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// launch starts the real plugin.
func launch(t testing.TB) *backend.Client {
	t.Helper()
	c, err := backend.Launch(t.Context(), testLogger(t), binary, backend.Options{
		BackoffMin: time.Millisecond, BackoffMax: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// inProcess gives the backend inside the test, with the real program as supervisor.
func inProcess(t testing.TB, gpus gpuSource) *local {
	lg := testLogger(t)
	if _, measures := t.(*testing.B); measures {
		lg = nil
	}
	l := newLocal(lg, gpus)
	l.self = binary
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func configure(t testing.TB, b backend.Backend, cfg backend.Config) {
	t.Helper()
	diags, err := b.Configure(t.Context(), cfg)
	if err == nil {
		err = diags.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func ensure(t testing.TB, b backend.Backend, job string, w backend.Workload) backend.Status {
	t.Helper()
	st, err := b.Ensure(t.Context(), job, []backend.Workload{w})
	if err != nil {
		t.Fatal(err)
	}
	if st[0].Err != nil {
		t.Fatal(st[0].Err)
	}
	return st[0]
}

// list gives the one workload of the job, nil when there is none.
func list(t testing.TB, b backend.Backend, job string) *backend.Status {
	t.Helper()
	all, complete, err := b.List(t.Context(), job)
	if err != nil || !complete || len(all) > 1 {
		t.Fatalf("List = %v, complete %v, %v", all, complete, err)
	}
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

// waitFor waits until the job's one workload is as ok says.
func waitFor(t testing.TB, b backend.Backend, job, what string, ok func(backend.Status) bool) backend.Status {
	t.Helper()
	var got backend.Status
	eventually(t, what, func() error {
		st := list(t, b, job)
		if st == nil {
			return errors.New("there is none")
		}
		if got = *st; !ok(got) {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
	return got
}

func running(st backend.Status) bool { return st.State == backend.StateRunning && st.PID != 0 }

// drop ends all that the job has.
func drop(t testing.TB, b backend.Backend, job string) {
	t.Helper()
	eventually(t, "all of the job is gone", func() error {
		all, _, err := b.List(t.Context(), job)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return nil
		}
		var ids []backend.ID
		for _, st := range all {
			ids = append(ids, st.ID)
		}
		if err := b.Release(t.Context(), job, ids, backend.Forced); err != nil {
			return err
		}
		return fmt.Errorf("there are %v", ids)
	})
}

func eventually(t testing.TB, what string, cond func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never came that %s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
