package core

import (
	"log/slog"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// An end is counted once, with its reason, in whatever steps the backend tells of it and of the start that follows.
func TestEndsAreToldInSteps(t *testing.T) {
	id, began := worker(0, 1), time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return began.Add(time.Duration(minute) * time.Minute) }
	st := func(state backend.State, restarts int, finished time.Time, reason string) backend.Status {
		return backend.Status{ID: id, State: state, Restarts: restarts, Started: began, Finished: finished, Reason: reason}
	}
	const preempted = "it was stopped on n1 and waits for another place: preempted by alloc ID 1"
	runs, never := st(backend.StateRunning, 0, time.Time{}, ""), time.Time{}
	for _, tt := range []struct {
		name   string
		looks  []backend.Status
		times  int
		reason string
	}{
		{"it waits for another place, and runs there", []backend.Status{
			runs, st(backend.StatePending, 0, at(1), preempted), st(backend.StateRunning, 1, never, ""), st(backend.StateRunning, 1, never, ""),
		}, 1, preempted},
		{"that twice", []backend.Status{
			runs, st(backend.StatePending, 0, at(1), preempted), st(backend.StateRunning, 1, never, ""),
			st(backend.StatePending, 1, at(2), preempted), st(backend.StateStarting, 2, never, ""), st(backend.StateRunning, 2, never, ""),
		}, 2, preempted},
		{"it runs there and crashes before that was seen", []backend.Status{
			runs, st(backend.StatePending, 0, at(1), preempted), st(backend.StateStarting, 2, never, "it crashed with code 3"),
		}, 2, "it crashed with code 3"},
		{"it runs there when it is seen", []backend.Status{runs, st(backend.StateRunning, 1, never, "")}, 1, "it ended with code 0"},
		{"it crashes and is started again in its place", []backend.Status{
			runs, st(backend.StateStarting, 0, at(1), "it crashed"), st(backend.StateRunning, 1, at(1), ""), st(backend.StateStarting, 1, at(2), "it crashed again"),
		}, 2, "it crashed again"},
		{"it ends for good", []backend.Status{runs, st(backend.StateFailed, 0, at(1), "it crashed"), st(backend.StateFailed, 0, at(1), "it crashed")}, 1, "it crashed"},
	} {
		s := &Scheduler{lg: slog.New(slog.DiscardHandler), troubles: map[backend.ID]*trouble{}}
		var got *trouble
		for i, look := range tt.looks {
			got = s.compare(look, at(i))
		}
		if got.times != tt.times || got.reason != tt.reason {
			t.Errorf("%s: %d ends, the last since %q; want %d, %q", tt.name, got.times, got.reason, tt.times, tt.reason)
		}
	}
}
