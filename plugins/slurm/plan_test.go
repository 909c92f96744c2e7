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
