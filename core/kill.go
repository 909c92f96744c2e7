package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// killTimeout bounds Kill.
const killTimeout = 20 * time.Second

// Kill releases everything that the job runs, by force, waits until it is gone, and notes that the job has stopped. Records that were being trained are
// trained again when the job is started again. Where that cannot be done in time, Run goes on with it; it must not be running. What is on nodes that do not answer
// their cluster is released and not waited for: LeftAway names it.
func (s *Scheduler) Kill(ctx context.Context) error {
	s.orderStop(true)
	left, err := s.releaseAll(ctx)
	if err != nil {
		return err
	}
	s.shutOutLeft(left)
	return s.stopped(time.Now(), left)
}

// LeftAway says what the last stop left on nodes that did not answer their cluster; "": nothing.
func (s *Scheduler) LeftAway() string { return s.want.LeftAway }

// Unwritten says why the last stop did without its last snapshot, and what follows; "": it did not.
func (s *Scheduler) Unwritten() string { return s.want.Unwritten }

// releaseAll gives what it left on nodes that are away.
func (s *Scheduler) releaseAll(ctx context.Context) (left []backend.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	forced := map[backend.ID]bool{} // the backend has taken it
	for unseen := false; ; {
		list, complete, err := s.opt.list(ctx)
		if err != nil && NeedsAPerson(err) && !unseen { // who ends it by force has done what is to be done about what lives there
			unseen = true
			if err = s.opt.Backend.Release(ctx, s.job.Name, nil, backend.Forced); err == nil {
				continue
			}
		}
		if err != nil && NeedsAPerson(err) {
			return nil, fmt.Errorf("release job %q by force: %w", s.job.Name, err)
		}
		s.pass(list)
		var ids []backend.ID
		left = nil
		for _, st := range list {
			switch {
			case mayLive(st), st.State == backend.StateStopping && st.Away && forced[st.ID]:
				left = append(left, st)
			case st.State.Live():
				ids = append(ids, st.ID)
			}
		}
		if err == nil && complete && len(ids) == 0 {
			s.releaseEnded(ctx, list)
			return left, nil
		}
		if len(ids) > 0 {
			refusal := s.opt.Backend.Release(ctx, s.job.Name, ids, backend.Forced)
			for _, id := range ids {
				forced[id] = refusal == nil
			}
			err = errors.Join(err, refusal)
		}
		select {
		case <-ctx.Done():
			remains := "1 process is left"
			switch n := len(ids); {
			case n == 0:
				remains = "what is left is not known"
			case n > 1:
				remains = fmt.Sprintf("%d processes are left", n)
			}
			if err == nil && !complete {
				err = errors.New(ListedInPart(list))
			}
			return nil, errors.Join(fmt.Errorf("release job %q by force: after %v %s", s.job.Name, killTimeout, remains), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
