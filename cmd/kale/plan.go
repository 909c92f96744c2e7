package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/hindsight"
	"github.com/kale-sched/kale/core/job"
)

type planFlags struct {
	jobFlags
	recordFlags
	log, pool string
}

func planCommand(a *app) *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use: "plan JOB.hcl [JOB.hcl …]", Short: "What would be decided now, and where it would run",
		Long: `Reads the arrival history from the brokers, forecasts, decides once with the code that kale run uses, and asks the backend
where the result would go, and whether there is room for workers.min and workers.max. It starts nothing and writes nothing.
It says which forecaster is in use, why, and whether it is trusted, as kale status does; which events and holidays are near; and how much of what came in the
last day its band of 90 % held (kale forecast show).
Beside a scheduler that runs it decides as that would, with what it has learnt and the orders that it was given; else with what
the last one left, and says where that is damaged.

Where the brokers do not answer it plans without them, for workers.min, and says so. So it does where the cluster does not
answer (within 10 s in all): a job that runs is held then, and of one that does not it says how many workers it would begin with, not where.

With -pool it says for each of the jobs what the pool would give it, and why (kale help run).`,
		Args: atLeast("JOB.hcl"), ValidArgsFunction: a.completeMoreJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.plan(cmd.Context(), args, f) },
	}
	f.jobFlags.register(c)
	f.recordFlags.register(c)
	a.jsonFlag(c, "print observation, decision and placement as JSON, times in seconds (_s); what is wrong as kale validate -json does")
	c.Flags().StringVar(&f.log, "log", "warn", "least level of the log on standard error: "+logLevels)
	c.Flags().StringVar(&f.pool, "pool", "", "`POOL.hcl`, which says how many GPUs the jobs share, and who comes first")
	return c
}

// planned is what kale plan -json prints.
type planned struct {
	Job        string      `json:"job"`
	Topic      string      `json:"topic"`
	Partitions int         `json:"partitions,omitempty"`   // left out where the brokers do not answer
	NotAsked   string      `json:"not_asked,omitempty"`    // what could not be asked, and what is not known for it
	HistoryAt  *time.Time  `json:"history_from,omitempty"` // nil: no arrival history
	Scheduler  bool        `json:"scheduler_running,omitempty"`
	Unheard    bool        `json:"scheduler_silent,omitempty"`  // it did not say what it wants: neither what it has learnt nor a person's order is in the plan
	Gone       bool        `json:"gone,omitempty"`              // nothing runs of the job, which has not stopped
	Ended      string      `json:"ended,omitempty"`             // then what became of it, for people
	Running    []string    `json:"running,omitzero"`            // nil: not known
	NotRunning []notRuns   `json:"not_running,omitempty"`       // what is there and does not run: it waits for a place, starts, or is not heard of
	Unlisted   string      `json:"processes_unknown,omitempty"` // why Running may not be all
	Forecast   *foreseen   `json:"forecast,omitempty"`          // nil: none was made
	Damaged    string      `json:"state_damaged,omitempty"`     // what is wrong with the scheduler's state, and what helps
	Placements []placement `json:"placements"`
	Unplaced   string      `json:"placements_unknown,omitempty"` // why it is not known where what does not run would
	Shortage   string      `json:"shortage,omitempty"`
	core.Record
}

// notRuns is a process that the backend has and that does not run, by its word.
type notRuns struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

