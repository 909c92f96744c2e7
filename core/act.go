package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// retry holds back a workload that keeps failing.
type retry struct {
	tries int
	after time.Time
}

// Backoff of starting a workload again.
const (
	backoffMin = 500 * time.Millisecond
	backoffMax = time.Minute
)

// healthyRun is how long a process must have lived for its end to be no part of a crash loop: what fails by itself fails within it (a wrong path, a port
// that is taken, a model that cannot be built), and what ends after it was killed, preempted, or lost with its node.
const healthyRun = 10 * time.Second

// backendTimeout bounds what a backend is asked to do. One that takes longer is asked again: every call is idempotent.
const backendTimeout = time.Minute

// act brings what runs one step nearer to what is wanted. Every step is idempotent: after a failure, or a restart of the scheduler, the next look
// tells what is still missing.
func (s *Scheduler) act(ctx context.Context, now time.Time) error {
	if s.job.Autoscale.Mode == job.ModeObserve && !s.want.Stopping {
		return nil
	}
	if s.changing != nil {
		return nil
	}
	if s.want.Forced && s.seen.blind() && s.seen.leaseErr == nil {
		return s.stop(ctx, now)
	}
	if s.seen.leaseErr != nil {
		return nil
	}
	if s.seen.listErr != nil || !s.seen.complete { // unknown: nothing is started twice and nothing is released
		return s.shutOutUnseen(ctx, now)
	}
	if s.seen.modelGone && !s.want.Forced {
		return nil // the model is in the memory of what runs, and what would be started in its place begins anew
	}
	if s.want.Stopping {
		return s.stop(ctx, now)
	}
	if err := s.keepPaused(ctx); err != nil {
		return err
	}
	s.keepPolicies(ctx)
	return s.each(ctx, now, []func(context.Context, time.Time) error{
		s.sendStraysAway, s.renew, s.replaceHung, s.standBy, s.followEnds, s.renewServers, s.serversFirst, s.ensure, s.drain, s.settle,
	})
}

// each takes one step after another, up to an error or to a call that the backend has not answered.
func (s *Scheduler) each(ctx context.Context, now time.Time, steps []func(context.Context, time.Time) error) error {
	for _, step := range steps {
		if err := step(ctx, now); err != nil || s.changing != nil {
			return err
		}
	}
	return nil
}

// takeOver adopts what runs without the scheduler's knowledge, before anything is decided about it.
func (s *Scheduler) takeOver() error {
	if s.seen.listErr != nil || !s.seen.complete {
		return nil
	}
	found := s.want.adopt(s.seen.list)
	if found {
		s.lg.Info("found processes of the job that were not known; taking them over", "workers", s.want.Target, "servers", len(s.want.Servers))
	}
	if s.lease != nil && s.lease.elsewhere {
		if s.lease.elsewhere = false; s.want.giveUp(s.seen.list) {
			s.lg.Info("another scheduler, with a state folder of its own, has let workers of the job go since; going on with those that run", "workers", s.want.Target)
			found = true
		}
	}
	if !found {
		return nil
	}
	return s.save()
}

// keepPaused makes a new chief pause too when a person has paused the job, and remembers a pause that only the chief knows of.
func (s *Scheduler) keepPaused(ctx context.Context) error {
	if s.seen.chiefErr != nil || s.seen.chief.GetPaused() == s.want.Manual.Paused {
		return nil
	}
	if s.want.Manual.Paused {
		if err := s.chief.pause(ctx, true); err != nil {
			s.lg.Warn("the new chief was not reached to keep the job paused; trying again", "err", err)
		}
		return nil
	}
	s.lg.Info("the job was paused before this scheduler came; kale resume goes on")
	s.want.pause(true, time.Time{}) // since when, the chief does not say
	return s.save()
}

// keepPolicies tells the chief what the job file says of records that cannot be trained, where that is not what its trainers were started with.
func (s *Scheduler) keepPolicies(ctx context.Context) {
	holds, want := s.seen.chief.GetPolicies(), policies(s.job)
	if s.seen.chiefErr != nil || holds == nil || proto.Equal(holds, want) {
		return
	}
	if err := s.chief.setPolicies(ctx, want); err != nil {
		s.lg.Warn("the chief was not reached to tell it what becomes of records that cannot be trained; trying again", "err", err)
		return
	}
	s.lg.Info("the trainers are told what becomes of records that cannot be trained", "on_lost", want.GetOnLost(), "on_undecodable", want.GetOnUndecodable())
}

