package core

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/forecast"
)

// decide builds the observation, lets the policy decide, records both, and makes the decision the new target.
func (s *Scheduler) decide(now time.Time) error {
	obs := s.observe(now)
	obs, d, share := s.throughPool(obs, s.policy.Decide(obs))
	observeOnly := s.job.Autoscale.Mode == job.ModeObserve
	if observeOnly {
		d.State = d.Undone(obs.State)
	}
	s.noteForecaster(now)
	s.lookAtModel(now)
	s.noteEvents(now)
	s.want.Policy, s.want.Gate = d.State, s.foresee.state()
	rec := &Record{Observation: obs, Decision: d, LastJoin: s.want.LastJoin, Pool: share, Repairs: append(s.repairs(), s.hungLately()...), ObserveOnly: observeOnly}
	rec.LagUnknown = s.lagUnknown(obs)
	rec.Differs = observeOnly && !obs.Hold.Unknown && rec.differs(s.lastChange)
	s.last = rec
	if err := s.store.Append(state.Decisions, now, rec); err != nil {
		return err
	}
	if rec.Changes() {
		s.lastChange = rec
		if err := s.store.Put(changeKey, rec); err != nil {
			return err
		}
		s.lg.Info("decision", "kind", string(d.Kind), "from", d.Current, "to", d.Target, "reason", d.Reason, "observe_only", rec.ObserveOnly)
	}
	if !rec.ObserveOnly {
		s.aim(now, d)
	}
	return s.save()
}

// lagUnknown says why an observation does not know the lag, "" where it does.
func (s *Scheduler) lagUnknown(o plan.Observation) string {
	if o.LagKnown {
		return ""
	}
	return cmp.Or(s.lag(o.Now).why, "records that were trained before are trained again, and count")
}

// observe is everything that the policy may know, at now.
func (s *Scheduler) observe(now time.Time) plan.Observation {
	still := stillAt(s.seen.chief.GetProblems())
	lag := s.lagAt(now.Add(-s.seen.since), still)
	history := s.history(now)
	s.lastHistory = plan.Series{Start: history.Start, Step: history.Step, Values: plan.Values(history.Values)}
	s.foresee.doubt = s.outages.doubt(now, history.Step)
	v := Sight{
		Now: now, History: history, Forecast: s.foresee.forecast(now, history),
		BacklogRecords: lag.records, Lag: lag.age, LagKnown: lag.ageKnown && !s.seen.chief.GetRepairing(), Standing: len(still),
		Target: s.want.Target, Workers: s.workers(), Model: s.online.Model(), Basis: s.basis(now),
		Gaps: s.want.Gaps, Joins: s.want.Joins, QueueWait: s.queueWait(), Limits: s.limits(lag),
		Utilisation: s.seen.util, UtilKnown: s.seen.utilKnown, Rescale: s.want.Rescale,
		Flow: s.flow(), Hottest: s.hottest(now.Add(-s.seen.since), still), Partitions: len(s.seen.chief.GetPartitions()),
		Manual: s.want.Manual, State: s.want.Policy, Unknown: s.seen.unknown(s.begun()), Broken: s.broken(),
	}
	if v.Unknown == unseen && v.Target == 0 { // the first decision of a job says by itself why nothing runs yet
		v.Unknown = s.seen.unlisted()
	}
	v.ModelError = s.online.Confidence().Doubts(v.Limits.Min, max(v.Limits.Max, v.Target), func(int) int { return s.job.Servers.Count })
	switch {
	case s.job.Autoscale.Mode == job.ModeObserve:
		v.Target = v.Workers.Running + v.Workers.Pending
	case s.want.Restart > 0:
		v.Target = s.want.Restart
	}
	return v.Observation(s.job)
}

// flow is how fast and how busily the members train, by their own word.
func (s *Scheduler) flow() plan.Flow {
	var f plan.Flow
	n := 0
	for _, m := range s.seen.chief.GetMembers() {
		if m.GetState() != rpc.MemberState_MEMBER_STATE_READY {
			continue
		}
		f.Trained = finite(f.Trained + finite(m.GetRecordsPerSecond()))
		f.Busy += share(m.GetBusyShare())
		n++
	}
	if n == 0 {
		return plan.Flow{}
	}
	f.Busy, f.Known = f.Busy/float64(n), true
	return f
}

// broken says what keeps the job from training that no other number of workers mends; "" when nothing does.
func (s *Scheduler) broken() string {
	if down := cmp.Or(s.withoutPlace(), s.serverDown()); down != "" {
		return down
	}
	if p := s.seen.chief.GetProblems(); s.seen.chiefErr == nil && (recreated(p) || stuckWords(p, len(s.seen.chief.GetPartitions())) == allStand) {
		return stuckWords(p, 0) + ", so that nothing is trained until a person has done something about it, with any number of workers"
	}
	return ""
}

// serverDown names a parameter server that the chief does not hear, of a job that has begun: lag then grows whatever the number of workers.
func (s *Scheduler) serverDown() string {
	if !s.begun() || s.seen.chiefErr != nil {
		return ""
	}
	for i := range s.job.Servers.Count {
		if !s.well(backend.ID{Role: backend.RoleServer, Rank: i}) {
			return fmt.Sprintf("parameter server %d is down, so that nothing is trained until it is back, with any number of workers", i)
		}
	}
	return ""
}

