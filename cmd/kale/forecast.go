package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/traffic"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/forecast/holidays"
)

func forecastCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "forecast", Short: "Train, measure and show forecasts of the arrival rate",
		Long: `Trains forecast models from the arrival history of a job's topic, or from a trace, measures forecasters on it, and shows how those of a job came out.`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(forecastTrainCommand(a), forecastEvalCommand(a), forecastShowCommand(a))
	return c
}

// historyFlags say where the history of a forecast comes from: a job's brokers, or a file.
type historyFlags struct {
	jobFlags
	trace             string
	counter           counterFlag
	interval, horizon span
	season            []string
	history           span
	timezone          string
	holidays          []string
	except            []string
}

func (f *historyFlags) register(c *cobra.Command) {
	f.jobFlags.register(c)
	c.Flags().StringVar(&f.trace, "trace", "", "`FILE` of lines \"timestamp,rate\" instead of a job's topic, .gz allowed, or kafka://BROKER[,BROKER]/TOPIC")
	f.counter.register(c.Flags(), "-trace")
	c.Flags().Var(positive{&f.interval}, "interval", "length of a bin (default: the job's; of a file its own; of kafka:// 1m)")
	c.Flags().StringSliceVar(&f.season, "season", nil, "`DURATIONS` after which traffic repeats, such as 24h,7d (default: the job's; for a trace 24h,7d)")
	c.Flags().Var(positive{&f.history}, "history", "how much past to read (default: the job's; of a file all; of kafka:// 28d)")
	c.Flags().StringVar(&f.timezone, "timezone", "", "`NAME`, such as Europe/Berlin, of where a trace's day is lived: when clocks change there, so does its course (a job's: forecast.timezone)")
	c.Flags().StringSliceVar(&f.holidays, "holidays", nil, "`LIST` of a trace's holidays, such as us,12-24,company.ics: regions, days and iCalendar files (a job's: forecast.holidays)")
	c.Flags().StringSliceVar(&f.except, "holidays-except", nil, "`NAMES` of those of -holidays that are ordinary days")
}

// inputs are the files that a history is read from, and others.
func (a *app) inputs(args []string, f historyFlags, others ...string) []string {
	for _, arg := range args {
		others = append(others, a.filesOf(arg, f.jobFlags)...)
	}
	return append(others, f.trace)
}

// past is a history with what is to be forecast from it.
type past struct {
	series  forecast.Series
	steps   int
	seasons []time.Duration
	source  string
	faults  int            // known bins of the series that are no traffic
	job     *loaded        // nil for a trace
	zone    *time.Location // of a trace; nil: none
	feasts  holidays.Calendar
}

// gate is how the job judges a model file; a trace has the defaults.
func (p past) gate() forecast.GateOptions {
	if p.job == nil {
		return forecast.GateOptions{}
	}
	return forecast.GateOptions{Window: p.job.Forecast.GateWindow, Tolerance: p.job.Forecast.GateTolerance}
}

// calendar has the events and the time zone of the job file; of a trace the zone and the holidays that were given.
func (p past) calendar() forecast.Calendar {
	if p.job == nil {
		return forecast.Calendar{Zone: p.zone, Holidays: p.feasts}
	}
	return core.CalendarOf(p.job.Job)
}

func (a *app) past(ctx context.Context, args []string, f historyFlags) (past, error) {
	var p past
	var err error
	switch {
	case f.counter.given && !traceFile(f.trace):
		return p, f.counter.useless()
	case f.trace != "" && len(args) > 0:
		return p, usagef("a job and -trace are two histories: give one of them")
	case f.trace != "":
		p, err = a.tracePast(ctx, f)
	case len(args) == 0:
		return p, usagef("JOB.hcl or -trace is missing: say where the history comes from")
	case f.timezone != "":
		return p, usagef("-timezone is a trace's: write forecast.timezone into %s", args[0])
	case len(f.holidays)+len(f.except) > 0:
		return p, usagef("-holidays is a trace's: write forecast.holidays into %s", args[0])
	default:
		p, err = a.topicPast(ctx, args[0], f)
	}
	if err != nil {
		return p, err
	}
	if f.horizon != 0 {
		p.steps = int(time.Duration(f.horizon) / p.series.Step)
		if rest := time.Duration(f.horizon) % p.series.Step; p.steps > 0 && rest != 0 {
			return p, usagef("-horizon %s is not a whole number of bins of %s", f.horizon.String(), job.FormatDuration(p.series.Step))
		}
	}
	if p.steps < 1 {
		return p, usagef("-horizon %s is shorter than a bin of %s", f.horizon.String(), job.FormatDuration(p.series.Step))
	}
	if len(f.season) > 0 {
		p.seasons = nil
		for _, text := range f.season {
			d, err := job.ParseDuration(text)
			if err != nil {
				return p, usagef("-season %q: %w", text, err)
			}
			p.seasons = append(p.seasons, d)
		}
	}
	for _, s := range p.seasons {
		if s <= 0 || s%p.series.Step != 0 {
			return p, usagef("-season %s is not a whole number of bins of %s", job.FormatDuration(s), job.FormatDuration(p.series.Step))
		}
	}
	p.faults = a.sayFaults(p)
	if p.zone == nil && p.job == nil {
		a.sayClocks(p.series, "give -timezone %s, or what zone it is in")
	} else if p.job != nil && p.job.Forecast.Timezone == "" {
		a.sayClocks(p.series, "write forecast.timezone = %q, or what zone it is in, into "+args[0])
	}
	return p, nil
}

