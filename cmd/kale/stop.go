package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/kale/view"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/state"
)

const orderStop = "stop"

type stopFlags struct {
	jobFlags
	force    bool
	takeOver bool
	log      string
}

func stopCommand(a *app) *cobra.Command {
	var f stopFlags
	c := &cobra.Command{
		Use: "stop JOB", SuggestFor: []string{"end", "kill", "down", "delete", "cancel"}, Short: "Drain a job, write a last snapshot, release everything",
		Long: `Ends a job: workers finish what they hold, the servers write a snapshot, and everything is released. kale run takes it up again
from there. It works with a running scheduler, which then ends too, and without. kale status tells how far it is.

-force drains nothing and writes no snapshot: processes are killed, and the job goes on later from its last snapshot. While the cluster
does not answer, what can read the checkpoint folder is told there to end. A stop by force stays one. A cluster knows whose a job's name is,
and gives the processes of another job of that name to nobody; -force -take-over ends them all the same, for when nobody else can. A scheduler that is
suspended or stuck keeps the job; kill -9 ends it alone, and training goes on.`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.stopJob(cmd.Context(), args[0], f) },
	}
	f.register(c)
	c.Flags().BoolVar(&f.force, "force", false, "kill at once: no drain, no snapshot")
	registerTakeOver(c, &f.takeOver)
	a.jsonFlag(c, orderedJSON)
	c.Flags().StringVar(&f.log, "log", "warn", "least level of the log on standard error: "+logLevels)
	return c
}

// errTakenUp says that the job is being taken up, or was, while it was about to be stopped without a scheduler.
var errTakenUp = errors.New("a scheduler takes the job up")

func (a *app) stopJob(ctx context.Context, arg string, f stopFlags) error {
	for {
		if err := a.stopOnce(ctx, arg, f); !errors.Is(err, errTakenUp) {
			return err
		}
	}
}

func (a *app) stopOnce(ctx context.Context, arg string, f stopFlags) error {
	name, c, err := a.reachArg(ctx, arg, f.varFlags)
	if err != nil && !errors.Is(err, api.ErrSilent) {
		switch starts, err := a.awaitStart(ctx, cmp.Or(name, arg)); {
		case err != nil:
			return fmt.Errorf("stop job %q: %w", cmp.Or(name, arg), err)
		case starts:
			return errTakenUp
		}
	}
	if errors.Is(err, api.ErrNoScheduler) {
		return a.stopWithout(ctx, name, f)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	began := time.Now()
	switch err := a.give(ctx, name, c, core.Order{Kind: orderStop, Force: f.force}); {
	case err == nil:
		if err := a.awaitStop(ctx, name, began, func() (*core.View, error) { return a.viewFrom(ctx, c) }); err != nil {
			return err
		}
	case !ended(err):
		return a.asked(name, err)
	}
	g, v, err := a.awaitLetGo(ctx, name)
	switch {
	case err != nil:
		return err
	case v != nil && v.LastStop.After(began):
		return a.done(ordered{Job: name, Order: orderStop, Changed: true, Says: []string{fmt.Sprintf("job %q has stopped, and has been taken up again since", name)}})
	case v != nil:
		return fmt.Errorf("the scheduler of job %q ended, and another one has taken the job up: kale stop %s%s stops that one", name, a.stateFlag(), name)
	case g.State == core.StateStopped:
		return a.sayStopped(name, true, g.Rollbacks, undone(began, g.Notes), g.Unwritten, g.LeftAway)
	}
	fmt.Fprintln(a.err, "the scheduler went away before the job had stopped; going on without it")
	return a.stopWithout(ctx, name, f)
}

// ended says that a call failed because the scheduler is ending or gone, and not because it refused.
func ended(err error) bool {
	var refused *api.Error
	return !errors.Is(err, api.ErrSilent) && (errors.Is(err, api.ErrNoScheduler) || !errors.As(err, &refused) || refused.Ended())
}

// undone is what a stop is told of a job that was restored while it was being stopped: that less is trained than had been; "": it was not.
func undone(began time.Time, notes []core.Note) string {
	for _, n := range slices.Backward(notes) {
		if !n.At.Before(began) && strings.HasPrefix(n.Text, core.Restored) {
			return n.Text
		}
	}
	return ""
}

// sayStopped says so with what is left to be trained again, what was undone, that the last snapshot was not written, and what is left on nodes that are away, where there
// is such; changed is false of a job that this stop found so.
func (a *app) sayStopped(name string, changed bool, rollbacks []core.Rollback, undone, unwritten, leftAway string) error {
	says := fmt.Sprintf("job %q has stopped", name)
	if !changed {
		says += " already"
	}
	all := append([]string{says}, core.Unrepaired(rollbacks)...)
	for _, more := range []string{undone, unwritten, leftAway} {
		if more != "" {
			all = append(all, more)
		}
	}
	return a.done(ordered{Job: name, Order: orderStop, Changed: changed, Says: all})
}

// stopPoll is how often a stop's progress is looked at.
const stopPoll = 200 * time.Millisecond

// awaitStop shows progress until the job has stopped or the scheduler that was asked to stop it at began cannot be asked any more: another one may answer.
func (a *app) awaitStop(ctx context.Context, name string, began time.Time, look func() (*core.View, error)) error {
	bar := a.stopBar(name)
	defer bar.done()
	for {
		v, err := look()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted: job %q goes on stopping as long as its scheduler runs; kale stop %s%s waits again", name, a.stateFlag(), name)
		case err == nil && (v.Stopped || v.LastStop.After(began) || v.Started.After(began)), err != nil && ended(err):
			return nil
		case err == nil:
			bar.stops(time.Since(began), v)
		case errors.Is(err, api.ErrSilent):
			bar.show("stopping job %q, %s: %s", name, time.Since(began).Round(time.Second), a.holder(name).silence())
		}
		_ = wait(ctx, stopPoll) // the next turn tells
	}
}