// notePolicies takes down what the chief goes by, and says whether that is news.
func (s *Scheduler) notePolicies() (changed bool) {
	holds := s.seen.chief.GetPolicies()
	if s.seen.chiefErr != nil || holds == nil || proto.Equal(holds, s.want.Policies) {
		return false
	}
	s.want.Policies = holds
	return true
}

// untold are the policies of the job file that the chief is not told in mode observe, which touches nothing: by their path, what it has and goes on with.
func untold(j *job.Job, holds *rpc.Policies) map[string][2]string {
	if j.Autoscale.Mode != job.ModeObserve || holds == nil {
		return nil
	}
	out := map[string][2]string{}
	for path, v := range map[string][2]string{
		"stream.on_lost": {j.Stream.OnLost, holds.GetOnLost()}, "stream.on_undecodable": {j.Stream.OnUndecodable, holds.GetOnUndecodable()},
	} {
		if v[0] != v[1] {
			out[path] = v
		}
	}
	return out
}

// untoldNow says of the policies that differ that nobody is told of them.
func (s *Scheduler) untoldNow() (says []string) {
	if s.seen.chiefErr != nil {
		return nil
	}
	differ := untold(s.job, s.seen.chief.GetPolicies())
	for _, path := range slices.Sorted(maps.Keys(differ)) {
		says = append(says, fmt.Sprintf("%s is %q in the job file, and what runs goes on with %q: autoscale.mode is %q, which changes nothing", path, differ[path][0], differ[path][1], job.ModeObserve))
	}
	return says
}

// ensure starts what is wanted and does not run. What ended though it is wanted gets a new generation.
func (s *Scheduler) ensure(ctx context.Context, now time.Time) error {
	ws, changed := s.missing(now)
	if noted := s.want.note(ws, startsWith(s.job)); changed || noted {
		if err := s.save(); err != nil {
			return err
		}
	}
	s.ensureErr = nil
	if len(ws) == 0 {
		return nil
	}
	return s.askStart(ctx, ws, func(sts []backend.Status, err error) error { return s.ensured(ws, sts, err, now) })
}

// ensured takes in how it went.
func (s *Scheduler) ensured(ws []backend.Workload, sts []backend.Status, err error, now time.Time) error {
	if err != nil {
		s.ensureErr = err
		if says := err.Error(); says != s.ensureSaid { // it is tried at every look
			s.warn("the backend could not start workloads; trying again", "workloads", len(ws), "err", err)
			s.ensureSaid = says
		}
		if after := backend.AsError(err).After; after > 0 {
			for _, w := range ws {
				s.hold(w.ID, now, after)
			}
		}
		return nil
	}
	s.ensureSaid = ""
	changed := false
	for i, st := range sts {
		if st.Err != nil {
			changed = s.refused(ws[i].ID, st.Err, now) || changed
		} else if s.denied(ws[i].ID) {
			t := s.troubles[placeOf(ws[i].ID)]
			t.refusal, t.refused = nil, ""
		}
	}
	if changed {
		return s.save()
	}
	return nil
}

// lingerFor is for how long a start that was sent is waited for when the scheduler is asked to end: else nobody knows what it has started.
const lingerFor = 2 * time.Second

// lingering is ctx with a timeout that outlives its end by lingerFor.
func lingering(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	long, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(lingerFor):
			cancel()
		case <-long.Done():
		}
	})
	return long, func() { stop(); cancel() }
}

// missing renders what is wanted and does not run, servers first; changed says that generations were raised, which must be saved before they are used.
func (s *Scheduler) missing(now time.Time) (ws []backend.Workload, changed bool) {
	add := func(role string, rank int, gens map[int]uint64, render func(int, uint64) backend.Workload) {
		if gens[rank] == 0 {
			gens[rank], changed = 1, true
		}
		id := backend.ID{Role: role, Rank: rank, Generation: gens[rank]}
		st, found := s.seen.allocation(id)
		if found && st.State.Live() {
			return
		}
		if found && !st.Started.IsZero() && st.Finished.Sub(st.Started) >= healthyRun {
			delete(s.backoff, placeOf(id))
		}
		if s.backoff[placeOf(id)].after.After(now) {
			return
		}
		if found && !(st.Started.IsZero() && s.denied(id)) { // it ended for good, and is wanted: a new generation takes its place
			gens[rank]++
			changed = true
			s.hold(id, now, 0)
		}
		ws = append(ws, render(rank, gens[rank]))
	}
	for i := range s.job.Servers.Count {
		add(backend.RoleServer, i, s.want.Servers, s.loads.server)
	}
	if s.withholds() {
		return ws, changed
	}
	for _, rank := range s.want.wantedRanks() {
		if !s.departing(rank) {
			add(backend.RoleWorker, rank, s.want.Workers, s.loads.worker)
		}
	}
	return ws, changed
}

