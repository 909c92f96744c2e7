package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// renewSafety is by how much measured times are multiplied before a walltime is cut that fine.
	renewSafety = 1.5
	// assumedDrain is the time that a worker needs to leave, before that was measured.
	assumedDrain = 10 * time.Second
	// assumedServerPause is how long a server is away while it is replaced, before that was measured.
	assumedServerPause = 30 * time.Second
	// assumedSnapshot is how long a snapshot takes before a server has reported one.
	assumedSnapshot = 10 * time.Second
)

// term is the walltime of one process, and what it takes to replace it.
type term struct {
	place    backend.ID // without a generation
	deadline time.Time
	// whole is how long the process may run at all, from its start.
	whole time.Duration
	cause backend.EndCause
	// lead is the time from the beginning of its renewal until its successor does its work, drain the one that the old process then needs to leave.
	lead, drain time.Duration
}

// last is when the process must begin to leave.
func (t term) last() time.Time { return t.deadline.Add(-t.drain) }

// alone says that nothing else is renewed at the same time: while a parameter server is away nobody can hand over, and after the chief has moved with server 0
// it is not known for a while who is ready.
func (t term) alone() bool { return t.place.Role == backend.RoleServer }

// slot is what becomes of one of those that are renewed at once, from the end backwards.
type slot struct {
	busy  time.Time // from when on it is; zero: it is not
	alone bool      // by a renewal that is alone: who hands over before it must have left too
}

// renewalStarts says when the renewal of each process begins, so that never more workers than so many are renewed at once, nothing beside a parameter server, and
// each is done in time: from the last deadline backwards, each as late as it can be.
func renewalStarts(terms []term, atOnce int) map[backend.ID]time.Time {
	terms = slices.Clone(terms)
	slices.SortFunc(terms, func(a, b term) int {
		return cmp.Or(b.last().Compare(a.last()), cmp.Compare(a.place.Role, b.place.Role), b.place.Rank-a.place.Rank)
	})
	starts := map[backend.ID]time.Time{}
	slots := make([]slot, max(1, atOnce))
	for _, t := range terms {
		done := t.last()
		if t.alone() {
			for _, s := range slots {
				done = earlier(done, s.busy)
			}
			for i := range slots {
				slots[i] = slot{done.Add(-t.lead), true}
			}
			starts[t.place] = done.Add(-t.lead)
			continue
		}
		free := 0
		for i, s := range slots {
			if f := slots[free].busy; !f.IsZero() && (s.busy.IsZero() || s.busy.After(f)) {
				free = i
			}
		}
		if s := slots[free]; s.alone {
			done = earlier(done, s.busy.Add(-t.drain))
		} else {
			done = earlier(done, s.busy)
		}
		slots[free] = slot{busy: done.Add(-t.lead)}
		starts[t.place] = slots[free].busy
	}
	return starts
}

// earlier is the earlier of two times; b may be zero: none.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// fit shortens what renewals are given where walltimes are short, so that all of them fit into three eighths of each one's walltime: else a process could be
// due the moment it starts. Those that need the most give the most. With the drain, of a quarter at most, that leaves each three eighths to itself.
func fit(terms []term, atOnce int) {
	leads := make([]time.Duration, len(terms)) // as they weigh on the common time
	for i, t := range terms {
		if leads[i] = t.lead; !t.alone() {
			leads[i] = t.lead / time.Duration(max(1, atOnce))
		}
	}
	slices.Sort(leads)
	for i, t := range terms {
		share := level(leads, t.whole*3/8)
		if !t.alone() {
			share *= time.Duration(max(1, atOnce))
		}
		terms[i].lead = min(t.lead, share)
		terms[i].drain = min(t.drain, t.whole/4)
	}
}

// level is the greatest share such that all needs, ascending, none above it, sum up to the budget at most.
func level(needs []time.Duration, budget time.Duration) time.Duration {
	for i, n := range needs {
		share := budget / time.Duration(len(needs)-i)
		if n > share {
			return share
		}
		budget -= n
	}
	if len(needs) == 0 {
		return budget
	}
	return needs[len(needs)-1]
}

// renewedAtOnce is how many workers may be renewed at the same time: each successor runs beside the worker that it follows.
func (s *Scheduler) renewedAtOnce() int {
	return max(1, min((s.want.Target+3)/4, s.mostBeside()-len(s.want.Ranks)))
}

// mostBeside is how many workers may run while some of them are being replaced: as many as the job file allows, and where all of these run one more, so that
// capacity does not dip. It is for the time of a handover, and for one worker at a time.
func (s *Scheduler) mostBeside() int {
	if most := s.job.Workers.Max; len(s.want.Ranks) != most {
		return most
	}
	return s.job.Workers.Max + 1
}

// walltimes are those of the wanted processes that are not being renewed, and when the renewal of each is to begin.
func (s *Scheduler) walltimes(now time.Time) ([]term, map[backend.ID]time.Time) {
	var out []term
	add := func(id backend.ID, lead, drain time.Duration) {
		st, found := s.seen.allocation(id)
		if !found || st.Deadline.IsZero() || !st.State.Live() || st.State == backend.StateStopping {
			return
		}
		whole := st.Deadline.Sub(now)
		if !st.Started.IsZero() {
			whole = max(whole, st.Deadline.Sub(st.Started))
		}
		out = append(out, term{placeOf(id), st.Deadline, whole, st.EndCause, lead, drain})
	}
	slack := 2 * s.job.Autoscale.Watch
	safe := func(d time.Duration) time.Duration { return time.Duration(renewSafety*float64(d)) + slack }
	for i := range s.job.Servers.Count {
		if v := s.want.ServerRenewal; s.serverInfo(i) == nil || v != nil && v.Index == i {
			continue
		}
		lead := safe(s.snapshotTime(i) + measured(s.want.ServerPauses, assumedServerPause).Value)
		if i == 0 {
			lead += leaseTimeout // until it is known who is ready: see chiefIsNew
		}
		add(backend.ID{Role: backend.RoleServer, Rank: i, Generation: s.want.Servers[i]}, lead, 0)
	}
	lead, drain := safe(measured(s.want.Joins, assumedJoin).Value)+s.queueWait(), safe(measured(s.want.Drains, assumedDrain).Value)
	for _, rank := range s.want.Ranks {
		if !s.renewing(rank) && !s.departing(rank) {
			add(workerID(rank, s.want.Workers[rank]), lead, drain)
		}
	}
	fit(out, s.renewedAtOnce())
	return out, renewalStarts(out, s.renewedAtOnce())
}
