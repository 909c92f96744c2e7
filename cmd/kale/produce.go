package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/traffic"
)

// produceFlags are the flags of kale produce.
type produceFlags struct {
	brokers   []string
	topic     string
	curve     string
	counter   counterFlag
	synthetic string
	scale     float64
	peak      float64
	speedup   float64
	duration  span
	from      span
	history   span
	skew      float64
	hot       int
	seed      uint64
	format    string
	drift     float64
	notes     []string // of what was made of the curve as it was read
}

func produceCommand(a *app) *cobra.Command {
	var p produceFlags
	c := &cobra.Command{
		Use: "produce -topic TOPIC", Short: "Write click records to a topic, at a rate that follows a curve",
		Long: `Plays a curve of arrival rates into a topic as click records whose preferences drift. The curve is a CSV file of lines
"timestamp,rate" (records/s; kale replay -help says in which forms), or the synthetic week of the Kale paper. It repeats at its end.

-history writes past records first, as fast as they can be, with timestamps that end now: what a scheduler needs to
start warm. -duration 0 writes nothing else.`,
		Example: `  kale produce -topic clicks -peak 4000
  kale produce -topic clicks -peak 4000 -speedup 720 -history 6m -duration 4m    # a day in two minutes
  kale produce -topic clicks -curve rates.csv.gz -scale 0.01 -from 24h`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.produce(cmd.Context(), p, cmd.Flags().Changed)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&p.brokers, "brokers", []string{"127.0.0.1:9092"}, "host:port of Kafka brokers, separated by commas")
	f.StringVar(&p.topic, "topic", "", "topic to write to; it must exist")
	f.StringVar(&p.curve, "curve", "", "CSV file of arrival rates, .gz allowed")
	p.counter.register(f, "-curve")
	f.StringVar(&p.synthetic, "synthetic", "week", "made-up curve: \"week\", Monday to Sunday")
	f.Float64Var(&p.scale, "scale", 0, "factor on every rate")
	f.Float64Var(&p.peak, "peak", 0, "scale the curve so that its highest rate is this, records/s (default 1000 for the synthetic week)")
	f.Float64Var(&p.speedup, "speedup", 1, "seconds of the curve per second of playing")
	f.Var(&p.duration, "duration", "how long to play (default: once through the curve)")
	f.Var(&p.from, "from", "where in the curve to begin; may be negative")
	f.Var(&p.history, "history", "how much past to write first")
	f.Float64Var(&p.skew, "skew", 0, "share of the records that go to hot partitions beyond their even share, 0 to 1")
	f.IntVar(&p.hot, "hot", 0, "number of hot partitions (default: one in eight)")
	f.Uint64Var(&p.seed, "seed", 1, "seed of preferences and records")
	f.StringVar(&p.format, "format", "json", "json, or example (tf.train.Example)")
	f.Float64Var(&p.drift, "drift", stream.DefaultDrift, "turns of preferences per day of the curve, 0 keeps them still (default: enough to make a day-old model worse)")
	f.Lookup("drift").DefValue = "0" // not shown
	a.jsonFlag(c, "print the summary as JSON")
	return c
}

