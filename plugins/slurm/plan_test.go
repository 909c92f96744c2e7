package slurm

import (
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// What is on the nodes to avoid is free for nobody who is to avoid them.
func TestPlanKeepsOffNodes(t *testing.T) {
	s := newSite(t, "")
	plan := func(n int) backend.Report {
		var ws []backend.Workload
		for rank := range n {
			w := s.gpuWorkload(worker(rank, 1), conformance.Steady, 1)
			w.Avoid = []string{slurmtest.Node(2)}
			ws = append(ws, w)
		}
		report, err := s.b.Plan(t.Context(), s.job, ws)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	two := plan(2)
	if !two.Fits() || slices.ContainsFunc(two.Placements, func(p backend.Placement) bool { return p.Node != slurmtest.Node(1) }) {
		t.Errorf("of two: %+v", two)
	}
	if three := plan(3); three.Fits() || three.Shortage != "needs 3 GPUs, 2 free" {
		t.Errorf("of three: %+v", three)
	}
}

// What is free, and is for what waits in the queue already, is said: a status counts it, and whoever has read that asks why a plan does not.
func TestPlanSaysWhatIsForThoseThatWait(t *testing.T) {
	set, need := settings{}, backend.Resources{GPUs: 2}
	nodes := []node{{name: "n1", state: "IDLE", cpus: 8, gpus: []gpu{{index: 0}, {index: 1}}}}
	j := &job{name: "ctr", set: set}
	queued := view{inQueue: true, row: row{state: "PENDING"}, record: record{Resources: need}}
	r := captured{nodes: nodes, views: map[*job][]view{j: {queued, queued}}}.room(j)
	says := func(views map[*job][]view, want string) {
		t.Helper()
		if says := (captured{nodes: nodes, views: views}).room(j).lacks(set, backend.Resources{GPUs: 1}); says != "needs 1 GPU, 0 free ("+want+")" {
			t.Errorf("says %q, want %q", says, want)
		}
	}
	says(map[*job][]view{j: {queued, queued}}, "2 more are free, and for the job's own processes that wait already")
	says(map[*job][]view{{name: "ads", set: set}: {queued}}, "2 more are free, and for other jobs' processes that wait already")
	queued.record.Resources.GPUs = 1
	says(map[*job][]view{j: {queued}, {name: "ads", set: set}: {queued}}, "2 more are free, and for what waits already: 1 for the job's own processes, 1 for other jobs'")
	if r.waiting != 1 {
		t.Errorf("%d that do not fit wait, want 1: of two that need both GPUs", r.waiting)
	}
}
