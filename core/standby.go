package core

import (
	"context"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// A parameter server that the cluster will end has its successor submitted beside it, early enough to have its place when the server is due: it holds the place,
// and starts when the server has ended. So no queue lies between the two. It is for backends that hold places (backend.Workload.Beside).

const (
	// standbyShare is the part of a server's walltime by which its successor is submitted before it is due, as long as no wait was measured. A quarter is the most:
	// while it holds its place its own walltime runs, of which it must keep the greater part.
	standbyShare = 1. / 8
	standbyMost  = 1. / 4
	// standbyPause is the time between two tries to submit one that was refused.
	standbyPause = 10 * time.Second
)

// standby is what this scheduler knows of a server's successor beside what the backend lists.
type standby struct {
	next   uint64    // the least generation that it may have: those before were released
	again  time.Time // not submitted before that
	placed uint64    // the generation whose wait for its place was measured
}

// succeeds says that a server which is listed is to follow one that lives, and does not run itself.
func succeeds(list []backend.Status, st backend.Status) bool {
	return st.ID.Role == backend.RoleServer && (st.Beside || !st.State.Live()) && slices.ContainsFunc(list, func(o backend.Status) bool {
		return placeOf(o.ID) == placeOf(st.ID) && o.ID.Generation < st.ID.Generation && o.State.Live()
	})
}

// successor is the process that waits for a server's end, placed or not.
func (s *Scheduler) successor(index int) (st backend.Status, found bool) {
	for _, o := range s.seen.list {
		if placeOf(o.ID) == serverID(index, 0) && o.ID.Generation > s.want.Servers[index] && o.Beside && o.State.Live() && o.State != backend.StateStopping {
			return o, true
		}
	}
	return backend.Status{}, false
}

// pass has every server's next generation be above those that are listed, which a stop releases.
func (s *Scheduler) pass(list []backend.Status) {
	for _, st := range list {
		if id := st.ID; id.Role == backend.RoleServer {
			b := s.standbys[id.Rank]
			b.next = max(b.next, id.Generation+1)
			s.standbys[id.Rank] = b
		}
	}
}

// holdsPlaces says whether the backend lets a successor hold its place.
func (s *Scheduler) holdsPlaces(ctx context.Context) bool {
	if s.beside == nil {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		info, err := s.opt.Backend.Info(ctx)
		if err != nil {
			return false // asked again
		}
		s.beside = &info.Beside
	}
	return *s.beside
}

// queues says that what has no place waits for its turn in the cluster's queue, as far as that is known.
func (s *Scheduler) queues() bool { return s.beside != nil && *s.beside }

// standBy sees to it that servers which are due soon have a successor beside them, and that others have none.
func (s *Scheduler) standBy(ctx context.Context, now time.Time) error {
	if !s.holdsPlaces(ctx) {
		return nil
	}
	terms, starts := s.walltimes(now)
	for i := range s.job.Servers.Count {
		next, waits := s.successor(i)
		st, found := s.seen.allocation(serverID(i, s.want.Servers[i]))
		switch {
		case waits && found && st.State == backend.StateRunning && (st.Deadline.IsZero() || next.EndCause == backend.EndDrain):
			s.lg.Info("the successor of a parameter server is not needed, or the node that it is on is drained; its place is given up", "workload", next.ID.String(), "node", next.Node)
			if err := s.giveUpPlace(ctx, i, next.ID); err != nil || s.changing != nil {
				return err
			}
		case waits:
			s.notePlaced(i, next, now)
		case found && st.State == backend.StateRunning && s.needsSuccessor(i, terms, starts, now) && !now.Before(s.standbys[i].again):
			if err := s.submitSuccessor(ctx, i, now); err != nil || s.changing != nil {
				return err
			}
		}
	}
	return nil
}

// giveUpPlace ends a successor, which holds nothing but its place.
func (s *Scheduler) giveUpPlace(ctx context.Context, index int, id backend.ID) error {
	return s.askEnd(ctx, []backend.ID{id}, backend.Forced, func(err error) error {
		if err != nil {
			s.lg.Warn("the backend did not release the successor of a parameter server; trying again", "workload", id.String(), "err", err)
			return nil
		}
		b := s.standbys[index]
		b.next, b.again = max(b.next, id.Generation+1), time.Time{}
		s.standbys[index] = b
		return nil
	})
}

// needsSuccessor says that it is time to have a server's successor wait for its place.
func (s *Scheduler) needsSuccessor(index int, terms []term, starts map[backend.ID]time.Time, now time.Time) bool {
	if v := s.want.ServerRenewal; v != nil && v.Index == index {
		return v.Released.IsZero()
	}
	for _, t := range terms {
		if t.place == serverID(index, 0) {
			return t.cause == backend.EndDrain || !now.Before(starts[t.place].Add(-s.standbyLead(t.whole)))
		}
	}
	return false
}

// standbyLead is how long before a server is due its successor is submitted: as long as it will wait for its place, by what was measured.
func (s *Scheduler) standbyLead(whole time.Duration) time.Duration {
	part := func(share float64) time.Duration { return time.Duration(share * float64(whole)) }
	wait := part(standbyShare)
	if len(s.want.ServerWaits) > 0 {
		wait = backend.Faded(time.Duration(renewSafety*float64(slices.Max(s.want.ServerWaits)))+2*s.job.Autoscale.Watch, wait, s.since(s.want.ServerWaitedAt))
	}
	return min(max(wait, s.queueWait()), part(standbyMost))
}

// notePlaced measures how long a successor has waited for its place.
func (s *Scheduler) notePlaced(index int, next backend.Status, now time.Time) {
	b := s.standbys[index]
	if next.State != backend.StateStarting || next.Submitted.IsZero() || b.placed == next.ID.Generation {
		return
	}
	b.placed = next.ID.Generation
	s.standbys[index] = b
	s.want.ServerWaits, s.want.ServerWaitedAt = keepLast(s.want.ServerWaits, max(0, now.Sub(next.Submitted))), now
	s.lg.Info("the successor of a parameter server has its place, and holds it", "workload", next.ID.String(), "node", next.Node, "waited", now.Sub(next.Submitted).Round(time.Millisecond))
}

func (s *Scheduler) submitSuccessor(ctx context.Context, index int, now time.Time) error {
	b := s.standbys[index]
	b.next, b.again = max(b.next, s.want.Servers[index]+1), now.Add(standbyPause)
	for _, o := range s.seen.list { // one that failed while it waited
		if placeOf(o.ID) == serverID(index, 0) {
			b.next = max(b.next, o.ID.Generation+1)
		}
	}
	w := s.loads.server(index, b.next)
	w.Beside = true
	if s.want.note([]backend.Workload{w}, startsWith(s.job)) {
		if err := s.save(); err != nil {
			return err
		}
	}
	s.standbys[index] = b
	return s.askStart(ctx, []backend.Workload{w}, func(sts []backend.Status, err error) error {
		if err == nil && sts[0].Err != nil {
			if err = sts[0].Err; sts[0].Err.Code == backend.Gone {
				b.next, b.again = b.next+1, time.Time{}
				s.standbys[index] = b
			}
		}
		if err != nil {
			s.lg.Warn("the successor of a parameter server was not submitted; trying again", "workload", w.ID.String(), "err", err)
			return nil
		}
		s.lg.Info("the cluster will end a parameter server; its successor waits for a place beside it", "workload", w.ID.String())
		return nil
	})
}

// roomForSuccessor says whether a server's successor has a place; nil: that is not known.
func (s *Scheduler) roomForSuccessor(index int) *room {
	if next, waits := s.successor(index); waits {
		return &room{fits: next.State == backend.StateStarting, why: next.Reason, unasked: next.State == backend.StateUnknown}
	}
	if s.queues() && s.standbys[index].again.IsZero() {
		return &room{why: "its successor is about to be submitted", unasked: true}
	}
	return s.seen.serverRoom
}
