package demo

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
)

func good() Summary {
	return Summary{
		Produced: 100, Trained: 100, ViolationPct: 0.5, MaxLagS: 2, ScaleOuts: 3, ScaleOutsAhead: 2, ScaleIns: 2, RescaleGapMaxMS: 500,
		GPUHours: 0.75, GPUHoursStaticMax: 1, AUC: 0.8, AUCStale: 0.79,
	}
}

// Each promise can be broken, alone.
func TestPromisesCanBeBroken(t *testing.T) {
	for _, p := range good().Promises() {
		if !p.Kept {
			t.Errorf("broken at its limit: %s", p.Name)
		}
	}
	for what, breakIt := range map[string]func(*Summary){
		"Every record": func(s *Summary) { s.Lost = 1 },
		"record":       func(s *Summary) { s.Repeated = 1 },
		"trained once": func(s *Summary) { s.Mismatch = "tablet 3" },
		"Lag over":     func(s *Summary) { s.ViolationPct = 0.51 },
		"ahead":        func(s *Summary) { s.ScaleOutsAhead = 1 },
		"Scale-ins":    func(s *Summary) { s.ScaleIns = 1 },
		"gap":          func(s *Summary) { s.RescaleGapMaxMS = 501 },
		"GPU-hours":    func(s *Summary) { s.GPUHours = 0.76 },
		"AUC":          func(s *Summary) { s.AUCStale = 0.7901 },
	} {
		s := good()
		breakIt(&s)
		var broken []string
		for _, p := range s.Promises() {
			if !p.Kept {
				broken = append(broken, p.Name)
			}
		}
		if len(broken) != 1 || !strings.Contains(broken[0], what) {
			t.Errorf("%q: broken %q", what, broken)
		}
	}
}

func TestSinceSubtractsWhatWasBefore(t *testing.T) {
	now := &rpc.Validation{Positive: []uint64{5, 7}, Negative: []uint64{9, 1}}
	before := &rpc.Validation{Positive: []uint64{2}, Negative: []uint64{4, 1}}
	got := since(now, before)
	if diff := cmp.Diff([]uint64{3, 7}, got.GetPositive()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]uint64{5, 0}, got.GetNegative()); diff != "" {
		t.Error(diff)
	}
	if now.GetPositive()[0] != 5 {
		t.Error("the argument was changed")
	}
}
