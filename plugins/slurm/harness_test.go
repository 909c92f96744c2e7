package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

var (
	// binary is the real kale-backend-slurm, built once for all tests.
	binary string
	// cluster is the private Slurm that the tests share, two nodes with two GPUs each; nil where Slurm is not installed.
	cluster *slurmtest.Cluster
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "kale-backend-slurm-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the system's temporary folder: it may as well stay
	binary = filepath.Join(dir, "kale-backend-slurm")
	build := exec.Command("go", "build", "-o", binary, "github.com/kale-sched/kale/cmd/kale-backend-slurm")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the plugin: %v\n%s", err, out)
		return 1
	}
	if slurmtest.Missing() == "" {
		cluster, err = slurmtest.Start(context.Background(), slurmtest.Options{
			Nodes: 2, GPUsPerNode: 2,
			Conf: []string{
				"PreemptType=preempt/partition_prio", "PreemptMode=CANCEL",
				"PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1",
				"PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF",
			},
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() {
			if err := cluster.Close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}()
		if err := os.Setenv("SLURM_CONF", cluster.Conf()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// slots is how many one-GPU workloads the cluster holds.
const slots = 4

const envStarts = "KALE_TEST_STARTS"

// rig is a shared folder of its own on the cluster, which is empty.
type rig struct {
	dir   string // shared
	extra string // lines for the backend block
}

func newRig(t *testing.T) *rig {
	t.Helper()
	if why := slurmtest.Missing(); why != "" {
		t.Skip(why)
	}
	dir, err := os.MkdirTemp(cluster.Shared(), "t-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// What a failed test left must not hinder the next.
		if _, err := cluster.Run(context.WithoutCancel(t.Context()), "scancel", "--quiet", "--full", "--signal=KILL", "--user="+fmt.Sprint(os.Getuid())); err != nil && !t.Failed() {
			t.Logf("clean up: %v", err)
		}
		_, _ = cluster.Run(context.WithoutCancel(t.Context()), "scancel", "--quiet", "--user="+fmt.Sprint(os.Getuid()))
		awaitEmpty(t)
	})
	awaitEmpty(t)
	return &rig{dir: dir}
}

// awaitEmpty waits until nothing is left in the queue.
func awaitEmpty(t *testing.T) {
	t.Helper()
	eventually(t, "the cluster is empty", func() error {
		out, err := cluster.Run(context.WithoutCancel(t.Context()), "squeue", "--noheader")
		if err == nil && strings.TrimSpace(out) != "" {
			err = errors.New(out)
		}
		return err
	})
}

func (r *rig) shared() string { return filepath.Join(r.dir, "kale") }

func (r *rig) config(job string) backend.Config {
	return backend.Config{
		Job: job, Filename: "job.hcl", StartLine: 40, StartColumn: 19, StartByte: 900, StateDir: filepath.Join(r.dir, "state"),
		Source: fmt.Appendf(nil, "\n  shared_dir = %q\n%s\n", r.shared(), r.extra),
	}
}

func (r *rig) badConfig(job string) (backend.Config, int) {
	cfg := r.config(job)
	cfg.Source = fmt.Appendf(nil, "\n  shared_dir = %q\n  slotz = 1\n", r.shared())
	return cfg, 42
}

// The shell programs. A read from a FIFO that nobody closes waits without a process of its own.
const (
	counted = `echo x >> "$` + envStarts + `/$KALE_TEST_NAME.starts"; echo started; `
	forEver = `p="$KALE_ALLOC_DIR/p"; [ -p "$p" ] || mkfifo "$p"; while :; do read x <> "$p"; done`
	steady  = `trap 'exit 0' TERM; ` + counted + forEver
)

func (r *rig) workload(job string, id backend.ID, p conformance.Program) backend.Workload {
	script := map[conformance.Program]string{
		conformance.Steady:   steady,
		conformance.ExitZero: counted + `exit 0`,
		conformance.Fenced:   counted + `exit 3`,
		conformance.Crash:    `trap 'exit 0' TERM; ` + counted + `[ -e crashed ] || { : > crashed; exit 1; }; ` + forEver,
		conformance.Stubborn: `trap '' TERM; ` + counted + forEver,
		conformance.Echo:     counted + `cat "$KALE_ALLOC_DIR/hello"; echo; echo "$GREETING"`,
	}[p]
	w := r.shell(job, id, script)
	if p == conformance.Missing {
		w.Argv = []string{"kale-no-such-program"}
	}
	return w
}

func (r *rig) shell(job string, id backend.ID, script string) backend.Workload {
	return backend.Workload{
		ID: id, Argv: []string{"/bin/sh", "-c", script},
		Env: map[string]string{envStarts: r.dir, "KALE_TEST_NAME": job + "." + id.String()},
	}
}

func (r *rig) starts(t testing.TB, job string, id backend.ID) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.dir, job+"."+id.String()+".starts"))
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

// killPlugin ends the plugin's process and waits until the client has noticed.
func killPlugin(t testing.TB, b backend.Backend) {
	t.Helper()
	c := b.(*backend.Client)
	pid := c.PID()
	if pid == 0 {
		return // it is down already
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	eventually(t, "the client notices that the plugin is dead", func() error {
		if c.PID() == pid {
			return errors.New("it does not")
		}
		return nil
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
		time.Sleep(10 * time.Millisecond)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel() // with TestTimeLimit, which has a cluster of its own; all others come before
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		r := newRig(t)
		r.extra = "max_pending = 0"
		return conformance.Harness{
			Config: r.config, BadConfig: r.badConfig, Workload: r.workload, Starts: r.starts, Slots: slots,
			Open: func(t testing.TB) backend.Backend { return launch(t) }, Kill: killPlugin,
			Stall: stall, Lose: lose, Obscure: r.obscure,
		}
	})
}

// stall makes slurmctld hang with its port open.
func stall(t testing.TB) (heal func()) {
	t.Helper()
	if err := cluster.PauseController(false); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := cluster.PauseController(true); err != nil {
			t.Error(err)
		}
	}
}

// lose cancels the workload's Slurm job as another user of the account would.
func lose(t testing.TB, job string, id backend.ID) {
	t.Helper()
	if _, err := cluster.Run(t.Context(), "scancel", "--name="+jobName(job, id)); err != nil {
		t.Fatal(err)
	}
}

// obscure takes away the record of the workload, as a file system that is half mounted does.
func (r *rig) obscure(t testing.TB, job string, id backend.ID) (heal func()) {
	t.Helper()
	path := filepath.Join(r.shared(), job, id.String(), recordFile)
	if err := os.Rename(path, path+".hidden"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(path+".hidden", path); err != nil {
			t.Error(err)
		}
	}
}
