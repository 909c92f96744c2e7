package core

import (
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// Join says how a new worker's join time divides, from the decision to its first trained record. The moments are those that the worker and the chief
// wrote down, not those at which the scheduler looked; clocks that differ between machines shift the borders between the parts, never below zero.
type Join struct {
	Worker string `json:"worker"`
	// Decided is when the scale-out was decided; the worker may be gone by now, and another have its rank. Zero where an older scheduler wrote it down.
	Decided time.Time `json:"decided,omitzero"`
	// Placed is from the decision until its process ran: the scheduler's and the backend's part.
	Placed time.Duration `json:"placed"`
	// Queued is what of Placed was the wait in the cluster's queue; 0: there was none, or that is not known.
	Queued time.Duration `json:"queued,omitempty"`
	// Started is from there until it had registered with the chief: its graph is built then.
	Started time.Duration `json:"started"`
	// Ready is from there until it was warm and could be given partitions.
	Ready time.Duration `json:"ready"`
	// First is from there until its first records were trained, 0 for one that got nothing to train.
	First time.Duration `json:"first"`
	// Idle says that it had got nothing to train by then: it is ready, and First is 0.
	Idle bool `json:"idle,omitempty"`
}

// Total is the whole join time.
func (j Join) Total() time.Duration { return j.Placed + j.Started + j.Ready + j.First }

// String is the division for people.
func (j Join) String() string {
	first := "first record " + job.Length(j.First)
	if j.Idle {
		first = "and has got nothing to train yet"
	}
	queued := ""
	if j.Queued > 0 {
		queued = fmt.Sprintf(" (%s of it in the cluster's queue)", job.Length(j.Queued))
	}
	return fmt.Sprintf("%s in %s: placed %s%s, started %s, ready %s, %s", j.Worker, job.Length(j.Total()), job.Length(j.Placed), queued, job.Length(j.Started), job.Length(j.Ready), first)
}

// joinOf divides a member's join, between the decision and now.
func joinOf(m *rpc.MemberStatus, decided, now time.Time) Join {
	at := decided
	part := func(unixMs int64) time.Duration {
		if unixMs <= 0 {
			return 0
		}
		then := moment(unixMs)
		if then.After(now) {
			then = now
		}
		if !then.After(at) {
			return 0
		}
		d := then.Sub(at)
		at = then
		return d
	}
	return Join{
		Worker: m.GetMember(), Decided: decided, Placed: part(m.GetStartedUnixMs()), Started: part(m.GetJoinedUnixMs()), Ready: part(m.GetReadyUnixMs()), First: part(m.GetFirstTrainedUnixMs()),
		Idle: m.GetFirstTrainedUnixMs() <= 0,
	}
}

// slowestJoin is the join of the new worker that was the last to train, nil when no new one is known.
func (s *Scheduler) slowestJoin(r *Rescale, now time.Time) *Join {
	var slowest *Join
	for _, rank := range r.Ranks {
		m := s.seen.member(rank, s.want.Workers[rank])
		if m == nil {
			continue
		}
		j := joinOf(m, r.Decided, now)
		j.Queued = min(s.waited([]int{rank}), j.Placed)
		if slowest == nil || j.Total() > slowest.Total() {
			slowest = &j
		}
	}
	return slowest
}

// drained is when the last worker that a scale-in sent away had handed over everything, by the chief's clock; now, where the chief does not say.
func (s *Scheduler) drained(r *Rescale, now time.Time) time.Time {
	last := r.Decided
	for _, rank := range r.Ranks {
		ms := s.seen.member(rank, s.want.Workers[rank]).GetDrainedUnixMs()
		if ms <= 0 || moment(ms).After(now) {
			return now
		}
		if at := moment(ms); at.After(last) {
			last = at
		}
	}
	if !last.After(r.Decided) {
		return now
	}
	return last
}
