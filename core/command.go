package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/pool"
)

// What comes of an order that was neither taken nor refused.
var (
	// ErrNotRunning says that the scheduler's loop has ended.
	ErrNotRunning = errors.New("the scheduler is not running")
	// ErrNotTaken says that the giver's time was over before the loop had come to the order, which changes nothing.
	ErrNotTaken = errors.New("the scheduler has not come to it")
	// ErrChiefSilent says that the order is for the chief too, which does not answer: it was not taken, and may be a moment later.
	ErrChiefSilent = errors.New("the chief does not answer")
	// ErrUnsettled says that the giver's time was over while the loop was taking the order: it may hold.
	ErrUnsettled = errors.New("the scheduler is not done with it")
)

// Do hands an order to the goroutine that owns the job and waits until it is taken (not until it is carried out: see View). Whatever ends the wait, an answer
// that is there goes first, and then the loop's end.
func (s *Scheduler) Do(ctx context.Context, o Order) error {
	c := command{Order: o, done: make(chan error, 1)}
	select {
	case s.commands <- c:
	case <-s.ended:
		return fmt.Errorf("%s: %w", o.Kind, ErrNotRunning)
	case <-ctx.Done():
		select {
		case <-s.ended:
			return fmt.Errorf("%s: %w", o.Kind, ErrNotRunning)
		default:
			return fmt.Errorf("%s: %w: %w", o.Kind, ErrNotTaken, ctx.Err())
		}
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-c.done:
		return err
	default:
		return fmt.Errorf("%s: %w: %w", o.Kind, ErrUnsettled, ctx.Err())
	}
}

// obey carries an order out, or says why it does not: then nothing has changed.
func (s *Scheduler) obey(ctx context.Context, c command) error {
	if c.Kind != "stop" && s.hasModel() && modelGone(s.job) {
		what, back := gone(s.job)
		return fmt.Errorf("%s job %q: %s, and nothing is changed until it is back: %s; and give the order again then", c.Kind, s.job.Name, what, back)
	}
	if err := s.lease.Check(ctx); err != nil {
		advice := ""
		if lost := new(LostError); !errors.As(err, &lost) {
			advice = fmt.Sprintf("; whether the job is this scheduler's is told by %s alone: see that it can be read and written, and give the order again", s.job.Checkpoint.Dir)
		}
		return fmt.Errorf("%s job %q: %w%s", c.Kind, s.job.Name, err, advice)
	}
	if !c.Until.IsZero() && time.Now().After(c.Until) {
		return fmt.Errorf("%s job %q: the order comes too late: who gave it waited until %s", c.Kind, s.job.Name, c.Until.Format("15:04:05"))
	}
	w := s.want
	manual, stopping, forced := w.Manual, w.Stopping, w.Forced
	err := s.take(ctx, c.Order)
	if err == nil {
		if err = s.save(); err != nil {
			err = fmt.Errorf("%s job %q: %w", c.Kind, s.job.Name, err)
		}
	}
	if err != nil {
		w.Manual, w.Stopping, w.Forced = manual, stopping, forced
		return err
	}
	if c.Kind == "scale" || c.Kind == "auto" {
		s.keepOrder()
	}
	s.tickAt, s.undecided = time.Time{}, true // decide at once, or as soon as it is known what there is
	if p := s.opt.Pool; p != nil && c.Kind == "scale" && !s.want.Manual.Paused {
		p.tell(s.job.Name, func(j *pool.Job) { j.Ask = c.Target })
	}
	s.showOrder()
	return nil
}

// showOrder makes an order that was taken part of the view at once: who gave it may ask before the next look is done.
func (s *Scheduler) showOrder() {
	old := s.view.Load()
	if old == nil {
		return
	}
	v := *old // views are replaced, never changed
	v.Manual, v.PausedSince, v.State = s.want.Manual, s.want.pausedSince(), s.stateOf(s.lastSample)
	v.Stopping, v.Forced = s.want.Stopping, s.want.Forced
	v.Stuck = s.stuck()
	if v.Manual.Paused {
		v.standStill()
	}
	if s.opt.Pool != nil {
		v.Pool = s.opt.Pool.share(s.job.Name)
	}
	s.view.Store(&v)
}

