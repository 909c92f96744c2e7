package conformance

import (
	"fmt"
	"slices"
	"strings"

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
		s.Skip("the harness has no Kill: what the death of the process that runs the backend does is not tried")
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
		s.Skip("the harness has no Kill: what the death of the process that runs the backend does is not tried")
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

// owned: two jobs of one name, over one cluster. The second is refused before it starts or stops anything, until nothing of the first is left.
func (s *suite) owned() {
	as := func(b backend.Backend, who backend.Owner) backend.Backend {
		s.Helper()
		cfg := s.Config(s.job)
		cfg.Owner = who
		if diags, err := b.Configure(s.ctx, cfg); err != nil || diags.HasErrors() {
			s.Fatalf("Configure for %+v = %v, %v", who, diags, err)
		}
		return b
	}
	refused := func(doing string, err error, has backend.Owner) {
		s.Helper()
		if err == nil || backend.CodeOf(err) != backend.Conflict || !strings.Contains(err.Error(), has.Words) {
			s.Errorf("%s for another owner: %v; want code %q, and that the name is %s's", doing, err, backend.Conflict, has.Words)
		}
	}
	ann, bob := backend.Owner{ID: "a1", Words: "the model of ann"}, backend.Owner{ID: "b2", Words: "the model of bob"}
	first, second := as(s.b, ann), as(s.open(), bob)
	id := worker(0, 1)
	s.ensure(s.workload(id, Steady))
	mine := s.waitFor(id, backend.StateRunning)

	_, err := second.Plan(s.ctx, s.job, []backend.Workload{s.workload(worker(1, 1), Steady)})
	refused("Plan", err, ann)
	_, err = second.Ensure(s.ctx, s.job, []backend.Workload{s.workload(worker(1, 1), Steady), s.workload(worker(0, 2), Steady)})
	refused("Ensure", err, ann)
	_, _, err = second.List(s.ctx, s.job)
	refused("List", err, ann)
	refused("Release", second.Release(s.ctx, s.job, []backend.ID{id}, backend.Forced), ann)
	_, err = second.Forget(s.ctx, s.job, "")
	refused("Forget", err, ann)
	if st := s.waitFor(id, backend.StateRunning); st.PID != mine.PID || len(s.list()) != 1 {
		s.Errorf("what another owner asked for moved %s from pid %d to %d, or left something: %v", id, mine.PID, st.PID, s.list())
	}

	as(first, backend.Owner{ID: ann.ID, Words: "ann, after a restart"}) // it is still the same job
	s.ensure(s.workload(id, Steady))
	if err := first.Release(s.ctx, s.job, []backend.ID{id}, backend.Forced); err != nil {
		s.Fatalf("Release: %v", err)
	}
	s.waitGone(id)
	_, err = second.Forget(s.ctx, s.job, "")
	refused("Forget of what is gone", err, backend.Owner{Words: "ann"}) // its logs are hers still
	s.b = second
	s.ensure(s.workload(worker(0, 2), Steady))
	s.waitFor(worker(0, 2), backend.StateRunning)
	_, _, err = first.List(s.ctx, s.job)
	refused("List of the one before", err, bob)
}

// forgotten: what is kept of workloads that have ended is removed when it is asked for, and nothing is while they run.
func (s *suite) forgotten() {
	steady, done, tried := worker(0, 1), worker(1, 1), backend.ID{Role: "probe", Rank: 0, Generation: 1}
	s.ensure(s.workload(steady, Steady), s.workload(done, ExitZero), s.workload(tried, Steady))
	pid := s.waitFor(steady, backend.StateRunning).PID
	s.waitFor(tried, backend.StateRunning)
	s.waitFor(done, backend.StateExited)
	for _, id := range []backend.ID{steady, done, tried} { // or it might be ended before it has counted its start
		s.waitStarts(id, 1)
	}
	for _, role := range []string{"", backend.RoleWorker} {
		if removed, err := s.b.Forget(s.ctx, s.job, role); err == nil || backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), "-g1") {
			s.Errorf("Forget of role %q while %s runs: %q, %v; want code %q, and who runs", role, steady, removed, err, backend.Blocked)
		}
	}
	if n := len(s.list()); n != 3 {
		s.Fatalf("a Forget that was refused left %v of 3 workloads", s.list())
	}

	if err := s.b.Release(s.ctx, s.job, []backend.ID{tried}, backend.Forced); err != nil {
		s.Fatalf("Release: %v", err)
	}
	s.waitGone(tried)
	s.forget(tried.Role)
	if _, err := s.b.Logs(s.ctx, s.job, tried, backend.LogOptions{}); err == nil || backend.CodeOf(err) != backend.Gone {
		s.Errorf("Logs of what was forgotten: %v; want code %q", err, backend.Gone)
	}
	if st := s.waitFor(steady, backend.StateRunning); st.PID != pid {
		s.Errorf("to forget another role moved %s from pid %d to %d", steady, pid, st.PID)
	}
	s.waitFor(done, backend.StateExited)

	if err := s.b.Release(s.ctx, s.job, []backend.ID{steady, done}, backend.Forced); err != nil {
		s.Fatalf("Release: %v", err)
	}
	s.waitGone(steady)
	s.waitGone(done)
	s.forget("")
	if again := s.forget(""); len(again) > 0 {
		s.Errorf("Forget of what is forgotten has removed %q", again)
	}
	for _, id := range []backend.ID{steady, done} {
		if _, err := s.b.Logs(s.ctx, s.job, id, backend.LogOptions{}); err == nil || backend.CodeOf(err) != backend.Gone {
			s.Errorf("Logs of %s after all was forgotten: %v; want code %q", id, err, backend.Gone)
		}
	}
	s.ensure(s.workload(steady, Steady)) // nothing remembers its release
	s.waitFor(steady, backend.StateRunning)
}

// forget requires that it works, once the cluster knows that all has ended.
func (s *suite) forget(role string) (removed []string) {
	s.Helper()
	s.eventually("Forget works", func() (err error) {
		removed, err = s.b.Forget(s.ctx, s.job, role)
		return err
	})
	return removed
}
