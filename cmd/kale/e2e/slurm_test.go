package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/slurm"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// onSlurm is a private Slurm of two nodes with fake GPUs.
var onSlurm = &site{backend: "slurm", always: true, shares: slurmShares}

func init() { onSlurm.start = startSlurm } // which refers to it

const slurmNodes = 2

// startSlurm starts one for a rig, or skips the test.
func startSlurm(r *rig) *site {
	r.t.Helper()
	s, c, late := slurmOf(r, slurmtest.Options{Nodes: slurmNodes, GPUsPerNode: stormWorkers, CPUs: 64, Conf: twoPartitions})
	s.faults, s.tend = slurmFaults(c, late), leaks(c)
	return s
}

// slurmOf starts one of a size.
func slurmOf(r *rig, o slurmtest.Options) (*site, *slurmtest.Cluster, *lateSbatch) {
	r.t.Helper()
	if why := slurmtest.Missing(); why != "" {
		r.t.Skip(why)
	}
	c, err := slurmtest.Start(r.t.Context(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			r.t.Error(err)
		}
	})
	s := *onSlurm
	shared := filepath.Join(r.dir, "shared")
	late := wrapSbatch(r, c)
	// The rig's mark is given to the job's processes alone: the cluster outlives the job.
	s.block = fmt.Sprintf("    shared_dir   = %q\n    shared_paths = [%q]\n    bin_dir      = %q\n    env          = { %s = %q }\n", shared, r.dir, late.dir, marker, r.dir)
	s.gpus = 1
	s.look = func(r *rig) backend.Backend {
		b := slurm.New(nil)
		r.t.Cleanup(func() {
			if err := b.Close(); err != nil {
				r.t.Error(err)
			}
		})
		return b
	}
	s.files = func(r *rig, name string) string { return filepath.Join(shared, r.name(), "*-g*", name) }
	return &s, c, late
}

// The same job on a real Slurm: by forecast it grows from one worker to six before noon and shrinks to one after it, its first worker trains on through all of it, and every record is trained once.
func TestGrowsAndShrinksOnSlurm(t *testing.T) {
	t.Parallel()
	growsAndShrinks(t, kafkatest.Embedded(t), onSlurm, toSix)
}

// On a Slurm that has places for three of a job's processes its two servers get theirs, and one worker: at first, and when a server ends while workers wait for
// the place that it leaves. Each record is trained once.
func TestServersComeFirstOnSlurm(t *testing.T) {
	t.Parallel()
	var c *slurmtest.Cluster
	narrow := &site{backend: onSlurm.backend}
	narrow.start = func(r *rig) (s *site) {
		s, c, _ = slurmOf(r, slurmtest.Options{Nodes: 1, GPUsPerNode: 4, CPUs: 3})
		return s
	}
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 4, site: narrow, place: 5 * time.Second})
	r.run() // and wants four
	p := r.steadyTraffic(300)
	r.awaitMore(300)
	r.scale(3)
	r.await("workers wait for a place", func() string {
		for _, st := range r.list() {
			if st.ID.Role == backend.RoleWorker && st.State == backend.StatePending {
				return ""
			}
		}
		return "none does"
	})
	if out, err := c.Run(t.Context(), "scancel", "--name=kale:"+jobName+":ps-1-g1"); err != nil {
		t.Fatal(out, err)
	}
	r.await("the server has a successor", func() string {
		if st := r.process(backend.RoleServer, 1); st.ID.Generation < 2 || st.State != backend.StateRunning {
			return st.String()
		}
		return ""
	})
	r.awaitMore(300)
	r.finish(p, nil, 600)
}

// On a Slurm that others fill, workers wait in its queue and keep their places there while the job trains with those that it has: an order for fewer gives up the
// last in the queue, whatever its rank, and the first starts when its turn has come, before others that came later.
func TestWaitsItsTurnOnAFullSlurm(t *testing.T) {
	t.Parallel()
	var c *slurmtest.Cluster
	full := &site{backend: onSlurm.backend}
	full.start = func(r *rig) (s *site) {
		s, c, _ = slurmOf(r, slurmtest.Options{Nodes: 1, GPUsPerNode: 3, CPUs: 64})
		return s
	}
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 3, site: full})
	slurm := func(args ...string) string {
		t.Helper()
		out, err := c.Run(t.Context(), args[0], args[1:]...)
		if err != nil {
			r.fatalf("%s: %v: %s", args[0], err, out)
		}
		return strings.TrimSpace(out)
	}
	other := func(name string) {
		t.Helper()
		slurm("sbatch", "--no-requeue", "--job-name="+name, "--gres=gpu:1", "--output=/dev/null", "--chdir=/", "--wrap=exec sleep 1000")
	}
	queue := func(state string) string { // names of workers and of others' jobs, the first that was submitted first
		var names []string
		for name := range strings.FieldsSeq(slurm("squeue", "--noheader", "--states="+state, "--sort=i", "--format=%j")) {
			if short := strings.TrimPrefix(name, "kale:"+jobName+":"); !strings.HasPrefix(short, "ps-") {
				names = append(names, short)
			}
		}
		return strings.Join(names, " ")
	}
	waiting := func(what string, want ...string) (got []string) { // by the beginnings of their names
		t.Helper()
		r.await(what, func() string {
			if got = strings.Fields(queue("PENDING")); !slices.EqualFunc(got, want, strings.HasPrefix) {
				return fmt.Sprintf("%q wait, not %q", got, want)
			}
			return ""
		})
		return got
	}
	r.run()
	r.scale(1)
	r.awaitSteady("a worker trains", 1)
	p := r.steadyTraffic(100)
	other("early-1")
	other("early-2")
	r.await("others fill the cluster", func() string {
		if got := queue("RUNNING"); strings.Count(got, "early-") != 2 {
			return fmt.Sprintf("%q run", got)
		}
		return ""
	})
	r.scale(2)
	first := waiting("the second waits", "worker-")[0]
	r.scale(3)
	second := waiting("and the third", first, "worker-")[1]
	slurm("scancel", "--name=kale:"+jobName+":"+first) // by a person: its successor is the last
	waiting("the second waits anew", second, first[:len("worker-0-g")])
	other("late")
	r.scale(2)
	waiting("the last was given up, and the first was not", second, "late")
	slurm("scancel", "--name=early-1")
	r.awaitSteady("the first has its turn", 2)
	waiting("another waits on", "late")
	r.awaitMore(500)
	slurm("scancel", "--name=late,early-2")
	r.finish(p, nil, 500)
}
