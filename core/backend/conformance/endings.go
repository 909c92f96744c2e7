package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// The rules of how workloads end: released, by themselves, or by a crash.

func (s *suite) drained() {
	id := worker(0, 1)
	s.ensure(s.workload(id, Steady))
	s.waitFor(id, backend.StateRunning)
	s.waitStarts(id, 1)
	never := worker(9, 1)
	for range 2 {
		if err := s.b.Release(s.ctx, s.job, []backend.ID{id, never}, backend.Drained); err != nil {
			s.Fatalf("Release(drained): %v", err)
		}
	}
	s.waitGone(id)
	if err := s.b.Release(s.ctx, s.job, []backend.ID{id}, backend.Drained); err != nil {
		s.Errorf("Release of what is gone: %v", err)
	}
	s.refused(s.workload(id, Steady), backend.Gone)
	s.planRefuses(id, id.Generation)
	s.waitStarts(id, 1)
}

func (s *suite) forced() {
	id := worker(0, 1)
	w := s.workload(id, Stubborn)
	w.StopGrace = time.Hour
	s.ensure(w)
	s.waitFor(id, backend.StateRunning)
	s.waitStarts(id, 1)
	if err := s.b.Release(s.ctx, s.job, []backend.ID{id}, backend.Drained); err != nil {
		s.Fatalf("Release(drained): %v", err)
	}
	s.waitFor(id, backend.StateStopping)
	if err := s.b.Release(s.ctx, s.job, []backend.ID{id}, backend.Forced); err != nil {
		s.Fatalf("Release(forced): %v", err)
	}
	s.waitGone(id)
	s.waitStarts(id, 1)
}

func (s *suite) stopGrace() {
	id := worker(0, 1)
	w := s.workload(id, Stubborn)
	w.StopGrace = 50 * time.Millisecond
	s.ensure(w)
	s.waitFor(id, backend.StateRunning)
	s.waitStarts(id, 1)
	if err := s.b.Release(s.ctx, s.job, []backend.ID{id}, backend.Drained); err != nil {
		s.Fatalf("Release(drained): %v", err)
	}
	s.waitGone(id) // though it never obeys
}

func (s *suite) finalExit() {
	for rank, tt := range []struct {
		program Program
		state   backend.State
		code    int
	}{
		{ExitZero, backend.StateExited, 0},
		{Fenced, backend.StateFailed, 3},
	} {
		id := worker(rank, 1)
		s.ensure(s.workload(id, tt.program))
		if st := s.waitFor(id, tt.state); st.ExitCode != tt.code || st.Reason == "" {
			s.Errorf("%s ended as %+v, want code %d and a reason", id, st, tt.code)
		}
		s.ensure(s.workload(id, tt.program))
		s.waitFor(id, tt.state)
		s.waitStarts(id, 1)
	}
}

func (s *suite) crash() {
	id := worker(0, 1)
	s.ensure(s.workload(id, Crash))
	s.letEnd(id, "started")
	s.waitStarts(id, 2)
	st := s.waitFor(id, backend.StateRunning)
	if st.Restarts != 1 {
		s.Errorf("after one crash: %+v, want 1 restart", st)
	}
	s.eventually("its log has both lives, parted", func() error { // a cluster's logs may come late
		lives := strings.Split("\n"+s.readLog(id, backend.LogOptions{}), "\n"+backend.LogBoundary)
		if len(lives) != 2 || !strings.Contains(lives[0], "started") || strings.Contains(lives[0], backend.LogBoundary) || !strings.HasSuffix(lives[1], "\nstarted\n") {
			return fmt.Errorf("it is %q: want one line that begins with %q between what the two processes wrote", lives, backend.LogBoundary)
		}
		return nil
	})
}
