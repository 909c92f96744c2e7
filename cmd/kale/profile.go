package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/profile"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/traffic"
)

type profileFlags struct {
	jobFlags
	recordFlags
	workers, servers []int
	intervals, extra int
	interval         span
	patience         span
	dry, force       bool
	log              string
}

func profileCommand(a *app) *cobra.Command {
	f := profileFlags{interval: span(5 * time.Second), patience: span(10 * time.Minute)}
	c := &cobra.Command{
		Use: "profile JOB.hcl", Short: "Measure a job's throughput at several numbers of workers, and store the fit",
		Long: `Measures how many records a job trains at several numbers of workers, and of servers, fits a throughput model to it and stores that.
With throughput { source = "profile" } in the job file, kale run, plan and replay start from it.

It runs a job of its own beside the real one, which goes on undisturbed: under another name, with a checkpoint folder of its own, on the
same backend with the same resources. It reads the topic from a time in the past, so that every worker has more than it can train,
commits nothing, and is ended and removed at the end, at Ctrl-C too. Of what was measured only the intervals count in which all workers were busy
with full batches; each of them counts, also where the topic has too few records for all of a point's.

The numbers of workers double from 1 up to workers.max unless -workers says which; then up to two more are measured, where they tell most.
The profile before is kept beside the new one, as ` + previousFile + `. One that tells less than it of the same job does not take its place.`,
		Example: "  kale profile ctr.hcl -dry\n  kale profile ctr.hcl -workers 1,2,4,8\n  kale profile show ctr",
		Args:    exactly("JOB.hcl"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.profile(cmd.Context(), args[0], f) },
	}
	f.jobFlags.register(c)
	f.recordFlags.register(c)
	fl := c.Flags()
	fl.IntSliceVar(&f.workers, "workers", nil, "`NUMBERS` of workers to measure, separated by commas (default: doubling up to workers.max)")
	fl.IntSliceVar(&f.servers, "servers", nil, "`NUMBERS` of servers to measure each of them with (default: servers.count)")
	fl.IntVar(&f.intervals, "intervals", 5, "intervals in which all workers were busy, at each point")
	fl.Var(positive{&f.interval}, "interval", "how long one lasts at least")
	fl.IntVar(&f.extra, "extra", 2, "how many more numbers of workers may be measured, where they tell most; none with -workers")
	fl.Var(&f.patience, "patience", "how long to wait until all workers have joined")
	fl.BoolVar(&f.dry, "dry", false, "say what would be done, and how long it would take; start nothing")
	fl.BoolVar(&f.force, "force", false, "replace the stored profile though it tells more, in points or in range, of the job as it is")
	a.jsonFlag(c, "print the result as JSON")
	fl.StringVar(&f.log, "log", "error", "least level of the log on standard error: "+logLevels)
	c.AddCommand(profileShowCommand(a))
	return c
}

func (a *app) profile(ctx context.Context, arg string, f profileFlags) error {
	lg, err := a.parseLogger(f.log)
	if err != nil {
		return usageError{err}
	}
	l, err := a.load(arg, f.jobFlags)
	if err != nil {
		return err
	}
	o, err := f.options(l.Job)
	if err != nil {
		return err
	}
	if err := f.worthStoring(l, o); err != nil {
		return err
	}
	b := &bench{a: a, l: l, lg: lg, most: slices.Max(append(slices.Clone(o.Workers), o.Most))}
	records, err := a.profilable(ctx, b, &o, f)
	if err != nil {
		return err
	}
	planned := newIntended(b, o, records)
	if f.extra < 0 || f.interval > span(24*time.Hour) || f.patience > span(24*time.Hour) {
		return usagef("-extra %d, -interval %s, -patience %s: want 0 or more points, and a day at most", f.extra, f.interval.String(), f.patience.String())
	}
	if f.dry {
		return a.showIntended(planned)
	}
	a.advise("%s", planned)
	outliveReaders() // there is something to end
	swept, err := b.sweep(ctx)
	for _, name := range swept {
		a.advise("%s, which an earlier kale profile had left, is ended and removed\n", name)
	}
	if errors.Is(err, state.ErrLocked) {
		return fmt.Errorf("profile job %q: another kale profile of it is running: wait for it, or end it with Ctrl-C", l.Name)
	}
	if err != nil {
		return fmt.Errorf("profile job %q: remove what an earlier run has left: %w", l.Name, err)
	}
	points, err := profile.Run(ctx, b, o, a.profileProgress())
	if err == nil && b.start.Kind == job.StartTime && tooFew(points) { // workers train more than was believed
		held, _, herr := history(ctx, l.Job, math.Inf(1))
		if herr == nil && held > o.Records {
			a.advise("What arrived since %s was trained too soon to measure anything: more is trained than was believed. Once more, with all %s records of the topic.\n",
				b.start.Time.Local().Format("2006-01-02 15:04:05"), number(float64(held)))
			o.Records, b.start = held, job.Start{Kind: job.StartEarliest}
			points, err = profile.Run(ctx, b, o, a.profileProgress())
		}
	}
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("profile job %q: interrupted after %s; what was started is ended and removed, and nothing was stored", l.Name, job.Count(len(points), "point"))
	case err != nil:
		return fmt.Errorf("profile job %q: %w", l.Name, err)
	}
	p, err := profile.New(l.Name, time.Now(), points, o.Global, conditions(l.Job))
	if errors.Is(err, profile.ErrNothing) {
		return nothingMeasured(l.Job, points)
	}
	if err != nil {
		return fmt.Errorf("profile job %q: %w", l.Name, err)
	}
	p.Emulated = l.Workers.EmulateStep > 0
	file, err := a.storeProfile(l, p, o, f.force)
	if err != nil {
		return err
	}
	return a.showProfile(file, l.Workers.Max, p)
}

