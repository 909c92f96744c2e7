package conformance

import (
	"fmt"
	"slices"

	"github.com/kale-sched/kale/core/backend"
)

// The rules of backends that come and go, and of jobs beside each other: what runs stands.

func (s *suite) jobsApart() {
	const other = "conformance-2"
	if diags, err := s.b.Configure(s.ctx, s.Config(other)); err != nil || diags.HasErrors() {
		s.Fatalf("Configure(%q) = %v, %v", other, diags, err)
	}
	id := worker(0, 1)
	s.ensure(s.workload(id, Steady))
	w := s.Workload(other, id, Steady)
	w.ID = id
	if statuses, err := s.b.Ensure(s.ctx, other, []backend.Workload{w}); err != nil || statuses[0].Err != nil {
		s.Fatalf("Ensure for another job = %v, %v", statuses, err)
	}
	mine := s.waitFor(id, backend.StateRunning)
	if err := s.b.Release(s.ctx, other, []backend.ID{id}, backend.Forced); err != nil {
		s.Fatalf("Release for another job: %v", err)
	}
	s.eventually("the other job's workload is gone", func() error {
		left, complete, err := s.b.List(s.ctx, other)
		if err == nil && (!complete || len(left) > 0) {
			err = fmt.Errorf("there is %v, complete %v", left, complete)
		}
		return err
	})
	if st := s.waitFor(id, backend.StateRunning); st.PID != mine.PID {
		s.Errorf("releasing another job's %s moved this job's from pid %d to %d", id, mine.PID, st.PID)
	}
}

func (s *suite) pids() []int {
	s.Helper()
	var pids []int
	for _, st := range s.list() {
		pids = append(pids, st.PID)
	}
	return pids
}

// stand starts two workers and gives their pids.
func (s *suite) stand() []int {
	s.Helper()
	s.ensure(s.workload(worker(0, 1), Steady), s.workload(worker(1, 1), Steady))
	s.waitFor(worker(0, 1), backend.StateRunning)
	s.waitFor(worker(1, 1), backend.StateRunning)
	return s.pids()
}

// stillStand proves that they are the same, and that asking for them again starts nothing.
func (s *suite) stillStand(pids []int) {
	s.Helper()
	if got := s.pids(); !slices.Equal(got, pids) {
		s.Errorf("pids are %v, want %v as before", got, pids)
	}
	s.ensure(s.workload(worker(0, 1), Steady), s.workload(worker(1, 1), Steady))
	s.waitStarts(worker(0, 1), 1)
	s.waitStarts(worker(1, 1), 1)
	if got := s.pids(); !slices.Equal(got, pids) {
		s.Errorf("after Ensure of what runs, pids are %v, want %v as before", got, pids)
	}
}

func (s *suite) foundAgain() {
	pids := s.stand()
	if err := s.b.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	s.b = s.open(s.job)
	s.stillStand(pids)
}

func (s *suite) killed() {
	if s.Kill == nil {
		s.Skip("the backend runs inside the test: nothing to kill")
	}
	pids := s.stand()
	s.Kill(s.T, s.b)
	s.answersAgain()
	s.stillStand(pids)
}

// answersAgain waits until the backend does; until then it may fail only with Unavailable.
func (s *suite) answersAgain() {
	s.Helper()
	s.eventually("the backend answers again", func() error {
		_, _, err := s.b.List(s.ctx, s.job)
		if err != nil && backend.CodeOf(err) != backend.Unavailable {
			s.Fatalf("List during an outage: %v; want code %q", err, backend.Unavailable)
		}
		return err
	})
}

func (s *suite) killedMidCall() {
	if s.Kill == nil {
		s.Skip("the backend runs inside the test: nothing to kill")
	}
	ws := []backend.Workload{s.workload(worker(0, 1), Steady), s.workload(worker(1, 1), Steady)}
	for range 3 {
		answered := make(chan error, 1)
		go func() {
			_, err := s.b.Ensure(s.ctx, s.job, ws)
			answered <- err
		}()
		s.Kill(s.T, s.b)
		if err := <-answered; err != nil && backend.CodeOf(err) != backend.Unavailable {
			s.Errorf("Ensure while the backend was killed: %v; want code %q", err, backend.Unavailable)
		}
		s.answersAgain()
	}
	s.ensure(ws...)
	s.waitFor(worker(0, 1), backend.StateRunning)
	s.waitFor(worker(1, 1), backend.StateRunning)
	s.stillStand(s.pids())
}
