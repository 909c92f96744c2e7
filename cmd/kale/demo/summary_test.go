package demo

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/forecast"
)

func good() Summary {
	return Summary{
		Produced: 100, Trained: 100, ViolationPct: 0.5, SLOMaxLagS: 2, ScaleOuts: 3, ScaleOutsAhead: 2, ScaleIns: 2, RescaleGapMaxMS: 500,
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
		"Longest gap":  func(s *Summary) { s.RescaleGapsUnknown = 1 },
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
		if j := s.judged(1); j.PromisesKept || j.RC != 1 || len(j.Missed) != 1 {
			t.Errorf("%q: verdict %v, missed %q, rc %d", what, j.PromisesKept, j.Missed, j.RC)
		}
	}
	if j := good().judged(1); !j.PromisesKept || j.RC != 0 || j.Missed == nil || len(j.Missed) != 0 {
		t.Errorf("all kept: verdict %v, missed %q, rc %d", j.PromisesKept, j.Missed, j.RC)
	}
}

// Every missed promise is named as the summary's object names it, and the verdict reads like the exit code.
func TestVerdictNamesFieldsOfTheSummary(t *testing.T) {
	raw, err := json.Marshal(good().judged(1))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for _, p := range good().Promises() {
		if _, ok := fields[p.Key]; !ok {
			t.Errorf("promise %q has the key %q, which the summary has not", p.Name, p.Key)
		}
	}
	for _, key := range []string{ // what scripts read
		"produced", "trained", "lost", "repeated", "violation_pct", "lag_p50_s", "lag_p99_s", "lag_max_s", "slo_max_lag_s", "scale_outs", "scale_outs_ahead", "scale_ins",
		"rescale_gap_max_ms", "rescale_gaps_unknown", "gpu_hours", "gpu_hours_static_max", "gpu_busy_pct", "auc", "auc_stale", "report", "promises_kept", "missed", "rc",
	} {
		if _, ok := fields[key]; !ok {
			t.Errorf("the summary has no %q", key)
		}
	}
}

// Only what was decided in the day and not replaced counts; what the screen showed besides is told apart.
func TestOnlyTheDaysRescalesCount(t *testing.T) {
	st, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	begin := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for _, r := range []core.Rescale{
		{Kind: plan.KindOut, From: 0, To: 3, Decided: begin.Add(-20 * time.Second)},
		{Kind: plan.KindIn, From: 3, To: 1, Decided: begin.Add(-10 * time.Second), Gap: time.Hour, GapKnown: true},
		{Kind: plan.KindOut, From: 1, To: 2, Decided: begin.Add(time.Second), Aborted: true, Gap: 30 * time.Millisecond, GapKnown: true},
		{Kind: plan.KindOut, From: 2, To: 4, Decided: begin.Add(2 * time.Second), Gap: 20 * time.Millisecond, GapKnown: true},
		{Kind: plan.KindIn, From: 4, To: 3, Decided: begin.Add(50 * time.Second), Gap: time.Hour},
		{Kind: plan.KindIn, From: 3, To: 2, Decided: begin.Add(121 * time.Second)},
	} {
		if err := st.Append(state.Rescales, r.Decided.Add(time.Second), r); err != nil {
			t.Fatal(err)
		}
	}
	d := &demo{written: begin.Add(-leadIn), begin: begin, end: begin.Add(day), job: &job.Job{}}
	var s Summary
	if err := d.fromRescales(st, &audit.Entries{}, &s); err != nil {
		t.Fatal(err)
	}
	want := Summary{ScaleOuts: 1, ScaleIns: 1, RescalesOutside: 2, RescaleGapMaxMS: 30, RescaleGapsUnknown: 1}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What the demo says of the trained model agrees with what the gate will do with it.
func TestHeldSaysWhatTheGateDoes(t *testing.T) {
	for _, c := range []struct {
		model, seasonal float64
		want            string
	}{
		{0.019, 0.023, "the gate lets the model forecast"}, {0.024, 0.020, "no difference that would move a worker"}, {0.2, 0.1, "fall back to the seasonal forecaster"},
	} {
		got, err := held(c.model, c.seasonal, forecast.GateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("model %v, seasonal %v: %q", c.model, c.seasonal, got)
		}
	}
	if _, err := held(0.1, 0.1, forecast.GateOptions{Tolerance: -1}); err == nil {
		t.Error("a tolerance of -1 was accepted")
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
