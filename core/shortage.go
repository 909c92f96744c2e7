package core

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// Ceiling says that the cluster had no place for all workers that were wanted. While it is in force no more are wanted than could be placed, or
// than wait in the cluster's queue already.
type Ceiling struct {
	// Max is how many workers could be placed; 0: the shortage is over for now, and more are tried.
	Max int `json:"max"`
	// Reason is the backend's, such as "needs 3 GPUs, 1 free".
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Until is when more are tried again, if the cluster does not show room before that.
	Until time.Time `json:"until"`
	// Free is how many devices were free at Since, −1 when that was not known: only more than that is room.
	Free int `json:"free"`
	// Fits says whether the cluster had a place for one more worker when nobody waited for one any more, nil: not known yet. Only from no to yes is room.
	Fits *bool `json:"fits,omitempty"`
	// Tries is how often in a row more were tried in vain; each makes the next wait longer.
	Tries int `json:"tries"`
}

// retryMost bounds the time from one try to find room to the next.
const retryMost = 2 * time.Hour

// NoPlace is how the problem of a shortage begins.
const NoPlace = "the cluster has no place for "

// words are the shortage for people, while so many workers wait of those that are wanted.
func (h *Ceiling) words(wanted, waiting int) string {
	most := h.Max
	if waiting > 0 { // as few as the job file allows are wanted
		most = min(most, max(0, wanted-waiting))
	}
	what := "more than " + job.Count(most, "worker")
	if most == 0 {
		what = "a single worker"
	}
	return fmt.Sprintf(NoPlace+"%s: %s; more are tried at %s, or when there is room", what, h.Reason, h.Until.Format("15:04:05"))
}

// heedShortage follows which wanted workers wait for a place. When some have waited for longer than autoscale.place_timeout the rescale under way is given up
// and the target may not be above what could be placed (see limits), until the cluster shows room or the time of the next try has come.
func (s *Scheduler) heedShortage(now time.Time) {
	if s.job.Autoscale.Mode == job.ModeObserve || s.want.Stopping || s.want.Restart > 0 || s.seen.listErr != nil || !s.seen.complete {
		return
	}
	s.tryAgain(now)
	waiting := map[int]time.Time{}
	reason, overdue := "", false
	for _, rank := range s.want.Ranks {
		why, waits := s.waitsForPlace(rank)
		if !waits {
			continue
		}
		since, known := s.want.Unplaced[rank]
		if !known {
			since = now
		}
		waiting[rank] = since
		if reason == "" {
			reason = why
		}
		overdue = overdue || now.Sub(since) >= s.job.Autoscale.PlaceTimeout
	}
	s.want.Unplaced = waiting
	if h := s.want.Ceiling; h != nil && h.Max > 0 && len(waiting) == 0 && len(s.want.Draining) == 0 && s.seen.workerRoom != nil && (h.Fits == nil || !s.seen.workerRoom.fits) {
		c, fits := *h, s.seen.workerRoom.fits
		c.Fits = &fits
		s.want.Ceiling = &c
	}
	h := s.want.Ceiling
	switch {
	case overdue:
		s.declareShortage(now, len(waiting), reason)
	case h != nil && h.Max == 0 && len(waiting) == 0 && now.Sub(h.Until) > s.job.Autoscale.PlaceTimeout:
		s.want.Ceiling = nil // what was tried was placed, or nobody asked for more
	}
}

// waitsForPlace says that the backend has no place for a wanted worker, and why. One that ran and ended is none of these.
func (s *Scheduler) waitsForPlace(rank int) (why string, waits bool) {
	if s.departing(rank) {
		return "", false
	}
	id := workerID(rank, s.want.Workers[rank])
	st, found := s.seen.allocation(id)
	if found {
		return st.Reason, st.State == backend.StatePending
	}
	if t := s.troubles[placeOf(id)]; t != nil && t.refusal != nil && t.refusal.Code == backend.NoCapacity {
		return t.refused, true
	}
	return "", false
}