// options checks the flags and makes the options of playing live; history is derived from them.
func (p *produceFlags) options(ctx context.Context, given func(flag string) bool) (stream.ProduceOptions, error) {
	o := stream.ProduceOptions{
		Client: []kgo.Opt{kgo.SeedBrokers(p.brokers...), kgo.ClientID("kale-produce")}, Topic: p.topic, Speedup: p.speedup,
		From: time.Duration(p.from), Duration: time.Duration(p.duration), Skew: p.skew, HotPartitions: p.hot, Seed: p.seed, Drift: p.drift,
	}
	if p.topic == "" {
		return o, usagef("-topic is missing: say which topic to write to")
	}
	if why := job.CheckTopic(p.topic); why != "" {
		return o, usagef("-topic %q: %s", p.topic, why)
	}
	if p.scale != 0 && p.peak != 0 {
		return o, usagef("-scale and -peak are two ways to say one thing: give one of them")
	}
	if p.scale < 0 || p.peak < 0 || math.IsNaN(p.scale+p.peak) || math.IsInf(p.scale+p.peak, 0) {
		return o, usagef("-scale and -peak must be positive numbers")
	}
	for _, n := range []struct {
		name  string
		value float64
		given bool
	}{{"scale", p.scale, given("scale")}, {"peak", p.peak, given("peak")}} {
		if n.given && n.value == 0 {
			return o, usagef("-%s 0 would write nothing: it must be above 0", n.name)
		}
	}
	if p.speedup <= 0 {
		return o, usagef("-speedup %v: it must be above 0", p.speedup)
	}
	if p.history < 0 || p.duration < 0 {
		return o, usagef("-history and -duration must not be negative")
	}
	var err error
	if o.Format, err = stream.ParseFormat(p.format); err != nil {
		return o, usageError{err}
	}
	switch {
	case p.counter.given && p.curve == "":
		return o, p.counter.useless()
	case p.curve != "":
		if o.Curve, p.notes, err = stream.ReadCurve(ctx, p.curve, p.counter.values()); err != nil {
			return o, err
		}
	case p.synthetic == "week":
		o.Curve = stream.SyntheticWeek(p.seed)
		if p.scale == 0 && p.peak == 0 {
			p.peak = 1000
		}
	default:
		return o, usagef("-synthetic %q: there is \"week\"", p.synthetic)
	}
	if p.scale > 0 {
		o.Curve = o.Curve.Scale(p.scale)
	}
	if p.peak > 0 && o.Curve.Peak() == 0 {
		return o, usagef("-peak %g: the curve %s is zero throughout, and no factor makes that its highest rate", p.peak, p.curve)
	}
	if p.peak > 0 {
		o.Curve = o.Curve.ScaleTo(p.peak)
	}
	if !given("duration") {
		o.Duration = time.Duration(float64(o.Curve.Duration()) / p.speedup)
	}
	if err := o.Validate(); err != nil {
		return o, usageError{err}
	}
	return o, p.dated(time.Now(), o.Curve)
}

// produced is the summary of kale produce.
type produced struct {
	Brokers     []string        `json:"brokers"`
	Topic       string          `json:"topic"`
	History     int64           `json:"history_records"`
	Live        int64           `json:"live_records"`
	Partitions  map[int32]int64 `json:"partitions"`
	Unsettled   int64           `json:"unsettled"`
	Elapsed     float64         `json:"elapsed_s"`
	Interrupted bool            `json:"interrupted,omitempty"`
	Error       string          `json:"error,omitempty"` // why it ended early
}

func (a *app) produce(ctx context.Context, p produceFlags, given func(flag string) bool) error {
	o, err := p.options(ctx, given)
	if err != nil {
		return err
	}
	a.adviseAll(p.notes)
	if err := a.canProduce(ctx, p); err != nil {
		return err
	}
	sum := produced{Brokers: p.brokers, Topic: p.topic, Partitions: map[int32]int64{}}
	began := time.Now()
	if p.history > 0 {
		h := o
		h.Duration, h.Until = time.Duration(p.history), time.Now()
		h.From = o.From - time.Duration(float64(p.history)*p.speedup)
		sum.History, err = a.play(ctx, h, &sum)
	}
	if err == nil && (!given("duration") || o.Duration > 0) {
		sum.Live, err = a.play(ctx, o, &sum)
	}
	sum.Elapsed = time.Since(began).Seconds()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		sum.Interrupted, err = true, nil
	}
	if err != nil && sum.History+sum.Live+sum.Unsettled == 0 {
		return err // nothing was written: there is no summary
	}
	if err != nil {
		sum.Error = err.Error()
	}
	return errors.Join(err, a.printProduced(sum))
}

