package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/cmd/kale/view"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

// viewOrGlance is a job's picture from its scheduler or, where none can be asked, what can be told without: one of the two. With thorough, the
// backend is asked too, which starts its plugin for a moment. A scheduler that does not answer is given up while the others are asked.
func (a *app) viewOrGlance(ctx context.Context, name string, thorough bool) (*core.View, *core.Glance, error) {
	var list core.Lister
	if thorough {
		list = func(ctx context.Context) ([]backend.Status, bool, error) { return a.list(ctx, name) }
	}
	type answer struct {
		view *core.View
		err  error
	}
	asking, enough := context.WithCancel(ctx)
	defer enough()
	answered := make(chan answer, 1)
	go func() { // ends with asking, and is not waited for: it writes only into its channel
		v, err := a.view(asking, name)
		answered <- answer{v, err}
	}()
	late := time.NewTimer(a.patience)
	defer late.Stop()
	var said answer
	select {
	case said = <-answered:
	case <-late.C:
		g := a.glanceSilent(ctx, name, list)
		select {
		case said = <-answered: // it was only slow
		default:
			return nil, g, ctx.Err()
		}
	}
	v, err := said.view, said.err
	var refused *api.Error
	switch {
	case err == nil:
		return v, nil, nil
	case errors.As(err, &refused) && refused.Temporary():
		g := &core.Glance{Job: name, State: core.StateStarting, Scheduler: true, Now: time.Now(), Says: "its scheduler has just started and has not looked yet"}
		a.noteStop(g)
		return nil, g, nil
	case errors.Is(err, api.ErrSilent):
		return nil, a.glanceSilent(ctx, name, list), ctx.Err()
	case !errors.Is(err, api.ErrNoScheduler) && !ended(err):
		return nil, nil, err
	}
	dir, err := a.jobDir(name)
	if err != nil {
		return nil, nil, err
	}
	if j, k := a.elsewhere(name); k != nil {
		return nil, core.GlanceElsewhere(ctx, j, k, list), ctx.Err()
	}
	g, err := core.GlanceAt(ctx, dir, name, list)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case errors.Is(err, state.ErrLocked):
		g = &core.Glance{Job: name, State: core.StateUnknown, Scheduler: true, Now: time.Now(), Says: "its scheduler is about to answer, or about to end: ask again in a moment"}
	case err != nil:
		g = &core.Glance{Job: name, State: core.StateUnknown, Now: time.Now(), Says: err.Error(), Stuck: err.Error()}
	case g.State == core.StateNeverStarted:
		g = cmp.Or(a.lost(ctx, name), g)
	}
	a.noteStart(g)
	a.noteStop(g)
	return nil, g, nil
}

// topicPatience is how long the picture of a job that has stopped waits for its brokers, which may be away with it.
const topicPatience = 2 * time.Second

// askTopic asks the brokers of a job that has stopped whether its topic is one that it can be run on again; where they do not answer, what its scheduler saw last stays.
func (a *app) askTopic(ctx context.Context, g *core.Glance) {
	quiet := *a
	quiet.err = io.Discard // what is wrong with the job file, or with the brokers, is for kale validate
	l, err := quiet.load(g.Job, jobFlags{})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, topicPatience)
	defer cancel()
	if info, _, err := doctor.CheckTopics(ctx, l.Job); err == nil && info.Err == nil && info.CleanupPolicy != "" {
		g.Compaction(info.Compacted())
	}
}

// noteStart has a job's picture say that a kale run is about to take the job up.
func (a *app) noteStart(g *core.Glance) {
	run, starts := a.starts(g.Job)
	switch {
	case !starts, slices.Contains(a.takesUp, g.Job): // it needs not be told of itself
		return
	case g.State == core.StateNeverStarted, g.State == core.StateStopped, g.State == core.StateGone:
		g.State, g.Says = core.StateStarting, run+" is about to start it"
	default:
		g.Says += "; " + run + " is about to take it up"
	}
	g.Scheduler = true
}

// noteStop has the picture of a job that runs say that a kale stop stops it, which has not looked yet or kills what runs.
func (a *app) noteStop(g *core.Glance) {
	switch g.State {
	case core.StateNeverStarted, core.StateStopped, core.StateGone:
		return
	}
	dir, err := a.jobDir(g.Job)
	if err != nil {
		return
	}
	if pid, stops := noted(dir, stoppingFile); stops {
		g.State, g.Scheduler, g.Stuck, g.Says = core.StateStopping, true, "", stopsIt(pid)
		if h := holderOf(dir); h.stops && h.suspended {
			g.Says = h.silence()
		}
	}
}

// stopsIt names the kale stop that stops a job which has no other scheduler; 0: its process is not known.
func stopsIt(pid int) string {
	return commandAt("stop", pid) + " stops it"
}

