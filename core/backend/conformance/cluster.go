package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// askFor is the deadline of a question to a cluster that does not answer. That it passes is certain; how long after it the answer may come is patience.
const askFor = 300 * time.Millisecond

// returns runs a call that has askFor for its answer, and fails when it does not honour that.
func returns[T any](s *suite, what string, call func(context.Context) T) T {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, askFor)
	defer cancel()
	answer := make(chan T, 1)
	go func() { answer <- call(ctx) }()
	select {
	case got := <-answer:
		return got
	case <-time.After(patience):
		s.Fatalf("%s with a deadline of %v, on a cluster that does not answer, has not returned after %v", what, askFor, patience)
		panic("unreachable")
	}
}

// hanging holds the backend to its contexts and to "unknown is never zero" while its cluster answers nothing. What was asked for meanwhile may or may not
// come about; asked for again, it is there once.
func (s *suite) hanging() {
	if s.Stall == nil {
		s.Skip("the harness has no Stall: what a cluster that hangs does is not tried")
	}
	pids := s.stand()
	newcomer := s.workload(worker(2, 1), Steady)
	heal := s.Stall(s.T)
	healed := false
	defer func() {
		if !healed {
			heal()
		}
	}()
	if why := returns(s, "List", func(ctx context.Context) string {
		statuses, complete, err := s.b.List(ctx, s.job)
		switch {
		case err == nil && complete && len(statuses) != len(pids):
			return fmt.Sprintf("it says that %v is all there is", statuses)
		case err == nil && !complete && !slices.ContainsFunc(statuses, func(st backend.Status) bool { return st.Err != nil }):
			return fmt.Sprintf("it says of none of %+v why it could not look everywhere", statuses)
		case err != nil && complete:
			return fmt.Sprintf("it failed (%v) and says that it is complete", err)
		case err != nil && backend.CodeOf(err) != backend.Unavailable:
			return fmt.Sprintf("%v; want code %q", err, backend.Unavailable)
		}
		return ""
	}); why != "" {
		s.Errorf("List while the cluster does not answer: %s", why)
	}
	if err := returns(s, "Ensure", func(ctx context.Context) error {
		statuses, err := s.b.Ensure(ctx, s.job, []backend.Workload{newcomer})
		if err == nil && statuses[0].Err != nil {
			err = statuses[0].Err
		}
		return err
	}); err == nil || backend.CodeOf(err) != backend.Unavailable {
		s.Errorf("Ensure while the cluster does not answer: %v; want code %q", err, backend.Unavailable)
	}
	if err := returns(s, "Release", func(ctx context.Context) error {
		return s.b.Release(ctx, s.job, []backend.ID{worker(1, 1)}, backend.Forced)
	}); err != nil && backend.CodeOf(err) != backend.Unavailable {
		s.Errorf("Release while the cluster does not answer: %v; want code %q", err, backend.Unavailable)
	}
	heal()
	healed = true
	s.answersAgain()
	s.ensure(newcomer)
	s.waitFor(newcomer.ID, backend.StateRunning)
	s.waitStarts(newcomer.ID, 1)
	if err := s.b.Release(s.ctx, s.job, []backend.ID{worker(1, 1)}, backend.Forced); err != nil {
		s.Fatalf("Release, again: %v", err)
	}
	s.waitGone(worker(1, 1))
	if st := s.waitFor(worker(0, 1), backend.StateRunning); st.PID != pids[0] {
		s.Errorf("the cluster's silence moved %s from pid %d to %d", st.ID, pids[0], st.PID)
	}
	s.waitStarts(worker(0, 1), 1)
}

// slow asks while the cluster does not answer yet. It does later, in time for the caller, who gets what he asked for, once.
func (s *suite) slow() {
	if s.Stall == nil {
		s.Skip("the harness has no Stall: what a slow cluster does is not tried")
	}
	id := worker(0, 1)
	heal := s.Stall(s.T)
	answered := make(chan error, 1)
	go func() {
		statuses, err := s.b.Ensure(s.ctx, s.job, []backend.Workload{s.workload(id, Steady)})
		if err == nil && statuses[0].Err != nil {
			err = statuses[0].Err
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		s.Errorf("Ensure, on a cluster that does not answer yet, and with time to wait: %v", err)
		answered <- nil
	case <-time.After(askFor): // the call is on its way, or will be: either is right
	}
	heal()
	select {
	case err := <-answered:
		if err != nil && backend.CodeOf(err) != backend.Unavailable { // a backend may bound its calls by itself
			s.Errorf("Ensure on a slow cluster: %v", err)
		}
	case <-time.After(patience):
		s.Fatalf("Ensure has not returned %v after the cluster answered", patience)
	}
	s.answersAgain()
	s.ensure(s.workload(id, Steady))
	s.waitFor(id, backend.StateRunning)
	s.waitStarts(id, 1)
}

// lost: a workload that somebody else ended is still known, does not look alive, says why, and is replaced by a higher generation.
func (s *suite) lost() {
	if s.Lose == nil {
		s.Skip("the harness has no Lose: what happens behind the backend's back is not tried")
	}
	one, two := worker(0, 1), worker(0, 2)
	pids := s.stand()
	s.waitStarts(one, 1)
	s.Lose(s.T, s.job, one)
	s.eventually("the loss shows", func() error {
		st, err := s.find(one)
		switch {
		case err != nil:
			s.Fatalf("what was lost is forgotten: %v", err)
		case st.State != backend.StateFailed && st.State != backend.StateExited && st.State != backend.StateUnknown:
			return fmt.Errorf("it is %+v", st)
		case st.Reason == "":
			s.Fatalf("what was lost shows without a reason: %+v", st)
		}
		return nil
	})
	s.eventually("a higher generation is accepted", func() error {
		statuses, err := s.b.Ensure(s.ctx, s.job, []backend.Workload{s.workload(two, Steady)})
		if err == nil && statuses[0].Err != nil {
			err = statuses[0].Err
		}
		return err
	})
	s.waitFor(two, backend.StateRunning)
	s.waitGone(one)
	s.waitStarts(one, 1)
	s.waitStarts(two, 1)
	if st := s.waitFor(worker(1, 1), backend.StateRunning); st.PID != pids[1] {
		s.Errorf("the neighbour's pid went from %d to %d", pids[1], st.PID)
	}
}

// obscured: what cannot be told is unknown, with the reason: neither absent nor ended, and never started a second time.
func (s *suite) obscured() {
	if s.Obscure == nil {
		s.Skip("the harness has no Obscure: unknown states are not tried")
	}
	id := worker(0, 1)
	pids := s.stand()
	heal := s.Obscure(s.T, s.job, id)
	s.eventually("its state is unknown", func() error {
		statuses, complete, err := s.b.List(s.ctx, s.job)
		if err != nil && backend.CodeOf(err) == backend.Unavailable || err == nil && !complete {
			return nil // all of it is
		}
		if err != nil {
			return err
		}
		for _, st := range statuses {
			if st.ID == id && st.State == backend.StateUnknown && st.Reason != "" {
				return nil
			}
		}
		return fmt.Errorf("it lists %+v", statuses)
	})
	_, _ = s.b.Ensure(s.ctx, s.job, []backend.Workload{s.workload(id, Steady)}) // it may refuse; what counts is below
	heal()
	s.eventually("it is found again", func() error {
		statuses, complete, err := s.b.List(s.ctx, s.job)
		if err == nil && (!complete || len(statuses) != len(pids) || statuses[0].State != backend.StateRunning) {
			err = fmt.Errorf("it lists %+v, complete %v", statuses, complete)
		}
		return err
	})
	s.stillStand(pids)
}
