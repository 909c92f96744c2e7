package main

import (
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
)

// A run's lines are news only: one for each change, none while nothing changes.
func TestEvents(t *testing.T) {
	t0 := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	lag, rate := 1.5, 800.0
	var out buffer
	e := &events{out: &out, since: t0, problems: map[string]string{}}
	change := func(kind plan.Kind, s, from, to int, why string) *core.Record {
		return &core.Record{Decision: plan.Decision{At: at(s), Kind: kind, Current: from, Target: to, Reason: why}}
	}
	v := core.View{Now: at(1), Min: 1, Max: 6, Trained: 10, Sample: core.Sample{Target: 2, Running: 1, Lag: &lag, Rate: &rate, Trained: 700}}
	v.LastChange = change(plan.KindIn, -60, 3, 2, "of an earlier run: no news")
	old := core.Rescale{From: 3, To: 2, Decided: at(-60), Done: at(-50)}
	show := func(change func(), done ...core.Rescale) string {
		before := len(out.String())
		change()
		v.Now = v.Now.Add(time.Second)
		e.take(&v, append([]core.Rescale{old}, done...))
		return out.String()[before:]
	}
	grown := core.Rescale{Kind: plan.KindOut, From: 2, To: 4, Decided: at(10), Done: at(12), Gap: 30 * time.Millisecond, GapKnown: true}

	for i, tt := range []struct {
		name   string
		change func()
		done   []core.Rescale
		want   string // without the time
	}{
		{"first view", func() {}, nil, "start     1 worker of 1–6 train (target 2), lag 1.5s, 800 records/s arrive, 700 trained\n"},
		{"nothing new", func() {}, nil, ""},
		{"a hold", func() { v.Decision = change(plan.KindHold, 5, 2, 2, "cooldown") }, nil, ""},
		{"a decision", func() { v.LastChange = change(plan.KindOut, 10, 2, 4, "the plan needs 4") }, nil, "scale out 2 → 4: the plan needs 4\n"},
		{"the same decision", func() {}, nil, ""},
		{"its end", func() {}, []core.Rescale{grown}, "rescaled  2 → 4 in 2s; the longest wait of a partition was 30ms above the usual\n"},
		{"the same end", func() {}, []core.Rescale{grown}, ""},
		{"a problem", func() { v.Problems = []string{"partition 3: stuck at 17"} }, nil, "problem   partition 3: stuck at 17\n"},
		{"its numbers change", func() { v.Problems = []string{"partition 3: stuck at 18"} }, nil, ""},
		{"it is gone", func() { v.Problems = nil }, nil, "resolved  partition 3: stuck at 17\n"},
		{"an order", func() { v.Manual = plan.Manual{Pinned: true, Target: 5} }, nil, "order     5 workers until scale auto\n"},
		{"observed only", func() {
			v.LastChange = change(plan.KindIn, 20, 4, 3, "less traffic")
			v.LastChange.ObserveOnly = true
		}, nil, "scale in  4 → 3: less traffic (observed only)\n"},
		{"a stop", func() { v.Stopping, v.Problems = true, []string{"the chief does not answer"} }, nil, "stopping  workers drain, then a last snapshot is written\n"},
		{"stopped", func() { v.Stopped, v.Trained = true, 0 }, nil, "stopped   nothing of the job runs any more; 10 records are trained\n"},
		{"still stopped", func() {}, nil, ""},
	} {
		got := show(tt.change, tt.done...)
		if got != "" {
			_, got, _ = strings.Cut(got, "  ")
		}
		if got != tt.want {
			t.Errorf("step %d, %s: %q, want %q", i, tt.name, got, tt.want)
		}
	}
}

func TestWriteStatus(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	auc, lag, rate := 0.71234, 1.5, 812.3
	v := &core.View{
		Job: "ctr", Mode: "live", Now: now, Started: now.Add(-time.Hour), MaxLag: 20 * time.Minute, Min: 1, Max: 6, Model: "async θ=(0.00125, 0, 0)",
		Sample: core.Sample{Rate: &rate, Trained: 790, Lag: &lag, LagRecords: 1234, Target: 3, Running: 2, Pending: 1, Capacity: 1600, Busy: 0.84,
			Forecast: &core.Band{Mean: 900, Lower: 850, Upper: 950}},
		Forecast: plan.Forecast{Source: "seasonal", Trusted: true}, Trained: 123456, AUC: &auc, Dead: 2, Emulated: true,
		Workers:  []core.WorkerView{{ID: "worker-0-g1", Backend: "running", Member: "ready", Partitions: []int32{0, 1, 2}, Rate: 400, Busy: 0.8, Node: "a"}},
		Servers:  []core.ServerView{{ID: "ps-0-g1", Backend: "running", Up: true, Rows: 5000, LastSnapshot: now.Add(-9 * time.Second)}},
		Problems: []string{"partition 3: stuck"},
	}
	var out buffer
	if err := writeStatus(&out, v); err != nil {
		t.Fatal(err)
	}
	golden(t, "status", out.String())
	// What is unknown is said so, and never shown as zero.
	out = buffer{}
	if err := writeStatus(&out, &core.View{Job: "ctr", Mode: "live", Now: now, Started: now, MaxLag: time.Minute, Sample: core.Sample{Unknown: "the chief does not answer"}}); err != nil {
		t.Fatal(err)
	}
	golden(t, "status_unknown", out.String())
}
