package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
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
	if binary, err = conformance.Build(dir, "github.com/kale-sched/kale/cmd/kale-backend-local"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(envRun, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	// Plugins and supervisors whose end was asked for are given a moment to be gone.
	deadline := time.Now().Add(2 * time.Minute)
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

// cluster is a state folder and what its processes leave in it.
type cluster struct{ dir string }

func newCluster(t *testing.T) cluster {
	c := cluster{dir: t.TempDir()}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for pid := range descendants(conformance.EnvStarts + "=" + c.dir) { // or the folder could not be removed
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

func (c cluster) shell() conformance.Shell { return conformance.Shell{Dir: c.dir} }

func (c cluster) workload(job string, id backend.ID, p conformance.Program) backend.Workload {
	return c.shell().Workload(job, id, p)
}

func (c cluster) starts(t testing.TB, job string, id backend.ID) int {
	return c.shell().Starts(t, job, id)
}

// launch starts the real plugin.
func launch(t testing.TB) *backend.Client { return conformance.Launch(t, binary, backend.Options{}) }

// inProcess gives the backend inside the test, with the real program as supervisor.
func inProcess(t testing.TB, gpus gpuSource) *local {
	lg := conformance.Logger(t)
	if _, measures := t.(*testing.B); measures {
		lg = nil
	}
	l := newLocal(lg, gpus)
	l.self = binary
	l.claims = claims(filepath.Join(t.TempDir(), "kale-gpus")) // a machine of its own
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
	conformance.Eventually(t, what, func() error {
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