// tooFew says that no point was measured in as many intervals as were asked for, for want of records.
func tooFew(points []profile.Point) bool {
	few := false
	for _, p := range points {
		if p.Why == "" && p.Fewer == "" {
			return false
		}
		few = few || p.Few
	}
	return few
}

// nothingMeasured says what helps where no point could be measured.
func nothingMeasured(j *job.Job, points []profile.Point) error {
	advice, why := "", ""
	if len(points) > 0 {
		why = fmt.Sprintf(": %s: %s", job.Count(points[0].Workers, "worker"), points[0].Why)
	}
	if slices.ContainsFunc(points, func(p profile.Point) bool { return p.Few }) {
		advice = fmt.Sprintf(". Wait until topic %q holds more records, or write some with kale produce -history; or measure for a shorter time, with -intervals 2 -interval 1s", j.Stream.Topic)
	}
	return fmt.Errorf("profile job %q: no point could be measured, and nothing was stored%s%s", j.Name, why, advice)
}

// options are what the flags say of a job, without the records that there are.
func (f profileFlags) options(j *job.Job) (profile.Options, error) {
	o := profile.Options{
		Workers: slices.Clone(f.workers), Servers: slices.Clone(f.servers), Extra: f.extra, Most: j.Workers.Max,
		Intervals: f.intervals, Interval: time.Duration(f.interval), Patience: time.Duration(f.patience),
		Batch: j.Model.Batch, Global: float64(j.Throughput.Batch), Every: min(j.Autoscale.Watch, time.Second),
		Start: 20 * time.Second, Join: 5 * time.Second,
	}
	if j.Backend.Name != job.BackendLocal {
		o.Start, o.Join = time.Minute, 20*time.Second
	}
	if len(o.Workers) == 0 {
		o.Workers = profile.Ladder(j.Workers.Max)
	} else {
		o.Extra = 0
	}
	if len(o.Servers) == 0 {
		o.Servers = []int{j.Servers.Count}
	}
	slices.Sort(o.Workers)
	slices.Sort(o.Servers)
	o.Extra = max(0, min(o.Extra, j.Workers.Max-len(o.Workers)))
	if err := o.Validate(); err != nil {
		return o, usageError{err}
	}
	if most := slices.Max(o.Workers); most > j.Workers.Max {
		return o, usagef("-workers %d: the job never has more than %d (workers.max): measure up to that, or raise workers.max in %s first", most, j.Workers.Max, backend.Quoted(j.File))
	}
	if most := slices.Max(o.Servers); most > j.Model.Tablets {
		return o, usagef("-servers %d: the job has %d tablets (model.tablets), and a server without one has nothing to do", most, j.Model.Tablets)
	}
	return o, nil
}

// needed is how many records a run trains, by what one worker is believed to train.
func needed(j *job.Job, o profile.Options) (all, first float64) {
	for _, w := range o.Workers {
		all += o.Needs(w, guessedRate(j))
	}
	return all + float64(o.Extra)*o.Needs(o.Most/2+1, guessedRate(j)), o.Needs(o.Workers[0], guessedRate(j))
}