type placement struct {
	ID      string   `json:"id"`
	Fits    bool     `json:"fits"`
	Node    string   `json:"node,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

func (a *app) plan(ctx context.Context, args []string, f planFlags) error {
	lg, err := a.parseLogger(f.log)
	if err != nil {
		return usageError{err}
	}
	jobs, topics, pool, err := a.loadPlanned(ctx, args, f)
	if err != nil {
		return err
	}
	bar := a.progress()
	all := make([]core.Options, len(jobs))
	for i, l := range jobs {
		if all[i], err = a.planOptions(ctx, lg, l, topics[i], f); err != nil {
			return err
		}
		all[i].Pool, all[i].Progress = pool, bar.step
	}
	for i, l := range jobs { // all is well: now the plugins are started
		b, err := a.launch(ctx, lg, l)
		if err != nil {
			return errors.Join(err, closeBackends(all))
		}
		all[i].Backend = a.bounded(b, l.Job)
	}
	ps, diags, err := core.NewPreviews(ctx, all)
	bar.done()
	for i := range ps {
		if err == nil && !diags[i].HasErrors() {
			var more hcl.Diagnostics
			more, err = core.PlacementDiagnostics(ctx, all[i])
			diags[i] = append(diags[i], whileSilent(more)...)
		}
	}
	err = errors.Join(err, closeBackends(all))
	if ctx.Err() != nil {
		return errors.New("plan: interrupted; nothing was changed")
	}
	for i, l := range jobs {
		if derr := a.tell(l, diags[i]); derr != nil {
			return derr
		}
	}
	if err != nil {
		return err
	}
	past := make([][]hindsight.Lead, len(jobs))
	for i, l := range jobs {
		past[i] = a.pastForecasts(ctx, l)
	}
	return a.showPlans(jobs, topics, ps, past)
}

// loadPlanned reads the jobs and their pool, and asks around (inspect).
func (a *app) loadPlanned(ctx context.Context, args []string, f planFlags) (jobs []*loaded, topics []job.TopicInfo, pool *core.Pool, err error) {
	how := inspection{recordFlags: f.recordFlags, lenient: true, alone: true}
	if len(args) == 1 && f.pool == "" {
		l, topic, diags, err := a.inspect(ctx, args[0], f.jobFlags, how)
		if l != nil && ctx.Err() == nil {
			err = a.besides(a.tell(l, diags), err)
		}
		return []*loaded{l}, []job.TopicInfo{topic}, nil, err
	}
	jobs, pool, err = a.loadTogether(ctx, args, f.jobFlags, f.pool, func(*loaded) error { return nil }, func(l *loaded, diags hcl.Diagnostics) error {
		if f.pool == "" {
			diags = append(diags, a.poolless(ctx, l, args, false)...)
		}
		topic, more, err := a.askAround(ctx, l, how, diags.HasErrors())
		topics = append(topics, topic)
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		return a.besides(a.tell(l, inOrder(append(diags, more...))), err)
	})
	return jobs, topics, pool, err
}

// planOptions are what a preview of a job needs, save its backend.
func (a *app) planOptions(ctx context.Context, lg *slog.Logger, l *loaded, topic job.TopicInfo, f planFlags) (o core.Options, err error) {
	trainer, env, diags, err := a.trainer(ctx, lg, l)
	if err == nil {
		err = a.tell(l, diags)
	}
	return core.Options{Job: l.Job, StateDir: l.dir, Trainer: trainer, Env: env, Log: lg, Wanted: l.want, Offline: topic.Err != nil}, err
}

// closeBackends ends the plugins that were started.
func closeBackends(all []core.Options) (err error) {
	for _, o := range all {
		if o.Backend != nil {
			err = errors.Join(err, o.Backend.Close())
		}
	}
	return err
}

// showPlans prints one plan, or several: as JSON an array.
func (a *app) showPlans(jobs []*loaded, topics []job.TopicInfo, ps []*core.Preview, past [][]hindsight.Lead) error {
	var out []planned
	for i, l := range jobs {
		a.warnUnknown(l, ps[i])
		out = append(out, newPlanned(l, topics[i], ps[i], past[i]))
	}
	switch {
	case a.asJSON && len(out) == 1:
		return printJSON(a.out, out[0])
	case a.asJSON:
		return printJSON(a.out, out)
	}
	var text strings.Builder
	for i, p := range out {
		if i > 0 {
			fmt.Fprintln(&text)
		}
		if len(out) > 1 {
			fmt.Fprintf(&text, "job      %s\n", p.Job)
		}
		if err := writePlanned(&text, p); err != nil {
			return err
		}
	}
	width, _ := terminal(a.out)
	_, err := io.WriteString(a.out, folded(text.String(), width))
	return err
}

// warnUnknown says on standard error what makes a plan worth less.
func (a *app) warnUnknown(l *loaded, p *core.Preview) {
	switch h := a.holder(l.Name); {
	case p.Unheard && h.stops:
		a.advise("%s is at work on job %q: what was learnt of the job, and what was ordered, is not in this plan\n", h.words(), l.Name)
	case p.Unheard:
		a.advise("a scheduler of job %q is running, and did not say what it has learnt and what it was ordered (kale scale, kale pause): neither is in this plan\n", l.Name)
	case p.Locked && l.want.Stopping:
		a.advise("job %q is being stopped: this is what a kale run would do then\n", l.Name)
	case p.Locked:
		a.advise("a scheduler of job %q is running: this is what it would decide now; kale explain and kale status show what it does\n", l.Name)
	}
	switch {
	case p.NoHistory != nil:
		a.advise("the arrival history could not be read, so that the forecast starts cold: %v\n", p.NoHistory)
	case p.Backfilled.KnownFrom.IsZero() && !p.Offline:
		fmt.Fprintln(a.err, "the brokers hold no arrival history: the forecast starts cold")
	}
	if p.Damaged != "" {
		a.advise("%s\n", p.Damaged)
	}
	if text := core.AheadWords(p.Ahead); text != "" {
		a.advise("%s\n", text)
	}
}

func newPlanned(l *loaded, topic job.TopicInfo, p *core.Preview, past []hindsight.Lead) planned {
	out := planned{
		Job: l.Name, Topic: l.Stream.Topic, Partitions: topic.Partitions, Scheduler: p.Locked, Unheard: p.Unheard, Gone: p.Gone, Ended: p.Ended, Unlisted: p.Unlisted, Damaged: p.Damaged, Placements: []placement{},
		Unplaced: p.Unplaced, Shortage: p.Report.Shortage, Record: p.Record,
		Forecast: newForeseen(p.Occasions, p.Record.Observation.Forecast, past),
	}
	if topic.Err != nil {
		out.NotAsked = fmt.Sprintf("the brokers (%s): partitions, arrivals and lag are unknown", strings.TrimRight(topic.Err.Error(), "."))
	}
	if at := p.Backfilled.KnownFrom; !at.IsZero() {
		out.HistoryAt = &at
	}
	if p.Unlisted == "" {
		out.Running = []string{}
	}
	for _, st := range p.Running {
		switch {
		case st.State == backend.StateRunning:
			out.Running = append(out.Running, st.ID.String())
		case st.State.Live() && st.State != backend.StateStopping: // what ends is in nobody's way
			out.NotRunning = append(out.NotRunning, notRuns{st.ID.String(), string(st.State), st.Reason})
		}
	}
	out.Observation.Rates = out.Observation.Rates.Trimmed()
	for _, pl := range p.Report.Placements {
		out.Placements = append(out.Placements, placement{ID: pl.ID.String(), Fits: pl.Fits, Node: pl.Node, Devices: pl.Devices, Reason: pl.Reason})
	}
	return out
}

func writePlanned(w io.Writer, p planned) error {
	fmt.Fprint(w, p.Decision.In(time.Local).Explain())
	if p.NotAsked != "" {
		fmt.Fprintf(w, "\nunknown  no answer from %s; placed below is workers.min\n", p.NotAsked)
	} else {
		fmt.Fprintf(w, "\ntopic    %s, %s", p.Topic, job.Count(p.Partitions, "partition"))
		if p.HistoryAt != nil {
			fmt.Fprintf(w, ", arrivals known since %s", p.HistoryAt.Local().Format("2006-01-02 15:04:05"))
		}
		fmt.Fprintln(w)
		if p.LagUnknown != "" {
			fmt.Fprintf(w, "lag      unknown: %s\n", p.LagUnknown)
		}
	}
	writeForeseen(w, p)
	if p.Pool != nil {
		fmt.Fprintf(w, "pool     %s\n", p.Pool)
	}
	if p.ObserveOnly {
		fmt.Fprintln(w, `observe  autoscale.mode is "observe": kale run only decides and records, and would start and end nothing of this`)
	}
	if p.Gone {
		fmt.Fprintf(w, "gone     %s, and nothing of it runs any more: kale run takes it up again\n", p.Ended)
	}
	if p.Unlisted != "" {
		fmt.Fprintf(w, "running  %s\n", p.Unlisted)
	}
	if len(p.Running) > 0 {
		fmt.Fprintf(w, "running  %s\n", strings.Join(p.Running, ", "))
	}
	for _, n := range p.NotRunning {
		line := "its own  " + n.ID + " is " + n.State
		if n.Reason != "" {
			line += " (" + n.Reason + ")"
		}
		fmt.Fprintln(w, line)
	}
	switch {
	case p.Unplaced != "":
		where := p.Unplaced
		if p.Unlisted != "" { // which says it
			where = "the backend does not answer"
		}
		fmt.Fprintf(w, "start    where is not known: %s\n", where)
		return nil
	case len(p.Placements) > 0:
	case len(p.NotRunning) > 0:
		fmt.Fprintln(w, "start    nothing more: what is wanted is there, or asked for")
		return nil
	default:
		fmt.Fprintln(w, "start    nothing: all that is wanted runs")
		return nil
	}
	fmt.Fprintln(w, "start")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, pl := range p.Placements {
		where := strings.TrimSpace(pl.Node + " " + strings.Join(pl.Devices, ","))
		switch {
		case !pl.Fits:
			where = "no room: " + pl.Reason
		case where == "":
			where = strings.TrimSuffix("room: "+pl.Reason, ": ")
		default:
			where = strings.TrimSuffix(where+": "+pl.Reason, ": ")
		}
		fmt.Fprintf(t, "  %s\t%s\n", pl.ID, where)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if p.Shortage != "" {
		fmt.Fprintf(w, "short    %s\n", p.Shortage)
	}
	return nil
}