// elsewhere is the scheduler that has the job, or had it last, where its state is not in this state folder, which then knows what is older or nothing. nil: it is, or
// that cannot be told.
func (a *app) elsewhere(name string) (*job.Job, *core.Keeper) {
	quiet := *a
	quiet.err = io.Discard // what is wrong with the job file is for kale validate
	l, err := quiet.load(name, jobFlags{})
	if err != nil {
		return nil, nil
	}
	k, err := core.KeeperOf(l.Job)
	if err != nil || k == nil || !k.Elsewhere(l.dir) && !k.Bereft() {
		return nil, nil
	}
	return l.Job, k
}

// lost is what can be told of a job of which this state folder says that it was never started, where a scheduler left it running with this one: what that wrote down was
// removed. nil: none did, or that cannot be told.
func (a *app) lost(ctx context.Context, name string) *core.Glance {
	quiet := *a
	quiet.err = io.Discard // what is wrong with the job file is for kale validate
	l, err := quiet.load(name, jobFlags{})
	if err != nil {
		return nil
	}
	k, err := core.KeeperOf(l.Job)
	if err != nil || k == nil {
		return nil
	}
	return core.GlanceLost(ctx, l.Job, k, func(ctx context.Context) ([]backend.Status, bool, error) { return a.list(ctx, name) })
}

// bereft says what helps where the scheduler that has a job has lost its state folder.
func (a *app) bereft(k *core.Keeper, name string) string {
	const text = "its state is not in %s any more, since it was %s, and no command reaches it: "
	for _, now := range state.OpenIn(k.Process.PID) {
		if how, err := loadInvocation(now); err == nil && how.Job == name && now != k.StateDir {
			return fmt.Sprintf(text+"%s puts it back", k.StateDir, "moved", backend.PutBack(now, k.StateDir))
		}
	}
	return fmt.Sprintf(text+"put the folder back or, where it is lost, kill %d ends that scheduler alone, and %s %s", k.StateDir, "moved or removed", k.Process.PID, a.runLine(name), core.AnewWithoutState)
}

// there is a command on a job for the scheduler that has its state in another folder.
func there(command string, k *core.Keeper, name string) string {
	text := fmt.Sprintf("kale %s -state-dir %s %s", command, quoted([]string{filepath.Dir(k.StateDir)}), name)
	if me := backend.ThisOrigin(); k.Host != me.Host && !k.Near(me) {
		text += " on host " + k.Host
	}
	return text
}

// glanceSilent is what can be told of a job whose scheduler is there and does not answer.
func (a *app) glanceSilent(ctx context.Context, name string, list core.Lister) *core.Glance {
	h := a.holder(name)
	says := h.silence()
	quiet := *a
	quiet.err = io.Discard // what is wrong with the job file is for kale validate
	l, err := quiet.load(name, jobFlags{})
	if err != nil {
		return &core.Glance{Job: name, State: core.StateUnknown, Scheduler: true, Now: time.Now(), Says: says + ", and its job file cannot be read, which says where its chief is"}
	}
	g := core.GlanceSilent(ctx, l.Job, says, list)
	if h.stops {
		g.State, g.Stuck = core.StateStopping, ""
	}
	return g
}

// isOlder says that a state folder knows less of a job than the one whose scheduler had it since.
func isOlder(dir string) string {
	return fmt.Sprintf("what the state folder %s knows of the job is older", dir)
}

// advice says what can be done about a job without a scheduler.
func (a *app) advice(g *core.Glance) string {
	run := a.together(g.Job) + a.runLine(g.Job)
	switch {
	case g.Elsewhere != nil && g.Elsewhere.Bereft():
		return a.bereft(g.Elsewhere, g.Job)
	case g.Elsewhere != nil && !g.Scheduler && g.Elsewhere.Forgotten():
		return run + " takes it up again"
	case g.Elsewhere != nil:
		dir, _ := a.jobDir(g.Job)
		text := there("status", g.Elsewhere, g.Job) + " tells more"
		if ranIn(dir) {
			text += "; " + isOlder(dir) + ", and left out"
		}
		if !g.Scheduler {
			text += ". " + run + " takes it up again"
		}
		return text
	case g.Scheduler:
		return ""
	case g.State == core.StateStopping:
		return fmt.Sprintf("kale stop %s%s goes on with it; %s takes the job up again", a.stateFlag(), g.Job, run)
	case g.State == core.StateNeverStarted && g.Observed():
		return fmt.Sprintf("%s goes on observing it or, with autoscale.mode = %q in its file, starts it", run, job.ModeLive)
	case g.State == core.StateNeverStarted:
		return run + " starts it"
	case g.State == core.StateUnknown && g.Stuck != "", g.State == core.StateStopped && g.Stuck != "":
		if strings.HasSuffix(g.Says, g.Stuck) {
			return "with that mended, " + run + " takes it up again"
		}
		return g.Stuck + "; with that mended, as the problem below says, " + run + " takes it up again"
	}
	return run + " takes it up again"
}

// together says, of a job that was run in a pool with others, which schedulers of these are to end before it can be run with them again.
func (a *app) together(name string) string {
	how, err := a.known(name)
	if err != nil {
		return ""
	}
	var have, end []string
	for _, other := range how.With {
		if h := a.holder(other); other != name && h.pid != 0 && !h.stops {
			have, end = append(have, other), append(end, fmt.Sprintf("kill %d", h.pid))
		}
	}
	if len(have) == 0 {
		return ""
	}
	return fmt.Sprintf("its pool is run for %s now: %s ends that, training goes on, and then ", listed(have), strings.Join(slices.Compact(end), " and "))
}