// reaches are how far back the start of a measuring job may lie: the nearest that holds enough is taken, since old records may be on slow disks.
var reaches = []time.Duration{time.Hour, 6 * time.Hour, 24 * time.Hour, 3 * 24 * time.Hour, 7 * 24 * time.Hour, 14 * 24 * time.Hour}

// profilable finds out whether the job can be profiled now: brokers, history, trainer, room. It starts nothing.
func (a *app) profilable(ctx context.Context, b *bench, o *profile.Options, f profileFlags) (records int64, err error) {
	l := b.l
	_, diags, err := a.askBrokers(ctx, l, f.recordFlags)
	if err == nil {
		err = a.tell(l, slices.Concat(diags, core.CheckFolder(l.Job)))
	}
	if err != nil {
		return 0, err
	}
	all, first := needed(l.Job, *o)
	if records, b.start, err = history(ctx, l.Job, all); err != nil {
		return 0, err
	}
	o.Records = records
	// What is certain without any belief: each of the fewest workers must make some steps in each interval.
	if least := o.LeastRecords(); records < least {
		return 0, fmt.Errorf("profile job %q: topic %q holds %s records, and to measure %s takes at least %s: by throughput.theta about %s. Wait until more have arrived, "+
			"or write some with kale produce", l.Name, l.Stream.Topic, number(float64(records)), job.Count(o.Workers[0], "worker"), number(float64(least)), number(first))
	}
	if b.trainer, b.env, diags, err = a.trainer(ctx, b.lg, l); err == nil {
		err = a.tell(l, diags)
	}
	if err != nil {
		return 0, err
	}
	missing, fit, err := b.room(ctx, slices.Max(o.Servers), o.Workers)
	if err != nil {
		return 0, err
	}
	if missing != "" {
		advice := "wait until there is, or stop what is not needed"
		if fit > 0 {
			fits := slices.DeleteFunc(slices.Clone(o.Workers), func(w int) bool { return w > fit })
			advice = fmt.Sprintf("-workers %s would fit now", numbers(fits, ","))
		}
		return 0, fmt.Errorf("profile job %q: backend %q has no room beside what runs for %s with %s: %s; %s", l.Name, l.Backend.Name, job.Count(slices.Max(o.Workers), "worker"),
			job.Count(slices.Max(o.Servers), "server"), missing, advice)
	}
	return records, nil
}

// history finds from when on the topic holds enough records, and how many those are.
func history(ctx context.Context, j *job.Job, enough float64) (records int64, start job.Start, err error) {
	opts, err := core.KafkaOpts(j)
	if err != nil {
		return 0, start, err
	}
	cl, err := traffic.NewClient(traffic.ClientOptions{Brokers: j.Stream.Brokers, Topic: j.Stream.Topic, Opts: opts})
	if err != nil {
		return 0, start, err
	}
	defer cl.Close()
	now := time.Now().Truncate(time.Second) // a start is exact to the second
	for _, reach := range reaches {
		if records, err = cl.Held(ctx, now.Add(-reach)); err != nil {
			return 0, start, err
		}
		if float64(records) >= 2*enough {
			return records, job.Start{Kind: job.StartTime, Time: now.Add(-reach)}, nil
		}
	}
	records, err = cl.Held(ctx, time.Time{})
	return records, job.Start{Kind: job.StartEarliest}, err
}

// intended is what kale profile is about to do, times in seconds in JSON.
type intended struct {
	Job       string        `json:"job"`
	Backend   string        `json:"backend"`
	Workers   []int         `json:"workers"`
	Servers   []int         `json:"servers"`
	Extra     int           `json:"extra_points"` // at most, up to Most workers
	Most      int           `json:"most_workers"`
	Intervals int           `json:"intervals"`
	Interval  time.Duration `json:"interval"`
	Topic     string        `json:"topic"`
	From      *time.Time    `json:"from,omitempty"` // nil: from its first record on
	Records   int64         `json:"records"`        // that the topic holds from there on
	Trains    float64       `json:"trains_records"` // about, by Believed of one worker
	Believed  float64       `json:"believed_records_per_second"`
	Estimate  time.Duration `json:"estimate"` // if nothing has to be waited for

	checkpoint string
	all        float64 // records for all points with one number of servers
}

