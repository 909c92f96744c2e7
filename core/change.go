package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// change is a call that starts or ends processes and that the backend has not answered yet. It goes on beside the looks, and until it is answered nothing
// else is started or ended: what is known of the cluster is from before it.
type change struct {
	what   string // for people: "start worker-1-g1"
	starts []backend.ID
	since  time.Time
	cancel context.CancelFunc
	done   chan struct{} // closed when the call is over
	hear   func() error  // takes the answer in; the loop's
}

const (
	// changePatience is how long the loop waits for the answer to a change before it goes on without.
	changePatience = time.Second
	// slowChange is how long one may take before people are told.
	slowChange = 15 * time.Second
)

// change makes a call on the backend and has hear take its answer in: now, where it comes at once, and else before a later look. An error is that of hear.
func (s *Scheduler) change(ctx context.Context, what string, timeout time.Duration, call func(context.Context), hear func() error) error {
	return s.undertake(ctx, &change{what: what, hear: hear}, timeout, call)
}

func (s *Scheduler) undertake(ctx context.Context, c *change, timeout time.Duration, call func(context.Context)) error {
	ctx, cancel := lingering(ctx, timeout)
	c.since, c.cancel, c.done = time.Now(), cancel, make(chan struct{})
	s.spawn(func() { // ends with ctx; hearChange takes what it leaves, once done is closed
		defer close(c.done)
		defer cancel()
		call(ctx)
	})
	patience := time.NewTimer(changePatience)
	defer patience.Stop()
	select {
	case <-c.done:
	case <-patience.C:
	}
	s.changing = c
	return s.hearChange()
}

// answered is closed when the change under way is over; nil while there is none.
func (s *Scheduler) answered() <-chan struct{} {
	if s.changing == nil {
		return nil
	}
	return s.changing.done
}

// hearChange takes in the answer to the change that is under way, if it has come. That is before a look: a list from before the answer does not show what was changed.
func (s *Scheduler) hearChange() error {
	select {
	case <-s.answered():
		c := s.changing
		s.changing = nil
		return c.hear()
	default:
		return nil
	}
}

// endChange waits for the change that is under way when the scheduler ends: who takes the job up next is to know what was started.
func (s *Scheduler) endChange() {
	if s.changing == nil {
		return
	}
	select {
	case <-s.changing.done:
	case <-time.After(lingerFor):
		s.changing.cancel()
		<-s.changing.done
	}
	if err := s.hearChange(); err != nil {
		s.lg.Error("what the backend answered last cannot be saved", "err", err)
	}
}

// slowly says of the change under way that it takes long, "" when there is nothing to say.
func (s *Scheduler) slowly() string {
	c := s.changing
	if c == nil {
		return ""
	}
	took := time.Since(c.since)
	if took < slowChange {
		return ""
	}
	return fmt.Sprintf("the backend was asked %s ago to %s, and has not answered; nothing else is started or ended meanwhile", job.Length(took.Round(time.Second)), c.what)
}

// named names workloads, for people: the first, and how many more there are.
func named(ids []backend.ID) string {
	switch len(ids) {
	case 0:
		return "nothing"
	case 1:
		return ids[0].String()
	}
	return fmt.Sprintf("%s and %d more", ids[0], len(ids)-1)
}

// askStart has the backend start workloads; hear takes its answers in, one for each of them.
func (s *Scheduler) askStart(ctx context.Context, ws []backend.Workload, hear func([]backend.Status, error) error) error {
	var sts []backend.Status
	var err error
	ids := make([]backend.ID, 0, len(ws))
	for _, w := range ws {
		ids = append(ids, w.ID)
	}
	c := &change{what: "start " + named(ids), starts: ids, hear: func() error { return hear(sts, err) }}
	return s.undertake(ctx, c, backendTimeout, func(ctx context.Context) {
		n := slices.IndexFunc(ws, func(w backend.Workload) bool { return w.ID.Role == backend.RoleWorker })
		if n > 0 { // servers, without which no worker trains, are first in the cluster's queue
			if sts, err = s.ensureAll(ctx, ws[:n]); err != nil {
				return
			}
		}
		var more []backend.Status
		more, err = s.ensureAll(ctx, ws[max(n, 0):])
		sts = append(sts, more...)
	})
}

// ensureAll asks the backend to start workloads, at once.
func (s *Scheduler) ensureAll(ctx context.Context, ws []backend.Workload) ([]backend.Status, error) {
	sts, err := s.opt.Backend.Ensure(ctx, s.job.Name, ws)
	if err == nil && len(sts) != len(ws) {
		err = fmt.Errorf("the backend answered for %d of %d processes: its plugin is not sound", len(sts), len(ws))
	}
	return sts, err
}

// unbegun says of a process which the backend has on record, and does not start, that it has not ended: it is being started, or was refused.
func (s *Scheduler) unbegun(st backend.Status) bool {
	if st.State.Live() || !st.Started.IsZero() {
		return false
	}
	return s.denied(st.ID) || s.changing != nil && slices.Contains(s.changing.starts, st.ID)
}

// askEnd has the backend release workloads.
func (s *Scheduler) askEnd(ctx context.Context, ids []backend.ID, how backend.How, hear func(error) error) error {
	var err error
	return s.change(ctx, "release "+named(ids), backendTimeout, func(ctx context.Context) {
		err = s.opt.Backend.Release(ctx, s.job.Name, ids, how)
	}, func() error { return hear(err) })
}
