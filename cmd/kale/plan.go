package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
)

type planFlags struct {
	jobFlags
	recordFlags
	asJSON bool
	log    string
}

func planCommand(a *app) *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use: "plan JOB.hcl", Short: "What would be decided now, and where it would run",
		Long: `Reads the arrival history from the brokers, forecasts, decides once with the code that kale run uses, and asks the backend
where the result would go, and whether there is room for workers.min and workers.max. It starts nothing and writes nothing.`,
		Args: exactly("JOB.hcl"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.plan(cmd.Context(), args[0], f) },
	}
	f.jobFlags.register(c)
	f.recordFlags.register(c)
	c.Flags().BoolVar(&f.asJSON, "json", false, "print observation, decision and placement as JSON, times in seconds (_s); what is wrong as kale validate -json does")
	c.Flags().StringVar(&f.log, "log", "warn", "least level of the log on standard error: "+logLevels)
	return c
}

// planned is what kale plan -json prints.
type planned struct {
	Job        string      `json:"job"`
	Topic      string      `json:"topic"`
	Partitions int         `json:"partitions"`
	HistoryAt  *time.Time  `json:"history_from,omitempty"` // nil: no arrival history
	Scheduler  bool        `json:"scheduler_running,omitempty"`
	Running    []string    `json:"running"`
	Placements []placement `json:"placements"`
	Shortage   string      `json:"shortage,omitempty"`
	core.Record
}

type placement struct {
	ID      string   `json:"id"`
	Fits    bool     `json:"fits"`
	Node    string   `json:"node,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

func (a *app) plan(ctx context.Context, arg string, f planFlags) error {
	lg, err := a.parseLogger(f.log)
	if err != nil {
		return usageError{err}
	}
	l, err := a.loadFor(arg, f)
	if err != nil {
		return err
	}
	refused := func(diags hcl.Diagnostics) error {
		if f.asJSON && diags.HasErrors() {
			return a.validatedJSON(l.Job, diags)
		}
		return a.diagnose(l.files, diags)
	}
	info, diags, err := a.preflight(ctx, l, f.recordFlags)
	if err != nil {
		return err
	}
	if err := refused(diags); err != nil {
		return err
	}
	trainer, env, diags, err := a.trainer(ctx, lg, l)
	if err == nil {
		err = refused(diags)
	}
	if err != nil {
		return err
	}
	b, err := a.launch(ctx, lg, l)
	if err != nil {
		return err
	}
	bar := a.progress()
	o := core.Options{Job: l.Job, StateDir: l.dir, Backend: b, Trainer: trainer, Env: env, Log: lg, Progress: bar.step}
	p, diags, err := core.NewPreview(ctx, o)
	bar.done()
	if err == nil && !diags.HasErrors() {
		var more hcl.Diagnostics
		more, err = core.PlacementDiagnostics(ctx, o)
		diags = append(diags, more...)
	}
	err = errors.Join(err, b.Close())
	if ctx.Err() != nil {
		return errors.New("plan: interrupted; nothing was changed")
	}
	if derr := refused(diags); derr != nil {
		return derr
	}
	if err != nil {
		return err
	}
	out := newPlanned(l, info.Partitions, p)
	if a.warnUnknown(p); f.asJSON {
		return printJSON(a.out, out)
	}
	return writePlanned(a.out, out)
}

// loadFor is load; with -json the mistakes of the file are printed as kale validate -json prints them.
func (a *app) loadFor(arg string, f planFlags) (*loaded, error) {
	if f.asJSON {
		how, err := a.invocation(arg, f.jobFlags)
		if err != nil {
			return nil, err
		}
		if j, _, diags := job.Load(how.File, how.Vars, how.VarFiles); diags.HasErrors() {
			return nil, a.validatedJSON(j, diags)
		}
	}
	return a.load(arg, f.jobFlags)
}

// warnUnknown says on standard error what makes a plan worth less.
func (a *app) warnUnknown(p *core.Preview) {
	if p.Locked {
		fmt.Fprintln(a.err, "a scheduler of this job is running: what it has learnt is not in this plan; kale explain and kale status show what it does")
	}
	if p.Backfilled.KnownFrom.IsZero() {
		fmt.Fprintln(a.err, "the brokers hold no arrival history: the forecast starts cold")
	}
}

func newPlanned(l *loaded, partitions int, p *core.Preview) planned {
	out := planned{
		Job: l.Name, Topic: l.Stream.Topic, Partitions: partitions, Scheduler: p.Locked, Running: []string{}, Placements: []placement{},
		Shortage: p.Report.Shortage, Record: p.Record,
	}
	if at := p.Backfilled.KnownFrom; !at.IsZero() {
		out.HistoryAt = &at
	}
	for _, st := range p.Running {
		if st.State.Live() {
			out.Running = append(out.Running, st.ID.String())
		}
	}
	for _, pl := range p.Report.Placements {
		out.Placements = append(out.Placements, placement{ID: pl.ID.String(), Fits: pl.Fits, Node: pl.Node, Devices: pl.Devices, Reason: pl.Reason})
	}
	return out
}

func writePlanned(w io.Writer, p planned) error {
	fmt.Fprint(w, p.Decision.Explain())
	fmt.Fprintf(w, "\ntopic    %s, %s", p.Topic, count(p.Partitions, "partition"))
	if p.HistoryAt != nil {
		fmt.Fprintf(w, ", arrivals known since %s", p.HistoryAt.Local().Format("2006-01-02 15:04:05"))
	}
	fmt.Fprintln(w)
	if len(p.Running) > 0 {
		fmt.Fprintf(w, "running  %s\n", strings.Join(p.Running, ", "))
	}
	if len(p.Placements) == 0 {
		fmt.Fprintln(w, "start    nothing: all that is wanted runs")
		return nil
	}
	fmt.Fprintln(w, "start")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, pl := range p.Placements {
		where := strings.TrimSpace(pl.Node + " " + strings.Join(pl.Devices, ","))
		if !pl.Fits {
			where = "no room: " + pl.Reason
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
