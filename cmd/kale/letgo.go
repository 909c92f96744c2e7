package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/state"
)

// A scheduler that ends lets go of its job's state last, when its API answers no more. One that starts takes the state first. So a state that is
// held while nobody answers is soon free, or soon answered for.
const (
	letGoTimeout = 20 * time.Second // longer than the plugin of an ending scheduler takes to close
	letGoPoll    = 50 * time.Millisecond
)

// stopTimeout is for how long a stop under way is waited for: longer than its last snapshot may take.
const stopTimeout = 3 * time.Minute

func registerTakeOver(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "take-over", false, "take the job from the scheduler that has it, which ends then; training goes on")
}

// openFree opens a job's scheduler. While another one holds the state and does not answer, or says that it has stopped or stops the job, it is
// ending: it is waited for, and a.err says so. One on another machine that gives no sign of life is waited for until it counts as gone. state.ErrLocked,
// core.HeldError: it goes on.
func (a *app) openFree(ctx context.Context, o core.Options, takeOver bool) (s *core.Scheduler, diags hcl.Diagnostics, err error) {
	if takeOver {
		if err := a.yields(ctx, o); err != nil {
			return nil, nil, err
		}
		if o.Lease, err = core.TakeLease(o.Log.With("job", o.Job.Name), o.Job, o.StateDir, true); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		defer func() {
			if s == nil {
				o.Lease.Close()
			}
		}()
	}
	began := time.Now()
	bar, told := a.progress(), false
	defer bar.done()
	for {
		s, diags, err := core.Open(ctx, o)
		var who, waits, after string
		var limit time.Duration
		over := err
		if held := new(core.HeldError); errors.As(err, &held) {
			who, waits, limit = held.By.Words(), "it gives no sign of life", held.Patience(time.Since(began))
		} else if errors.Is(err, state.ErrLocked) {
			who = holderOf(o.StateDir).words()
			if waits, limit = a.endingOf(ctx, o, takeOver); limit > 0 {
				after = fmt.Sprintf(", and has not ended after %s, though %s", limit, waits)
			}
			over = a.whoHolds(o, after)
		} else {
			return s, diags, err
		}
		held := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return nil, diags, ctx.Err()
		case held > limit:
			return nil, diags, over
		case !told && held > time.Second:
			told = true
			fmt.Fprintf(a.err, "waiting for %s to let go of job %q: %s\n", who, o.Job.Name, waits)
		case told:
			bar.show("waiting, %s: %s", held.Round(time.Second), waits)
		}
		if err := wait(ctx, letGoPoll); err != nil {
			return nil, diags, err
		}
	}
}

// yields says why the job cannot be taken from the scheduler that has this state folder: one that answers sees that it was, ends, and lets go of the folder; one
// that does not would keep it.
func (a *app) yields(ctx context.Context, o core.Options) error {
	st, err := state.OpenReader(o.StateDir)
	if err == nil {
		return st.Close()
	}
	h := holderOf(o.StateDir)
	if !errors.Is(err, state.ErrLocked) || h.pid == 0 {
		return nil // who opens it says what is wrong with it
	}
	if !h.suspended {
		if _, busy := a.view(ctx, o.Job.Name); !errors.Is(busy, api.ErrSilent) {
			return nil
		}
	}
	return fmt.Errorf("take job %q over: %s has its state in %s open, and does not answer, so that it would not let go; nothing was changed. %s. Then run this again",
		o.Job.Name, h.words(), o.StateDir, h.stuck(a, o.Job.Name))
}

