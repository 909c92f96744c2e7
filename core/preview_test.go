package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
)

// What a scheduler replaces while a plan asks around, as it does all the time where walltimes are short, is neither asked for again nor counted twice.
func TestPlanCatchesUpWithReplacements(t *testing.T) {
	runs := func(ids ...backend.ID) (list []backend.Status) {
		for _, id := range ids {
			list = append(list, backend.Status{ID: id, State: backend.StateRunning})
		}
		return list
	}
	ended := func(id backend.ID) backend.Status { return backend.Status{ID: id, State: backend.StateExited} }
	said := func() *desired {
		d := newDesired("")
		d.Target, d.Ranks = 2, []int{0, 3}
		d.Workers, d.Servers = map[int]uint64{0: 1, 1: 2, 3: 1}, map[int]uint64{0: 2, 1: 1}
		d.Renewals = []renewal{{Rank: 3, Generation: 1, Successor: 1}}
		return d
	}
	type state struct {
		Ranks            []int
		Workers          map[int]uint64
		Servers          map[int]uint64
		Renewals, Target int
	}
	before := state{[]int{0, 3}, map[int]uint64{0: 1, 1: 2, 3: 1}, map[int]uint64{0: 2, 1: 1}, 1, 2}
	with := func(change func(*state)) state {
		s := state{before.Ranks, map[int]uint64{0: 1, 1: 2, 3: 1}, map[int]uint64{0: 2, 1: 1}, 1, 2}
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		list []backend.Status
		more func(*desired)
		want state
	}{
		"nothing was replaced":            {list: runs(server(0, 2), server(1, 1), worker(0, 1), worker(3, 1)), want: before},
		"a successor that is not ready":   {list: runs(server(0, 2), server(1, 1), worker(0, 1), worker(3, 1), worker(1, 2)), want: before},
		"a server":                        {list: append(runs(server(0, 2), server(1, 2), worker(0, 1), worker(3, 1)), ended(server(1, 1))), want: with(func(s *state) { s.Servers[1] = 2 })},
		"a server whose successor waits":  {list: append(runs(server(0, 2), server(1, 1), worker(0, 1), worker(3, 1)), backend.Status{ID: server(1, 2), State: backend.StateStarting, Beside: true}), want: before},
		"a worker gave way":               {list: append(runs(server(0, 2), server(1, 1), worker(0, 1), worker(1, 2)), ended(worker(3, 1))), want: with(func(s *state) { s.Ranks, s.Renewals = []int{0, 1}, 0 })},
		"one is giving way":               {list: append(runs(server(0, 2), server(1, 1), worker(0, 1), worker(1, 2)), backend.Status{ID: worker(3, 1), State: backend.StateStopping}), want: with(func(s *state) { s.Ranks, s.Renewals = []int{0, 1}, 0 })},
		"one gave way under its own rank": {list: append(runs(server(0, 2), server(1, 1), worker(0, 2), worker(3, 1)), ended(worker(0, 1))), want: with(func(s *state) { s.Workers[0] = 2 })},
		"a renewal that began since":      {list: runs(server(0, 2), server(1, 1), worker(2, 1), worker(3, 1)), want: with(func(s *state) { s.Ranks, s.Workers[2] = []int{2, 3}, 1 })},
		"one that leaves takes no place": {list: runs(server(0, 2), server(1, 1), worker(0, 1), worker(1, 2)), more: func(d *desired) {
			d.Draining, d.Renewals = []leaving{{Rank: 1, Generation: 2}}, nil
		}, want: with(func(s *state) { s.Renewals = 0 })},
		"nothing lives": {list: []backend.Status{ended(server(0, 2)), ended(worker(0, 1))}, want: before},
	} {
		d := said()
		if c.more != nil {
			c.more(d)
		}
		d.catchUp(c.list)
		if diff := cmp.Diff(c.want, state{d.Ranks, d.Workers, d.Servers, len(d.Renewals), d.Target}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A plan of a job whose processes were replaced while it asked around wants nothing started.
func TestPlanInTheMidstOfARenewal(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	raw := *r.s.want
	o := r.options("run")
	o.Wanted = &Wanted{}
	if err := (*desired)(o.Wanted).copy((*Wanted)(&raw)); err != nil {
		t.Fatal(err)
	}
	for rank := range o.Wanted.Workers { // as it was said before worker 1 and server 1 were renewed
		r.s.want.Workers[rank]++
	}
	r.s.want.Servers[1]++
	r.beats(4)
	r.now = r.now.Add(time.Second)
	p, diags, err := NewPreview(t.Context(), o)
	if err != nil || diags.HasErrors() {
		t.Fatal(err, diags)
	}
	if len(p.Report.Placements) > 0 || !p.Locked {
		t.Errorf("it would start %+v (beside a scheduler: %v)", p.Report.Placements, p.Locked)
	}
}

// Without the scheduler's state a plan wants the generations that a run would start, which the backend knows: not those that were released.
func TestPlanWithLostState(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("stop", 0)
	r.stops()
	r.chief.stop()
	o := r.options("run")
	o.StateDir = t.TempDir()
	p, diags, err := NewPreview(t.Context(), o)
	if err != nil || diags.HasErrors() {
		t.Fatal(err, diags)
	}
	if !p.Report.Fits() || len(p.Report.Placements) != len(p.Workloads) || len(p.Workloads) < 3 {
		t.Fatalf("of %d it would start %+v", len(p.Workloads), p.Report)
	}
	for i, w := range p.Workloads {
		if placed := p.Report.Placements[i].ID; w.ID.Generation != 2 || placed != w.ID {
			t.Errorf("wants %s and would start %s; want generation 2", w.ID, placed)
		}
	}
}