// sayClocks says, of a history without a time zone, what helps where its days are lived by a clock that is changed.
func (a *app) sayClocks(s forecast.Series, help string) {
	if h, moves := s.Clocks(); moves {
		a.advise("hint: without a time zone days and weeks are those of UTC, and this traffic's are not: by the clock of %s the week after that was changed on %s is %.0f %% nearer to the week before. For better forecasts "+help+"\n",
			h.Zone, h.At.Format(time.DateOnly), 100*h.Gain, h.Zone)
	}
}

// known is how many bins are learnt from and measured on.
func (p past) known() int { return p.series.Known() - p.faults }

// sayFaults names the bins of a history that are neither learnt from nor measured on, and says how many they are.
func (a *app) sayFaults(p past) int {
	const most = 3
	faults := p.series.Faults(int(slices.Min(p.seasons) / p.series.Step))
	for k, i := range faults {
		if k == most {
			fmt.Fprintf(a.err, "... and %d more\n", len(faults)-most)
			break
		}
		what := "or records sent again"
		if p.series.Fell(i) {
			what = "or a bin of which not all was measured"
		}
		fmt.Fprintf(a.err, "unknown is taken to be the bin of %s: %.6g records/s, for a bin or two, are no traffic but a fault of measuring, %s\n",
			p.series.At(i).Local().Format(time.DateTime), p.series.Values[i], what)
	}
	return len(faults)
}

func (a *app) tracePast(ctx context.Context, f historyFlags) (past, error) {
	p := past{source: f.trace, seasons: []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}}
	if f.timezone != "" {
		var err error
		if p.zone, err = job.LoadZone(f.timezone); err != nil {
			return p, usagef("-timezone: %w", err)
		}
	}
	var err error
	if p.feasts, err = a.feasts(f); err != nil {
		return p, err
	}
	if where, ok := strings.CutPrefix(f.trace, "kafka://"); ok {
		o, err := topicAt(where)
		if err != nil {
			return p, err
		}
		step := cmp.Or(time.Duration(f.interval), time.Minute)
		p.series, err = a.topicHistory(ctx, o, step, cmp.Or(time.Duration(f.history), topicReach))
		p.steps = max(1, int(30*time.Minute/step))
		return p, err
	}
	c, notes, err := stream.ReadCurve(ctx, f.trace, f.counter.values())
	if err != nil {
		return p, err
	}
	a.adviseAll(notes)
	p.series = forecast.Series{Start: c.Start, Step: c.Step, Values: c.Rates}
	if f.interval != 0 {
		if p.series, err = coarser(p.series, time.Duration(f.interval)); err != nil {
			return p, err
		}
	}
	if f.history > 0 {
		keep := min(len(p.series.Values), int(time.Duration(f.history)/p.series.Step))
		from := len(p.series.Values) - keep
		p.series = forecast.Series{Start: p.series.At(from), Step: p.series.Step, Values: p.series.Values[from:]}
	}
	p.steps = max(1, int(30*time.Minute/p.series.Step))
	return p, nil
}

// coarser makes longer bins of a series, each the mean of those in it; one of which a part is not known is not known.
func coarser(s forecast.Series, step time.Duration) (forecast.Series, error) {
	if step < s.Step || step%s.Step != 0 {
		return s, usagef("-interval %s is not a whole number of the trace's bins of %s", job.FormatDuration(step), job.FormatDuration(s.Step))
	}
	n := int(step / s.Step)
	skip := 0
	if off := s.Start.Sub(s.Start.Truncate(step)); off > 0 { // begin at a whole bin
		skip = int((step - off) / s.Step)
	}
	out := forecast.Series{Start: s.At(skip), Step: step}
	for i := skip; i+n <= len(s.Values); i += n {
		sum := 0.0
		for _, v := range s.Values[i : i+n] {
			sum += v // NaN stays NaN
		}
		out.Values = append(out.Values, sum/float64(n))
	}
	return out, nil
}

