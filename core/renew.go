package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// renewal is a worker that the cluster will end and the warm successor that takes its place once it is ready. The successor is not one of the wanted workers yet.
type renewal struct {
	Rank       int              `json:"rank"`
	Generation uint64           `json:"generation"`
	Successor  int              `json:"successor"`
	Deadline   time.Time        `json:"deadline"`
	Cause      backend.EndCause `json:"cause,omitempty"`
	// Due is until when it is waited for a place beside the old worker: a successor that has none then gets the old worker's, in time for those that are next,
	// unless others are before it in the cluster's queue.
	Due time.Time `json:"due,omitzero"`
}

// Renewed is a worker that left because the cluster would have ended it, and its successor.
type Renewed struct {
	Worker    string           `json:"worker"`
	Successor string           `json:"successor"`
	Cause     backend.EndCause `json:"cause"`
	Deadline  time.Time        `json:"deadline"`
	// From and To are the nodes of the two, empty where they are not known.
	From string    `json:"from,omitempty"`
	To   string    `json:"to,omitempty"`
	At   time.Time `json:"at"` // when the worker was asked to leave, or was found to have ended
	// Warm says that the successor was ready by then, so that capacity did not dip.
	Warm bool `json:"warm"`
}

// routine says that it went as it should: before the cluster could end the worker, and without a dip.
func (v *Renewed) routine() bool { return v.Warm && !v.At.After(v.Deadline) }

// shown is the renewal while it is told of, nil after that: for an hour where it was routine, else for a day.
func (v *Renewed) shown(now time.Time) *Renewed {
	if v == nil || !(Note{At: v.At, Routine: v.routine()}).shown(now) {
		return nil
	}
	return v
}