// list asks a job's backend what runs.
func (a *app) list(ctx context.Context, name string) (list []backend.Status, complete bool, err error) {
	err = a.onBackend(ctx, name, func(b backend.Backend) (err error) {
		list, complete, err = core.Processes(ctx, b, name)
		return err
	})
	return list, complete, err
}

// onBackend does something with a job's backend, whose plugin is started for that.
func (a *app) onBackend(ctx context.Context, name string, do func(backend.Backend) error) error {
	quiet := *a
	quiet.err = io.Discard // what is wrong with the job file is for kale validate
	l, err := quiet.load(name, jobFlags{plugins: a.plugins})
	if err != nil {
		return fmt.Errorf("ask it what runs: %w", a.inJobFile(name, err))
	}
	if _, diags := quiet.plugin(l); diags.HasErrors() {
		return fmt.Errorf("ask it what runs: %s", strings.TrimSuffix(diags[0].Detail, "."))
	}
	b, err := quiet.configured(ctx, l, l.dir)
	if err != nil {
		return fmt.Errorf("ask it what runs: %w", a.inJobFile(name, err))
	}
	err = do(b)
	if e := b.Close(); e != nil {
		err = errors.Join(err, e)
	}
	return err
}

// inJobFile is err where that says only that mistakes in a job's file were shown, and they were not.
func (a *app) inJobFile(name string, err error) error {
	if !errors.Is(err, errShown) {
		return err
	}
	if how, e := a.invocation(name, jobFlags{}); e == nil {
		return fmt.Errorf("there are mistakes in the job file: kale validate %s shows them", quoted([]string{how.File}))
	}
	return errors.New("there are mistakes in the job file, which kale validate shows")
}

// brief is a job's line in the overview.
func (a *app) brief(ctx context.Context, name string) jobState {
	switch v, g, err := a.viewOrGlance(ctx, name, false); {
	case err != nil:
		return jobState{Job: name, State: core.StateUnknown, Says: err.Error()}
	case v != nil:
		says := cmp.Or(v.Cause, headline(v))
		if v.StopProcess != 0 {
			says = stopsIt(v.StopProcess) + remaining(v)
		}
		if v.State == core.StateStuck {
			says = v.Stuck + ", " + says
		}
		return jobState{Job: name, State: v.State, Scheduler: true, Says: withProblems(says, v.Problems)}
	default:
		return jobState{Job: name, State: g.State, Scheduler: g.Scheduler, Says: withProblems(g.Says, g.Problems)}
	}
}

// withProblems says in a job's one line that there is more to read.
func withProblems(says string, problems []string) string {
	if len(problems) == 0 {
		return says
	}
	return says + "; " + job.Count(len(problems), "problem")
}

// writeGlance prints for people what can be told of a job without its scheduler, on a terminal of a width (0: on none).
func writeGlance(w io.Writer, g *core.Glance, advice string, width int) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("job", "%s, %s: %s", g.Job, g.State, g.Says)
	if advice != "" {
		row("", "%s", advice)
	}
	if m := g.Manual; m.Paused || m.Pinned {
		row("order", "%s", manualLine(m))
	}
	wanted := "wanted"
	if g.Observed() {
		wanted = "that it would have"
	}
	switch s := g.LastSample; {
	case s == nil:
	case g.State == core.StateStopped && s.Lag == nil:
		row("last seen", "%s", clock(s.At, g.Now))
	case g.State == core.StateStopped:
		row("last seen", "%s  lag was %s%s", clock(s.At, g.Now), lag(*s), waiting(*s))
	case s.Running == nil:
		row("last seen", "%s  %s wanted, how many trained was unknown, lag %s", clock(s.At, g.Now), job.Count(s.Target, "worker"), lag(*s))
	default:
		row("last seen", "%s  %s %s of %d %s, lag %s", clock(s.At, g.Now), job.Count(*s.Running, "worker"), view.Doing(*s, false), s.Target, wanted, lag(*s))
	}
	writeRecords(row, g.Now, g.LastChange, g.Decision, g.Problems)
	if g.Trained != nil {
		text := trainedTotal(g.Trained)
		if t := g.Totals; t != nil {
			text += aucSoFar(t.AUC) + losses{g.Job, t.Dead, t.Lost, t.CutOff, t.Skips, t.DeadLetter}.String()
		}
		if g.Past {
			text += ", when that was last asked"
		}
		if g.Snapshots != nil {
			text += fmt.Sprintf("; its snapshots have %s, and the next run trains the others again", plan.Thousands(*g.Snapshots))
		}
		row("trained", "%s", text)
	}
	writeNotes(row, g.Job, g.Notes)
	for _, p := range g.Problems {
		row("problem", "%s", p)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if _, err := io.WriteString(w, folded(text.String(), width)); err != nil {
		return err
	}
	return writeProcesses(w, g.Now, g.Workers, g.Servers, width)
}