// declareShortage bounds the target by what is placed.
func (s *Scheduler) declareShortage(now time.Time, waiting int, reason string) {
	h := &Ceiling{Max: max(s.want.Target-waiting, s.job.Workers.Min, 1), Reason: reason, Since: now, Free: -1}
	if reason == "" {
		h.Reason = unsaid
	}
	if before := s.want.Ceiling; before != nil {
		if before.Max == h.Max {
			return // these cannot be given up: as few as the job file allows are wanted
		}
		h.Tries = before.Tries
		if before.Max == 0 {
			h.Tries++
		}
	}
	h.Until = now.Add(min(s.job.Autoscale.PlaceTimeout<<min(h.Tries, 10), retryMost))
	if s.seen.inventory != nil {
		h.Free = s.seen.inventory.Free
	}
	s.want.Ceiling = h
	s.warn("the cluster has no place for all workers", "wanted", s.want.Target, "waiting", waiting, "now_at_most", h.Max, "reason", h.Reason, "again_at", h.Until)
	if r := s.want.Rescale; r != nil && r.Kind == plan.KindOut && h.Max < s.want.Target {
		r.Aborted, r.Unfinished = true, fmt.Sprintf("%s had no place for %s: %s", job.Count(waiting, "worker"), job.FormatDuration(s.job.Autoscale.PlaceTimeout), h.Reason)
		s.finishRescale(now)
	}
	s.tickAt = now
}

// tryAgain lifts the bound when its time has come, when more run than it allows, or when the cluster shows more room than there was: more free devices that are not
// for others, or a place, with all that a worker needs, where there was none.
func (s *Scheduler) tryAgain(now time.Time) {
	h := s.want.Ceiling
	if h == nil || h.Max == 0 {
		return
	}
	placed := s.placed()
	inv := s.seen.inventory
	others := s.seen.workerRoom != nil && !s.seen.workerRoom.fits // what is free is theirs
	room := inv != nil && inv.Free > h.Free && inv.Free >= max(1, s.job.Workers.GPUs) && !others || h.Fits != nil && !*h.Fits && s.seen.workerRoom != nil && s.seen.workerRoom.fits
	if !room && placed <= h.Max && now.Before(h.Until) {
		return
	}
	s.lg.Info("more workers than could be placed are tried again", "at_most_before", h.Max, "room", room, "placed", placed)
	c := *h
	if c.Max, c.Until = 0, now; placed > h.Max {
		c.Tries = 0
	}
	s.want.Ceiling = &c
	clear(s.want.Unplaced)
	s.tickAt = now
}

// placed counts the wanted workers that run.
func (s *Scheduler) placed() int {
	n := 0
	for _, rank := range s.want.Ranks {
		if st, found := s.seen.allocation(workerID(rank, s.want.Workers[rank])); found && st.State == backend.StateRunning {
			n++
		}
	}
	return n
}

// limits are the job file's, or narrower ones while the cluster is full: but with lag over its objective, or in a queue, where it would lose its turn, nobody is
// given up that waits for a place, and nobody that runs ever.
func (s *Scheduler) limits(l lag) plan.Limits {
	out := plan.Limits{Min: s.job.Workers.Min, Max: s.job.Workers.Max, Short: s.short()}
	if h := s.want.Ceiling; h != nil && h.Max > 0 {
		most := max(h.Max, s.placed())
		if l.ageKnown && l.age > s.job.SLO.MaxLag || s.queues() {
			most = max(most, s.want.Target)
		}
		if most < out.Max {
			out.Max, out.Why = max(most, out.Min), "no more could be placed: "+h.Reason
		}
	}
	return out
}

// short says for the policy's words for how many workers the cluster has no place; nothing where it has one for all, or that is not known.
func (s *Scheduler) short() plan.Short {
	if s.seen.unlisted() != "" {
		return plan.Short{}
	}
	out := plan.Short{Max: s.job.Workers.Max, Placed: s.placed()}
	if h := s.want.Ceiling; h != nil && h.Max > 0 {
		out.Why = h.Reason
	}
	for _, rank := range s.want.Ranks {
		if why, waits := s.waitsForPlace(rank); waits {
			out.Waiting++
			out.Why = cmp.Or(out.Why, why, unsaid)
		}
	}
	if out.Why == "" {
		return plan.Short{}
	}
	return out
}

// unsaid stands where the backend does not say why it has no place.
const unsaid = "the backend gives no reason"

// room says whether the cluster had a place for one more process of a kind, beside all that runs, and why not.
type room struct {
	fits    bool
	why     string
	unasked bool // why is no answer of the cluster's
}

