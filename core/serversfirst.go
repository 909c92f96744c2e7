package core

import (
	"context"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// serverPlace is how long a parameter server waits for a place that workers of its own job may hold. Without it nothing is trained, whatever they hold.
const serverPlace = time.Minute

// unplacedServer is the first parameter server that is wanted and that the cluster has no place for, with why; found is false when all have one. A successor that
// waits beside the one that serves is none.
func (s *Scheduler) unplacedServer() (st backend.Status, found bool) {
	for i := range s.job.Servers.Count {
		id := serverID(i, s.want.Servers[i])
		st, found := s.seen.allocation(id)
		if found && st.State == backend.StatePending && !st.Beside {
			return st, true
		}
		if t := s.troubles[placeOf(id)]; !found && t != nil && t.id == id && t.refusal != nil && t.refusal.Code == backend.NoCapacity {
			return backend.Status{ID: id, Reason: t.refused}, true
		}
	}
	return st, false
}

// withoutPlace says that a parameter server has no place, so that no number of workers trains; "" when all have one.
func (s *Scheduler) withoutPlace() string {
	st, found := s.unplacedServer()
	if !found {
		return ""
	}
	return st.ID.String() + " has no place" + because(st.Reason) + ", so that nothing is trained until it has one, with any number of workers"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// serversFirst gives a parameter server that has waited for a place those of workers, which train nothing without it: those that would be given a place before it
// stop waiting for one, and then one after another leaves its own. It is left to them where it would be a stranger's. They come back, after the server. The last
// worker stays: its place alone would help nobody.
func (s *Scheduler) serversFirst(ctx context.Context, now time.Time) error {
	server, found := s.unplacedServer()
	if !found {
		s.unplaced, s.madeWay, s.unplacedLate = time.Time{}, time.Time{}, false
		return nil
	}
	if s.unplaced.IsZero() {
		s.unplaced = now
	}
	limit := min(serverPlace, s.job.Autoscale.PlaceTimeout)
	if s.unplacedLate = now.Sub(s.unplaced) >= limit; !s.unplacedLate {
		return nil
	}
	var before, placed []backend.ID
	for _, rank := range s.want.Ranks {
		w := workerID(rank, s.want.Workers[rank])
		switch st, found := s.seen.allocation(w); {
		case !found || !st.State.Live() || st.State == backend.StateStopping || s.departing(rank):
		case st.State != backend.StatePending:
			placed = append(placed, w)
		case !s.queues() || st.Submitted.Before(server.Submitted):
			before = append(before, w)
		}
	}
	leave := before
	if len(before) == 0 && len(placed) > 1 && !server.Behind && now.Sub(s.madeWay) >= limit {
		leave, s.madeWay = placed[len(placed)-1:], now
		waited := job.Length(now.Sub(s.unplaced))
		s.want.remember(Note{At: now, Text: fmt.Sprintf("%s gave its place to %s, which had none for %s%s", leave[0], server.ID, waited, because(server.Reason))})
		s.warn("a parameter server has no place, and nothing is trained without it: a worker leaves its own to it", "server", server.ID.String(), "worker", leave[0].String(), "reason", server.Reason)
	}
	if len(leave) == 0 {
		return nil
	}
	for _, w := range leave {
		s.want.Workers[w.Rank] = max(s.want.Workers[w.Rank], w.Generation+1)
	}
	if err := s.save(); err != nil {
		return err
	}
	return s.release(ctx, leave, backend.Forced, nil)
}

// withholds says that no worker is started, since it could be given the place that a server waits for: a queue that has an order has the server first.
func (s *Scheduler) withholds() bool { return s.unplacedLate && !s.queues() }