// stopTakesLong is when a stop is said to take long.
const stopTakesLong = 5 * time.Second

// stopBar shows how far a stop is. When it takes long, it says once what does without what it waits for, and each problem once.
type stopBar struct {
	*progress
	name     string
	problems []string
	hinted   bool
}

func (a *app) stopBar(name string) *stopBar { return &stopBar{progress: a.progress(), name: name} }

func (b *stopBar) stops(lasts time.Duration, v *core.View) {
	text := fmt.Sprintf("stopping job %q, %s%s", b.name, lasts.Round(time.Second), remaining(v))
	if lasts >= stopTakesLong {
		for _, p := range v.Problems {
			if view.Told(b.problems, p) {
				continue
			}
			if what := core.Behind(p); what != "" && slices.ContainsFunc(b.problems, func(told string) bool { return core.Behind(told) == what }) {
				b.say("still: %s: %s\n", what, view.Cause(p))
			} else {
				b.say("problem: %s\n", p)
			}
			b.problems = append(b.problems, p)
		}
		if !b.hinted && v.Waits != "" && v.Unlisted == "" && !v.Forced && !strings.Contains(text, "kale stop -force") { // which needs to see what runs, too
			b.say("waiting for %s; kale stop -force %s%s does without\n", v.Waits, b.a.stateFlag(), b.name)
			b.hinted = true
		}
	}
	b.show("%s", text)
}

// say says something above the bar.
func (b *stopBar) say(format string, args ...any) {
	b.done()
	b.a.advise(format, args...)
}

// remaining says what a stop waits for; "": that has not been looked at yet.
func remaining(v *core.View) string {
	switch {
	case v.Waits != "":
		return ": waiting for " + v.Waits
	case v.Stopped || len(v.Workers)+len(v.Servers) == 0 && v.Unlisted == "":
		return ": nothing is left"
	}
	return ""
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
	l.anyOwner = f.force && f.takeOver
	if _, k := a.elsewhere(name); k != nil && k.Bereft() && !f.takeOver {
		return fmt.Errorf("stop job %q: %s looks after it; %s; with -take-over the job is taken from that one, and stopped from here", name, k.Words(), a.bereft(k, name))
	} else if k != nil && k.Held && !f.takeOver {
		return fmt.Errorf("stop job %q: %s looks after it: %s stops it; with -take-over it is taken from that one, and stopped from here", name, k.Words(), there("stop", k, name))
	}
	began := time.Now()
	if h := holderOf(l.dir); h.stops && h.suspended {
		return fmt.Errorf("stop job %q: %s; %s", name, h.silence(), h.ends(a, name))
	}
	if exists(l.dir) {
		defer noteProcess(l.dir, stoppingFile).end()
	}
	answered := a.awaitBackend(l.Job)
	defer answered()
	if want, err := core.WantedAt(l.dir); err != nil || !want.Runs() { // or it is not known; else it is ordered before it is looked what runs
		over, err := a.nothingRuns(ctx, l, f)
		if err != nil || over {
			return err
		}
	}
	if _, starts := isStarting(l.dir); starts {
		return errTakenUp
	}
	s, b, closeAll, err := a.open(ctx, l, core.Options{Log: lg, Told: true, Stop: true, Force: f.force, AnyOwner: l.anyOwner}, f.takeOver)
	if errors.Is(err, state.ErrLocked) {
		if v, busy := a.view(ctx, name); busy == nil && !v.Stopped { // or another stop has begun meanwhile
			return errTakenUp
		}
	}
	if err != nil && ctx.Err() != nil {
		return unbegun(name)
	}
	if err != nil {
		return err
	}
	defer closeAll()
	soon, enough := context.WithTimeout(ctx, 2*a.patience)
	_, _, silent, err := processes(soon, b, name, f.force)
	enough()
	if ctx.Err() != nil {
		return a.halfStopped(name)
	}
	if err != nil {
		return err
	}
	answered() // from here on it is told what is waited for
	waits := silent || !f.force
	if !waits {
		err = s.Kill(ctx)
		waits = err != nil && ctx.Err() == nil && !core.NeedsAPerson(err)
	}
	if waits {
		err = a.drive(ctx, lg, l, b, s)
	}
	if err != nil {
		return err
	}
	var notes []core.Note
	if v := s.View(); v != nil {
		notes = v.Notes
	}
	return a.sayStopped(name, true, s.Rollbacks(), undone(began, notes), s.Unwritten(), s.LeftAway())
}

