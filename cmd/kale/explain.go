package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
)

type explainFlags struct {
	varFlags
	n   int
	all bool
}

func explainCommand(a *app) *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use: "explain JOB", Short: "The last decisions, with their arithmetic",
		Long: `Shows how the last decisions came about: what was known, each term of the arithmetic, and the result; and what else happened since the
first of them. Without -all, the newest decision, and before it those that changed something, -n in all. It works with a running scheduler and, from the job's state, without
or beside one that is suspended.

The costs of policy "cost" are followed by what they are made of, which adds up to them: GPUs held, lag, risk of violation, rescales, what is left to do
at the end of the time that is looked ahead, and "other courses of the load". The first are means over up to 12 of the forecast's scenarios, each followed with
the plan's own answers to it; the cost is expected over all courses that the load may take, and the last is what those that were not followed make of it.`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.n < 1 || f.n > 10_000 {
				return usagef("-n %d: want 1 to 10000 decisions", f.n)
			}
			return a.explain(cmd.Context(), args[0], f)
		},
	}
	f.register(c)
	c.Flags().IntVarP(&f.n, "lines", "n", 5, "how many `DECISIONS`, the newest among them")
	c.Flags().BoolVar(&f.all, "all", false, "also decisions that changed nothing")
	a.jsonFlag(c, "print observations and decisions as a JSON array, oldest first; times in seconds (_s)")
	return c
}

func (a *app) explain(ctx context.Context, arg string, f explainFlags) error {
	name, err := a.jobName(arg, f.varFlags)
	if err != nil {
		return err
	}
	records, notes, err := a.decisions(ctx, name, f)
	if err != nil {
		return err
	}
	if a.asJSON {
		for i := range records {
			records[i].Observation.Rates = records[i].Observation.Rates.Trimmed()
		}
		return printJSON(a.out, records)
	}
	notes = since(notes, records)
	if len(records) == 0 {
		fmt.Fprintf(a.out, "job %q has no decisions yet\n", name)
	}
	var text strings.Builder
	for i, r := range records {
		if i > 0 {
			fmt.Fprintln(&text)
		}
		fmt.Fprint(&text, r.Decision.In(time.Local).Explain())
		if r.LastJoin != nil {
			fmt.Fprintf(&text, "  the last join%s: %v\n", strings.TrimSuffix(decidedAt(*r.LastJoin, r.Decision.At), ","), r.LastJoin)
		}
		if r.Pool != nil && !r.Pool.Holds(r.Decision) {
			fmt.Fprintf(&text, "  pool  %s\n", r.Pool)
		}
		switch {
		case r.LagUnknown == "":
		case strings.Contains(r.Decision.Reason, r.LagUnknown):
			fmt.Fprintln(&text, "  the lag is not known for that reason")
		default:
			fmt.Fprintf(&text, "  the lag is not known: %s\n", r.LagUnknown)
		}
		for _, repair := range r.Repairs {
			fmt.Fprintf(&text, "  %s\n", repair)
		}
		if r.ObserveOnly {
			fmt.Fprintln(&text, "  observed only: nothing was done")
		}
	}
	for i, n := range notes {
		if i == 0 {
			fmt.Fprintln(&text)
		}
		fmt.Fprintf(&text, "%s  %s\n", clock(n.At, time.Now()), n.Text)
	}
	width, _ := terminal(a.out)
	_, err = io.WriteString(a.out, folded(text.String(), width))
	return err
}

// since are the notes of what happened from the first of some decisions on; with none, all of them.
func since(notes []core.Note, records []core.Record) []core.Note {
	if len(records) == 0 {
		return notes
	}
	first := records[0].Decision.At
	return slices.DeleteFunc(slices.Clone(notes), func(n core.Note) bool { return n.At.Before(first) })
}

// reader gives decisions, oldest first; with changes, only those that scale.
type reader func(n int, changes bool) ([]core.Record, error)

// decisions reads from the scheduler or, when none runs or it is suspended, from the job's state; and what else happened in the last day.
func (a *app) decisions(ctx context.Context, name string, f explainFlags) (records []core.Record, notes []core.Note, err error) {
	c, err := a.reach(ctx, name)
	if err == nil {
		defer c.Close()
		if v, err := c.Status(ctx); err == nil { // it may not have looked yet
			notes = v.Notes
		}
		records, err = pick(f, func(n int, changes bool) ([]core.Record, error) { return c.Decisions(ctx, n, changes) })
		return records, notes, a.asked(name, err)
	}
	st, err := a.storeWithout(name, "explain", err)
	if err != nil {
		return nil, nil, err
	}
	records, err = pick(f, func(n int, changes bool) ([]core.Record, error) { return api.Decisions(st, n, changes) })
	if err == nil {
		notes, err = core.NotesIn(st, time.Now())
	}
	return records, notes, errors.Join(err, st.Close())
}

// pick chooses the n that are shown: the last ones, or the newest and before it the last that changed something.
func pick(f explainFlags, read reader) ([]core.Record, error) {
	if f.all {
		return read(f.n, false)
	}
	records, err := read(f.n, true)
	if err != nil {
		return nil, err
	}
	newest, err := read(1, false)
	if err != nil || len(newest) == 0 {
		return records, err
	}
	if len(records) == 0 || newest[0].Decision.At.After(records[len(records)-1].Decision.At) {
		records = append(records, newest[0])
	}
	return records[max(0, len(records)-f.n):], nil
}
