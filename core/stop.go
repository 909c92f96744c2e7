package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// stopSnapshotTimeout bounds a snapshot before processes end.
const stopSnapshotTimeout = 2 * time.Minute

// quickPace is the shortest time between two looks where autoscale.watch asks for fewer.
const quickPace = 200 * time.Millisecond

// pace is the time until the next look. A stop or a rescale is many short steps, each of which shows only at a look: it has a pace of its own, quick at
// first and then a tenth of the time that it has taken, so that looking adds little to it and one that takes long does not press the backend.
func (s *Scheduler) pace(now time.Time) time.Duration {
	watch := s.job.Autoscale.Watch
	var since time.Time
	switch {
	case s.want.Stopping:
		since = s.stopSince
	case s.want.Rescale != nil:
		since = s.want.Rescale.Decided
	case len(s.want.Draining) > 0:
		since = s.want.Draining[0].Since
	default:
		return watch
	}
	return min(watch, max(quickPace, now.Sub(since).Truncate(time.Second)/10))
}

// orderStop notes that the job is to be stopped, before anything is asked or ended: whoever looks after this process finds the order. What was ordered by force stays so.
func (s *Scheduler) orderStop(force bool) {
	s.want.Stopping, s.want.Forced, s.stopSince = true, force || s.want.Forced, time.Now()
	if err := s.save(); err != nil { // a stop may be what frees the disk
		s.warn("that the job is being stopped is not noted: who looks for it after this process does not know", "err", err)
	}
}

// stop drains all workers, writes a snapshot, releases the servers, and is done when nothing is left.
func (s *Scheduler) stop(ctx context.Context, now time.Time) error {
	s.stopLasts = now.Sub(s.stopSince)
	if r := s.want.Rescale; r != nil {
		r.Aborted, r.Unfinished = true, "the job was stopped"
		s.finishRescale(now)
	}
	if s.want.Forced {
		return s.stopForced(ctx, now)
	}
	if s.want.Target > 0 || s.want.Restart > 0 {
		s.want.Restart, s.want.ServerRenewal, s.want.EndedServers = 0, nil, nil
		s.serverSnapshot.end()
		s.want.setTarget(0, now, s.want.all)
		if err := s.save(); err != nil {
			return err
		}
	}
	if err := s.sendStraysAway(ctx, now); err != nil {
		return err
	}
	s.pass(s.seen.list)
	if s.nothingTrained() {
		s.lg.Info("a server cannot start, and nothing was trained since the last stop, whose snapshot has all: everything is ended without another one")
		return s.stopForced(ctx, now)
	}
	servers, liveServers, liveWorkers, left := s.remaining()
	if liveServers+liveWorkers == 0 {
		if !s.want.Snapshotted { // started again, its servers would have what they wrote last, and nothing to write
			s.noteUnwritten(now, "all that ran of the job had ended before")
		}
		return s.change(ctx, "forget what has ended", backendTimeout, func(ctx context.Context) { s.releaseEnded(ctx, s.seen.list) }, func() error {
			s.shutOutLeft(left)
			return s.stopped(now, left)
		})
	}
	steps := []func(context.Context, time.Time) error{s.replaceHung, s.ensure, s.drain}
	if s.want.Snapshotted { // servers are needed until then: one that ends or hangs is repaired
		steps = steps[2:]
	}
	if err := s.each(ctx, now, steps); err != nil || s.changing != nil {
		return err
	}
	if len(s.want.Draining)+liveWorkers > 0 {
		return nil
	}
	if err := s.shutServersOut(ctx, now); err != nil || s.changing != nil {
		return err
	}
	if !s.want.Snapshotted {
		if st := s.unplacedChief(); st != nil {
			if st.Submitted.IsZero() || now.Sub(st.Submitted) < chiefPlace {
				return nil
			}
			s.lg.Warn("there is no place for the server that the last snapshot needs; the job stops without, and goes on from what its servers have written", "workload", st.ID.String(), "reason", st.Reason)
			s.noteUnwritten(now, fmt.Sprintf("%s, which it needs, had no place for %s%s", st.ID, job.Length(chiefPlace), because(st.Reason)))
			s.snapshot.end()
		} else if !s.snapshotWritten(ctx) {
			return nil
		}
		s.want.Snapshotted = true
		if err := s.save(); err != nil {
			return err
		}
	}
	return s.askEnd(ctx, servers, backend.Drained, func(err error) error {
		if s.releaseErr = err; err != nil {
			s.warn("the backend did not release the servers; trying again", "err", err)
		} else if s.serversTold.IsZero() {
			s.serversTold = now
		}
		return nil
	})
}

// stopForced releases everything without waiting for anything.
func (s *Scheduler) stopForced(ctx context.Context, now time.Time) error {
	if s.releaseErr != nil {
		if err := s.takePlaces(ctx, now, "the cluster has not ended everything"); err != nil || s.changing != nil {
			return err
		}
	}
	var left []backend.Status
	var err error
	return s.change(ctx, "end everything", killTimeout, func(ctx context.Context) { left, err = s.releaseAll(ctx) }, func() error {
		if s.releaseErr = err; err != nil {
			s.warn("not everything is released yet; trying again", "err", err)
			return nil
		}
		s.shutOutLeft(left)
		return s.stopped(now, left)
	})
}