// nothingRuns says that there was nothing to stop, where the state of a job does not say that it runs and its cluster has nothing of it either, and prints that.
func (a *app) nothingRuns(ctx context.Context, l *loaded, f stopFlags) (is bool, err error) {
	name := l.Name
	b, err := a.configured(ctx, l, l.dir)
	if err != nil {
		return false, err
	}
	list, complete, silent, err := processes(ctx, b, name, f.force)
	switch err = errors.Join(err, b.Close()); {
	case ctx.Err() != nil:
		return false, unbegun(name)
	case err != nil:
		return false, err
	}
	if silent || !complete || anyLive(list) {
		return false, nil
	}
	g, v, err := a.awaitLetGo(ctx, name)
	switch {
	case err != nil:
		return false, err
	case v != nil:
		return false, errTakenUp
	case g.State == core.StateStopped:
		return true, a.sayStopped(name, false, g.Rollbacks, "", g.Unwritten, g.LeftAway)
	case g.State == core.StateNeverStarted:
		says := fmt.Sprintf("job %q was never started", name)
		if k, err := core.KeeperOf(l.Job); err == nil && k != nil && k.Stopped && !k.Held {
			says = fmt.Sprintf("job %q has stopped already, at %s; %s", name, k.Until.Local().Format("2006-01-02 15:04:05"), core.ModelWords(l.Checkpoint.Dir, name))
		}
		return true, a.done(ordered{Job: name, Order: orderStop, Says: []string{says}})
	}
	return false, nil
}

// processes is what a cluster has of a job that is to be stopped; silent: it does not answer, or not in time, which passes.
func processes(ctx context.Context, b backend.Backend, name string, force bool) (list []backend.Status, complete, silent bool, err error) {
	list, complete, err = core.Processes(ctx, b, name)
	if err == nil {
		return list, complete, false, nil
	}
	switch code := backend.CodeOf(err); {
	case ctx.Err() != nil, code == backend.Unavailable, code == backend.RetryAfter:
		return nil, false, true, nil
	case force && code == backend.Blocked: // which force may do without
		return nil, false, false, nil
	}
	return nil, false, false, fmt.Errorf("see what runs of job %q: %w", name, err)
}

func unbegun(name string) error {
	return fmt.Errorf("interrupted before the stop of job %q had begun: nothing was ordered, and nothing of it was ended", name)
}

func (a *app) halfStopped(name string) error {
	return fmt.Errorf("interrupted: job %q is half stopped; kale stop %s%s goes on", name, a.stateFlag(), name)
}

// drive runs a scheduler that was opened to stop its job, with progress, until the job has stopped. It answers as every scheduler does, so that others see how far
// the stop is, and may wait for it or force it.
func (a *app) drive(ctx context.Context, lg *slog.Logger, l *loaded, b backend.Backend, s *core.Scheduler) error {
	name := l.Name
	ctx, end := context.WithCancel(ctx)
	defer end()
	ran, silence := make(chan error, 1), answerFor(ctx, lg, l, b, s)
	defer silence()
	// Owned by this function, which waits for it; it ends with the stop or with ctx.
	go func() { ran <- s.Run(ctx) }()
	bar := a.stopBar(name)
	defer bar.done()
	began := time.Now()
	t := time.NewTicker(stopPoll)
	defer t.Stop()
	for {
		select {
		case err := <-ran:
			if v := s.View(); err == nil && (v == nil || !v.Stopped) {
				err = a.halfStopped(name)
			}
			return err
		case <-t.C:
			if v := s.View(); v != nil {
				bar.stops(time.Since(began), v)
			}
		}
	}
}

// answerFor serves the API of a scheduler that stops its job, until silence is called. One that cannot be served does not keep the job from stopping.
func answerFor(ctx context.Context, lg *slog.Logger, l *loaded, b backend.Backend, s *core.Scheduler) (silence func()) {
	const unheard = "kale status cannot ask how far the stop is"
	listener, err := listen(l.dir)
	if err != nil {
		lg.Warn(unheard, "err", err)
		return func() {}
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) // an interrupted stop answers until its loop has ended
	served := make(chan error, 1)
	// Owned by who calls silence, which ends it and waits for it.
	go func() { served <- api.Serve(ctx, lg, listener, s, apiOptions(l, b, s)) }()
	return func() {
		end()
		if err := <-served; err != nil {
			lg.Warn(unheard, "err", err)
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
