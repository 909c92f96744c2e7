package core

import (
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/pool"
	"github.com/kale-sched/kale/estimator"
)

// Jobs whose schedulers run, and move a worker from one to the other while they are looked at, do not hold it both.
func TestPreviewsCountNoGPUTwice(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 1)
	b.order("scale", 3)
	p.until("a has 1 and b has 3", 1, 3)
	said := map[*rig]*Wanted{}
	tells := func(r *rig) {
		d := newDesired("")
		if err := d.copy((*Wanted)(r.s.want)); err != nil {
			t.Fatal(err)
		}
		said[r] = (*Wanted)(d)
	}
	tells(b) // and then
	a.order("scale", 3)
	p.until("a has 3 and b has 1", 3, 1)
	tells(a)
	var all []Options
	shared := NewPool(p.rules)
	for _, r := range []*rig{b, a} {
		r.pool = shared
		o := r.options("run")
		o.Wanted = said[r]
		all = append(all, o)
	}
	ps, _, err := NewPreviews(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range ps {
		if !v.Locked || v.Record.Pool.Held != 4 || !strings.Contains(v.Record.Pool.String(), "4 of 4 GPUs in use") {
			t.Errorf("locked %v, held %d: %s", v.Locked, v.Record.Pool.Held, v.Record.Pool)
		}
	}
}

// Where more is held than there is, as of a pool that has become smaller, the words say how much there is.
func TestMoreHeldThanThereIs(t *testing.T) {
	s := PoolShare{Pool: "main", Size: 7, Held: 8, Why: "asks for 3"}
	s.Job.Name = "a"
	if got, want := s.String(), `"main", all of 7 GPUs in use, and 1 to be given back: a asks for 3`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What a job has asked its pool for is kept with what it wants.
func TestWhatWasAskedSurvivesARestart(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 1)
	b.order("scale", 3)
	p.until("a has 1 and b has 3", 1, 3)
	was := b.s.want.PoolAsked
	if was.Firm != 3 && was.Least != 3 || was.Had == 0 {
		t.Fatalf("b remembers %+v", was)
	}
	p.reopen()
	if got := b.s.want.PoolAsked; got.Firm != was.Firm || got.Had != was.Had || !got.At.Equal(was.At) || !got.Since.Equal(was.Since) {
		t.Errorf("after a restart b remembers %+v, before %+v", got, was)
	}
}

// What a person or the job file fixes follows no traffic, and so is no whim; nor does a job count as late whose lag is not known.
func TestCalmlyIsOfWhatFollowsTraffic(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	past := plan.Series{Start: now.Add(-200 * time.Minute), Step: time.Minute}
	for i := range 200 {
		past.Values = append(past.Values, []float64{400, 1600}[i%2])
	}
	o := plan.Observation{
		Now: now, Interval: time.Minute, Target: 3, Workers: plan.Workers{Running: 3}, Servers: 1, Limits: plan.Limits{Min: 1, Max: 6}, MaxLag: time.Minute, Lag: 2 * time.Minute, LagKnown: true,
		Tau: time.Minute, Model: estimator.Model{Form: estimator.FormAsync, Theta: []float64{1. / 600, 0, 0}}, JoinTime: plan.Measured{Value: time.Minute, Samples: 3},
	}
	var j pool.Job
	if Calmly(&j, o, plan.Decision{Policy: "cost", Source: "reactive"}, past, 2*time.Minute); j.Calm != 2 || j.CalmMost < 2 || !j.Late {
		t.Errorf("a job whose traffic jumps around 1,000 records/s: %+v", j)
	}
	pinned := o
	pinned.Manual.Pinned, pinned.LagKnown = true, false
	for _, c := range []struct {
		o plan.Observation
		d plan.Decision
	}{{pinned, plan.Decision{Policy: "cost", Source: "reactive"}}, {o, plan.Decision{Policy: "cost", Source: "manual"}}, {o, plan.Decision{Policy: job.PolicyStatic, Source: "static"}}} {
		j := pool.Job{Calm: 9, CalmMost: 9, Late: true}
		if Calmly(&j, c.o, c.d, past, 2*time.Minute); j.Calm != 0 || j.CalmMost != 0 || j.Late != c.o.LagKnown {
			t.Errorf("%+v: %+v", c.d, j)
		}
	}
}