// departing says that an older worker of a rank is on its way out: a new one would end it by force.
func (s *Scheduler) departing(rank int) bool {
	return slices.ContainsFunc(s.want.Draining, func(l leaving) bool { return l.Rank == rank })
}

// refused takes in that one workload was not started; it reports whether another generation is wanted now.
func (s *Scheduler) refused(id backend.ID, err *backend.Error, now time.Time) bool {
	if err.Code == backend.Gone { // this generation was released once: take the next
		gens := s.want.Workers
		if id.Role == backend.RoleServer {
			gens = s.want.Servers
		}
		gens[id.Rank] = max(gens[id.Rank], id.Generation) + 1
		return true
	}
	s.warn("a workload was not started; trying again", "workload", id.String(), "err", err)
	s.deny(id, err, now)
	s.hold(id, now, err.After)
	return false
}

// hold makes the next try for a rank wait, twice as long each time, and at least as long as the backend asks for.
func (s *Scheduler) hold(id backend.ID, now time.Time, least time.Duration) {
	r := s.backoff[placeOf(id)]
	if now.Sub(r.after) > 2*backoffMax {
		r.tries = 0
	}
	wait := max(min(backoffMin<<min(r.tries, 10), backoffMax), least)
	s.backoff[placeOf(id)] = retry{tries: r.tries + 1, after: now.Add(wait)}
}

// drainTimeout is how long a worker that was asked to leave may take before it is released all the same: what it answered for is then leased again.
const drainTimeout = 2 * time.Minute

// The ways to treat a worker that shall leave.
type parting int

const (
	waitForChief parting = iota
	askToDrain
	releaseDrained
	releaseForced
)

// partingOf judges a leaving worker that the backend still has and that was not released.
func (s *Scheduler) partingOf(l leaving, st backend.Status, now time.Time) parting {
	m := s.seen.member(l.Rank, l.Generation)
	switch {
	case !st.State.Live():
		return releaseDrained
	case st.State == backend.StatePending:
		return releaseForced // it has no process that could hold anything
	case errors.Is(s.seen.chiefErr, rpc.ErrNoChief) && !s.want.Trained:
		return releaseForced // there never was a chief that it could have joined
	case s.want.Stopping && s.unplacedChief() != nil && s.stopLasts > chiefPlace:
		return releaseForced // no chief comes to ask it, or only one that has its place
	case s.seen.chiefErr != nil:
		return waitForChief
	case m.GetState() == rpc.MemberState_MEMBER_STATE_DRAINED:
		return releaseDrained
	case m == nil && s.chiefIsNew():
		return waitForChief // it may be about to register again
	case m == nil, m.GetState() == rpc.MemberState_MEMBER_STATE_EXPELLED:
		return releaseForced // it never joined, or does not answer: the chief leases again what it may hold
	case !l.Asked.IsZero() && now.Sub(l.Asked) > drainTimeout:
		return releaseForced
	case l.Asked.IsZero() && (s.wouldLeaveAGap() || s.awaitsRelief(l, now)):
		return waitForChief
	}
	return askToDrain
}

// wouldLeaveAGap says that what a worker hands over now would have no reader for a while: a chief that has just started gives nothing to others before it has
// waited for all who may hold it. Where everybody leaves nobody takes over.
func (s *Scheduler) wouldLeaveAGap() bool {
	return s.seen.chief.GetInGrace() && !s.want.Stopping && s.want.Restart == 0
}

// awaitsRelief says that the successor for which a worker leaves is not ready, or not any more, or not yet with the chief of now, and that there is time to wait.
func (s *Scheduler) awaitsRelief(l leaving, now time.Time) bool {
	r := l.Relief
	return r != nil && now.Before(r.Latest) && !s.want.Stopping && slices.Contains(s.want.Ranks, r.Rank) && !s.isReady(r.Rank)
}

// heldNothing says that a worker has not joined since it was started: the chief, which was up before it, does not know it.
func (s *Scheduler) heldNothing(l leaving, st backend.Status) bool {
	c := s.seen.chief
	up := time.Duration(c.GetNowUnixMs()-c.GetStartedUnixMs()) * time.Millisecond
	return s.seen.chiefErr == nil && s.seen.member(l.Rank, l.Generation) == nil && !st.Started.IsZero() && s.seen.at.Sub(st.Started) < up
}