func newIntended(b *bench, o profile.Options, records int64) *intended {
	j := b.l.Job
	all, _ := needed(j, o)
	p := &intended{Job: j.Name, Backend: j.Backend.Name, Workers: o.Workers, Servers: o.Servers, Extra: o.Extra, Most: o.Most, Intervals: o.Intervals, Interval: o.Interval,
		Topic: j.Stream.Topic, Records: records, Trains: all * float64(len(o.Servers)), Believed: guessedRate(j), Estimate: o.Estimate().Round(10 * time.Second),
		checkpoint: j.Checkpoint.Dir, all: all}
	if b.start.Kind == job.StartTime {
		p.From = &b.start.Time
	}
	return p
}

// String says what is about to be done.
func (p *intended) String() string {
	from := "from its first record on"
	if p.From != nil {
		from = "from " + p.From.Local().Format("2006-01-02 15:04:05") + " on"
	}
	more := ""
	if p.Extra > 0 {
		more = fmt.Sprintf(", and up to %s up to %d workers where that tells most", job.Count(p.Extra, "more point"), p.Most)
	}
	text := fmt.Sprintf("profile of job %q on backend %q: %s with %s%s; %d intervals of %s each\n", p.Job, p.Backend,
		several(p.Workers, "worker"), several(p.Servers, "server"), more, p.Intervals, job.Length(p.Interval))
	text += fmt.Sprintf("reads topic %q %s: %s records; about %s are trained, by what is believed of one worker (%s records/s)\n", p.Topic, from, number(float64(p.Records)),
		number(p.Trains), number(p.Believed))
	text += fmt.Sprintf("it commits nothing, and its checkpoint below %s is removed at the end\n", p.checkpoint)
	if p.all > float64(p.Records) {
		text += "the records may not last for all points: then the topic is read from there again, and a point that needs more than all of them is measured in fewer intervals, or left out\n"
	}
	return text + fmt.Sprintf("about %s, if nothing has to be waited for\n", job.Length(p.Estimate))
}

// showIntended prints what is about to be done, as what -dry asks for.
func (a *app) showIntended(p *intended) error {
	if a.asJSON {
		return printJSON(a.out, p)
	}
	width, _ := terminal(a.out)
	_, err := io.WriteString(a.out, folded(p.String(), width))
	return err
}

// several is "1 worker", "1, 2 and 4 workers".
func several(v []int, noun string) string {
	if len(v) == 1 {
		return job.Count(v[0], noun)
	}
	return listed(strings.Split(numbers(v, " "), " ")) + " " + noun + "s"
}

func numbers(v []int, between string) string {
	words := make([]string, len(v))
	for i, n := range v {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, between)
}

// profileProgress shows how far a profile has come: each point in a line of its own.
func (a *app) profileProgress() func(profile.Progress) {
	bar := a.progress()
	began := time.Now()
	said := ""
	return func(p profile.Progress) {
		where := fmt.Sprintf("%s, %s", job.Count(p.Workers, "worker"), job.Count(p.Servers, "server"))
		if pt := p.Point; pt != nil {
			bar.done()
			if pt.Why != "" {
				a.advise("%s: not measured: %s\n", where, pt.Why)
			} else {
				a.advise("%s: %s records/s, %s%s (joined after %s)\n", where, number(pt.Mean()), within(*pt), fewer(*pt), job.Length(time.Duration(pt.Joined*float64(time.Second))))
			}
			return
		}
		if problems := strings.Join(p.Problems, "; "); problems != said {
			if said = problems; said != "" {
				bar.done()
				a.advise("%s: %s\n", where, said)
			}
		}
		what := string(p.Phase)
		switch p.Phase {
		case profile.Joining:
			what = fmt.Sprintf("%d have joined", p.Joined)
		case profile.Filling:
			what = "all have joined, waiting until all are busy"
		case profile.Measuring:
			what = fmt.Sprintf("interval %d of %d", min(p.Intervals+1, p.Of), p.Of)
			if p.Rate > 0 {
				what += ", " + number(p.Rate) + " records/s"
			}
		}
		of := fmt.Sprintf("point %d of %d", min(p.Done+1, p.Points), p.Points)
		if p.Extra > 0 {
			of += fmt.Sprintf(", or up to %d", p.Points+p.Extra)
		}
		bar.show("%s, %s: %s: %s", job.Length(time.Since(began).Round(time.Second)), of, where, what)
	}
}

