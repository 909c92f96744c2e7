package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/replay"
)

// fleetFlags are the flags of replay by which a fleet goes.
var fleetFlags = []string{"trace", "counter", "synthetic", "job", "var", "var-file", "policies", "days", "jobs", "gpus", "priority", "seeds", "forecaster", "forecast-noise",
	"lag-weight", "violation-weight", "price", "rescale", "json", "out", "state-dir"}

// fleetless says of the other flags why a fleet does not go by them, and what to do instead, where there is something.
var fleetless = map[string]string{
	"scale":           fmt.Sprintf("the peak of each of a fleet's jobs is drawn, what %d to %d workers train, however high the trace's is; -gpus makes the pool tighter or wider", replay.LeastPeak, replay.MostPeak),
	"sweep":           "a fleet is replayed with each policy in one setting, the job's or its defaults; name several with -policies",
	"forecast-every":  "the forecasts of a fleet are made in every minute, which takes no time: they know the future",
	"forecast-bias":   "the forecasts of a fleet know the future; -forecast-noise gives them an error",
	"losses":          "no workers of a fleet are lost",
	"oracle-lag":      "there is no oracle of a fleet",
	"oracle-downtime": "there is no oracle of a fleet",
}

// gpusOfEach is how many GPUs a fleet has for each job where nobody says it.
const gpusOfEach = 8

// replayFleet replays many jobs on one pool.
func (a *app) replayFleet(cmd *cobra.Command, f replayFlags) error {
	var other string
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		if !slices.Contains(fleetFlags, fl.Name) {
			other = fl.Name
		}
	})
	switch {
	case other != "":
		return usagef("-%s does not go with -jobs: %s. Leave -%s or -jobs out", other, fleetless[other], other)
	case f.forecaster != "" && f.forecaster != replay.PerfectForecast:
		return usagef("-forecaster %s: the forecasts of a fleet know the future but for -forecast-noise; leave -forecaster or -jobs out", f.forecaster)
	case f.rescale != "" && f.rescale != "live":
		return usagef("-rescale %s: a fleet is rescaled live; leave -rescale or -jobs out", f.rescale)
	}
	if err := a.checkPage(f); err != nil {
		return err
	}
	j, from, err := a.replayedJob(f)
	if err != nil {
		return err
	}
	policies := f.policies
	if len(policies) == 0 {
		policies = []string{j.Autoscale.Policy}
	}
	tr, err := a.replayedTrace(cmd.Context(), f, j)
	if err != nil {
		return err
	}
	a.adviseAll(tr.Notes)
	days := max(f.days, 1)
	span, err := replay.FleetSpan(tr, days)
	if err != nil {
		return err
	}
	if asked := time.Duration(days) * 24 * time.Hour; days > 1 && span < asked {
		a.advise("%s has no %d whole days without a gap: the fleet is replayed for %s\n", tr.Name, days, job.Length(span))
	}
	if span < 24*time.Hour {
		a.advise("%s has no whole day without a gap: the fleet is replayed for %s, and acc. lag, GPU-h and cost are scaled up to a day\n", tr.Name, job.FormatDuration(span))
	}
	seeds := f.seeds
	if !cmd.Flags().Changed("seeds") {
		seeds = 1 // a fleet is many draws already
	}
	bar := a.progress()
	defer bar.done()
	o := replay.FleetOptions{Jobs: f.jobs, Days: days, GPUs: f.gpus, Priority: f.priority, ForecastNoise: f.noise, Seed: 1,
		Weights: &replay.Weights{Lag: f.lagWeight, Violation: f.overCost}, Price: f.price, Throughput: from, Progress: bar.step}
	if !cmd.Flags().Changed("gpus") {
		o.GPUs = gpusOfEach * o.Jobs
	}
	if !cmd.Flags().Changed("priority") {
		o.Priority = o.Jobs / 10
	}
	r, err := replay.CompareFleets(cmd.Context(), j, tr, o, policies, seeds)
	bar.done()
	if err != nil {
		return a.fleetSoFar(cmd.Context(), r, bar, f.out, err)
	}
	if err := writePage(f.out, r.WriteHTML); err != nil {
		return err
	}
	return a.printFleet(r)
}

// fleetSoFar prints the rows that there are of a comparison which failed with err, and writes them into the page, where one was asked for; one that was interrupted may
// have some.
func (a *app) fleetSoFar(ctx context.Context, r *replay.FleetReport, bar *progress, page string, err error) error {
	if r == nil || len(r.Rows) == 0 {
		return unfinished(ctx, bar, page, err)
	}
	where, wrong := "printed", writePage(page, r.WriteHTML)
	if page != "" && wrong == nil {
		where = "printed, and in " + page + ","
	}
	return errors.Join(a.printFleet(r), wrong, fmt.Errorf("replay: interrupted: what is %s is %d of %d rows%s", where, len(r.Rows), r.Planned, bar.reached()))
}

func (a *app) printFleet(r *replay.FleetReport) error {
	if a.asJSON {
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.WriteText(a.out)
}
