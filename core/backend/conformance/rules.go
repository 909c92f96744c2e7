package conformance

import (
	"context"
	"fmt"
	"sync"

	"github.com/kale-sched/kale/core/backend"
)

// The rules of what is asked for: configurations, identity, capacity.

func (s *suite) info() {
	info, err := s.b.Info(s.ctx)
	if err != nil || info.Name == "" {
		s.Fatalf("Info = %+v, %v; want a name", info, err)
	}
}

func (s *suite) configure() {
	bad, line := s.BadConfig("other")
	diags, err := s.b.Configure(s.ctx, bad)
	if err != nil {
		s.Fatalf("Configure with a mistake in the block: %v; mistakes are diagnostics", err)
	}
	if len(diags) != 1 || !diags.HasErrors() {
		s.Fatalf("Configure with one mistake in the block gave %+v", diags)
	}
	d := diags[0]
	if d.Filename != bad.Filename || d.Start.Line != line || d.Summary == "" || d.Detail == "" {
		s.Errorf("diagnostic %+v; want file %s, line %d, a summary and a detail", d, bad.Filename, line)
	}
	if _, _, err := s.b.List(s.ctx, "other"); err == nil || backend.CodeOf(err) != backend.Blocked {
		s.Errorf("List of a job that is not configured: %v; want code %q", err, backend.Blocked)
	}
	if diags, err := s.b.Configure(s.ctx, s.Config(s.job)); err != nil || diags.HasErrors() {
		s.Errorf("Configure again = %v, %v", diags, err)
	}
	nameless := s.Config(s.job)
	nameless.Job = "no/such name"
	if _, err := s.b.Configure(s.ctx, nameless); err == nil || backend.CodeOf(err) != backend.InvalidField {
		s.Errorf("Configure for job %q: %v; want code %q", nameless.Job, err, backend.InvalidField)
	}
}

func (s *suite) invalid() {
	noProgram := s.workload(worker(0, 1), Steady)
	noProgram.Argv = nil
	outside := s.workload(worker(0, 1), Steady)
	outside.Files = map[string][]byte{"../escape": nil}
	for _, w := range []backend.Workload{
		noProgram, outside, s.workload(worker(-1, 1), Steady), s.workload(worker(0, 0), Steady),
		s.workload(backend.ID{Role: "../x", Generation: 1}, Steady),
	} {
		s.refused(w, backend.InvalidField)
	}
	if err := s.b.Release(s.ctx, s.job, nil, 0); err == nil || backend.CodeOf(err) != backend.InvalidField {
		s.Errorf("Release in no way: %v; want code %q", err, backend.InvalidField)
	}
}

func (s *suite) idempotent() {
	id := worker(0, 1)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			st, err := s.b.Ensure(s.ctx, s.job, []backend.Workload{s.workload(id, Steady)})
			if err != nil {
				s.Errorf("Ensure: %v", err)
			} else if st[0].Err != nil {
				s.Errorf("Ensure refused %s: %v", id, st[0].Err)
			}
		})
	}
	callers.Wait()
	first := s.waitFor(id, backend.StateRunning)
	s.ensure(s.workload(id, Steady))
	again := s.waitFor(id, backend.StateRunning)
	if again.PID != first.PID || again.Restarts != 0 {
		s.Errorf("after Ensure of what runs: pid %d, %d restarts; want pid %d and none", again.PID, again.Restarts, first.PID)
	}
	s.waitStarts(id, 1)
	if n := len(s.list()); n != 1 {
		s.Errorf("List has %d workloads, want 1", n)
	}
}

func (s *suite) firstWins() {
	id := worker(0, 1)
	s.ensure(s.workload(id, Steady))
	first := s.waitFor(id, backend.StateRunning)
	s.ensure(s.workload(id, ExitZero))
	if again := s.waitFor(id, backend.StateRunning); again.PID != first.PID {
		s.Errorf("another specification under the same id replaced pid %d by %d", first.PID, again.PID)
	}
}

