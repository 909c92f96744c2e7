package core

import (
	"context"
	"errors"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
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

// act brings what runs one step nearer to what is wanted. Every step is idempotent: after a failure, or a restart of the scheduler, the next look
// tells what is still missing.
func (s *Scheduler) act(ctx context.Context, now time.Time) error {
	if s.job.Autoscale.Mode == job.ModeObserve && !s.want.Stopping {
		return nil
	}
	if s.seen.listErr != nil || !s.seen.complete {
		return nil // unknown: nothing is started twice and nothing is released
	}
	if s.want.Target == 0 && len(s.want.Servers) == 0 && len(s.seen.list) > 0 {
		s.want.adopt(s.seen.list)
		s.lg.Info("found the job running; taking it over", "workers", s.want.Target, "servers", len(s.want.Servers))
		if err := s.save(); err != nil {
			return err
		}
	}
	if s.want.Stopping {
		return s.stop(ctx, now)
	}
	if err := s.ensure(ctx, now); err != nil {
		return err
	}
	if err := s.drain(ctx, now); err != nil {
		return err
	}
	s.settle(now)
	return nil
}

// ensure starts what is wanted and does not run. What ended though it is wanted gets a new generation.
func (s *Scheduler) ensure(ctx context.Context, now time.Time) error {
	var ws []backend.Workload
	changed := false
	add := func(id backend.ID, gens map[int]uint64, make func(int, uint64) backend.Workload) {
		if s.backoff[backend.ID{Role: id.Role, Rank: id.Rank}].after.After(now) {
			return
		}
		st, found := s.seen.allocation(id)
		if found && st.State.Live() {
			return
		}
		if found { // it ended for good, and is wanted: a new generation takes its place
			s.lg.Warn("ended although it is wanted; starting it again", "workload", id.String(), "state", string(st.State), "exit", st.ExitCode, "reason", st.Reason)
			gens[id.Rank]++
			changed = true
			s.hold(id, now)
		}
		ws = append(ws, make(id.Rank, gens[id.Rank]))
	}
	for i := range s.job.Servers.Count {
		if s.want.Servers[i] == 0 {
			s.want.Servers[i], changed = 1, true
		}
		add(backend.ID{Role: backend.RoleServer, Rank: i, Generation: s.want.Servers[i]}, s.want.Servers, s.loads.server)
	}
	for rank := range s.want.Target {
		if s.want.Workers[rank] == 0 {
			s.want.Workers[rank], changed = 1, true
		}
		add(backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: s.want.Workers[rank]}, s.want.Workers, s.loads.worker)
	}
	if changed {
		if err := s.save(); err != nil {
			return err
		}
	}
	if len(ws) == 0 {
		return nil
	}
	sts, err := s.opt.Backend.Ensure(ctx, s.job.Name, ws)
	if err != nil {
		s.lg.Warn("the backend could not start workloads; trying again", "workloads", len(ws), "err", err)
		return nil
	}
	for i, st := range sts {
		if st.Err != nil {
			s.refused(ws[i].ID, st.Err, now)
		}
	}
	return nil
}

// refused takes in that one workload was not started.
func (s *Scheduler) refused(id backend.ID, err error, now time.Time) {
	if backend.CodeOf(err) == backend.Gone { // this generation was released once: take the next
		gens := s.want.Workers
		if id.Role == backend.RoleServer {
			gens = s.want.Servers
		}
		gens[id.Rank] = max(gens[id.Rank], id.Generation) + 1
		return
	}
	s.lg.Warn("a workload was not started; trying again", "workload", id.String(), "err", err)
	s.hold(id, now)
}

// hold makes the next try for a rank wait, twice as long each time.
func (s *Scheduler) hold(id backend.ID, now time.Time) {
	key := backend.ID{Role: id.Role, Rank: id.Rank}
	r := s.backoff[key]
	wait := min(backoffMin<<min(r.tries, 10), backoffMax)
	if now.Sub(r.after) > 2*backoffMax {
		r.tries, wait = 0, backoffMin
	}
	s.backoff[key] = retry{tries: r.tries + 1, after: now.Add(wait)}
}

// drainTimeout is how long a leaving worker may take to finish before it is released all the same: what it answered for is then leased again.
const drainTimeout = 2 * time.Minute

// drain moves leaving workers along: asked to drain, drained, released, gone.
func (s *Scheduler) drain(ctx context.Context, now time.Time) error {
	if len(s.want.Draining) == 0 {
		return nil
	}
	var ask []string
	var gentle, force []backend.ID
	keep := s.want.Draining[:0:0]
	for _, l := range s.want.Draining {
		st, found := s.seen.allocation(l.id())
		if !found || !st.State.Live() && l.Released {
			s.lg.Info("worker released", "workload", l.id().String(), "took", now.Sub(l.Since).Round(time.Millisecond))
			continue
		}
		if !l.Released {
			m := s.seen.member(l.Rank, l.Generation)
			switch {
			case !st.State.Live(), m.GetState() == rpc.MemberState_MEMBER_STATE_DRAINED:
				gentle, l.Released = append(gentle, l.id()), true
			case s.seen.chiefErr != nil && now.Sub(l.Since) < drainTimeout:
				// unknown: wait for the chief
			case m == nil || m.GetState() == rpc.MemberState_MEMBER_STATE_EXPELLED, now.Sub(l.Since) > drainTimeout:
				// It never joined, or does not answer: the chief leases again what it may hold.
				force, l.Released = append(force, l.id()), true
			default:
				ask = append(ask, m.GetMember())
			}
		}
		keep = append(keep, l)
	}
	s.want.Draining = keep
	if len(ask) > 0 {
		if _, err := s.chief.drain(ctx, ask); err != nil {
			s.lg.Warn("the chief was not reached to drain workers; trying again", "err", err)
		}
	}
	if err := s.release(ctx, gentle, backend.Drained); err != nil {
		return err
	}
	return s.release(ctx, force, backend.Forced)
}

