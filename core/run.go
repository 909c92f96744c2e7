package core

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// Run looks, decides and acts until ctx ends. Training goes on after that. Of a number of workers that nobody has pinned nothing is decided before the arrival history has
// been read from the broker, or could not be, and on a job that runs, not before its forecast model has been held to it (awaitsModel); what was decided before is kept up meanwhile, and orders are taken.
// LostError, HeldError: another scheduler has the job.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.opt.Stop {
		s.askHistory(ctx, time.Now())
	}
	defer s.endOnce.Do(func() { close(s.ended) })
	defer s.endSnapshot()
	defer s.endTraining()
	defer s.missed.end()
	defer s.endChange()
	pace := s.job.Autoscale.Watch
	t := time.NewTicker(pace)
	defer t.Stop()
	for {
		if err := s.beat(ctx); err != nil {
			return err
		}
		if p := s.pace(time.Now()); p != pace {
			pace = p
			t.Reset(p)
		}
		if s.want.Stopped && s.unsaved == nil {
			return nil
		}
		if !s.await(ctx, t.C) {
			if err := s.endRestart(); err != nil {
				return err
			}
			s.endChange()
			s.lookLast()
			s.lg.Info("the scheduler ends; training goes on")
			return nil
		}
	}
}

const (
	// restartPatience is for how long a restart of all workers is gone on with when the scheduler is asked to end: without a scheduler nobody would start them again.
	restartPatience = 30 * time.Second
	// lastLook is how long the backend is given to say what runs when the scheduler ends.
	lastLook = 2 * time.Second
)

// endRestart has the workers started that a restart (autoscale.mode) has ended, so that training goes on without this scheduler.
func (s *Scheduler) endRestart() error {
	if s.want.Restart == 0 || s.want.Stopping {
		return nil
	}
	s.lg.Warn("the scheduler is to end in the midst of a restart: it starts the workers first, so that training goes on", "workers", s.want.Restart, "within", restartPatience)
	ctx, cancel := context.WithTimeout(context.Background(), restartPatience)
	defer cancel()
	t := time.NewTicker(quickPace)
	defer t.Stop()
	listed := func(rank int) bool {
		_, found := s.seen.allocation(backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: s.want.Workers[rank]})
		return found
	}
	for !s.want.Stopping && (s.want.Restart > 0 || slices.ContainsFunc(s.want.Ranks, func(rank int) bool { return !listed(rank) })) {
		if err := s.beat(ctx); err != nil {
			return err
		}
		if !s.await(ctx, t.C) {
			break
		}
	}
	return nil
}

// lookLast shows what runs when the scheduler ends, which may have been started since it looked.
func (s *Scheduler) lookLast() {
	if s.seen == nil || s.view.Load() == nil || s.want.Stopped {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastLook)
	defer cancel()
	s.seen.list, s.seen.complete, s.seen.listErr = s.opt.list(ctx)
	s.view.Store(s.picture(time.Now(), s.lastSample))
}

// await waits until it is time to look, until the arrival history or the backend's answer is there, or for an order, which it carries out. An order that waits already goes first, however
// late the look is. false: ctx has ended.
func (s *Scheduler) await(ctx context.Context, look <-chan time.Time) bool {
	select {
	case c := <-s.commands:
		c.done <- s.obey(ctx, c)
		return true
	default:
	}
	select {
	case <-ctx.Done():
		return false
	case c := <-s.commands:
		c.done <- s.obey(ctx, c)
	case <-s.missed.history():
	case <-s.modelTried():
		s.heldOnce = true
	case <-s.answered():
	case <-look:
	}
	return true
}

// beat is one look and a step.
func (s *Scheduler) beat(ctx context.Context) error {
	s.noteUnsaved(s.hearChange())
	n := s.look(ctx)
	if ctx.Err() != nil {
		return nil
	}
	s.seen = n
	return s.step(ctx, time.Now())
}

// step takes in what was seen, decides when it is time to, does what is to be done, and shows it. LostError, HeldError: the job is another scheduler's, and
// nothing was touched.
func (s *Scheduler) step(ctx context.Context, now time.Time) error {
	if lost := new(LostError); errors.As(s.seen.leaseErr, &lost) {
		return lost
	}
	s.dropLease()
	if err := s.takeLease(s.want.Stopping); err != nil {
		if held := new(HeldError); errors.As(err, &held) {
			return err
		}
		s.seen.leaseErr = err
	}
	s.follow(now)
	s.readBack(ctx, now)
	s.followRollbacks(now)
	s.followLosses(now)
	s.keepBeside()
	s.listen(now)
	s.heed(ctx, now)
	if err := s.carryOn(ctx, now); err != nil {
		s.noteUnsaved(err)
	} else if s.unsaved != nil {
		s.lg.Info("the scheduler's state can be saved again")
		s.unsaved = nil
	}
	s.tellPool()
	s.publish(now)
	return nil
}

// noteUnsaved takes down that the state could not be saved, if so.
func (s *Scheduler) noteUnsaved(err error) {
	if err == nil {
		return
	}
	if s.unsaved == nil {
		s.lg.Error("the scheduler's state cannot be saved; nothing is decided or changed until it can", "err", err)
	}
	s.unsaved = err
}

// carryOn decides and acts. An error says that the state could not be saved: what is wanted is then not acted on before it has been.
func (s *Scheduler) carryOn(ctx context.Context, now time.Time) error {
	if s.unsaved != nil {
		if !s.want.Stopping { // a stop goes on with what little fits: it is how a full disk is left
			if err := s.store.Room(); err != nil {
				return err
			}
		}
		if err := s.save(); err != nil {
			return err
		}
	}
	if s.want.Stopped {
		return nil // the answer that came before this look was the last of a stop
	}
	if err := s.takeOver(); err != nil {
		return err
	}
	grew, remarked := s.noteGrowth(now), s.noteRemarks()
	if stands, told, heard, compacted := s.noteStanding(), s.notePolicies(), s.noteHeard(), s.noteCompaction(); grew || remarked || stands || told || heard || compacted {
		if err := s.save(); err != nil {
			return err
		}
	}
	s.followQueue()
	s.heedShortage(now)
	s.tellPool()
	s.heedPool()
	if s.undecided && s.seen.unknown(s.begun()) == "" {
		s.tickAt = now
	}
	if !s.tickAt.After(now) && !s.want.Stopping && (s.want.Manual.Pinned || s.missed.history() == nil) && !s.awaitsModel(now) {
		s.askAgain = s.job.Autoscale.Tick
		if err := s.decide(now); err != nil {
			return err
		}
		s.tickAt = now.Add(min(s.askAgain, s.job.Autoscale.Tick))
		s.undecided = s.undecided && s.last.Observation.Hold.Unknown
		if s.want.Target == 0 && (s.last.Observation.Hold.Unknown || s.last.Pool != nil) {
			s.tickAt = now // a job that could not be started yet need not wait for long
		}
	}
	if err := s.retrain(ctx, now); err != nil {
		return err
	}
	if s.want.Target == 0 && !s.want.Stopping && s.missed.history() != nil {
		return nil // nothing is wanted yet that could need repair
	}
	return s.act(ctx, now)
}