func (s *suite) generations() {
	one, two := worker(0, 1), worker(0, 2)
	neighbour := worker(1, 1)
	s.ensure(s.workload(one, Steady), s.workload(neighbour, Steady))
	s.waitFor(one, backend.StateRunning)
	s.waitStarts(one, 1) // or it might be ended before it has counted its start
	kept := s.waitFor(neighbour, backend.StateRunning)
	s.eventually("generation 2 is accepted", func() error {
		statuses, err := s.b.Ensure(s.ctx, s.job, []backend.Workload{s.workload(two, Steady)})
		if err != nil {
			return err
		}
		if statuses[0].Err != nil { // a backend may ask for patience while the old one ends
			return statuses[0].Err
		}
		return nil
	})
	s.waitFor(two, backend.StateRunning)
	s.waitGone(one)
	s.refused(s.workload(one, Steady), backend.Gone)
	s.planRefuses(one, two.Generation)
	s.waitStarts(one, 1)
	s.waitStarts(two, 1)
	if st := s.waitFor(neighbour, backend.StateRunning); st.PID != kept.PID {
		s.Errorf("the neighbour's pid went from %d to %d", kept.PID, st.PID)
	}
}

// planRefuses: Plan says of what Ensure would refuse with Gone which generation is the newest.
func (s *suite) planRefuses(id backend.ID, newest uint64) {
	s.Helper()
	report, err := s.b.Plan(s.ctx, s.job, []backend.Workload{s.workload(id, Steady)})
	if err != nil || len(report.Placements) != 1 {
		s.Fatalf("Plan of %s = %+v, %v", id, report, err)
	}
	if p := report.Placements[0]; p.Fits || p.Newest != newest || p.Reason == "" {
		s.Errorf("Plan of %s = %+v; want that it does not fit, and that the newest generation is %d", id, p, newest)
	}
}

// beside: a generation takes its place beside the one before it, which is left alone, and starts when that has ended.
func (s *suite) beside() {
	if info, err := s.b.Info(s.ctx); err != nil || !info.Beside {
		s.Skipf("the backend does not honour Workload.Beside (%v): that a place is held for a successor is not tried", err)
	}
	one, two, three := worker(0, 1), worker(0, 2), worker(0, 3)
	s.ensure(s.workload(one, Steady))
	kept := s.waitFor(one, backend.StateRunning)
	s.waitStarts(one, 1)
	next := func(id backend.ID) backend.Workload {
		w := s.workload(id, Steady)
		w.Beside = true
		return w
	}
	holds := func(id backend.ID) {
		s.Helper()
		s.ensure(next(id))
		s.ensure(next(id))
		s.eventually(id.String()+" holds its place", func() error {
			st, err := s.find(id)
			if err == nil && (st.State != backend.StateStarting || !st.Beside || st.Node == "") {
				err = fmt.Errorf("it is %+v", st)
			}
			return err
		})
		if st := s.waitFor(one, backend.StateRunning); st.PID != kept.PID || st.Beside {
			s.Fatalf("%s, of pid %d, is %+v beside its successor", one, kept.PID, st)
		}
		if n := s.Starts(s.T, s.job, id); n != 0 {
			s.Fatalf("%s was started %d times beside %s", id, n, one)
		}
	}
	holds(two)
	if err := s.b.Release(s.ctx, s.job, []backend.ID{two}, backend.Drained); err != nil {
		s.Fatalf("Release of what holds its place: %v", err)
	}
	s.waitGone(two)
	s.refused(next(two), backend.Gone)
	holds(three)
	if err := s.b.Release(s.ctx, s.job, []backend.ID{one}, backend.Drained); err != nil {
		s.Fatalf("Release: %v", err)
	}
	if st := s.waitFor(three, backend.StateRunning); st.Beside {
		s.Errorf("%s is %+v when it runs", three, st)
	}
	s.waitGone(one)
	s.waitStarts(three, 1)

	four, five := worker(0, 4), worker(0, 5)
	s.ensure(next(four))
	s.eventually("the first that is not to be beside replaces both", func() error {
		statuses, err := s.b.Ensure(s.ctx, s.job, []backend.Workload{s.workload(five, Steady)})
		if err == nil && statuses[0].Err != nil {
			err = statuses[0].Err
		}
		return err
	})
	s.waitFor(five, backend.StateRunning)
	s.waitGone(three)
	s.waitGone(four)
	s.waitStarts(five, 1)
	if n := s.Starts(s.T, s.job, four); n != 0 {
		s.Errorf("%s was started %d times", four, n)
	}
}