// within is how far the intervals of a point differ, which one alone does not tell.
func within(pt profile.Point) string {
	if len(pt.Rates) < 2 {
		return "of a single interval"
	}
	return fmt.Sprintf("intervals within ±%.1f %%", 100*pt.Spread())
}

// fewer says why a point has fewer intervals than were asked for.
func fewer(pt profile.Point) string {
	if pt.Fewer == "" {
		return ""
	}
	return fmt.Sprintf(", only %d, since %s", len(pt.Rates), pt.Fewer)
}

// conditions are what of a job its throughput depends on.
func conditions(j *job.Job) map[string]string {
	raw := func(v any) string {
		b, _ := json.Marshal(v) // lists of texts and numbers
		return string(b)
	}
	return map[string]string{
		"backend": j.Backend.Name, "stream.topic": j.Stream.Topic,
		"model.kind": j.Model.Kind, "model.batch": raw(j.Model.Batch), "model.embedding_dim": raw(j.Model.EmbeddingDim), "model.hidden": raw(j.Model.Hidden),
		"model.optimiser": j.Model.Optimiser.Kind, "model.tablets": raw(j.Model.Tablets), "features.sparse": raw(j.Features.Sparse), "features.dense": raw(j.Features.Dense),
		"workers.gpus": raw(j.Workers.GPUs), "workers.cpu": raw(j.Workers.CPU), "workers.emulate_step": job.FormatDuration(j.Workers.EmulateStep),
		"servers.cpu": raw(j.Servers.CPU),
	}
}

// profiling is what came of taking a job's throughput from its profile.
type profiling struct {
	stored *profile.Profile // that it was taken from; nil: there is none, or nobody asked for it
	diags  hcl.Diagnostics
	// lacking says that the job cannot be run or planned; unmeasured that no profile is stored, and the file's theta is used.
	lacking, unmeasured hcl.Diagnostics
}

// profiled takes a job's throughput from its profile where the file says so. Without one the file's own theta holds; where it has none, the job lacks
// what it needs to be run or planned, and something stands in for what needs no throughput.
func profiled(j *job.Job, dir string) (out profiling) {
	if j.Throughput.Source != job.SourceProfile {
		return out
	}
	p, err := readProfile(dir)
	absent := errors.Is(err, os.ErrNotExist)
	switch {
	case err == nil:
		if changed := p.Changed(conditions(j)); len(changed) > 0 {
			out.diags = hcl.Diagnostics{j.WarningAt("throughput.source", "The profile was measured under other conditions",
				fmt.Sprintf("Changed since: %s. What is measured as the job runs corrects it; kale profile %s measures anew.", listed(changed), backend.Quoted(j.File)))}
		}
		out.stored = p
		j.Throughput = job.Throughput{Form: string(p.Model.Form), Theta: p.Model.Theta, Batch: int(p.Model.Batch), Source: p.Source()}
	case len(j.Throughput.Theta) == 0:
		detail := fmt.Sprintf("kale profile %s measures the job and stores one. Or give theta, which holds until there is one.", backend.Quoted(j.File))
		if !absent {
			detail = fmt.Sprintf("%v.", err)
		}
		out.lacking = hcl.Diagnostics{j.ErrorAt("throughput.source", "No profile of this job is stored on this machine", detail)}
		j.Throughput.Form, j.Throughput.Batch = "async", 0
		j.Throughput.Theta = []float64{1 / guessedRate(j), 0, 0}
	case absent:
		out.unmeasured = hcl.Diagnostics{j.WarningAt("throughput.source", "No profile is stored for this job",
			fmt.Sprintf("theta of the job file is used; kale profile %s measures.", backend.Quoted(j.File)))}
		j.Throughput.Source = "theta of the job file, since no profile is stored"
	default:
		out.diags = hcl.Diagnostics{j.WarningAt("throughput.source", "The profile cannot be used", fmt.Sprintf("%v. Until then throughput.theta holds.", err))}
		j.Throughput.Source = "theta of the job file, since the profile cannot be used"
	}
	return out
}

// throughputFrom says where a job's throughput comes from.
func (l *loaded) throughputFrom() string {
	switch source := l.Throughput.Source; {
	case l.profile != nil:
		return l.profile.Told(l.Workers.Min, l.Workers.Max, l.Servers.Count)
	case source == "":
		return "theta of the job file"
	case strings.HasPrefix(source, "theta of the job file"):
		return source
	default:
		return fmt.Sprintf("theta of the job file (its source: %q)", source)
	}
}
