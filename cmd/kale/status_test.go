package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/pool"
)

func TestWriteStatus(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	auc, lag, rate := 0.71234, 1.5, 812.3
	v := &core.View{
		Job: "ctr", State: core.StateRunning, Waits: "worker-2-g1 to join", Mode: "live", Now: now, Started: now.Add(-time.Hour), MaxLag: 20 * time.Minute, Min: 1, Max: 6, Model: "async θ=(0.00125, 0, 0)", ModelBasis: plan.Basis{Prior: "a profile on one T4"},
		Sample: core.Sample{Rate: &rate, Trained: 790, Lag: &lag, LagRecords: 1234, Target: 3, Running: 2, Pending: 1, Capacity: 1600, Busy: 0.84,
			Forecast: &core.Band{Mean: 900, Lower: 850, Upper: 950}},
		Forecast: plan.Forecast{Source: "seasonal", Trusted: true}, Trained: new(uint64(123456)), AUC: &auc, Dead: 2, Emulated: true,
		Workers:  []core.WorkerView{{ID: "worker-0-g1", Backend: "running", Member: "ready", Partitions: []int32{0, 1, 2}, Rate: 400, Busy: 0.8, Node: "a"}},
		Servers:  []core.ServerView{{ID: "ps-0-g1", Backend: "running", Up: true, Known: true, Rows: 5000, LastSnapshot: now.Add(-9 * time.Second)}},
		Problems: []string{"partition 3: stuck"},
		Pool: &core.PoolShare{Pool: "main", Size: 4, Held: 4, Share: pool.Share{Job: pool.Job{Name: "ctr", Ask: 3, Staying: 3, Guarantee: 1}, Goal: 1, Gives: 2},
			Why: "asks for 3, is guaranteed 1, holds 3; gets 1 of the pool's 4, beside ads of higher priority; gives 2 back for ads (priority 10)"},
	}
	var out buffer
	if err := writeStatus(&out, v); err != nil {
		t.Fatal(err)
	}
	golden(t, "status", out.String())
	// What is unknown is said so, and never shown as zero.
	out = buffer{}
	if err := writeStatus(&out, &core.View{Job: "ctr", Mode: "live", Now: now, Started: now, MaxLag: time.Minute, State: core.StateUnknown, Sample: core.Sample{Unknown: "the chief does not answer"},
		Servers: []core.ServerView{{ID: "ps-0-g1", Backend: "running"}}}); err != nil {
		t.Fatal(err)
	}
	golden(t, "status_unknown", out.String())
}

// On a narrow terminal the rows of a table go on under their second column, words whole; the table of processes below is left as it is.
func TestFit(t *testing.T) {
	table := "job          ctr, live\nlast change  06:00:00  scale out 1 → 2: " + strings.Repeat("because of this and that ", 6) + "\nproblem      short\n\nPROCESS  ALLOCATION  " + strings.Repeat("WIDE ", 20) + "\n"
	for _, width := range []int{40, 60, 100} {
		got := fit(table, width)
		head, rest, _ := strings.Cut(got, "\n\n")
		for i, line := range strings.Split(head, "\n") {
			if n := utf8.RuneCountInString(line); n > width || i > 1 && !strings.HasPrefix(line, "             ") && !strings.HasPrefix(line, "problem") {
				t.Errorf("%d columns: %q", width, line)
			}
		}
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(table), " ") || !strings.HasSuffix(table, rest) {
			t.Errorf("%d columns: words were lost: %q", width, got)
		}
	}
	if got := fit(table, 0); got != table {
		t.Errorf("where there is no terminal: %q", got)
	}
}

// The line of a job in the list says what its pool gives it, where that is not what it asks for.
func TestThePoolShowsInTheList(t *testing.T) {
	v := &core.View{Min: 1, Max: 4, Sample: core.Sample{Running: 1, Target: 1}, Pool: &core.PoolShare{Pool: "main", Share: pool.Share{Job: pool.Job{Ask: 3, Limit: 4}, Goal: 1}}}
	if got, want := headline(v), "1 worker of 1–4 train, lag unknown, 0.0 trained, gets 1 of 3 from pool main"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	v.Pool.Goal = 3
	if got, want := headline(v), "1 worker of 1–4 train, lag unknown, 0.0 trained, pool main"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// While a job is paused, nobody is said to train.
func TestPausedTrainsNothing(t *testing.T) {
	v := &core.View{Job: "ctr", State: core.StatePaused, Min: 1, Max: 4, Manual: plan.Manual{Paused: true}, Sample: core.Sample{Running: 3, Target: 3, Trained: 126}}
	if got, want := headline(v), "3 workers of 1–4 ready, paused, lag unknown"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var b strings.Builder
	if err := writeStatus(&b, v); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "126") || !strings.Contains(text, "none are trained") || !strings.Contains(text, "3 ready of 3 wanted") {
		t.Errorf("status:\n%s", text)
	}
}

// A picture that is not of this moment says how old it is, and a long reason is told once.
func TestStatusTellsItsAgeAndNothingTwice(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	why := strings.Repeat("its error was larger than that of the seasonal forecaster, ", 3)
	r := &core.Record{Decision: plan.Decision{At: now, Reason: "hold: the forecast is not trusted: " + why}}
	v := &core.View{Job: "ctr", Now: now, Sample: core.Sample{At: now.Add(-4 * time.Second)}, Forecast: plan.Forecast{Reason: why}, Decision: r, LastChange: r}
	var b strings.Builder
	if err := writeStatus(&b, v); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Count(text, why) != 1 || !strings.Contains(text, "seen         4s ago") {
		t.Errorf("status:\n%s", text)
	}
	v.Sample.At = now
	b.Reset()
	if err := writeStatus(&b, v); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "ago:") {
		t.Errorf("status of now:\n%s", text)
	}
}

// The line of a job in the list says that there is more to read.
func TestProblemsShowInTheList(t *testing.T) {
	for _, c := range []struct {
		problems []string
		want     string
	}{
		{nil, "2 workers train"},
		{[]string{"a"}, "2 workers train; 1 problem"},
		{[]string{"a", "b"}, "2 workers train; 2 problems"},
	} {
		if got := withProblems("2 workers train", c.problems); got != c.want {
			t.Errorf("with %q: %q, want %q", c.problems, got, c.want)
		}
	}
}
