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

// unplacedServer is the first parameter server that is wanted and that the cluster has no place for, and why; nil when all have one. A successor that waits
// beside the one that serves is none.
func (s *Scheduler) unplacedServer() (id *backend.ID, why string) {
	for i := range s.job.Servers.Count {
		id := serverID(i, s.want.Servers[i])
		st, found := s.seen.allocation(id)
		if found && st.State == backend.StatePending && !st.Beside {
			return &id, st.Reason
		}
		if t := s.troubles[placeOf(id)]; !found && t != nil && t.id == id && t.refusal != nil && t.refusal.Code == backend.NoCapacity {
			return &id, t.refused
		}
	}
	return nil, ""
}

// withoutPlace says that a parameter server has no place, so that no number of workers trains; "" when all have one.
func (s *Scheduler) withoutPlace() string {
	id, why := s.unplacedServer()
	if id == nil {
		return ""
	}
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Sprintf("%s has no place%s, so that nothing is trained until it has one, with any number of workers", id, why)
}

// serversFirst gives a parameter server that has no place those of workers, which train nothing without it: those that wait leave the queue, and then one after
// another leaves a place, until it is the server's. They come back when all servers have places. The last worker stays: its place alone would help nobody.
func (s *Scheduler) serversFirst(ctx context.Context, now time.Time) error {
	id, why := s.unplacedServer()
	if id == nil {
		s.unplaced, s.madeWay, s.makeWay = time.Time{}, time.Time{}, false
		return nil
	}
	if s.unplaced.IsZero() {
		s.unplaced = now
	}
	limit := min(serverPlace, s.job.Autoscale.PlaceTimeout)
	if s.makeWay = now.Sub(s.unplaced) >= limit; !s.makeWay {
		return nil
	}
	var waiting, placed []backend.ID
	for _, rank := range s.want.Ranks {
		w := workerID(rank, s.want.Workers[rank])
		switch st, found := s.seen.allocation(w); {
		case !found || !st.State.Live() || st.State == backend.StateStopping || s.departing(rank):
		case st.State == backend.StatePending:
			waiting = append(waiting, w)
		default:
			placed = append(placed, w)
		}
	}
	leave := waiting
	if len(waiting) == 0 && len(placed) > 1 && now.Sub(s.madeWay) >= limit {
		leave, s.madeWay = placed[len(placed)-1:], now
		text := fmt.Sprintf("%s gave its place to %s, which had none for %s", leave[0], id, job.Length(now.Sub(s.unplaced)))
		if why != "" {
			text += " (" + why + ")"
		}
		s.want.remember(Note{At: now, Text: text})
		s.warn("a parameter server has no place, and nothing is trained without it: a worker leaves its own to it", "server", id.String(), "worker", leave[0].String(), "reason", why)
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