// topicPast reads the arrival history of a job's topic from the brokers.
func (a *app) topicPast(ctx context.Context, arg string, f historyFlags) (past, error) {
	l, err := a.load(arg, f.jobFlags)
	if err != nil {
		return past{}, err
	}
	j := l.Job
	step, reach := j.Forecast.Interval, j.Forecast.History
	if f.interval != 0 {
		step = time.Duration(f.interval)
	}
	if f.history != 0 {
		reach = time.Duration(f.history)
	}
	if step <= 0 || reach < step {
		return past{}, usagef("-history %s does not hold a bin of -interval %s", job.FormatDuration(reach), job.FormatDuration(step))
	}
	p := past{steps: int(j.Forecast.Horizon / step), seasons: j.Forecast.Season, source: "topic " + j.Stream.Topic, job: l}
	opts, err := core.KafkaOpts(j)
	if err != nil {
		return p, err
	}
	p.series, err = a.topicHistory(ctx, traffic.ClientOptions{Brokers: j.Stream.Brokers, Topic: j.Stream.Topic, Opts: opts}, step, reach)
	return p, err
}

// topicHistory reads from the brokers at what rate records have arrived in a topic, as far back as reach and as its log goes.
func (a *app) topicHistory(ctx context.Context, o traffic.ClientOptions, step, reach time.Duration) (forecast.Series, error) {
	if n := reach / step; n > traffic.MaxTimes {
		return forecast.Series{}, tooManyBins(step, reach)
	}
	cl, err := traffic.NewClient(o)
	if err != nil {
		return forecast.Series{}, err
	}
	defer cl.Close()
	arrivals := traffic.NewArrivals(traffic.ArrivalsOptions{Keep: reach + 2*step, Step: step})
	bar := a.progress()
	defer bar.done()
	info, err := a.theTopic(ctx, cl, o)
	if err != nil {
		return forecast.Series{}, err
	}
	answered := a.awaitBrokers(o.Brokers, traffic.RequestTimeout)
	defer answered()
	end := time.Now().Truncate(step)
	start := end.Add(-reach).Truncate(step)
	_, err = traffic.Backfill(ctx, cl, arrivals, traffic.BackfillOptions{Step: step, From: start, To: end, Progress: func(done, total int) {
		answered()
		bar.step("reading the arrival history from the brokers", done, total)
	}})
	if err != nil {
		if ctx.Err() != nil {
			return forecast.Series{}, errors.New("reading the arrival history: interrupted")
		}
		return forecast.Series{}, reached(err)
	}
	s := known(forecast.Series{Start: start, Step: step, Values: arrivals.Series(step, start, end)})
	if s.Known() == 0 {
		return s, fmt.Errorf("topic %q has no arrival history in the last %s: %s", o.Topic, job.FormatDuration(reach), noHistory(ctx, cl, info))
	}
	return s, nil
}

// tooManyBins says that brokers would be asked for more bins than they are, and what helps: a history that is shorter, or bins that are longer.
func tooManyBins(step, reach time.Duration) error {
	most := step * (traffic.MaxTimes - 1)
	if most > time.Hour {
		most = most.Truncate(time.Hour)
	}
	longer := (reach + traffic.MaxTimes - 1) / traffic.MaxTimes
	if longer = (longer + time.Second - 1).Truncate(time.Second); longer > time.Minute {
		longer = (longer + time.Minute - 1).Truncate(time.Minute)
	}
	return usagef("a history of %s in bins of %s is %d requests to the brokers, more than the %d that are made: give -history %s or less, or -interval %s or more",
		job.FormatDuration(reach), job.FormatDuration(step), reach/step, traffic.MaxTimes, job.FormatDuration(most), job.FormatDuration(longer))
}

// noHistory is why a topic may have none, and what helps.
func noHistory(ctx context.Context, cl *traffic.Client, info traffic.Info) string {
	if info.TimestampType == "LogAppendTime" {
		if records, err := cl.Held(ctx, time.Time{}); err == nil && records > 0 {
			return fmt.Sprintf("it holds %s records, and its message.timestamp.type is LogAppendTime, so that these bear the time at which the broker took them in, which is just now. "+
				"Give it time to see arrivals; or, for records that are written with timestamps of the past, set message.timestamp.type=CreateTime and write them once more", number(float64(records)))
		}
	}
	return "is anything written to it, with timestamps of then?"
}

// known cuts off what lies before the first measurement.
func known(s forecast.Series) forecast.Series {
	for i, v := range s.Values {
		if !math.IsNaN(v) {
			return forecast.Series{Start: s.At(i), Step: s.Step, Values: s.Values[i:]}
		}
	}
	return forecast.Series{Start: s.End(), Step: s.Step}
}
