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
)

// Two jobs share a pool of four slots. The one with priority gets busy: the other drains two workers for it and keeps its guarantee, and has them back
// when it is quiet again. Both train every record once, and at no time do more than four workers run.
func TestTwoJobsShareAPool(t *testing.T) {
	kafka := kafkatest.Embedded(t)
	a := newRig(t, kafka, options{name: "ads", topic: "ads", policy: "follow", min: 1, max: 3, step: 160 * time.Millisecond})
	b := newRig(t, kafka, options{name: "ctr", topic: "ctr", policy: job.PolicyStatic, min: 1, max: 3, step: 160 * time.Millisecond, with: a})
	file := filepath.Join(a.dir, "pool.hcl")
	pool := "pool \"main\" {\n  gpus = 4\n  job \"ads\" {\n    priority = 10\n  }\n}\n"
	if err := os.WriteFile(file, []byte(pool), 0o600); err != nil {
		t.Fatal(err)
	}
	a.more = []string{b.file, "-pool", file}
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
	a.awaitTrained("everything of ads is trained")
	b.awaitTrained("everything of ctr is trained")
	b.stop()
	a.stop()
	a.gone()
	for _, r := range []*rig{a, b} {
		r.produced(nil)
		r.exact(300)
		for _, s := range records[core.Rescale](r, state.Rescales) {
			t.Logf("%s: %d → %d in %v: %s", r.name(), s.From, s.To, s.Done.Sub(s.Decided).Round(time.Millisecond), s.Reason)
		}
	}
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

// workersLive is how many workers of the job hold a place.
func (r *rig) workersLive() (n int) {
	for _, st := range r.list() {
		if st.ID.Role == backend.RoleWorker && st.State.Live() {
			n++
		}
	}
	return n
}