// String is the renewal for people.
func (v *Renewed) String() string {
	at, how := v.Deadline.Format("15:04:05"), ""
	if !v.Warm {
		how = ", which was not ready yet"
	}
	who, off := v.Successor+moved(v.From, v.To)+how, job.Length(v.At.Sub(v.Deadline).Abs().Round(time.Second))
	late := v.At.After(v.Deadline)
	switch {
	case v.Cause == backend.EndDrain && late: // of the drain, or of a walltime that ends before it
		return fmt.Sprintf("%s gave way to %s, since its node is drained, %s after it could have been ended there (at %s at the earliest)", v.Worker, who, off, at)
	case v.Cause == backend.EndDrain: // which may end nobody by itself
		return fmt.Sprintf("%s gave way to %s, since its node is drained", v.Worker, who)
	case !v.Warm:
		return fmt.Sprintf("%s left for %s: %v could end it at %s at the earliest", v.Worker, who, v.Cause, at)
	case late:
		return fmt.Sprintf("%s gave way to %s, %s after %v could end it (at %s at the earliest)", v.Worker, who, off, v.Cause, at)
	}
	return fmt.Sprintf("%s gave way to %s, %s before %v could end it (at %s at the earliest)", v.Worker, who, off, v.Cause, at)
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

func (s *Scheduler) renewing(rank int) bool {
	return slices.ContainsFunc(s.want.Renewals, func(v renewal) bool { return v.Rank == rank || v.Successor == rank })
}

// renew replaces workers before the cluster ends them: by a warm successor where one more worker is allowed, so that capacity does not dip, else by a
// successor under the same rank once the old one has left. Both hand over by drain.
func (s *Scheduler) renew(_ context.Context, now time.Time) error {
	if s.job.Autoscale.Mode != job.ModeLive || s.seen.chiefErr != nil || s.chiefIsNew() {
		return nil // who is ready is not known
	}
	changed := s.handOver(now)
	terms, starts := s.walltimes(now)
	slices.SortFunc(terms, func(a, b term) int { return starts[a.place].Compare(starts[b.place]) })
	for _, t := range terms {
		due := !starts[t.place].After(now)
		early := t.cause == backend.EndDrain // who drains a node waits until it is empty
		busy := s.serverAway() || s.unsteady() >= s.renewedAtOnce()
		if t.place.Role != backend.RoleWorker || !due && !early || busy && now.Before(t.last()) {
			continue
		}
		room, soon := s.roomForOneMore()
		switch {
		case !room && (!due || soon && now.Before(t.last())):
			continue
		case room:
			s.startSuccessor(t, laterOf(now, starts[t.place]).Add(t.lead/3))
		default:
			s.replaceInPlace(t, now)
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return s.save()
}

// unsteady counts the workers that are being replaced, or do not train for another reason. Those that wait in a queue are none: each would keep the next ones from
// queueing in time.
func (s *Scheduler) unsteady() int {
	n := 0
	for _, v := range s.want.Renewals {
		if !s.queues() || !s.hasNoPlace(v.Successor) {
			n++
		}
	}
	for _, rank := range s.want.Ranks {
		if s.queues() && s.hasNoPlace(rank) {
			continue
		}
		if s.seen.member(rank, s.want.Workers[rank]).GetState() != rpc.MemberState_MEMBER_STATE_READY {
			n++
		}
	}
	return n
}

// roomForOneMore says whether one more worker may be started for a handover beside those that run: the pool has a place to spare and the cluster is not known to be
// full, or one that is has a queue; soon says that there will be room when those that are on their way out have left. Whether the cluster has a place is seen when it is asked for one: a
// successor that gets none takes over when the old worker has to leave.
func (s *Scheduler) roomForOneMore() (now, soon bool) {
	if h := s.want.Ceiling; h != nil && h.Max > 0 && !s.queues() {
		return false, false
	}
	n := len(s.want.Ranks)
	now, soon = n+len(s.want.Renewals)+len(s.want.Draining) < s.mostBeside(), n < s.mostBeside()
	if p := s.opt.Pool; p != nil && now && !p.spare(s.job.Name) {
		return false, false
	}
	return now, soon
}

// startSuccessor makes a fresh rank wanted beside the one that will leave.
func (s *Scheduler) startSuccessor(t term, due time.Time) {
	taken, fresh := s.want.wantedRanks(), 0
	for slices.Contains(taken, fresh) || s.departing(fresh) {
		fresh++
	}
	s.want.Workers[fresh]++
	v := renewal{Rank: t.place.Rank, Generation: s.want.Workers[t.place.Rank], Successor: fresh, Deadline: t.deadline, Cause: t.cause, Due: due}
	s.want.Renewals = append(s.want.Renewals, v)
	s.lg.Info("the cluster will end a worker; starting its successor", "workload", workerID(v.Rank, v.Generation).String(), "by", v.Cause.String(), "deadline", t.deadline,
		"successor", workerID(fresh, s.want.Workers[fresh]).String())
}

// replaceInPlace drains a worker; the next one of its rank starts when it is gone.
func (s *Scheduler) replaceInPlace(t term, now time.Time) {
	s.lg.Info("the cluster will end a worker, and there is no room for one more beside it; it is replaced when it has drained",
		"workload", workerID(t.place.Rank, s.want.Workers[t.place.Rank]).String(), "by", t.cause.String(), "deadline", t.deadline)
	s.renewed(renewal{Rank: t.place.Rank, Generation: s.want.Workers[t.place.Rank], Successor: t.place.Rank, Deadline: t.deadline, Cause: t.cause}, s.want.Workers[t.place.Rank]+1, now, false)
	s.want.leave(t.place.Rank, now)
	s.want.Workers[t.place.Rank]++
}

// handOver lets successors take over: when they are ready, when the old worker is gone already, and at the latest when it must begin to drain.
func (s *Scheduler) handOver(now time.Time) (changed bool) {
	for _, v := range slices.Clone(s.want.Renewals) {
		st, found := s.seen.allocation(workerID(v.Rank, v.Generation))
		if i := slices.Index(s.want.Renewals, v); found && !st.Deadline.IsZero() && !st.Deadline.Equal(v.Deadline) { // another one was set
			v.Due = v.Due.Add(st.Deadline.Sub(v.Deadline))
			v.Deadline, v.Cause = st.Deadline, st.EndCause
			s.want.Renewals[i], changed = v, true
		}
		if found && st.State == backend.StateRunning && st.Deadline.IsZero() && !s.isReady(v.Successor) {
			s.lg.Info("the cluster lets a worker go on after all; its successor is not needed", "workload", workerID(v.Rank, v.Generation).String(), "was_to_end_by", v.Cause.String(), "successor", v.Successor)
			s.want.callOff(v, now)
			changed = true
			continue
		}
		latest := s.latestLeave(v)
		switch {
		case s.isReady(v.Successor) && !s.serverAway():
			s.lg.Info("a worker is renewed", "workload", workerID(v.Rank, v.Generation).String(), "by", v.Cause.String(), "successor", v.Successor, "before_deadline", v.Deadline.Sub(now).Round(time.Second))
		case !found || !st.State.Live():
			s.warn("a worker ended before its successor was ready", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor)
		case !now.Before(v.Due) && s.hasNoPlace(v.Successor) && !s.isBehind(v.Successor) && s.othersFollow(v, now):
			s.warn("a worker leaves before its successor is ready, which has no place beside it", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor)
			latest = now
		case !now.Before(latest) && now.Before(v.Deadline): // one that outlives its deadline is asked to end by the cluster, and may train until then
			s.warn("a worker has to leave before its successor is ready", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor)
		default:
			continue
		}
		s.renewed(v, s.want.Workers[v.Successor], now, s.isReady(v.Successor))
		s.want.swap(v, now, latest)
		changed = true
	}
	return changed
}

// othersFollow says that other renewals begin before this one has to be done. Where none does, the old worker stays: what it gives up may go to somebody else's job.
func (s *Scheduler) othersFollow(v renewal, now time.Time) bool {
	_, starts := s.walltimes(now)
	for _, start := range starts {
		if start.Before(v.Deadline) {
			return true
		}
	}
	return false
}

// isBehind says that others are before a worker in the cluster's queue: a place that is given up for it is theirs.
func (s *Scheduler) isBehind(rank int) bool {
	st, _ := s.seen.allocation(workerID(rank, s.want.Workers[rank]))
	return st.Behind
}

// hasNoPlace says that the cluster has no place for a worker now.
func (s *Scheduler) hasNoPlace(rank int) bool {
	_, waits := s.waitsForPlace(rank)
	return waits
}

// renewed keeps for people what became of a renewal.
func (s *Scheduler) renewed(v renewal, generation uint64, now time.Time, warm bool) {
	old, next := workerID(v.Rank, v.Generation), workerID(v.Successor, generation)
	s.want.LastRenewal = &Renewed{
		Worker: old.String(), Successor: next.String(), Cause: v.Cause, Deadline: v.Deadline, From: s.nodeOf(old), To: s.nodeOf(next), At: now, Warm: warm,
	}
	s.want.remember(Note{At: now, Text: s.want.LastRenewal.String(), Routine: s.want.LastRenewal.routine()})
}

// isReady says that the worker that is wanted under a rank is ready with the chief of now.
func (s *Scheduler) isReady(rank int) bool {
	return s.seen.member(rank, s.want.Workers[rank]).GetState() == rpc.MemberState_MEMBER_STATE_READY
}

// latestLeave is when a worker that is being renewed must begin to leave, whether its successor is ready or not. One that the cluster asks to end, in time for its
// drain, trains until it is asked: what it gave up before that nobody might get.
func (s *Scheduler) latestLeave(v renewal) time.Time {
	drain := time.Duration(renewSafety * float64(measured(s.want.Drains, assumedDrain).Value))
	st, found := s.seen.allocation(workerID(v.Rank, v.Generation))
	if found && st.Asks {
		return v.Deadline
	}
	if found && !st.Started.IsZero() {
		drain = min(drain, v.Deadline.Sub(st.Started)/4)
	}
	return v.Deadline.Add(-drain)
}

// swap makes the successor one of the wanted workers and lets the old one leave, which waits for the successor until the latest if the chief changes meanwhile.
func (d *desired) swap(v renewal, now, latest time.Time) {
	d.Renewals = slices.DeleteFunc(d.Renewals, func(o renewal) bool { return o == v })
	d.leave(v.Rank, now)
	for i, l := range d.Draining {
		if l.Rank == v.Rank && l.Generation == v.Generation && latest.After(now) {
			d.Draining[i].Relief = &relief{Rank: v.Successor, Latest: latest}
		}
	}
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

// callOff lets the successor of a worker leave that does not have to go any more.
func (d *desired) callOff(v renewal, now time.Time) {
	d.Renewals = slices.DeleteFunc(d.Renewals, func(o renewal) bool { return o == v })
	d.leave(v.Successor, now)
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
		if s.isReady(v.Successor) {
			s.renewed(v, s.want.Workers[v.Successor], now, true)
			s.want.swap(v, now, s.latestLeave(v))
		}
	}
}

// renewalWaits says what is being renewed, for people.
func (s *Scheduler) renewalWaits(v renewal) string {
	id := backend.ID{Role: backend.RoleWorker, Rank: v.Successor, Generation: s.want.Workers[v.Successor]}
	if w := s.allocationWaits(id); w != "" {
		return w
	}
	old, at := workerID(v.Rank, v.Generation), v.Deadline.Format("15:04:05")
	if v.Cause == backend.EndDrain { // its walltime may end it before that does
		return fmt.Sprintf("%s to take over from %s, whose node is drained, before that may be ended there (at %s at the earliest)", id, old, at)
	}
	return fmt.Sprintf("%s to take over from %s before %v may end that (at %s at the earliest)", id, old, v.Cause, at)
}