// chiefIsNew says that members of the chief before may not have registered again yet.
func (s *Scheduler) chiefIsNew() bool {
	c := s.seen.chief
	return c.GetInGrace() || c.GetNowUnixMs()-c.GetStartedUnixMs() < leaseTimeout.Milliseconds()
}

// drain moves leaving workers along: asked to drain, drained, released, gone.
func (s *Scheduler) drain(ctx context.Context, now time.Time) error {
	var ask []string
	var gentle, force []backend.ID
	var undrained []bool // those of force that held something
	keep := make([]leaving, 0, len(s.want.Draining))
	for _, l := range s.want.Draining {
		st, found := s.seen.allocation(l.id())
		l.noteAway(st, now)
		silent, patience := l.silent(now)
		away := l.Released && s.outOfReach(st, silent, patience)
		if away { // nobody waits for it any more: whoever comes has another generation
			s.want.Workers[l.Rank] = max(s.want.Workers[l.Rank], l.Generation+1)
		}
		if !found || away || l.Released && !st.State.Live() {
			s.lg.Info("worker released", "workload", l.id().String(), "took", now.Sub(l.Since).Round(time.Millisecond))
			if l.Released && !l.Asked.IsZero() && !away {
				s.want.Drains = keepLast(s.want.Drains, now.Sub(l.Since))
			}
			continue
		}
		if s.seen.chiefErr != nil {
			l.Asked = time.Time{} // when it is back the worker has all its time again
		}
		keep = append(keep, l)
		if l.Released {
			if st.State != backend.StateStopping {
				gentle = append(gentle, l.id()) // the backend has lost it
			}
			continue
		}
		switch s.partingOf(l, st, now) {
		case askToDrain:
			ask = append(ask, s.seen.member(l.Rank, l.Generation).GetMember())
		case releaseDrained:
			gentle = append(gentle, l.id())
		case releaseForced:
			force = append(force, l.id())
			undrained = append(undrained, !(st.State == backend.StatePending || s.heldNothing(l, st)))
		}
	}
	s.want.Draining = keep
	s.askToDrain(ctx, ask, now)
	if err := s.release(ctx, gentle, backend.Drained, nil); err != nil || s.changing != nil {
		return err
	}
	return s.release(ctx, force, backend.Forced, func() { // once: a backend that refuses is asked again
		for i, id := range force {
			if undrained[i] {
				s.lg.Warn("a leaving worker is released without its drain; what it held is trained again", "workload", id.String())
			} else {
				s.lg.Info("a leaving worker that has not joined is released at once; it held nothing", "workload", id.String())
			}
		}
	})
}

// askToDrain asks the chief, and starts the clock of those that it asked for the first time.
func (s *Scheduler) askToDrain(ctx context.Context, members []string, now time.Time) {
	if len(members) == 0 {
		return
	}
	if _, err := s.chief.drain(ctx, members); err != nil {
		s.lg.Warn("the chief was not reached to drain workers; trying again", "err", err)
		return
	}
	for i, l := range s.want.Draining {
		m := s.seen.member(l.Rank, l.Generation)
		if l.Asked.IsZero() && m != nil && slices.Contains(members, m.GetMember()) {
			s.want.Draining[i].Asked = now
		}
	}
}

// release gives leaving workers up. Only when the backend has taken it are they noted as released, and told.
func (s *Scheduler) release(ctx context.Context, ids []backend.ID, how backend.How, tell func()) error {
	if len(ids) == 0 {
		return nil
	}
	return s.askEnd(ctx, ids, how, func(err error) error {
		if s.releaseErr = err; err != nil {
			s.warn("the backend did not release workers; trying again", "workloads", len(ids), "how", how.String(), "err", err)
			return nil
		}
		for i, l := range s.want.Draining {
			if slices.Contains(ids, l.id()) {
				s.want.Draining[i].Released = true
				s.want.Draining[i].Drained = s.holdsNothing(l)
			}
		}
		if tell != nil {
			tell()
		}
		return s.save()
	})
}

const (
	// rescaleTimeout is how long a rescale may be under way. Then it is recorded as unfinished: what is missing is still wanted and tried for, but
	// it keeps nobody from deciding otherwise.
	rescaleTimeout = 10 * time.Minute
	// idleJoin is how long a new worker that was given nothing to train must have been ready.
	idleJoin = 5 * time.Second
)

