package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// killTimeout bounds Kill.
const killTimeout = 20 * time.Second

// Kill releases everything that the job runs, by force, waits until it is gone, and notes that the job has stopped. Records that were being trained are
// trained again when the job is started again. Run must not be running.
func (s *Scheduler) Kill(ctx context.Context) error {
	if err := s.releaseAll(ctx); err != nil {
		return err
	}
	return s.stopped(time.Now())
}

func (s *Scheduler) releaseAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	for unseen := false; ; {
		list, complete, err := s.opt.Backend.List(ctx, s.job.Name)
		if err != nil && needsAPerson(err) && !unseen { // who ends it by force has done what is to be done about what lives there
			unseen = true
			if err = s.opt.Backend.Release(ctx, s.job.Name, nil, backend.Forced); err == nil {
				continue
			}
		}
		if err != nil && needsAPerson(err) {
			return fmt.Errorf("release job %q by force: %w", s.job.Name, err)
		}
		var ids []backend.ID
		for _, st := range list {
			if st.State.Live() {
				ids = append(ids, st.ID)
			}
		}
		if err == nil && complete && len(ids) == 0 {
			s.releaseEnded(ctx, list)
			return nil
		}
		if len(ids) > 0 {
			err = errors.Join(err, s.opt.Backend.Release(ctx, s.job.Name, ids, backend.Forced))
		}
		select {
		case <-ctx.Done():
			left := job.Count(len(ids), "process") + " left"
			if len(ids) == 0 {
				left = "what is left is not known"
			}
			if err == nil && !complete {
				err = errors.New(ListedInPart(list))
			}
			return errors.Join(fmt.Errorf("release job %q by force: after %v %s", s.job.Name, killTimeout, left), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
