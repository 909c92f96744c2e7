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
func (s *Scheduler) renew(now time.Time) error {
	if s.job.Autoscale.Mode != job.ModeLive || s.seen.chiefErr != nil || s.chiefIsNew() {
		return nil // who is ready is not known
	}
	changed := s.handOver(now)
	terms, starts := s.walltimes(now)
	slices.SortFunc(terms, func(a, b term) int { return starts[a.place].Compare(starts[b.place]) })
	for _, t := range terms {
		if t.place.Role != backend.RoleWorker || starts[t.place].After(now) {
			continue
		}
		room, soon := s.roomForOneMore()
		wait := s.want.ServerRenewal != nil || s.unsteady() >= s.renewedAtOnce() || !room && soon
		switch {
		case wait && now.Before(t.last()):
			continue
		case room:
			s.startSuccessor(t)
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

// roomForOneMore says whether the job file and the pool allow one more worker beside those that run, and the cluster is not known to be full; soon says that there will be
// when those that are on their way out have left.
func (s *Scheduler) roomForOneMore() (now, soon bool) {
	if h := s.want.Ceiling; h != nil && h.Max > 0 {
		return false, false
	}
	n := len(s.want.Ranks)
	now, soon = n+len(s.want.Renewals)+len(s.want.Draining) < s.job.Workers.Max, n < s.job.Workers.Max
	if p := s.opt.Pool; p != nil && now && !p.spare(s.job.Name) {
		return false, false
	}
	return now, soon
}

// startSuccessor makes a fresh rank wanted beside the one that will leave.
func (s *Scheduler) startSuccessor(t term) {
	taken, fresh := s.want.wantedRanks(), 0
	for slices.Contains(taken, fresh) || s.departing(fresh) {
		fresh++
	}
	s.want.Workers[fresh]++
	v := renewal{Rank: t.place.Rank, Generation: s.want.Workers[t.place.Rank], Successor: fresh, Deadline: t.deadline}
	s.want.Renewals = append(s.want.Renewals, v)
	s.lg.Info("a worker's walltime ends; starting its successor", "workload", workerID(v.Rank, v.Generation).String(), "deadline", t.deadline,
		"successor", workerID(fresh, s.want.Workers[fresh]).String())
}

// replaceInPlace drains a worker; the next one of its rank starts when it is gone.
func (s *Scheduler) replaceInPlace(t term, now time.Time) {
	s.lg.Info("a worker's walltime ends, and there is no room for one more beside it; it is replaced when it has drained",
		"workload", workerID(t.place.Rank, s.want.Workers[t.place.Rank]).String(), "deadline", t.deadline)
	s.want.leave(t.place.Rank, now)
	s.want.Workers[t.place.Rank]++
}

// handOver lets successors take over: when they are ready, when the old worker is gone already, and at the latest when it must begin to drain.
func (s *Scheduler) handOver(now time.Time) (changed bool) {
	for _, v := range slices.Clone(s.want.Renewals) {
		st, found := s.seen.allocation(workerID(v.Rank, v.Generation))
		switch {
		case s.isReady(v.Successor) && s.want.ServerRenewal == nil:
			s.lg.Info("a worker is renewed", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor, "before_deadline", v.Deadline.Sub(now).Round(time.Second))
		case !found || !st.State.Live():
			s.lg.Warn("a worker ended before its successor was ready", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor)
		case !now.Before(s.latestLeave(v)) && now.Before(v.Deadline): // one that outlives its deadline is asked to end by the cluster, and may train until then
			s.lg.Warn("a worker has to leave before its successor is ready", "workload", workerID(v.Rank, v.Generation).String(), "successor", v.Successor)
		default:
			continue
		}
		s.want.swap(v, now, s.latestLeave(v))
		changed = true
	}
	return changed
}

// isReady says that the worker that is wanted under a rank is ready with the chief of now.
func (s *Scheduler) isReady(rank int) bool {
	return s.seen.member(rank, s.want.Workers[rank]).GetState() == rpc.MemberState_MEMBER_STATE_READY
}

// latestLeave is when a worker that is being renewed must begin to leave, whether its successor is ready or not.
func (s *Scheduler) latestLeave(v renewal) time.Time {
	drain := time.Duration(renewSafety * float64(measured(s.want.Drains, assumedDrain).Value))
	if st, found := s.seen.allocation(workerID(v.Rank, v.Generation)); found && !st.Started.IsZero() {
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
	return id.String() + " to take over from " + workerID(v.Rank, v.Generation).String() + " before " + v.Deadline.Format("15:04:05")
}
