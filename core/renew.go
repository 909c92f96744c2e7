package core

import (
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// renewal is a worker whose walltime ends and the warm successor that takes its place once it is ready. The successor is not one of the wanted workers yet.
type renewal struct {
	Rank       int       `json:"rank"`
	Generation uint64    `json:"generation"`
	Successor  int       `json:"successor"`
	Deadline   time.Time `json:"deadline"`
}

const (
	// renewSafety is by how much measured times are multiplied before a walltime is cut that fine.
	renewSafety = 1.5
	// assumedDrain is the time that a worker needs to leave, before that was measured.
	assumedDrain = 10 * time.Second
)

// term is the walltime of one worker, and what it takes to replace it.
type term struct {
	rank     int
	deadline time.Time
	// lead is the time from the start of a successor until it is ready, drain the one that the old worker then needs to leave.
	lead, drain time.Duration
}

// last is when the worker must begin to leave.
func (t term) last() time.Time { return t.deadline.Add(-t.drain) }

// renewalStarts says when the renewal of each worker begins, so that never more than so many are under way at once and each is done in time: from the last
// deadline backwards, each as late as it can be.
func renewalStarts(terms []term, atOnce int) map[int]time.Time {
	terms = slices.Clone(terms)
	slices.SortFunc(terms, func(a, b term) int {
		if c := b.last().Compare(a.last()); c != 0 {
			return c
		}
		return b.rank - a.rank
	})
	starts := map[int]time.Time{}
	busy := make([]time.Time, max(1, atOnce)) // from when on each of those at once is busy; zero: it is not
	for _, t := range terms {
		free := 0
		for i, b := range busy {
			if !busy[free].IsZero() && (b.IsZero() || b.After(busy[free])) {
				free = i
			}
		}
		ready := t.last()
		if b := busy[free]; !b.IsZero() && b.Before(ready) {
			ready = b
		}
		busy[free] = ready.Add(-t.lead)
		starts[t.rank] = busy[free]
	}
	return starts
}

// wantedRanks are those of the wanted workers and of successors, ascending.
func (d *desired) wantedRanks() []int {
	out := slices.Clone(d.Ranks)
	for _, v := range d.Renewals {
		out = append(out, v.Successor)
	}
	slices.Sort(out)
	return out
}

// terms are the walltimes of wanted workers that are not being renewed. What it takes to replace one is bounded by its own walltime, so that all of them can be
// renewed one after the other in half of it: else a worker could be due the moment it starts.
func (s *Scheduler) terms(now time.Time, atOnce int) []term {
	slack := 2 * s.job.Autoscale.Watch
	lead := time.Duration(renewSafety*float64(measured(s.want.Joins, assumedJoin).Value)) + s.queueWait() + slack
	drain := time.Duration(renewSafety*float64(measured(s.want.Drains, assumedDrain).Value)) + slack
	var out []term
	for _, rank := range s.want.Ranks {
		st, found := s.seen.allocation(workerID(rank, s.want.Workers[rank]))
		if !found || st.Deadline.IsZero() || !st.State.Live() || s.renewing(rank) || s.departing(rank) {
			continue
		}
		whole := st.Deadline.Sub(now)
		if !st.Started.IsZero() {
			whole = max(whole, st.Deadline.Sub(st.Started))
		}
		rounds := (s.want.Target + atOnce - 1) / atOnce
		out = append(out, term{rank, st.Deadline, min(lead, whole*3/8/time.Duration(rounds)), min(drain, whole/4)})
	}
	return out
}

func (s *Scheduler) renewing(rank int) bool {
	return slices.ContainsFunc(s.want.Renewals, func(v renewal) bool { return v.Rank == rank || v.Successor == rank })
}

// renew replaces workers before the cluster ends them: by a warm successor where one more worker is allowed, so that capacity does not dip, else by a
// successor under the same rank once the old one has left. Both hand over by drain.
func (s *Scheduler) renew(now time.Time) error {
	if s.job.Autoscale.Mode != job.ModeLive || s.seen.chiefErr != nil || s.chiefIsNew() {
		return nil // who is ready is not known
	}
	changed := s.handOver(now)
	atOnce := max(1, (s.want.Target+3)/4)
	terms := s.terms(now, atOnce)
	starts := renewalStarts(terms, atOnce)
	slices.SortFunc(terms, func(a, b term) int { return starts[a.rank].Compare(starts[b.rank]) })
	for _, t := range terms {
		if starts[t.rank].After(now) || s.unsteady() >= atOnce && now.Before(t.last()) {
			continue
		}
		if s.roomForOneMore() {
			s.startSuccessor(t)
		} else {
			s.replaceInPlace(t, now)
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return s.save()
}

// unsteady counts the workers that are being replaced, or do not train for another reason.
func (s *Scheduler) unsteady() int {
	n := len(s.want.Renewals)
	for _, rank := range s.want.Ranks {
		if s.seen.member(rank, s.want.Workers[rank]).GetState() != rpc.MemberState_MEMBER_STATE_READY {
			n++
		}
	}
	return n
}

// roomForOneMore says whether the job file allows one more worker beside those that run, and the cluster is not known to be full.
func (s *Scheduler) roomForOneMore() bool {
	h := s.want.Ceiling
	return len(s.want.Ranks)+len(s.want.Renewals)+len(s.want.Draining) < s.job.Workers.Max && (h == nil || h.Max == 0)
}

// startSuccessor makes a fresh rank wanted beside the one that will leave.
func (s *Scheduler) startSuccessor(t term) {
	taken, fresh := s.want.wantedRanks(), 0
	for slices.Contains(taken, fresh) || s.departing(fresh) {
		fresh++
	}
	s.want.Workers[fresh]++
	v := renewal{Rank: t.rank, Generation: s.want.Workers[t.rank], Successor: fresh, Deadline: t.deadline}
	s.want.Renewals = append(s.want.Renewals, v)
	s.lg.Info("a worker's walltime ends; starting its successor", "workload", workerID(v.Rank, v.Generation).String(), "deadline", t.deadline,
		"successor", workerID(fresh, s.want.Workers[fresh]).String())
}

// replaceInPlace drains a worker; the next one of its rank starts when it is gone.
func (s *Scheduler) replaceInPlace(t term, now time.Time) {
	s.lg.Info("a worker's walltime ends, and there is no room for one more beside it; it is replaced when it has drained",
		"workload", workerID(t.rank, s.want.Workers[t.rank]).String(), "deadline", t.deadline)
	s.want.leave(t.rank, now)
	s.want.Workers[t.rank]++
}

// handOver lets successors take over: when they are ready, when the old worker is gone already, and at the latest when it must begin to drain.
func (s *Scheduler) handOver(now time.Time) (changed bool) {
	drain := time.Duration(renewSafety * float64(measured(s.want.Drains, assumedDrain).Value))
	for _, v := range slices.Clone(s.want.Renewals) {
		st, found := s.seen.allocation(workerID(v.Rank, v.Generation))
		ready := s.seen.member(v.Successor, s.want.Workers[v.Successor]).GetState() == rpc.MemberState_MEMBER_STATE_READY
		if found && !st.Started.IsZero() {
			drain = min(drain, v.Deadline.Sub(st.Started)/4)
		}
		switch {
		case ready:
			s.lg.Info("a worker is renewed", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor, "before_deadline", v.Deadline.Sub(now).Round(time.Second))
		case !found || !st.State.Live():
			s.lg.Warn("a worker ended before its successor was ready", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor)
		case !now.Before(v.Deadline.Add(-drain)):
			s.lg.Warn("a worker has to leave before its successor is ready", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor)
		default:
			continue
		}
		s.want.swap(v, now)
		changed = true
	}
	return changed
}

// swap makes the successor one of the wanted workers and lets the old one leave.
func (d *desired) swap(v renewal, now time.Time) {
	d.Renewals = slices.DeleteFunc(d.Renewals, func(o renewal) bool { return o == v })
	d.leave(v.Rank, now)
	put := func(ranks []int) {
		if i := slices.Index(ranks, v.Rank); i >= 0 {
			ranks[i] = v.Successor
			slices.Sort(ranks)
		}
	}
	put(d.Ranks)
	if d.Rescale != nil && d.Rescale.Ranks != nil {
		d.Rescale.Ranks = slices.Clone(d.Rescale.Ranks)
		put(d.Rescale.Ranks)
	}
}

// endRenewals lets successors leave that have not taken over.
func (d *desired) endRenewals(now time.Time) {
	for _, v := range d.Renewals {
		d.leave(v.Successor, now)
	}
	d.Renewals = nil
}

// takeReady lets the successors that are ready take over, before it is chosen who leaves.
func (s *Scheduler) takeReady(now time.Time) {
	for _, v := range slices.Clone(s.want.Renewals) {
		if s.seen.member(v.Successor, s.want.Workers[v.Successor]).GetState() == rpc.MemberState_MEMBER_STATE_READY {
			s.want.swap(v, now)
		}
	}
}

// renewalWaits says what is being renewed, for people.
func (s *Scheduler) renewalWaits(v renewal) string {
	id := backend.ID{Role: backend.RoleWorker, Rank: v.Successor, Generation: s.want.Workers[v.Successor]}
	if w := s.allocationWaits(id); w != "" {
		return w
	}
	return id.String() + " to take over from " + workerID(v.Rank, v.Generation).String() + " before " + v.Deadline.Format("15:04:05")
}