// roomEvery is how often the cluster is asked at most whether it has a place for one more process of a kind: a Slurm uses up the number of a job for each answer.
const roomEvery = 5 * time.Second

// roomAsk is when that was asked last, and the answer.
type roomAsk struct {
	at   time.Time
	says *room
}

// lately gives the answer, or asks anew where it is older than every.
func (a *roomAsk) lately(every time.Duration, ask func() *room) *room {
	if now := time.Now(); now.Sub(a.at) >= every {
		a.at, a.says = now, ask()
	}
	return a.says
}

// asksRoom says for which kinds of processes it is asked whether the cluster has a place for one more.
func (s *Scheduler) asksRoom() (worker, server bool) {
	h, v := s.want.Ceiling, s.want.ServerRenewal
	worker = h != nil && h.Max > 0
	server = v != nil && v.Released.IsZero() && s.want.Servers[v.Index] == v.Generation
	for _, si := range s.silences {
		if s.overdue(si) {
			worker, server = worker || si.id.Role == backend.RoleWorker, server || si.id.Role == backend.RoleServer
		}
	}
	for i := 0; s.seen != nil && i < s.job.Servers.Count; i++ {
		st, found := s.seen.allocation(serverID(i, s.want.Servers[i]))
		server = server || found && st.State.Live() && st.EndCause == backend.EndDrain
	}
	return worker, server
}

// roomFor asks the backend whether one more process of a kind could run now; nil: that is not known.
func (s *Scheduler) roomFor(ctx context.Context, gens map[int]uint64, render func(rank int, generation uint64) backend.Workload) *room {
	rank := 0
	for taken := range gens {
		rank = max(rank, taken+1) // one that nobody has: it would count as replaced, and what it holds as free
	}
	report, err := s.opt.Backend.Plan(ctx, s.job.Name, []backend.Workload{render(rank, supposed)})
	if err != nil {
		return nil
	}
	return &room{fits: report.Fits(), why: Shortage(report)}
}

// asksInventory says whether anything is to be learnt from what the cluster has.
func (s *Scheduler) asksInventory() bool {
	fallback := s.job.Autoscale.Fallback
	if s.job.Workers.GPUs > 0 && (fallback.UtilisationOver > 0 || fallback.UtilisationUnder > 0) || s.want.Ceiling != nil || len(s.want.Unplaced) > 0 {
		return true
	}
	if s.seen == nil {
		return false
	}
	for _, st := range s.seen.list {
		if !st.Submitted.IsZero() || !st.Deadline.IsZero() {
			return true // a cluster with a queue
		}
	}
	return false
}

// followQueue learns how long workers wait in the cluster's queue.
func (s *Scheduler) followQueue() {
	for _, st := range s.seen.list {
		if st.ID.Role != backend.RoleWorker || st.Submitted.IsZero() || !st.Started.After(s.started) || st.Restarts > 0 || s.queued[st.ID] {
			continue
		}
		s.queued[st.ID] = true
		s.want.Waits, s.want.WaitedAt = keepLast(s.want.Waits, max(0, st.Started.Sub(st.Submitted))), laterOf(s.want.WaitedAt, st.Started)
	}
}

// queueWait is how long one more worker waits for its place: as the cluster says, else as was measured, which counts for less and less.
func (s *Scheduler) queueWait() time.Duration {
	if s.seen != nil && s.seen.inventory != nil && s.seen.inventory.QueueWait > 0 {
		return s.seen.inventory.QueueWait
	}
	return backend.Faded(measured(s.want.Waits, 0).Value, 0, s.since(s.want.WaitedAt))
}

// since is how long before the last look something was measured; 0 where that is not known.
func (s *Scheduler) since(at time.Time) time.Duration {
	if s.seen == nil || at.IsZero() {
		return 0
	}
	return s.seen.at.Sub(at)
}

// waited is the longest time that new workers of a rescale waited in the queue, as far as that is known.
func (s *Scheduler) waited(ranks []int) time.Duration {
	var longest time.Duration
	for _, rank := range ranks {
		if st, ok := s.seen.allocation(workerID(rank, s.want.Workers[rank])); ok && !st.Submitted.IsZero() && !st.Started.IsZero() {
			longest = max(longest, st.Started.Sub(st.Submitted))
		}
	}
	return longest
}
