package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/forecast/holidays"
)

// feasts are the holidays of -holidays.
func (a *app) feasts(f historyFlags) (c holidays.Calendar, err error) {
	for _, entry := range f.holidays {
		if holidays.IsFile(entry) {
			src, rules, diags := job.LoadICS(entry)
			if diags.HasErrors() {
				if err := a.diagnose(job.Files{entry: {Bytes: src}}, diags); err != nil {
					return c, err
				}
				return c, usagef("-holidays: %s cannot be read", entry)
			}
			c.Rules = append(c.Rules, rules...)
			continue
		}
		r, err := holidays.Parse(entry)
		if err != nil {
			return c, usagef("-holidays: %w", err)
		}
		c.Rules = append(c.Rules, r)
	}
	if c.Except = f.except; len(c.Except) > 0 && len(c.Rules) == 0 {
		return c, usagef("-holidays-except leaves out of -holidays: give both")
	}
	for _, name := range c.Except {
		if names, known := job.HolidayNames(c.Rules, name); !known {
			return c, usagef("-holidays-except %q: %sthe holidays of -holidays are %s", name, job.DidYouMean(name, names), strings.Join(names, ", "))
		}
	}
	return c, nil
}

// heeded is what a contender heeds.
func (c contender) heeded(calendar forecast.Calendar) forecast.Calendar {
	if c.heedless {
		calendar.Holidays = holidays.Calendar{}
	}
	return calendar
}

// withHeedless adds, where holidays are measured, a seasonal forecaster that does not know of them: what they are worth.
func (p past) withHeedless(contenders []contender, first, threads int) []contender {
	if len(p.feastsFrom(first)) == 0 {
		return contenders
	}
	c := contender{name: "seasonal, no holidays", heedless: true, reach: math.MaxInt}
	for range threads {
		c.of = append(c.of, forecast.NewSeasonal(p.seasons))
	}
	return append(contenders, c)
}

// feastsFrom are the holidays in the bins from first on of which something was measured.
func (p past) feastsFrom(first int) (out []forecast.Occasion) {
	for _, o := range p.calendar().Occasions(p.series.At(first), p.series.End(), nil) {
		if o.Holiday && p.measured(o, first) {
			out = append(out, o)
		}
	}
	return out
}

// measured says whether a rate is known of any bin of an occasion, from bin first on.
func (p past) measured(o forecast.Occasion, first int) bool {
	from, to := p.binsOf(o, first)
	return from < to && forecast.Series{Values: p.series.Values[from:to]}.Known() > 0
}

// binsOf are those of an occasion, from bin first on.
func (p past) binsOf(o forecast.Occasion, first int) (from, to int) {
	return max(first, p.series.Bin(o.From)), min(len(p.series.Values), p.series.Bin(o.To.Add(p.series.Step-1)))
}

// evalHoliday is what one forecaster was off by on holidays.
type evalHoliday struct {
	Model      string   `json:"model"`
	HorizonMin float64  `json:"horizon_min"`
	Bins       int      `json:"bins"`
	WAPE       *float64 `json:"wape"`
}

// onHolidays measures what forecasters were off by on the holidays only, a number of bins ahead.
func onHolidays(all []*recorded, p past, first int, horizons []int) (out []evalHoliday) {
	feasts := p.feastsFrom(first)
	on := map[int]bool{}
	for _, o := range feasts {
		for i, to := p.binsOf(o, first); i < to; i++ {
			on[i] = true
		}
	}
	if len(on) == 0 {
		return nil
	}
	for _, h := range horizons {
		for _, r := range all {
			row := evalHoliday{Model: r.Name(), HorizonMin: p.series.Step.Minutes() * float64(h)}
			missed, came := 0.0, 0.0
			for _, origin := range slices.Sorted(maps.Keys(r.made)) { // in order: sums are the same each time
				f, i := r.made[origin], origin+h-1
				if !on[i] || h > len(f.Mean) || math.IsNaN(p.series.Values[i]) {
					continue
				}
				row.Bins++
				missed, came = missed+math.Abs(f.Mean[h-1]-p.series.Values[i]), came+p.series.Values[i]
			}
			row.WAPE = figure(missed / came)
			if row.Bins > 0 {
				out = append(out, row)
			}
		}
	}
	return out
}

// writeHolidays prints what was measured on holidays.
func writeHolidays(t *tabwriter.Writer, e evaluation) error {
	if len(e.OnHolidays) == 0 {
		return nil
	}
	fmt.Fprintln(t, "\nON HOLIDAYS\tFORECASTER\tWAPE\tBINS")
	for _, r := range e.OnHolidays {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", horizonWords(r.HorizonMin), r.Model, percent(r.WAPE), r.Bins)
	}
	return t.Flush()
}

// feastNames are holidays for people, each once.
func feastNames(feasts []forecast.Occasion) string {
	var names []string
	seen := map[string]bool{}
	for _, o := range feasts {
		if !seen[o.Name] {
			names = append(names, o.Name)
		}
		seen[o.Name] = true
	}
	return strings.Join(names, ", ")
}

// events are those of which the history has something measured, for people, as they came.
func (p past) events() string {
	c := p.calendar()
	outcomes := c.Outcomes(p.series)
	c.Holidays = holidays.Calendar{}
	var names []string
	for _, o := range c.Occasions(p.series.Start, p.series.End(), outcomes) {
		if p.measured(o, 0) {
			names = append(names, o.String())
		}
	}
	return strings.Join(names, ", ")
}