// dated refuses a past that no record can be dated in: their times are counted from 1970 on.
func (p produceFlags) dated(now time.Time, c stream.Curve) error {
	if most := now.Sub(time.Unix(0, 0)); time.Duration(p.history) > most {
		return usagef("-history %s would be about %s records, the first of %d: records are dated from 1970 on, which is %s ago", p.history.String(),
			number(c.Mean()*time.Duration(p.history).Seconds()), now.Add(-time.Duration(p.history)).Year(), job.Length(most.Truncate(24*time.Hour)))
	}
	return nil
}

// canProduce asks for the topic before anything is written.
func (a *app) canProduce(ctx context.Context, p produceFlags) error {
	o := traffic.ClientOptions{Brokers: p.brokers, Topic: p.topic}
	cl, err := traffic.NewClient(o)
	if err != nil {
		return err
	}
	defer cl.Close()
	info, err := a.theTopic(ctx, cl, o)
	if err == nil && p.hot > info.Partitions {
		return usagef("-hot %d: topic %q has %s", p.hot, p.topic, job.Count(info.Partitions, "partition"))
	}
	return err
}

func (a *app) play(ctx context.Context, o stream.ProduceOptions, sum *produced) (int64, error) {
	bar := a.progress()
	defer bar.done()
	what := "live"
	if !o.Until.IsZero() {
		what = "history"
	}
	o.Progress = func(s stream.ProduceProgress) {
		bar.show("%s: %3.0f %%  %s  at %s of the curve  %s records/s  %s sent, %s acknowledged", what, 100*s.Done,
			job.Length(s.Elapsed.Round(time.Second)), job.Length(s.At.Round(time.Minute)), number(s.Rate), plan.Thousands(s.Sent), plan.Thousands(s.Acked))
	}
	r, err := stream.Produce(ctx, a.logger("warn"), o)
	for partition, n := range r.Acked {
		sum.Partitions[partition] += n
	}
	sum.Unsettled += r.Unsettled
	return r.Total, err
}

func (a *app) printProduced(s produced) error {
	if a.asJSON {
		return json.NewEncoder(a.out).Encode(s)
	}
	state := ""
	if s.Interrupted {
		state = " when it was interrupted"
	}
	a.answer("%s records in topic %s at %s after %s%s (%s of history, %s live)\n", plan.Thousands(s.History+s.Live), s.Topic, strings.Join(s.Brokers, ", "),
		job.Length(time.Duration(s.Elapsed*float64(time.Second))), state, plan.Thousands(s.History), plan.Thousands(s.Live))
	if s.Unsettled > 0 {
		a.answer("%d more were sent and not acknowledged: they may be in the topic or not\n", s.Unsettled)
	}
	var parts []string
	for _, partition := range slices.Sorted(maps.Keys(s.Partitions)) {
		parts = append(parts, fmt.Sprintf("%d: %s", partition, plan.Thousands(s.Partitions[partition])))
	}
	if len(parts) > 0 {
		a.answer("by partition  %s\n", strings.Join(parts, "  "))
	}
	return nil
}

// span is a duration flag in the units of job files, days included; a sign is allowed.
type span time.Duration

// positive is a span that a flag must make longer than 0, whatever stands in it as a default.
type positive struct{ *span }

func (p positive) Set(text string) error {
	var s span
	if err := s.Set(text); err != nil {
		return err
	}
	if s <= 0 {
		return errors.New("it must be above 0")
	}
	*p.span = s
	return nil
}

func (s *span) Type() string { return "duration" }

func (s *span) String() string {
	if *s < 0 {
		return "-" + job.FormatDuration(time.Duration(-*s))
	}
	if *s == 0 {
		return "0" // which is not shown as a default
	}
	return job.FormatDuration(time.Duration(*s))
}

func (s *span) Set(text string) error {
	text, negative := strings.CutPrefix(text, "-")
	if text == "0" {
		*s = 0
		return nil
	}
	d, err := job.ParseDuration(text)
	if err != nil {
		return err
	}
	if negative {
		d = -d
	}
	*s = span(d)
	return nil
}