func (s *Scheduler) release(ctx context.Context, ids []backend.ID, how backend.How) error {
	if len(ids) == 0 {
		return nil
	}
	if err := s.opt.Backend.Release(ctx, s.job.Name, ids, how); err != nil {
		s.lg.Warn("the backend did not release workers; trying again", "workloads", len(ids), "how", how.String(), "err", err)
		for i, l := range s.want.Draining {
			for _, id := range ids {
				if l.id() == id {
					s.want.Draining[i].Released = false
				}
			}
		}
	}
	return s.save()
}

// settle closes the rescale under way when it is done.
func (s *Scheduler) settle(now time.Time) {
	if s.want.Restart > 0 {
		if len(s.want.Draining) == 0 {
			s.want.setTarget(s.want.Restart, now)
			s.want.Restart = 0
		}
		return
	}
	r := s.want.Rescale
	if r == nil {
		return
	}
	for rank := range s.want.Target {
		m := s.seen.member(rank, s.want.Workers[rank])
		if m.GetState() != rpc.MemberState_MEMBER_STATE_READY {
			return
		}
		first := m.GetFirstTrainedUnixMs()
		if rank >= r.From && first == 0 && s.hasBacklog() {
			return
		}
		if at := time.UnixMilli(first); rank >= r.From && first > 0 && (r.FirstTrained.IsZero() || at.Before(r.FirstTrained)) {
			r.FirstTrained = at
		}
	}
	if len(s.want.Draining) > 0 {
		return
	}
	s.finishRescale(now)
	if err := s.save(); err != nil {
		s.lg.Error("the desired state could not be saved", "err", err)
	}
}

// hasBacklog says whether there is anything to train: without it a new worker need not have trained to have arrived.
func (s *Scheduler) hasBacklog() bool {
	for _, p := range s.seen.chief.GetPartitions() {
		if p.GetEnd() > p.GetApplied() {
			return true
		}
	}
	return false
}

// stopSnapshotTimeout bounds the last snapshot of a job.
const stopSnapshotTimeout = 2 * time.Minute

// stop drains all workers, writes a snapshot, releases the servers, and is done when nothing is left.
func (s *Scheduler) stop(ctx context.Context, now time.Time) error {
	if s.want.Forced {
		if err := s.Kill(ctx); err != nil {
			s.lg.Warn("not everything is released yet; trying again", "err", err)
			return nil
		}
		s.want.Draining, s.want.Rescale, s.want.Restart = nil, nil, 0
		s.want.Target, s.want.Stopped, s.want.Stopping, s.want.Forced = 0, true, false, false
		return s.save()
	}
	if s.want.Target > 0 || s.want.Restart > 0 {
		s.want.Restart, s.want.Rescale = 0, nil
		s.want.setTarget(0, now)
		if err := s.save(); err != nil {
			return err
		}
	}
	if err := s.releaseStrays(ctx); err != nil {
		return err
	}
	if err := s.drain(ctx, now); err != nil {
		return err
	}
	if len(s.want.Draining) > 0 {
		return nil
	}
	servers, workers := s.live()
	if workers > 0 {
		return nil
	}
	if len(servers) == 0 {
		s.want.Stopped, s.want.Stopping = true, false
		s.want.Target = 0
		s.lg.Info("the job has stopped; its state is in the checkpoint folder", "dir", s.job.Checkpoint.Dir)
		return s.save()
	}
	if !s.want.Snapshotted {
		if err := s.chief.snapshot(ctx, stopSnapshotTimeout); err != nil && !errors.Is(err, rpc.ErrNoChief) {
			s.lg.Warn("the last snapshot was not written; trying again", "err", err)
			return nil
		}
		s.want.Snapshotted = true
	}
	if err := s.opt.Backend.Release(ctx, s.job.Name, servers, backend.Drained); err != nil {
		s.lg.Warn("the backend did not release the servers; trying again", "err", err)
	}
	return nil
}

// releaseStrays makes workers that run without being wanted leave too.
func (s *Scheduler) releaseStrays(context.Context) error {
	for _, st := range s.seen.list {
		if st.ID.Role == backend.RoleWorker && st.State.Live() && st.State != backend.StateStopping && !s.leaving(st.ID) {
			s.want.Draining = append(s.want.Draining, leaving{Rank: st.ID.Rank, Generation: st.ID.Generation, Since: s.seen.at})
		}
	}
	return s.save()
}

func (s *Scheduler) leaving(id backend.ID) bool {
	for _, l := range s.want.Draining {
		if l.id() == id {
			return true
		}
	}
	return false
}

// live lists the servers that the backend still has, and counts the workers.
func (s *Scheduler) live() (servers []backend.ID, workers int) {
	for _, st := range s.seen.list {
		if !st.State.Live() {
			continue
		}
		switch st.ID.Role {
		case backend.RoleServer:
			servers = append(servers, st.ID)
		case backend.RoleWorker:
			workers++
		}
	}
	return servers, workers
}