// settle closes the rescale under way when it is done.
func (s *Scheduler) settle(_ context.Context, now time.Time) error {
	if s.want.Restart > 0 {
		if len(s.want.Draining) > 0 {
			return nil
		}
		came := s.want.setTarget(s.want.Restart, now, s.want.all)
		if s.want.Rescale != nil {
			s.want.Rescale.Ranks = came
		}
		s.want.Restart = 0
		return s.save()
	}
	r := s.want.Rescale
	if r == nil {
		return nil
	}
	if !r.Hindered && s.hindered(r) {
		r.Hindered = true
		if err := s.save(); err != nil {
			return err
		}
	}
	if s.seen.chiefErr != nil {
		return nil
	}
	if missing := s.unsettled(r); missing != "" {
		if now.Sub(r.Decided) < rescaleTimeout {
			return nil
		}
		r.Aborted, r.Unfinished = true, missing
	}
	s.finishRescale(now)
	return s.save()
}

// hindered says that something other than their own start keeps the new workers of a rescale from training, as far as can be seen now.
func (s *Scheduler) hindered(r *Rescale) bool {
	if s.seen.chiefErr != nil {
		return silent(s.seen.chiefErr)
	}
	if s.broken() != "" || s.seen.chief.GetPaused() || s.seen.endsErr != nil {
		return true
	}
	still := stillAt(s.seen.chief.GetProblems())
	return slices.ContainsFunc(r.Ranks, func(rank int) bool {
		m := s.seen.member(rank, s.want.Workers[rank])
		return m.GetFirstTrainedUnixMs() == 0 && slices.ContainsFunc(m.GetPartitions(), func(p int32) bool { return still[p] })
	})
}

// unsettled names what a rescale still waits for, "" when it is done.
func (s *Scheduler) unsettled(r *Rescale) string {
	if r.Kind == plan.KindOut || s.job.Autoscale.Mode == job.ModeRestart { // who stays does not have to arrive for others to leave
		if missing := s.unarrived(r); missing != "" {
			return missing
		}
	}
	if n := len(s.want.Draining); n > 0 {
		return job.Count(n, "worker") + ", still leaving"
	}
	return ""
}

// unarrived names a wanted worker that does not train yet.
func (s *Scheduler) unarrived(r *Rescale) string {
	for _, rank := range s.want.Ranks {
		m := s.seen.member(rank, s.want.Workers[rank])
		if m.GetState() != rpc.MemberState_MEMBER_STATE_READY {
			return fmt.Sprintf("worker %d, which is not ready", rank)
		}
		if r.Kind != plan.KindOut || !slices.Contains(r.Ranks, rank) {
			continue
		}
		if first := m.GetFirstTrainedUnixMs(); first > 0 {
			if at := moment(first); r.FirstTrained.IsZero() || at.Before(r.FirstTrained) {
				r.FirstTrained = at
			}
		} else if s.hasWork(m) {
			return fmt.Sprintf("worker %d, which has not trained yet", rank)
		}
	}
	return ""
}

// hasWork says whether a new worker must have trained to have arrived. One that holds partitions without a backlog need not, nor one without
// partitions: it trains only what others have no room for. But it may be about to get some.
func (s *Scheduler) hasWork(m *rpc.MemberStatus) bool {
	backlog := false
	for _, p := range s.seen.chief.GetPartitions() {
		if p.GetEnd() > p.GetApplied() {
			if slices.Contains(m.GetPartitions(), p.GetPartition()) {
				return true
			}
			backlog = true
		}
	}
	ready := time.Duration(s.seen.chief.GetNowUnixMs()-m.GetReadyUnixMs()) * time.Millisecond
	if ready >= idleJoin {
		return false
	}
	// Between two arrivals nothing waits for a moment; the next one is trained, and only then is it known how long the join took.
	rate, known := s.arrivals.Rate(s.seen.at, max(s.job.Forecast.Interval, 4*s.job.Autoscale.Watch))
	return backlog && len(m.GetPartitions()) == 0 || known && rate > 0
}

// sendStraysAway makes workers leave that run, are known, and are not wanted.
func (s *Scheduler) sendStraysAway(context.Context, time.Time) error {
	strays := false
	for _, st := range s.seen.list {
		if st.ID.Role != backend.RoleWorker || !st.State.Live() || st.State == backend.StateStopping || s.leaving(st.ID) {
			continue
		}
		if !slices.Contains(s.want.wantedRanks(), st.ID.Rank) {
			s.want.Draining = append(s.want.Draining, leaving{Rank: st.ID.Rank, Generation: st.ID.Generation, Since: s.seen.at})
			strays = true
		}
	}
	if !strays {
		return nil
	}
	return s.save()
}

func (s *Scheduler) leaving(id backend.ID) bool {
	return s.want.leaves(id)
}