// standStill takes what was trained at the last look out of a view whose job was paused since.
func (v *View) standStill() {
	if v.Sample.Trained != nil {
		v.Sample.Trained, v.Sample.Busy = new(0.), new(0.)
	}
	v.Workers = slices.Clone(v.Workers)
	for i := range v.Workers {
		if w := &v.Workers[i]; w.Rate != nil {
			w.Rate, w.Busy = new(0.), new(0.)
		}
	}
}

// take makes an order part of what is wanted.
func (s *Scheduler) take(ctx context.Context, o Order) error {
	m := &s.want.Manual
	if s.want.Stopping && o.Kind != "stop" {
		return fmt.Errorf("%s job %q: it is being stopped", o.Kind, s.job.Name)
	}
	switch o.Kind {
	case "scale":
		if o.Target < s.job.Workers.Min || o.Target > s.job.Workers.Max {
			return fmt.Errorf("scale job %q to %d workers: the job file allows %d to %d", s.job.Name, o.Target, s.job.Workers.Min, s.job.Workers.Max)
		}
		if s.job.Autoscale.Mode == job.ModeObserve {
			return fmt.Errorf("scale job %q to %d workers: autoscale.mode is %q in the job file, so its scheduler changes nothing; set it to %q and run the job again",
				s.job.Name, o.Target, job.ModeObserve, job.ModeLive)
		}
		m.Pinned, m.Target = true, o.Target
	case "auto":
		m.Pinned, m.Target = false, 0
	case "pause", "resume":
		paused := o.Kind == "pause"
		if err := s.tellPaused(ctx, paused); err != nil {
			return fmt.Errorf("%s job %q: %w", o.Kind, s.job.Name, err)
		}
		s.want.pause(paused, time.Now())
	case "stop":
		if err := s.takeLease(true); err != nil {
			return fmt.Errorf("stop job %q: %w", s.job.Name, err)
		}
		if !s.want.Stopping {
			s.stopSince = time.Now()
		}
		s.want.Stopping, s.want.Forced = true, o.Force || s.want.Forced // what was ordered by force has begun to end
		if o.Force && s.changing != nil {
			s.changing.cancel() // who ends everything waits for nothing
		}
		s.lg.Info("stopping: drain, snapshot, release")
	default:
		return fmt.Errorf("unknown order %q: there are scale, auto, pause, resume and stop", o.Kind)
	}
	return nil
}

// tellPaused tells the chief whether the job is paused. One that has just been asked in vain is not asked again: an order need not wait for it, and must not come
// to it later, when it goes on.
func (s *Scheduler) tellPaused(ctx context.Context, paused bool) error {
	if s.seen != nil && s.onlooks(s.seen) {
		return fmt.Errorf("nothing of it runs, and its scheduler starts nothing: autoscale.mode is %q in the job file", job.ModeObserve)
	}
	again := fmt.Sprintf("give it again when kale status %s shows that the chief answers", s.job.Name)
	if s.seen != nil && s.begun() && silent(s.seen.chiefErr) {
		return toldInVain{fmt.Errorf("%w. The order is not taken and changes nothing: %s", s.chiefSilent(s.seen.chiefErr), again)}
	}
	err := s.chief.pause(ctx, paused)
	if err != nil && s.begun() && silent(err) {
		return toldInVain{fmt.Errorf("%w. The order is not taken, though a chief that goes on may still follow it: %s, which also says whether the job is paused", s.chiefSilent(err), again)}
	}
	return err
}

// toldInVain is ErrChiefSilent with which chief that is, and what becomes of it.
type toldInVain struct{ error }

func (toldInVain) Is(target error) bool { return target == ErrChiefSilent }

func (e toldInVain) Unwrap() error { return e.error }