func (s *suite) partialFailure() {
	statuses, err := s.b.Ensure(s.ctx, s.job, []backend.Workload{
		s.workload(worker(0, 1), Steady), s.workload(worker(1, 1), Missing), s.workload(worker(2, 1), Steady),
	})
	if err != nil {
		s.Fatalf("Ensure with one workload that cannot start: %v; want the error in its status", err)
	}
	switch e := statuses[1].Err; {
	case e == nil: // only the node can tell
		if st := s.waitFor(worker(1, 1), backend.StateFailed); st.Reason == "" {
			s.Errorf("a program that does not exist ended as %+v, want a reason", st)
		}
	case e.Message == "":
		s.Errorf("the status of a program that does not exist is %+v, want a message", statuses[1])
	}
	for _, i := range []int{0, 2} {
		if statuses[i].Err != nil {
			s.Errorf("Ensure refused %s: %v", statuses[i].ID, statuses[i].Err)
		}
		s.waitFor(worker(i, 1), backend.StateRunning)
	}
}

func (s *suite) capacity() {
	var ws []backend.Workload
	for i := range s.Slots + 1 {
		w := s.workload(worker(i, 1), Steady)
		w.Resources.GPUs = 1
		ws = append(ws, w)
	}
	report, err := s.b.Plan(s.ctx, s.job, ws)
	if err != nil || len(report.Placements) != len(ws) || report.Fits() || report.Shortage == "" {
		s.Fatalf("Plan of %d workloads on %d slots of one GPU = %+v, %v; want a shortage", len(ws), s.Slots, report, err)
	}
	if report, err = s.b.Plan(s.ctx, s.job, ws[:s.Slots]); err != nil || !report.Fits() {
		s.Fatalf("Plan of %d workloads on as many slots = %+v, %v; want that they fit", s.Slots, report, err)
	}
	if left := s.list(); len(left) > 0 {
		s.Fatalf("Plan has started %v", left)
	}
	s.free(s.Slots)
	s.ensure(ws[:s.Slots]...)
	info, err := s.b.Info(s.ctx)
	if err != nil {
		s.Fatalf("Info: %v", err)
	}
	if info.Queues {
		for _, w := range ws[:s.Slots] {
			s.waitFor(w.ID, backend.StateRunning)
		}
		s.ensure(ws[s.Slots])
		s.eventually("what does not fit waits, and says for what", func() error {
			st, err := s.find(ws[s.Slots].ID)
			if err == nil && (st.State != backend.StatePending || st.Reason == "") {
				err = fmt.Errorf("it is %+v", st)
			}
			return err
		})
	} else {
		s.refused(ws[s.Slots], backend.NoCapacity)
	}
	s.free(0)
	used := map[string]bool{}
	for _, w := range ws[:s.Slots] {
		for _, d := range s.waitFor(w.ID, backend.StateRunning).Devices { // where there is a queue, they are known when it is placed
			if used[d] {
				s.Errorf("device %s was given out twice", d)
			}
			used[d] = true
		}
	}
	if len(used) != s.Slots {
		s.Errorf("%d devices are in use, want %d", len(used), s.Slots)
	}
	if report, err = s.b.Plan(s.ctx, s.job, ws[:s.Slots]); err != nil || !report.Fits() {
		s.Errorf("Plan of what runs already = %+v, %v; want that it fits", report, err)
	}
	if err := s.b.Release(s.ctx, s.job, []backend.ID{ws[0].ID}, backend.Forced); err != nil {
		s.Fatalf("Release: %v", err)
	}
	s.waitGone(ws[0].ID)
	if !info.Queues {
		s.free(1)
		s.ensure(ws[s.Slots])
	}
	s.waitFor(ws[s.Slots].ID, backend.StateRunning)
}

func (s *suite) free(want int) {
	s.Helper()
	inv, err := s.b.Inventory(s.ctx)
	if err != nil || inv.Total != s.Slots || inv.Free != want || len(inv.Devices) != inv.Total {
		s.Fatalf("Inventory = %+v, %v; want %d of %d free", inv, err, want, s.Slots)
	}
	free := 0
	for _, d := range inv.Devices {
		if d.HeldBy == "" {
			free++
		}
	}
	if free != inv.Free {
		s.Errorf("Inventory says %d free, but %d devices are held by nobody", inv.Free, free)
	}
}

func (s *suite) unknown() {
	s.ensure(s.workload(worker(0, 1), Steady))
	over, cancel := context.WithCancel(s.ctx)
	cancel()
	statuses, complete, err := s.b.List(over, s.job)
	if err == nil && (!complete || len(statuses) != 1) {
		s.Errorf("List with a context that is over = %v, complete %v, without an error", statuses, complete)
	}
	if err != nil && backend.CodeOf(err) != backend.Unavailable {
		s.Errorf("List with a context that is over: %v; want code %q", err, backend.Unavailable)
	}
	if err == nil {
		return // it answered in full, which is as good
	}
	if complete {
		s.Error("List failed and says that it is complete")
	}
}
