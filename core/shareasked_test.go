package core

import (
	"strings"
	"testing"
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
