package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// Two jobs share a pool of four slots. The one with priority gets busy: the other drains two workers for it and keeps its guarantee, and has them back
// when it is quiet again. Both train every record once, and at no time do more than four workers run.
func TestTwoJobsShareAPool(t *testing.T) {
	t.Parallel()
	sharesAPool(t, here, "  gpus = 4\n")
}

// The same on a real Slurm, which says how many GPUs there are.
func TestTwoJobsShareAPoolOnSlurm(t *testing.T) {
	t.Parallel()
	at := *onSlurm
	at.start = func(r *rig) *site {
		s, _, _ := slurmOf(r, slurmtest.Options{Nodes: 2, GPUsPerNode: 2, CPUs: 64})
		return s
	}
	sharesAPool(t, &at, "")
}

// And on a real Nomad, which says so too.
func TestTwoJobsShareAPoolOnNomad(t *testing.T) {
	t.Parallel()
	at := *onNomad
	at.start = func(r *rig) *site {
		s, _, _, _ := nomadOf(r, nomadtest.Options{Clients: 2, GPUs: 2})
		return s
	}
	sharesAPool(t, &at, "")
}

// sharesAPool is that test at a place with four GPUs or slots; size is what the pool file says of that, "" where the cluster tells.
func sharesAPool(t *testing.T, at *site, size string) {
	kafka := kafkatest.Embedded(t)
	a := newRig(t, kafka, options{name: "ads", topic: "ads", policy: "follow", min: 1, max: 3, step: 160 * time.Millisecond, site: at})
	b := newRig(t, kafka, options{name: "ctr", topic: "ctr", policy: job.PolicyStatic, min: 1, max: 3, step: 160 * time.Millisecond, with: a})
	a.pool("pool \"main\" {\n" + size + "  job \"ads\" {\n    priority = 10\n  }\n}\n")
	quiet := b.steadyTraffic(100)
	night := a.steadyTraffic(100) // one worker trains 400 records/s
	a.run()
	w := poolWatch{jobs: []*rig{a, b}, most: 4}
	w.await("ads has one worker, and ctr three", 1, 3)

	noon := a.steadyTraffic(900)
	w.await("ads has three, and ctr its guarantee", 3, 1)
	a.await("ctr's status says that it gets 1 of 3", func() string {
		v, err := b.view()
		if err != nil {
			return err.Error()
		}
		if p := v.Pool; p == nil || p.Pool != "main" || p.Size != 4 || p.Held != 4 || p.Goal != 1 || p.Short() != 2 {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	a.endTraffic(noon)
	w.await("ads has one again, and ctr three", 1, 3)

	a.endTraffic(night)
	b.endTraffic(quiet)
	w.end(300)
}

// pool has the jobs that the rig's scheduler runs share what a pool file says.
func (r *rig) pool(file string) {
	r.t.Helper()
	path := filepath.Join(r.dir, "pool.hcl")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.more = nil
	for _, other := range r.together {
		r.more = append(r.more, other.file)
	}
	r.more = append(r.more, "-pool", path)
}

// poolWatch follows two jobs that share a pool.
type poolWatch struct {
	jobs []*rig
	most int // workers, of all jobs
}

// await waits until each job trains in order with so many workers.
func (w *poolWatch) await(what string, workers ...int) {
	w.jobs[0].t.Helper()
	w.jobs[0].await(what, func() string {
		// The first is counted again after the others: what it gives back between two looks may run elsewhere at the second.
		first, held := w.jobs[0].workersLive(), 0
		for _, r := range w.jobs[1:] {
			held += r.workersLive()
		}
		held += min(first, w.jobs[0].workersLive())
		var missing error
		for i, r := range w.jobs {
			st, err := r.chief()
			if err != nil {
				missing = errors.Join(missing, err)
			} else if why := unsteady(st, workers[i]); why != "" {
				missing = errors.Join(missing, fmt.Errorf("%s: %s", r.name(), why))
			}
		}
		if held > w.most {
			w.jobs[0].fatalf("%d workers run, in a pool of %d", held, w.most)
		}
		if missing != nil {
			return missing.Error()
		}
		return ""
	})
}

// end stops the jobs, whose traffic has ended, once all of it is trained, and checks that each of so many records at least was trained once.
func (w *poolWatch) end(least int64) {
	first := w.jobs[0]
	first.t.Helper()
	for _, r := range w.jobs {
		r.awaitTrained("everything of " + r.name() + " is trained")
	}
	for _, r := range w.jobs[1:] {
		r.stop()
	}
	first.stop()
	first.gone()
	for _, r := range w.jobs {
		r.produced(nil)
		r.exact(least)
		for _, s := range records[core.Rescale](r, state.Rescales) {
			r.t.Logf("%s: %d → %d in %v: %s", r.name(), s.From, s.To, s.Done.Sub(s.Decided).Round(time.Millisecond), s.Reason)
		}
	}
}

// workersLive is how many workers of the job hold a place.
func (r *rig) workersLive() (n int) {
	for _, st := range r.list() {
		if st.ID.Role == backend.RoleWorker && st.State.Live() {
			n++
		}
	}
	return n
}
