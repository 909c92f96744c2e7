package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
)

type stopFlags struct {
	jobFlags
	force bool
	log   string
}

func stopCommand(a *app) *cobra.Command {
	var f stopFlags
	c := &cobra.Command{
		Use: "stop JOB", SuggestFor: []string{"end", "kill", "down", "delete", "cancel"}, Short: "Drain a job, write a last snapshot, release everything",
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
	if err := c.Order(ctx, core.Order{Kind: "stop", Force: f.force}); err != nil {
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
	if err := b.Close(); err != nil {
		return err
	}
	s, _, closeAll, err := a.open(ctx, l, core.Options{Log: lg, Stop: true})
	if err != nil {
		return err
	}
	defer closeAll()
	if f.force {
		err = s.Kill(ctx)
	} else {
		err = a.drive(ctx, name, s)
	}
	if err != nil {
		return err
	}
	return a.sayStopped(name)
}

// drive runs a scheduler that was opened to stop its job, with progress, until the job has stopped.
func (a *app) drive(ctx context.Context, name string, s *core.Scheduler) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	// Owned by this function, which waits for it; it ends with the stop or with ctx.
	go func() { ran <- s.Run(ctx) }()
	bar := a.progress()
	defer bar.done()
	began := time.Now()
	t := time.NewTicker(stopPoll)
	defer t.Stop()
	for {
		select {
		case err := <-ran:
			if v := s.View(); err == nil && (v == nil || !v.Stopped) {
				err = fmt.Errorf("interrupted: job %q is half stopped; kale stop %s goes on", name, name)
			}
			return err
		case <-t.C:
			if v := s.View(); v != nil {
				bar.show("stopping job %q, %s: %s", name, time.Since(began).Round(time.Second), remaining(v))
			}
		}
	}
}

func anyLive(list []backend.Status) bool {
	for _, st := range list {
		if st.State.Live() {
			return true
		}
	}
	return false
}
