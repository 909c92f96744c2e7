package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if binary, err = conformance.Build(dir, "github.com/kale-sched/kale/cmd/kale-backend-slurm"); err != nil {
		fmt.Fprintln(os.Stderr, err)
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

// rig is a shared folder of its own on the cluster, which is empty.
type rig struct {
	on    *slurmtest.Cluster
	dir   string // shared
	extra string // lines for the backend block
}

// newRig gives one on the cluster that the tests share.
func newRig(t *testing.T) *rig {
	t.Helper()
	if why := slurmtest.Missing(); why != "" {
		t.Skip(why)
	}
	return newRigOn(t, cluster)
}

func newRigOn(t *testing.T, cluster *slurmtest.Cluster) *rig {
	t.Helper()
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
		awaitEmpty(t, cluster)
	})
	awaitEmpty(t, cluster)
	return &rig{on: cluster, dir: dir}
}

// awaitEmpty waits until nothing is left in the queue.
func awaitEmpty(t *testing.T, cluster *slurmtest.Cluster) {
	t.Helper()
	conformance.Eventually(t, "the cluster is empty", func() error {
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

func (r *rig) shell() conformance.Shell { return conformance.Shell{Dir: r.dir} }

func (r *rig) workload(job string, id backend.ID, p conformance.Program) backend.Workload {
	return r.shell().Workload(job, id, p)
}

func (r *rig) starts(t testing.TB, job string, id backend.ID) int {
	return r.shell().Starts(t, job, id)
}

// started waits until the workload's program has run so often, and no oftener.
func (r *rig) started(t testing.TB, job string, id backend.ID, want int) {
	t.Helper()
	r.shell().AwaitStarts(t, job, id, want)
}

func TestConformance(t *testing.T) {
	t.Parallel() // with TestTimeLimit, which has a cluster of its own; all others come before
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		r := newRig(t)
		r.extra = "max_pending = 0"
		return r.harness()
	})
}

// The same through slurmrestd.
func TestConformanceThroughREST(t *testing.T) {
	t.Parallel()
	c := restCluster(t)
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		r := newRigOn(t, c)
		r.extra = "max_pending = 0\n" + restBlock(c)
		return r.harness()
	})
}

func (r *rig) harness() conformance.Harness {
	return conformance.Harness{
		Config: r.config, BadConfig: r.badConfig, Workload: r.workload, Starts: r.starts, Crash: r.shell().Crash, Slots: slots,
		Open: func(t testing.TB) backend.Backend { return conformance.Launch(t, binary, backend.Options{}) }, Kill: conformance.KillPlugin,
		Stall: r.stall, Lose: r.lose, Obscure: r.obscure, Keeps: func() []string { return []string{r.shared()} },
	}
}

// stall makes slurmctld hang with its port open.
func (r *rig) stall(t testing.TB) (heal func()) {
	t.Helper()
	if err := r.on.PauseController(false); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := r.on.PauseController(true); err != nil {
			t.Error(err)
		}
	}
}

// lose cancels the workload's Slurm job as another user of the account would.
func (r *rig) lose(t testing.TB, job string, id backend.ID) {
	t.Helper()
	if _, err := r.on.Run(t.Context(), "scancel", "--name="+jobName(job, id)); err != nil {
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
