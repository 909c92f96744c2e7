package core

import (
	"errors"
	"os"
	"testing"

	"github.com/kale-sched/kale/core/job"
)

// An order that a person gave holds for the scheduler that takes the job over, with a state folder of its own, and an older one does not come back with the one before.
func TestOrderIsKeptOverATakeOver(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := os.MkdirAll(CheckpointFolder(r.job), 0o700); err != nil {
		t.Fatal(err)
	}
	order := func(s *Scheduler, o Order) {
		t.Helper()
		if err := s.obey(t.Context(), command{Order: o}); err != nil {
			t.Fatal(err)
		}
	}
	// takeOver is a scheduler with another state folder that takes the job.
	takeOver := func(dir string) *Scheduler {
		t.Helper()
		o := r.options("run")
		o.StateDir = dir
		var err error
		if o.Lease, err = TakeLease(silentLog, r.job, dir, true); err != nil {
			t.Fatal(err)
		}
		s, diags, err := Open(t.Context(), o)
		if err != nil || diags.HasErrors() {
			t.Fatal(diags, err)
		}
		return s
	}
	pinned := func(who string, s *Scheduler, want int) {
		t.Helper()
		if m := s.want.Manual; m.Pinned != (want > 0) || m.Target != want {
			t.Errorf("%s is told %+v, want a number of %d", who, m, want)
		}
	}
	order(r.s, Order{Kind: "scale", Target: 4})
	first, other := r.state, t.TempDir()
	second := takeOver(other)
	pinned("the second", second, 4)
	order(second, Order{Kind: "auto"})
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	r.s.missed.end()
	r.s.endChange()
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	again := takeOver(first)
	pinned("the first, when it is back", again, 0)
	order(again, Order{Kind: "scale", Target: 3})
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	// Whose state was lost keeps to it too; a number beyond the job file's, or a file that says nothing, counts for nothing.
	lost := takeOver(t.TempDir())
	pinned("one without a state", lost, 3)
	if err := lost.Close(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`{"pinned":true,"target":900}`, `{"pinned":`} {
		if err := os.WriteFile(orderPath(r.job), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		s := takeOver(t.TempDir())
		pinned("one that reads "+bad, s, 0)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// When a job has stopped, its next scheduler is under no order but its own.
func TestOrderEndsWithTheJob(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := os.MkdirAll(CheckpointFolder(r.job), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 4}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(orderPath(r.job)); err != nil {
		t.Fatal(err)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop"}}); err != nil {
		t.Fatal(err)
	}
	r.until("it has stopped", func() error {
		if !r.s.want.Stopped {
			return errors.New("it is stopping")
		}
		return nil
	})
	if _, err := os.Stat(orderPath(r.job)); !os.IsNotExist(err) {
		t.Errorf("the order is still there: %v", err)
	}
	if !r.s.want.Manual.Pinned {
		t.Error("the scheduler's own state has forgotten it: kale run goes on with the number that was ordered")
	}
}

// A scheduler that only observes leaves the order of the one that has the job alone.
func TestObserverKeepsNoOrder(t *testing.T) {
	r := newRig(t, rigOptions{mode: job.ModeObserve})
	if err := os.MkdirAll(CheckpointFolder(r.job), 0o700); err != nil {
		t.Fatal(err)
	}
	const order = `{"pinned":true,"target":4}`
	if err := os.WriteFile(orderPath(r.job), []byte(order), 0o600); err != nil {
		t.Fatal(err)
	}
	r.beats(3)
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "auto"}}); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(orderPath(r.job)); err != nil || string(raw) != order {
		t.Errorf("the order is %s now (%v)", raw, err)
	}
}