// nothingTrained says that this run has trained nothing, and never will: one of its servers cannot start, no chief has led the job since the one that wrote the last snapshot of
// the stop before, and without one no worker trains. What is ended then has nothing that would have to be written.
func (s *Scheduler) nothingTrained() bool {
	was := s.want.Totals
	if len(s.seen.cannotStart) == 0 || s.seen.chiefErr == nil || s.want.Trained || was == nil || !was.Final {
		return false
	}
	last, err := rpc.FindChief(s.job.Checkpoint.Dir, s.job.Name)
	return err == nil && last.Incarnation == was.Chief
}

// releaseEnded gives up what ended without having been released, as where a machine went down: the backend would keep it for one that is taken up again.
func (s *Scheduler) releaseEnded(ctx context.Context, list []backend.Status) {
	var ids []backend.ID
	for _, st := range list {
		if !st.State.Live() {
			ids = append(ids, st.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, backendTimeout)
	defer cancel()
	if err := s.opt.Backend.Release(ctx, s.job.Name, ids, backend.Forced); err != nil {
		s.lg.Warn("the backend keeps what had ended before the job was stopped", "err", err)
	}
}

// stopped notes that nothing of the job is left, save what was released on nodes that are away.
func (s *Scheduler) stopped(now time.Time, left []backend.Status) error {
	w := s.want
	forced := w.Forced
	s.noteLeft(now, left)
	s.meet.forget()
	s.dropOrder()
	w.Stopped, w.Stopping, w.Forced, w.Trained, w.Target, w.Ranks, w.Draining, w.Checkpoint, w.Backend = true, false, false, false, 0, nil, nil, "", ""
	if forced && w.Totals != nil {
		w.Totals.Final = false
	}
	w.LastCheckpoint, w.LastStop = s.job.Checkpoint.Dir, time.Now()
	w.Rescale, w.Restart, w.Ceiling, w.Unplaced, w.Renewals, w.ServerRenewal, w.EndedServers = nil, 0, nil, nil, nil, nil, nil
	for _, st := range left { // of which a later stop knows that nothing waits for it
		if st.ID.Role == backend.RoleWorker {
			w.Workers[st.ID.Rank] = max(w.Workers[st.ID.Rank], st.ID.Generation+1)
		}
	}
	for rank := range w.Servers { // this one was released, and is not started again, nor is one that was to succeed it
		w.Servers[rank] = max(w.Servers[rank]+1, s.standbys[rank].next)
	}
	for _, r := range s.rollbacks {
		if r.UnderWay() { // with what is left of it, for the next run and for who asks
			s.recordRollback(now, r)
		}
	}
	s.lg.Info("the job has stopped; its state is in the checkpoint folder", "dir", CheckpointFolder(s.job))
	return s.save()
}

// remaining lists the servers that the backend still has, and counts the processes that may live and whose end is waited for; left are the others, on nodes that
// are away.
func (s *Scheduler) remaining() (servers []backend.ID, liveServers, liveWorkers int, left []backend.Status) {
	for _, st := range s.seen.list {
		switch {
		case s.leftBehind(st):
			left = append(left, st)
		case st.ID.Role == backend.RoleServer:
			servers = append(servers, st.ID)
			if st.State.Live() {
				liveServers++
			}
		case st.State.Live():
			liveWorkers++
		}
	}
	return servers, liveServers, liveWorkers, left
}

// snapshotWritten asks for the last snapshot, once at a time, and says whether it has been written.
func (s *Scheduler) snapshotWritten(ctx context.Context) bool {
	if s.snapshotFrom == nil && s.seen.chiefErr == nil {
		s.snapshotFrom = map[int32]int64{}
		for _, sv := range s.seen.chief.GetServers() {
			s.snapshotFrom[sv.GetInfo().GetIndex()] = sv.GetMetrics().GetLastSnapshotUnixMs()
		}
	}
	done, err := s.snapshot.ask(ctx, s.chief)
	if !done {
		return false
	}
	if errors.Is(err, rpc.ErrNoChief) && !s.want.Trained {
		return true // nothing was trained in this run: what the last one had written holds
	}
	s.snapshotErr, s.snapshotFrom = err, nil
	if err != nil && ctx.Err() == nil {
		s.warn("the last snapshot was not written; trying again", "err", err)
	}
	if err == nil {
		s.want.Unwritten = ""
	}
	if err == nil && s.want.Totals != nil {
		s.want.Totals.Final = s.seen.chiefErr == nil && s.want.Totals.Chief == s.seen.chief.GetChief() // what an earlier one counted may never have been written
	}
	return err == nil
}

// noteUnwritten takes down once, for people, that a stop does without its last snapshot, and why. Where nothing was trained since the last stop, what was said of that one
// holds.
func (s *Scheduler) noteUnwritten(now time.Time, why string) {
	text := "the last snapshot was not written: " + why + "; the job goes on from what its servers had written last"
	if !s.want.Trained || strings.HasSuffix(s.want.Unwritten, text) {
		return
	}
	s.want.Unwritten = "at " + now.Local().Format(time.DateTime) + " " + text
	s.want.remember(Note{At: now, Text: text})
}

// endSnapshot gives up snapshots that are being waited for.
func (s *Scheduler) endSnapshot() {
	s.snapshot.end()
	s.serverSnapshot.end()
}