// begun says whether the job's chief was seen with a worker: before that its silence is a beginning and not a fault, as is that of a job of which nothing lives.
func (s *Scheduler) begun() bool { return s.want.Target > 0 && s.want.Trained && !s.gone }

// joinTime is the measured join time and the wait in the cluster's queue as it is now.
func (s *Scheduler) joinTime() plan.Measured { return joinTime(s.job, s.want.Joins, s.queueWait()) }

// history is the measured arrival rate in bins of the forecast's interval, up to the last whole bin; unknown where an outage of the brokers distorts it. Just after a bin's edge,
// where the brokers were last asked before it, that bin is still to come.
func (s *Scheduler) history(now time.Time) forecast.Series {
	step := s.job.Forecast.Interval
	end := now.Truncate(step)
	if _, asked, ok := s.arrivals.Span(); ok && asked.Before(end) && end.Sub(asked) < step {
		end = asked.Truncate(step)
	}
	start := end.Add(-s.job.Forecast.Past()).Truncate(step)
	h := forecast.Series{Start: start, Step: step, Values: s.arrivals.Series(step, start, end)}
	s.outages.forget(start)
	s.outages.blank(h)
	return h
}

// aim makes a decision the new target and opens the rescale that leads to it.
func (s *Scheduler) aim(now time.Time, d plan.Decision) {
	from := s.want.Target
	if d.Target < 1 || d.Target == from || d.Kind == plan.KindHold || s.want.Restart > 0 {
		return
	}
	kind := plan.KindOut
	if d.Target < from {
		kind = plan.KindIn
	}
	if r := s.want.Rescale; r != nil {
		r.Aborted = true
		s.finishRescale(now)
	}
	s.want.Rescale = &Rescale{
		Kind: kind, From: from, To: d.Target, Decided: now, Reason: d.Reason,
		OldCapacity: finite(s.online.Model().Throughput(from, s.job.Servers.Count)), ConfiguredCapacity: finite(s.prior.Throughput(from, s.job.Servers.Count)),
	}
	if s.job.Autoscale.Mode == job.ModeRestart && from > 0 {
		// The paper's pause-and-restart: everybody leaves, then the new number starts from the tablets.
		s.want.Restart = d.Target
		s.want.setTarget(0, now, s.want.all)
		return
	}
	s.takeReady(now)
	s.want.Rescale.Ranks = s.want.setTarget(d.Target, now, func(n int) []int { return victims(n, s.candidates()) })
}

// heedLate takes note that what the last rescale was given up for has come since, as where workers that had no place were left to wait in the cluster's queue.
func (s *Scheduler) heedLate() {
	r := s.lastRescale
	if r == nil || r.Unfinished == "" || r.CameAbout || s.want.Rescale != nil || s.want.Stopping || s.want.Stopped || s.seen.chiefErr != nil || s.want.Target != r.To || len(s.want.Ranks) != r.To {
		return
	}
	c := *r // views have the old one
	if s.unsettled(&c) == "" {
		c.CameAbout = true
		s.lastRescale = &c
	}
}

// finishRescale measures the rescale that is under way, records it and closes it.
func (s *Scheduler) finishRescale(now time.Time) {
	r := s.want.Rescale
	if r == nil {
		return
	}
	s.want.Rescale = nil
	r.Settled = now
	switch r.Done = now; {
	case r.Aborted:
	case r.Kind == plan.KindIn && s.job.Autoscale.Mode != job.ModeRestart:
		r.Done = s.drained(r, now)
	default:
		if r.Join = s.slowestJoin(r, now); r.Join != nil {
			r.Done = r.Decided.Add(r.Join.Total())
		}
	}
	if r.From > 0 { // before a start nothing was trained that it could interrupt
		r.Gap, r.GapKnown = s.progress.gap(r.Decided, now, r.Decided.Add(-10*s.job.SLO.MaxLag), s.arrivals.EnteredAt)
	}
	if r.GapKnown && !r.Aborted {
		s.want.Gaps = keepLast(s.want.Gaps, r.Gap)
	}
	if r.Kind == plan.KindOut && r.From > 0 && !r.Aborted && !r.Hindered { // the first start waits for the servers too
		s.want.Joins = keepLast(s.want.Joins, max(0, r.Done.Sub(r.Decided)-s.waited(r.Ranks)))
		s.want.LastJoin = r.Join
	}
	s.lastRescale = r
	if err := s.store.Append(state.Rescales, now, r); err != nil {
		s.lg.Error("a rescale could not be recorded", "err", err)
	}
	s.lg.Info("rescale done", "kind", string(r.Kind), "from", r.From, "to", r.To, "took", r.Done.Sub(r.Decided).Round(time.Millisecond), "gap", r.Gap.Round(time.Millisecond), "aborted", r.Aborted)
}

// command is an order of a person, carried out by the goroutine that owns the job.
type command struct {
	Order
	done chan error
}

// Order is what a person may ask of a running scheduler.
type Order struct {
	// Kind is "scale" (to Target, until "auto"), "auto" (decide again), "pause", "resume" or "stop".
	Kind   string `json:"kind"`
	Target int    `json:"target,omitempty"`
	// Force makes a stop release everything at once, without drain and without a last snapshot: what was being trained is trained again later.
	Force bool `json:"force,omitempty"`
	// Until is when who gives the order has no more patience: later it is not carried out. Zero: always.
	Until time.Time `json:"-"`
}
