package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/state"
)

type stopFlags struct {
	jobFlags
	force bool
	log   string
}

func stopCommand(a *app) *cobra.Command {
	var f stopFlags
	c := &cobra.Command{
		Use: "stop JOB", Short: "Drain a job, write a last snapshot, release everything",
		Long: `Ends a job: workers finish what they hold, the servers write a snapshot, and everything is released. kale run takes it up again
from there. It works with a running scheduler, which then ends too, and without.

-force drains nothing and writes no snapshot: processes are killed, and the job goes on later from its last snapshot.`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.stopJob(cmd.Context(), args[0], f) },
	}
	f.register(c)
	c.Flags().BoolVar(&f.force, "force", false, "kill at once: no drain, no snapshot")
	c.Flags().StringVar(&f.log, "log", "warn", "least level of the log on standard error: "+logLevels)
	return c
}

func (a *app) stopJob(ctx context.Context, arg string, f stopFlags) error {
	name, c, err := a.connectArg(ctx, arg)
	if errors.Is(err, api.ErrNoScheduler) {
		return a.stopWithout(ctx, name, f)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if f.force {
		return fmt.Errorf("the scheduler of job %q runs and would start again what is killed: end it with Ctrl-C first, or stop without -force", name)
	}
	if err := c.Order(ctx, core.Order{Kind: "stop"}); err != nil {
		return err
	}
	switch stopped, err := a.awaitStop(ctx, name, func() (*core.View, error) { return c.Status(ctx) }); {
	case err != nil:
		return err
	case stopped:
		return a.sayStopped(name)
	}
	fmt.Fprintln(a.err, "the scheduler went away before the job had stopped; going on without it")
	return a.stopWithout(ctx, name, f)
}

func (a *app) sayStopped(name string) error {
	fmt.Fprintf(a.out, "job %q has stopped\n", name)
	return nil
}

// stopPoll is how often a stop's progress is looked at.
const stopPoll = 200 * time.Millisecond

// awaitStop shows progress until the job has stopped. stopped is false when the scheduler cannot be asked any more.
func (a *app) awaitStop(ctx context.Context, name string, look func() (*core.View, error)) (stopped bool, err error) {
	bar := a.progress()
	defer bar.done()
	began := time.Now()
	t := time.NewTicker(stopPoll)
	defer t.Stop()
	for {
		v, err := look()
		var refused *api.Error
		switch {
		case ctx.Err() != nil:
			return false, fmt.Errorf("interrupted: job %q goes on stopping as long as its scheduler runs; kale stop %s waits again", name, name)
		case err == nil && v != nil && v.Stopped:
			return true, nil
		case err == nil && v != nil:
			bar.show("stopping job %q, %s: %s", name, time.Since(began).Round(time.Second), remaining(v))
		case err != nil && !errors.As(err, &refused):
			return false, nil
		}
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
}

// remaining says what a stop waits for.
func remaining(v *core.View) string {
	workers := 0
	for _, w := range v.Workers {
		if backend.State(w.Backend).Live() {
			workers++
		}
	}
	servers := 0
	for _, s := range v.Servers {
		if backend.State(s.Backend).Live() {
			servers++
		}
	}
	switch {
	case workers > 0:
		return count(workers, "worker") + " to drain"
	case servers > 0:
		return "last snapshot, and " + count(servers, "server") + " to release"
	}
	return "nothing is left"
}

// stopWithout stops a job that no scheduler looks after, by being its scheduler for that long.
func (a *app) stopWithout(ctx context.Context, name string, f stopFlags) error {
	lg, err := a.parseLogger(f.log)
	if err != nil {
		return usageError{err}
	}
	l, err := a.load(name, f.jobFlags)
	if err != nil {
		return err
	}
	b, err := a.configured(ctx, l, l.dir)
	if err != nil {
		return err
	}
	list, complete, err := b.List(ctx, name)
	if err != nil {
		return errors.Join(fmt.Errorf("see what runs of job %q: %w", name, err), b.Close())
	}
	if complete && !anyLive(list) {
		fmt.Fprintf(a.out, "job %q does not run\n", name)
		return b.Close()
	}
	if f.force {
		return errors.Join(a.forceStop(ctx, l, b), b.Close())
	}
	if err := b.Close(); err != nil {
		return err
	}
	s, _, closeAll, err := a.open(ctx, lg, l)
	if err != nil {
		return err
	}
	defer closeAll()
	runCtx, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	// Owned by this function, which waits for it on every path; ended by end or by the stop itself.
	go func() { ran <- s.Run(runCtx) }()
	err = s.Do(ctx, core.Order{Kind: "stop"})
	if err == nil {
		_, err = a.awaitStop(ctx, name, func() (*core.View, error) { return s.View(), nil })
	}
	end()
	if err := errors.Join(err, <-ran); err != nil {
		return err
	}
	return a.sayStopped(name)
}

func anyLive(list []backend.Status) bool {
	for _, st := range list {
		if st.State.Live() {
			return true
		}
	}
	return false
}

// forceStop kills all processes of a job. It holds the job's state meanwhile, so that no scheduler starts them again.
func (a *app) forceStop(ctx context.Context, l *loaded, b backend.Backend) (err error) {
	if exists(filepath.Join(l.dir, "state.db")) {
		st, err := state.Open(l.dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
	}
	bar := a.progress()
	defer bar.done()
	t := time.NewTicker(stopPoll)
	defer t.Stop()
	for {
		list, complete, err := b.List(ctx, l.Name)
		if err != nil {
			return fmt.Errorf("see what runs of job %q: %w", l.Name, err)
		}
		var live []backend.ID
		for _, st := range list {
			if st.State.Live() {
				live = append(live, st.ID)
			}
		}
		if len(live) == 0 && complete {
			return a.sayStopped(l.Name)
		}
		bar.show("stopping job %q: %d processes to end", l.Name, len(live))
		if err := b.Release(ctx, l.Name, live, backend.Forced); err != nil {
			return fmt.Errorf("kill the processes of job %q: %w", l.Name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %d processes of job %q may still run", len(live), l.Name)
		case <-t.C:
		}
	}
}
