package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotRunning says that the scheduler's loop has ended.
var ErrNotRunning = errors.New("the scheduler is not running")

// Do hands an order to the goroutine that owns the job and waits until it is taken (not until it is carried out: see View).
func (s *Scheduler) Do(ctx context.Context, o Order) error {
	c := command{Order: o, done: make(chan error, 1)}
	select {
	case s.commands <- c:
	case <-s.ended:
		return fmt.Errorf("%s: %w", o.Kind, ErrNotRunning)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w: %w", o.Kind, ErrNotRunning, ctx.Err())
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Scheduler) obey(ctx context.Context, c command) error {
	m := &s.want.Manual
	switch c.Kind {
	case "scale":
		if c.Target < s.job.Workers.Min || c.Target > s.job.Workers.Max {
			return fmt.Errorf("scale job %q to %d workers: the job file allows %d to %d", s.job.Name, c.Target, s.job.Workers.Min, s.job.Workers.Max)
		}
		m.Pinned, m.Target = true, c.Target
	case "auto":
		m.Pinned, m.Target = false, 0
	case "pause", "resume":
		paused := c.Kind == "pause"
		if err := s.chief.pause(ctx, paused); err != nil {
			return fmt.Errorf("%s job %q: %w", c.Kind, s.job.Name, err)
		}
		m.Paused = paused
	case "stop":
		s.want.Stopping, s.want.Forced = true, c.Force
		s.lg.Info("stopping: drain, snapshot, release")
	default:
		return fmt.Errorf("unknown order %q: there are scale, auto, pause, resume and stop", c.Kind)
	}
	s.tickAt = time.Time{} // decide at once
	return s.save()
}