// endingOf says for how long the scheduler that holds a job's state is waited for, and why: 0, it is not ending.
func (a *app) endingOf(ctx context.Context, o core.Options, takenOver bool) (waits string, limit time.Duration) {
	if holderOf(o.StateDir).suspended {
		return "", 0
	}
	v, busy := a.view(ctx, o.Job.Name)
	pid, stops := noted(o.StateDir, stoppingFile) // by this process too, where it stops the job
	switch {
	case busy != nil && stops && !o.Stop:
		return stopsIt(pid), stopTimeout
	case busy != nil && stops && !errors.Is(busy, api.ErrSilent):
		return "another kale stop has just begun to stop it", stopTimeout
	case errors.Is(busy, api.ErrNoScheduler), busy == nil && v.Stopped: // kale stop without a scheduler does not answer either
		return "it is ending", stopTimeout
	case busy == nil && v.Stopping && o.Stop && !takenOver:
		return "", 0 // the stop is given to that one
	case busy == nil && v.Stopping:
		return "it stops the job" + remaining(v), stopTimeout
	case takenOver:
		return "the job was taken from it", letGoTimeout
	}
	return "", 0
}

// taken says who has a job that is about to be run, where that one is seen to live and to go on with it. It changes nothing.
func (a *app) taken(ctx context.Context, l *loaded) error {
	if !l.draft.Sound("checkpoint.dir") || l.Autoscale.Mode == job.ModeObserve {
		return nil
	}
	k, held, err := core.HeldKeeper(l.Job)
	if err != nil || held == nil || !held.Near {
		return nil // who takes the job waits, or says what is wrong
	}
	switch o := (core.Options{Job: l.Job, StateDir: l.dir}); {
	case k.Bereft():
		own := *a
		own.given = invocation{Vars: l.how.Vars, VarFiles: l.how.VarFiles}
		own.given.File, _ = filepath.Abs(l.how.File) // what cannot be made absolute is named as JOB.hcl
		a = &own
		return fmt.Errorf("job %q has a scheduler: %s; %s", l.Name, k.Words(), a.bereft(k, l.Name))
	case k.Elsewhere(l.dir):
		return held
	default:
		if _, limit := a.endingOf(ctx, o, false); limit > 0 {
			return nil
		}
		return a.whoHolds(o, "")
	}
}

// heldHere is state.ErrLocked with who has the job.
type heldHere struct{ text string }

func (e heldHere) Error() string { return e.text }

func (heldHere) Is(target error) bool { return target == state.ErrLocked }

// whoHolds is state.ErrLocked with who has the job, what is known of its end, and how to end that one alone.
func (a *app) whoHolds(o core.Options, after string) error {
	h := holderOf(o.StateDir)
	if h.stops {
		return heldHere{fmt.Sprintf("job %q is being stopped, by %s%s. %s", o.Job.Name, h.words(), after, h.stuck(a, o.Job.Name))}
	}
	end, stop := "To end it alone, press Ctrl-C where it runs: training goes on", "kale stop"
	if h.pid != 0 {
		end = core.EndWords(h.pid, true)
	}
	if h.suspended {
		stop = "After that, kale stop" // it would wait for an answer
	}
	return heldHere{fmt.Sprintf("job %q has a scheduler: %s%s; kale status %s%s shows what it does. %s. %s %s%s would end the job itself",
		o.Job.Name, h.words(), after, a.stateFlag(), o.Job.Name, end, stop, a.stateFlag(), o.Job.Name)}
}

// awaitLetGo waits until no scheduler holds a job's state, and reads what it left: g. Where another scheduler has taken the job up, it is what that one
// says: v.
func (a *app) awaitLetGo(ctx context.Context, name string) (g *core.Glance, v *core.View, err error) {
	dir, err := a.jobDir(name)
	if err != nil {
		return nil, nil, err
	}
	deadline := time.Now().Add(letGoTimeout)
	for {
		g, err := core.GlanceAt(ctx, dir, name, nil)
		if !errors.Is(err, state.ErrLocked) {
			return g, nil, err
		}
		if v, busy := a.view(ctx, name); busy == nil && !v.Stopped {
			return nil, v, nil
		}
		if time.Now().After(deadline) {
			return nil, nil, fmt.Errorf("the scheduler of job %q answers no more, and has not let go of %s after %s: see what its process does", name, dir, letGoTimeout)
		}
		if err := wait(ctx, letGoPoll); err != nil {
			return nil, nil, err
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
