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
	"github.com/kale-sched/kale/core/hindsight"
	"github.com/kale-sched/kale/core/job"
)

type showFlags struct {
	varFlags
	since span
	ahead []string
	bins  int
}

func forecastShowCommand(a *app) *cobra.Command {
	f := showFlags{since: span(24 * time.Hour)}
	c := &cobra.Command{
		Use: "show JOB", Short: "A job's last forecasts against what came",
		Long: `Shows how far off the forecasts were that a job's decisions were made from: so long ahead, on how many bins, by how much (WAPE is Σ|came − expected| / Σ came,
the bias is above 0 where too much was expected), and how often what came lay within the band that was to hold 90 %. Then the last bins, one by one, and what is expected
next, and what came of the models that were trained anew (forecast.retrain), those that were refused too. It works with a running scheduler and, from the job's state, without or beside one that is suspended.

What other forecasters would have done on the same traffic is measured by kale forecast eval.`,
		Example: "  kale forecast show ctr\n  kale forecast show ctr -since 7d -ahead 15m,1h",
		Args:    exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := hindsight.Options{From: time.Now().Add(-time.Duration(f.since)), Bins: f.bins}
			if f.since <= 0 || f.bins < 1 || f.bins > 10_000 {
				return usagef("-since %s, -n %d: want a length of time, and 1 to 10000 bins", job.FormatDuration(time.Duration(f.since)), f.bins)
			}
			for _, text := range f.ahead {
				lead, err := job.ParseDuration(text)
				if err != nil {
					return usagef("-ahead %q: %w", text, err)
				}
				o.Leads = append(o.Leads, lead)
			}
			return a.forecastShow(cmd.Context(), args[0], f.varFlags, o)
		},
	}
	f.register(c)
	c.Flags().Var(&f.since, "since", "how far to look back; decisions are kept for 14d")
	c.Flags().StringSliceVar(&f.ahead, "ahead", nil, "`DURATIONS`, whole bins, that forecasts looked ahead (default: one bin, and a quarter, a half and all of the horizon)")
	c.Flags().IntVarP(&f.bins, "lines", "n", 10, "how many of the last `BINS` to list")
	a.jsonFlag(c, "print the comparison as JSON; times in seconds (_s)")
	return c
}

func (a *app) forecastShow(ctx context.Context, arg string, f varFlags, o hindsight.Options) error {
	name, err := a.jobName(arg, f)
	if err != nil {
		return err
	}
	r, err := a.hindsight(ctx, name, o)
	if err != nil {
		return err
	}
	if a.asJSON {
		return printJSON(a.out, r)
	}
	width, _ := terminal(a.out)
	_, err = io.WriteString(a.out, folded(reviewText(name, r, time.Since(o.From).Round(time.Minute), width), width))
	return err
}

// hindsight asks the scheduler or, where none can be reached, reads the job's state.
func (a *app) hindsight(ctx context.Context, name string, o hindsight.Options) (hindsight.Review, error) {
	c, err := a.reach(ctx, name)
	if err == nil {
		defer c.Close()
		r, err := c.Hindsight(ctx, o)
		return r, a.asked(name, err)
	}
	st, err := a.storeWithout(name, "forecast show", err)
	if err != nil {
		return hindsight.Review{}, err
	}
	r, err := hindsight.Of(st, o)
	if err != nil {
		err = fmt.Errorf("job %q: %w", name, err)
	}
	return r, errors.Join(err, st.Close())
}

// reviewText is a comparison for people.
func reviewText(name string, r hindsight.Review, since time.Duration, width int) string {
	var out strings.Builder
	trust := ""
	if r.Trusted {
		trust = ", trusted"
	}
	fmt.Fprintf(&out, "job %q, the last %s in bins of %s; the newest forecast is by %s%s%s; %s\n\n", name, job.Length(since), job.Length(r.Step), r.Source, trust, trustWords(r.Next), bandsWords(r.Next))
	leads := table{columns: []column{{"AHEAD", 9}, {"BINS", 1}, {"WAPE", 9}, {"BIAS", 5}, {"IN 90 %", 9}}}
	for _, l := range r.Leads {
		bias := unknownFigure
		if l.Bias != nil {
			bias = fmt.Sprintf("%+.1f %%", 100**l.Bias)
		}
		leads.rows = append(leads.rows, row{cells: []string{job.Length(l.Lead), fmt.Sprint(l.Bins), percent(l.WAPE), bias, percent(l.In90)}})
	}
	out.WriteString(leads.text(width))
	bins := table{columns: []column{{"BIN FROM", 9}, {"CAME", 9}}}
	for i, l := range r.Leads {
		bins.columns = append(bins.columns, column{strings.ToUpper(job.Length(l.Lead)) + " AHEAD", 8 - i})
	}
	for _, b := range r.Bins {
		cells := []string{clock(b.At, time.Now()), number(b.Came)}
		for _, e := range b.Expected {
			cells = append(cells, bandWords(e))
		}
		bins.rows = append(bins.rows, row{cells: cells})
	}
	if len(bins.rows) > 0 {
		fmt.Fprintf(&out, "\nrecords/s, and what was expected, with its band of 90 %%\n%s", bins.text(width))
	} else {
		out.WriteString("\nnone of the forecasts has come to its time yet\n")
	}
	next := table{columns: []column{{"BIN FROM", 9}, {"EXPECTED", 9}, {"BAND OF 80 %", 5}}}
	n := len(r.Next.Mean)
	for k := range min(n, 4) { // the first, the last, and two between
		i := k * (n - 1) / max(min(n, 4)-1, 1)
		band := ""
		if i < len(r.Next.Lower) && i < len(r.Next.Upper) {
			band = fmt.Sprintf("%s to %s", number(r.Next.Lower[i]), number(r.Next.Upper[i]))
		}
		next.rows = append(next.rows, row{cells: []string{clock(r.Next.At.Add(time.Duration(i)*r.Step), time.Now()), number(r.Next.Mean[i]), band}})
	}
	fmt.Fprintf(&out, "\nnext, records/s\n%s", next.text(width))
	if len(r.Retrainings) > 0 {
		out.WriteString("\nforecast models trained anew (forecast.retrain), the newest first\n")
	}
	for _, t := range slices.Backward(r.Retrainings) {
		fmt.Fprintf(&out, "%s: %s\n", clock(t.At, time.Now()), t.Says)
	}
	return out.String()
}

// bandWords is a forecast of one bin.
func bandWords(b *core.Band) string {
	if b == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", number(b.Mean), number(b.Lower), number(b.Upper))
}
