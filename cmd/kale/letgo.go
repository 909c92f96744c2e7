package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/state"
)

// A scheduler that ends lets go of its job's state last, when its API answers no more. One that starts takes the state first. So a state that is
// held while nobody answers is soon free, or soon answered for.
const (
	letGoTimeout = 20 * time.Second // longer than the plugin of an ending scheduler takes to close
	letGoPoll    = 50 * time.Millisecond
)

// openFree opens a job's scheduler. While another one holds the state and does not answer, or says that it has stopped, it is ending: it is waited
// for. state.ErrLocked: it goes on.
func (a *app) openFree(ctx context.Context, o core.Options) (*core.Scheduler, hcl.Diagnostics, error) {
	deadline := time.Now().Add(letGoTimeout)
	for {
		s, diags, err := core.Open(ctx, o)
		if !errors.Is(err, state.ErrLocked) {
			return s, diags, err
		}
		if v, busy := a.view(ctx, o.Job.Name); !errors.Is(busy, api.ErrNoScheduler) && !(busy == nil && v.Stopped) || time.Now().After(deadline) {
			if busy == nil && v.Stopping {
				err = fmt.Errorf("%w, and stops it", err)
			}
			return s, diags, err
		}
		if err := wait(ctx, letGoPoll); err != nil {
			return nil, diags, err
		}
	}
}

// awaitLetGo waits until no scheduler holds a job's state, and reads what it left. nil and no error: a scheduler answers, which another person started.
func (a *app) awaitLetGo(ctx context.Context, name string) (*core.Glance, error) {
	dir, err := a.jobDir(name)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(letGoTimeout)
	for {
		g, err := core.GlanceAt(ctx, dir, name, nil)
		if !errors.Is(err, state.ErrLocked) {
			return g, err
		}
		if v, busy := a.view(ctx, name); busy == nil && !v.Stopped {
			return nil, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the scheduler of job %q answers no more, and has not let go of %s after %s: see what its process does", name, dir, letGoTimeout)
		}
		if err := wait(ctx, letGoPoll); err != nil {
			return nil, err
		}
	}
}

// wait sleeps, or returns the context's error.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
