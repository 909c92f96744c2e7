package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/replay"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/traffic"
	"github.com/kale-sched/kale/examples"
	"github.com/kale-sched/kale/forecast"
)

type replayFlags struct {
	jobFlags
	job, trace, synthetic, rescale, forecaster, out string
	policies                                        []string
	sweep                                           bool
	scale                                           float64
	days, seeds, forecastEvery                      int
	jobs, gpus, priority                            int
	counter                                         counterFlag
	limits                                          replay.Limits
	oracleLag, oracleDown                           float64
	price, bias, noise, losses, lagWeight, overCost float64
}

func replayCommand(a *app) *cobra.Command {
	f := replayFlags{seeds: replay.DefaultSeeds, forecastEvery: 1, lagWeight: replay.DefaultWeights().Lag, overCost: replay.DefaultWeights().Violation}
	c := &cobra.Command{
		Use: "replay -trace FILE", Short: "What each policy would have cost on recorded traffic",
		Long: `Runs scheduling policies over an arrival rate that was recorded and says what each would have cost: GPU-hours, lag, time over the
objective, rescales. The policies are the code that kale run uses; it needs no broker, no backend and no GPU.

A trace is a CSV file of lines "timestamp,rate" (the start of a bin, and its events per second, not its count; .gz allowed), or the arrival
history of a topic: kafka://host:9092/topic. Times are ISO 8601, UTC where they have no offset, or since 1970 in seconds down to nanoseconds;
separators are commas, semicolons or tabs; of more than two columns those named timestamp (time, date, ts) and rate (value, count) are read,
and rows may be in any order and some seconds off their grid. A counter, which grows by each event, is refused unless -counter
takes what is added from row to row. What was made of the file is said below the figures. Without -job the reference job is replayed (2 to 28 workers of 16,000 records/s, lag at most 20 minutes)
and the peak of the days replayed is scaled to what 28 workers train.

The job's own policy has a row "as in the job", with its autoscale.params; what these set changes no other row, and nothing that -sweep tries.
Rivals run as published, without Kale's guard (guard = 0), but in that row, and in a fleet.

Forecasts take longest: for a trace in bins of a minute some 40 s of CPU a day; none are made where no policy that is named goes by them
(kale, cost, madu and quantile do). -days 3 -seeds 2 -forecast-every 10 gives a first answer:
of the synthetic week, with every policy, in 30 s of CPU.

With -jobs a fleet shares one pool of GPUs for a day, and stands beside the same fleet in parts of its own: jobs like -job, whose days begin
in three parts of the world and whose peaks need 2 to 16 workers. The parts are equal: it says how many jobs need more than theirs. It is decided once a minute, whatever autoscale.tick; a day of 100 jobs takes some 10 s of CPU a row, and with cost a minute.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			if f.jobs != 0 || cmd.Flags().Changed("jobs") {
				return a.replayFleet(cmd, f)
			}
			for _, name := range []string{"gpus", "priority"} {
				if cmd.Flags().Changed(name) {
					return usagef("-%s is of a fleet: say with -jobs how many jobs there are", name)
				}
			}
			return a.replay(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.trace, "trace", "", "`FILE` of lines \"timestamp,rate\", or kafka://BROKER[,BROKER]/TOPIC")
	f.counter.register(fl, "-trace")
	fl.StringVar(&f.synthetic, "synthetic", "", "\"week\" (or \"week:SEED\") instead of a trace: a week in the shape that the paper published")
	fl.StringVar(&f.job, "job", "", "`JOB.hcl` whose limits, objective, throughput and policy (with its params) are replayed (default: the reference job)")
	fl.StringSliceVar(&f.policies, "policies", nil, "`NAMES` to compare, separated by commas (default: all): "+strings.Join(replay.Policies(), ", "))
	fl.BoolVar(&f.sweep, "sweep", false, "look for each rival's cheapest setting too, and kale's: chosen on the first half of the days; all figures are then those of the second")
	fl.Float64Var(&f.scale, "scale", 0, "scale the trace so that the peak of the days replayed (-days) is what so many `WORKERS` train (default: as it is; without -job 28)")
	fl.StringVar(&f.rescale, "rescale", "", "\"live\", or how long a rescale stops training, such as 5m..8m (default: live if the job's mode is, else 5m..8m)")
	fl.IntVar(&f.days, "days", 0, "how many days, the last without gaps (default: 14, or what leaves a past to forecast from; of a fleet 1)")
	fl.IntVar(&f.seeds, "seeds", f.seeds, "how often each policy is run; outages and joins are drawn anew")
	fl.StringVar(&f.forecaster, "forecaster", "", "\"seasonal\", \"ensemble\", an .onnx `FILE`, or \"perfect\" (default: the job's)")
	fl.IntVar(&f.forecastEvery, "forecast-every", 1, "make a new forecast every so many `BINS` of forecast.interval; a scheduler makes one in each")
	fl.Float64Var(&f.bias, "forecast-bias", 0, "make every forecast too high by this share; the bands learn of it")
	fl.Float64Var(&f.noise, "forecast-noise", 0, "standard deviation of an error put into each half hour's forecasts, as a share; the bands learn of it")
	fl.Float64Var(&f.losses, "losses", 0, "how many `TIMES` a day each worker is lost; not with -jobs")
	fl.Float64Var(&f.price, "price", 0, "of a GPU-hour, to say what is saved in money")
	fl.Float64Var(&f.lagWeight, "lag-weight", f.lagWeight, "cost of a minute of accumulated lag, in GPU-hours")
	fl.Float64Var(&f.overCost, "violation-weight", f.overCost, "cost of a minute over the objective, in GPU-hours")
	fl.Float64Var(&f.oracleLag, "oracle-lag", 0, "solve the oracle once more, with no more than so many `MINUTES` of accumulated lag a day")
	fl.Float64Var(&f.oracleDown, "oracle-downtime", 0, "solve the oracle once more, with no more than so many `MINUTES` of downtime a day")
	fl.IntVar(&f.jobs, "jobs", 0, "replay a fleet of so many `JOBS`, at most "+number(replay.MostJobs)+", on one pool, and in parts (default: one job, no pool)")
	fl.IntVar(&f.gpus, "gpus", 0, "of a fleet's pool (default: 8 for each job)")
	fl.IntVar(&f.priority, "priority", 0, "how many `JOBS` of a fleet go before the others (default: a tenth)")
	a.jsonFlag(c, "print the figures as JSON; as in the tables, sums are of a day")
	fl.StringVarP(&f.out, "out", "o", "", "`FILE` for an HTML page with tables and charts")
	fl.StringArrayVar(&f.vars, "var", nil, "`NAME=VALUE` of a variable of the job file; may be repeated")
	fl.StringArrayVar(&f.varFiles, "var-file", nil, "`FILE` of NAME = VALUE for the job file's variables; may be repeated")
	return c
}

// exact is a number as a bound that is not rounded.
func exact(v float64) string {
	if v != math.Trunc(v) || math.Abs(v) < 10 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return number(v)
}

// mostScale is the largest -scale, in workers.
const mostScale = 1e6

// check refuses numbers that nothing can be replayed with.
func (f *replayFlags) check(given *pflag.FlagSet) error {
	if given.Changed("jobs") && (f.jobs < 1 || f.jobs > replay.MostJobs) {
		return usagef("-jobs %d: want 1 to %s", f.jobs, number(replay.MostJobs))
	}
	if given.Changed("policies") && len(f.policies) == 0 {
		return usagef("-policies names none: leave it out for all, or name some of %s", strings.Join(replay.Policies(), ", "))
	}
	if err := f.checkPolicies(); err != nil {
		return err
	}
	for _, n := range []struct {
		name    string
		v, most int
	}{{"seeds", f.seeds, replay.MostSeeds}, {"days", f.days, replay.MostDays}, {"forecast-every", f.forecastEvery, replay.MostDays * 24 * 60}} {
		if given.Changed(n.name) && (n.v < 1 || n.v > n.most) {
			return usagef("-%s %d: want 1 to %s", n.name, n.v, number(float64(n.most)))
		}
	}
	for _, n := range []struct {
		name           string
		v, least, most float64
	}{
		{"price", f.price, 0, 1e6}, {"lag-weight", f.lagWeight, 0, 1e9}, {"violation-weight", f.overCost, 0, 1e9},
		{"forecast-noise", f.noise, 0, replay.MostNoise}, {"forecast-bias", f.bias, replay.LeastBias, replay.MostBias}, {"losses", f.losses, 0, 1440}, {"oracle-lag", f.oracleLag, 0, 1e9}, {"oracle-downtime", f.oracleDown, 0, 1440},
	} {
		if given.Changed(n.name) && !(n.v >= n.least && n.v <= n.most) { // NaN is in no bounds
			return usagef("-%s %v: want %s to %s", n.name, n.v, exact(n.least), exact(n.most))
		}
	}
	if given.Changed("oracle-lag") {
		f.limits.AccumulatedLagMin = &f.oracleLag
	}
	if given.Changed("oracle-downtime") {
		f.limits.DowntimeMin = &f.oracleDown
	}
	if given.Changed("scale") && !(f.scale > 0 && f.scale <= mostScale) {
		return usagef("-scale %v: want a number above 0, up to %s", f.scale, number(mostScale))
	}
	if f.job == "" && (len(f.vars) > 0 || len(f.varFiles) > 0) {
		return usagef("-var and -var-file are of a job file: say with -job which")
	}
	return nil
}

func (a *app) replay(ctx context.Context, f replayFlags) error {
	if err := a.checkPage(f); err != nil {
		return err
	}
	j, from, err := a.replayedJob(f)
	if err != nil {
		return err
	}
	o, err := f.options(j)
	if err != nil {
		return err
	}
	o.Throughput = from
	bar := a.progress()
	defer bar.done()
	o.Progress = bar.step
	tr, err := a.replayedTrace(ctx, f, j)
	if err != nil {
		return err
	}
	if j.Forecast.Timezone == "" && f.forecaster != replay.PerfectForecast {
		a.sayClocks(forecast.Series{Start: tr.Curve.Start, Step: tr.Curve.Step, Values: tr.Curve.Rates}, "replay a -job with forecast.timezone = %q, or what zone it is in")
	}
	scale := f.scale
	if scale == 0 && f.job == "" && f.synthetic == "" {
		scale = float64(j.Workers.Max)
	}
	course, err := replay.NewCourse(tr, replay.CourseOptions{Days: f.days, Interval: j.Forecast.Interval, Past: replay.PastNeeded(j), ScaleTo: replay.RateOf(j, scale)})
	if err != nil {
		a.adviseAll(tr.Notes) // which else stand below the figures
		return err
	}
	if n := course.Forecasts(f.forecastEvery); n > manyForecasts && f.forecaster != replay.PerfectForecast && replay.ForecastsNeeded(o.Policies) {
		a.advise("%s forecasts are to be made, one every %s, which takes long; -forecast-every %d makes %s\n", number(float64(n)),
			job.FormatDuration(time.Duration(f.forecastEvery)*j.Forecast.Interval), f.fewer(j, course, n), number(float64(course.Forecasts(f.fewer(j, course, n)))))
	}
	if age := time.Duration(f.forecastEvery-1) * j.Forecast.Interval; age >= j.Forecast.Horizon {
		return usagef("-forecast-every %d: a forecast would be %s old before the next one, and reaches %s (forecast.horizon): at most %d", f.forecastEvery, job.FormatDuration(age),
			job.FormatDuration(j.Forecast.Horizon), int(j.Forecast.Horizon/j.Forecast.Interval))
	}
	if runs := float64(max(len(f.policies), 1) * f.seeds); len(f.policies) == 0 && runs*float64(len(replay.Policies()))*course.Days() > manyRunDays {
		a.advise("%.0f days are replayed with %d policies and %d seeds, which takes minutes; -days 3 -seeds 2 -forecast-every 10 gives a first answer\n", course.Days(), len(replay.Policies()), f.seeds)
	}
	cmp, err := replay.New(ctx, j, course, o)
	if err != nil {
		return unfinished(ctx, bar, f.out, err)
	}
	r, err := cmp.Run(ctx, f.sweep)
	if err != nil {
		return unfinished(ctx, bar, f.out, err)
	}
	bar.done()
	if err := writePage(f.out, func(w io.Writer, version string) error { return replay.WriteHTML(w, r, version) }); err != nil {
		return err
	}
	if a.asJSON {
		return replay.WriteJSON(a.out, r)
	}
	return replay.WriteText(a.out, r)
}

// unfinished is err or, of a replay that was interrupted, how far it was: it has no figures before its end, and nothing to write into a page, where one was asked for.
func unfinished(ctx context.Context, bar *progress, page string, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	lacking := "there are no figures"
	if page != "" {
		lacking += ", and " + page + " is not written"
	}
	return fmt.Errorf("replay: interrupted, so that %s%s", lacking, bar.reached())
}

// checkPage refuses a file for the page before anything is computed, where what is read would be written over.
func (a *app) checkPage(f replayFlags) error {
	if f.out == "" {
		return nil
	}
	return checkOut(f.out, append(a.filesOf(f.job, f.jobFlags), f.trace, f.forecaster)...)
}

// writePage writes a page into a file, where one was asked for.
func writePage(file string, write func(w io.Writer, version string) error) error {
	if file == "" {
		return nil
	}
	var page bytes.Buffer
	if err := write(&page, about.Build().Version); err != nil {
		return err
	}
	if err := backend.WriteFileMode(file, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// manyForecasts is more than those of two weeks of minutes.
const manyForecasts = 40_000

// manyRunDays is how many days are replayed in about a minute.
const manyRunDays = 1000

// fewer is a -forecast-every with which there are not too many, n being those of now: one forecast for each bin of the trace, where that is enough.
func (f *replayFlags) fewer(j *job.Job, c *replay.Course, n int) int {
	return max(int(c.Bin/j.Forecast.Interval), f.forecastEvery*int(math.Ceil(float64(n)/manyForecasts)))
}

// replayedJob is the job of -job, and where its throughput comes from, or the reference job.
func (a *app) replayedJob(f replayFlags) (j *job.Job, from string, err error) {
	if f.job == "" {
		parsed, files, diags := job.Parse(examples.Replay, "replay.hcl", job.Options{})
		if err := a.diagnose(files, diags); err != nil {
			return nil, "", err
		}
		j = parsed
	} else {
		l, err := a.load(f.job, f.jobFlags)
		if err == nil {
			err = a.diagnose(l.files, l.lacking)
		}
		if err == nil && f.out != "" {
			err = checkOut(f.out, l.Job.Forecast.ModelFile())
		}
		if err == nil && f.forecaster == "" && f.forecasts() {
			err = a.diagnose(l.files, core.CheckForecast(l.Job))
		}
		if err != nil {
			return nil, "", err
		}
		j, from = l.Job, l.throughputFrom()
	}
	switch f.forecaster {
	case "", replay.PerfectForecast:
	default:
		j.Forecast.Model = f.forecaster
		if file := j.Forecast.ModelFile(); !f.forecasts() && (file == "" || exists(file)) { // it is asked for nothing
			break
		}
		if known := []string{job.ForecastSeasonal, job.ForecastEnsemble, replay.PerfectForecast}; filepath.Ext(f.forecaster) != ".onnx" && j.Forecast.ModelFile() != "" && !exists(f.forecaster) {
			return nil, "", usagef("-forecaster %q: %swant %s, or a model's .onnx file", f.forecaster, job.DidYouMean(f.forecaster, known), oneOf(known))
		}
		if err := core.CheckForecaster(j, f.forecaster); err != nil {
			return nil, "", fmt.Errorf("-forecaster: %w", err)
		}
	}
	return j, from, nil
}

// forecasts says whether the job's forecaster is asked for any: those of a fleet know the future.
func (f *replayFlags) forecasts() bool {
	return f.jobs == 0 && replay.ForecastsNeeded(f.compared())
}

// compared are the policies that are compared.
func (f *replayFlags) compared() []string {
	if len(f.policies) == 0 {
		return replay.Policies()
	}
	return f.policies
}

// options turns the flags into a comparison's.
func (f *replayFlags) options(j *job.Job) (replay.Options, error) {
	o := replay.Options{Seeds: f.seeds, ForecastEvery: f.forecastEvery, Price: f.price, Forecaster: f.forecaster, OracleLimits: f.limits,
		Weights: &replay.Weights{Lag: f.lagWeight, Violation: f.overCost}}
	o.Policies = f.compared()
	switch {
	case f.rescale == "" && j.Autoscale.Mode == job.ModeLive, f.rescale == "live":
		o.World = replay.LiveRescale()
	case f.rescale == "":
		o.World = replay.PaperRestart()
	default:
		between, err := parseBetween(f.rescale)
		if err != nil {
			return o, err
		}
		o.World = replay.PaperRestart()
		o.World.Outage, o.World.Return = between, between
	}
	o.World.ForecastBias, o.World.ForecastNoise, o.World.LossesPerDay = f.bias, f.noise, f.losses
	return o, nil
}

// checkPolicies refuses a policy that there is not; spaces around a name are none of it, and what is named twice is compared once.
func (f *replayFlags) checkPolicies() error {
	known := replay.Policies()
	var names []string
	for _, p := range f.policies {
		p = strings.TrimSpace(p)
		if !slices.Contains(known, p) {
			return usagef("there is no policy %q. %sThere are: %s", p, job.DidYouMean(p, known), strings.Join(known, ", "))
		}
		if !slices.Contains(names, p) {
			names = append(names, p)
		}
	}
	f.policies = names
	return nil
}

// parseBetween reads 5m..8m, or 6m for always the same.
func parseBetween(text string) (replay.Between, error) {
	from, to, two := strings.Cut(text, "..")
	if !two {
		to = from
	}
	lo, err := job.ParseDuration(from)
	hi, err2 := job.ParseDuration(to)
	if err := errors.Join(err, err2); err != nil || lo < 0 || hi < lo || hi > replay.LongestOutage {
		return replay.Between{}, usagef("-rescale %q: want live, or how long training stops, at most %s: 6m, or 5m..8m", text, job.FormatDuration(replay.LongestOutage))
	}
	return replay.Between{From: lo, To: hi}, nil
}

// replayedTrace reads the trace.
func (a *app) replayedTrace(ctx context.Context, f replayFlags, j *job.Job) (replay.Trace, error) {
	switch {
	case f.counter.given && !traceFile(f.trace):
		return replay.Trace{}, f.counter.useless()
	case f.trace != "" && f.synthetic != "":
		return replay.Trace{}, usagef("-trace and -synthetic are two traces: give one of them")
	case f.synthetic != "":
		name, text, has := strings.Cut(f.synthetic, ":")
		seed, err := uint64(1), error(nil)
		if has {
			seed, err = strconv.ParseUint(text, 10, 64)
		}
		if name != "week" || err != nil {
			return replay.Trace{}, usagef("-synthetic %q: want week, or week:SEED", f.synthetic)
		}
		return replay.SyntheticWeek(seed), nil
	case f.trace == "":
		return replay.Trace{}, usagef("-trace is missing: name a CSV file of lines \"timestamp,rate\", or say -synthetic week")
	}
	if rest, ok := strings.CutPrefix(f.trace, "kafka://"); ok {
		return a.topicTrace(ctx, rest, f, j)
	}
	c, notes, err := stream.ReadCurve(ctx, f.trace, f.counter.values())
	if errors.Is(err, os.ErrNotExist) {
		return replay.Trace{}, fmt.Errorf("%w; a trace is a CSV file of lines \"timestamp,rate\", or kafka://BROKER/TOPIC", err)
	}
	return replay.Trace{Name: f.trace, Curve: c, Notes: notes}, err
}

// topicReach is how far back the arrivals of a topic are read: what is replayed by default, and a past to forecast from.
const topicReach = 28 * 24 * time.Hour

// topicAt reads BROKER[,BROKER]/TOPIC, which is what follows kafka:// in a -trace.
func topicAt(where string) (traffic.ClientOptions, error) {
	brokers, topic, ok := strings.Cut(where, "/")
	if !ok || brokers == "" || topic == "" || strings.Contains(topic, "/") {
		return traffic.ClientOptions{}, usagef("-trace %q: want kafka://BROKER[,BROKER]/TOPIC", "kafka://"+where)
	}
	return traffic.ClientOptions{Brokers: strings.Split(brokers, ","), Topic: topic}, nil
}

// topicTrace reads the arrival history of BROKER[,BROKER]/TOPIC. TLS and SASL are those of -job.
func (a *app) topicTrace(ctx context.Context, where string, f replayFlags, j *job.Job) (replay.Trace, error) {
	o, err := topicAt(where)
	if err != nil {
		return replay.Trace{}, err
	}
	if f.job != "" {
		opts, err := core.KafkaOpts(j)
		if err != nil {
			return replay.Trace{}, err
		}
		o.Opts = opts
	}
	reach := topicReach
	if f.days > 0 {
		reach = time.Duration(f.days)*24*time.Hour + replay.PastNeeded(j)
	}
	if most := j.Forecast.Interval * (traffic.MaxTimes - 1); reach > most {
		reach = most
		a.advise("the last %s of topic %q are read, which are %s steps of forecast.interval (%s): the most that brokers are asked for\n", job.Length(most), o.Topic,
			number(traffic.MaxTimes), job.FormatDuration(j.Forecast.Interval))
	}
	s, err := a.topicHistory(ctx, o, j.Forecast.Interval, reach)
	if err != nil {
		return replay.Trace{}, err
	}
	return replay.Trace{Name: "topic " + o.Topic, Curve: stream.Curve{Start: s.Start, Step: s.Step, Rates: s.Values}}, nil
}
