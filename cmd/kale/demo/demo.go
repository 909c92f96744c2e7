// Package demo runs one job through a day of two minutes: the embedded broker, a synthetic week of traffic with its past days written first, a cluster
// and its backend (this machine, unless another Cluster is given), up to six workers with an emulated accelerator. It ends with a summary that is computed
// from what was left behind (the broker's log, the tablets' snapshots, the scheduler's records; the AUC is what the workers counted), and leaves nothing but a report.
//
// Nothing in the scheduler or the trainer knows that this is a demo: they get a job file (examples/demo.hcl) with short times.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/traffic"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/trainer/ps"
)

// The demo's clock: a day of the curve is two minutes.
const (
	day      = 2 * time.Minute
	speedup  = float64(24*time.Hour) / float64(day)
	history  = 3 * day          // written with past timestamps
	leadIn   = 30 * time.Second // from the end of the history to the day: the model learns its first steps, nothing of it is counted
	leadMost = 90 * time.Second // more lead-in, where the machine is so busy that no worker trains after that
	peak     = 2850             // records/s, unless Options.Peak says otherwise
	settleIn = 20 * time.Second // for the last records to be trained after the day
)

// curveDay is the day of the synthetic week that is played live: Thursday, after three whole days of history.
const curveDay = 3 * 24 * time.Hour

// Options of a demo.
type Options struct {
	// Cluster is where the job runs.
	Cluster Cluster
	// Plugin finds the program of a backend; Trainer is the path of kale-trainer.
	Plugin  func(backend string) (string, error)
	Trainer string
	// Dir is an empty folder for everything; it is the caller's to remove.
	Dir string
	// Seed of traffic and clicks.
	Seed uint64
	// Peak is the highest rate of the day, records/s; 0: what six workers are needed for.
	Peak float64
	Log  *slog.Logger
	// Step is told what the demo is doing, one line each.
	Step func(string)
	// View is called with the scheduler as soon as there is one; it must return when done is closed.
	View func(s *core.Scheduler, done <-chan struct{})
	Env  map[string]string
	// FailedRC is the exit code of a demo that broke a promise, for the summary.
	FailedRC int
}

// demo is one run.
type demo struct {
	o      Options
	place  Place
	broker *stream.Broker
	kafka  []kgo.Opt
	job    *job.Job
	spec   *rpc.TrainSpec
	curve  stream.Curve

	written    time.Time // how far the history reaches
	dawn       time.Time // when the curve's day begins: the demo's does then too, or later
	begin, end time.Time // of the day
	atBegin    *rpc.JobStatus
	atEnd      *rpc.JobStatus
	beginEnds  map[int32]int64 // the log's ends when the day began
	stale      *ps.Frozen
	stateDir   string
}

// Result is what a demo leaves: the summary, and the scheduler's records for a report.
type Result struct {
	Summary Summary
	Store   *state.Store // the caller closes it
	Job     *job.Job
	// Begin and End are the day's.
	Begin, End time.Time
}

// Run plays the demo. On every path all processes that it started are gone when it returns.
func Run(ctx context.Context, o Options) (res Result, err error) {
	if o.Step == nil {
		o.Step = func(string) {}
	}
	d := &demo{o: o, stateDir: stateDir(o.Dir)}
	defer func() {
		if closed := o.Cluster.Close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("end the cluster of the demo: %w", closed))
		}
	}()
	if err := d.settleDown(ctx); err != nil {
		return Result{}, err
	}
	o.Step("starting the embedded broker")
	d.broker, err = stream.OpenBroker(ctx, o.Log, stream.BrokerOptions{
		DataDir: filepath.Join(o.Dir, "kafka"),
		Topics:  []stream.TopicSpec{{Name: "clicks", Partitions: 8}, {Name: "clicks-dead", Partitions: 1}},
	})
	if err != nil {
		return Result{}, err
	}
	defer d.broker.Close()
	d.kafka = []kgo.Opt{kgo.SeedBrokers(d.broker.Brokers()...)}
	if err := d.past(ctx); err != nil {
		return Result{}, err
	}
	if err := d.play(ctx); err != nil {
		return Result{}, err
	}
	o.Step("reading the broker's log, the tablets and the decision records for the summary")
	st, err := state.Open(d.stateDir)
	if err != nil {
		return Result{}, err
	}
	sum, err := d.summarise(ctx, st)
	if err != nil {
		return Result{}, errors.Join(err, st.Close())
	}
	return Result{Summary: sum, Store: st, Job: d.job, Begin: d.begin, End: d.end}, nil
}

// jobFileName is the job's file in the demo's folder.
const jobFileName = "demo.hcl"

// stateDir is the folder of the scheduler's state in the demo's.
func stateDir(dir string) string { return filepath.Join(dir, "state") }

// ClusterDir is the folder of the cluster in the demo's.
func ClusterDir(dir string) string { return filepath.Join(dir, "cluster") }

// settleDown starts the cluster.
func (d *demo) settleDown(ctx context.Context) error {
	dir := ClusterDir(d.o.Dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a folder for the demo's cluster: %w", err)
	}
	var err error
	d.place, err = d.o.Cluster.Start(ctx, dir)
	return err
}

// past writes the history, trains the forecaster on what the broker says of it, and loads the job file.
func (d *demo) past(ctx context.Context) error {
	d.o.Step(fmt.Sprintf("writing %d past days of clicks", int(history/day)))
	d.curve = stream.SyntheticWeek(d.o.Seed).ScaleTo(cmp.Or(d.o.Peak, peak))
	d.written = time.Now()
	d.dawn = d.written.Add(leadIn)
	d.begin, d.end = d.dawn, d.dawn.Add(day)
	produced, err := d.produce(ctx, d.written.Add(-history), d.written, d.written)
	if err != nil {
		return err
	}
	d.o.Step(fmt.Sprintf("%d records of history written; training the forecaster on it", produced.Total))
	model := filepath.Join(d.o.Dir, "forecast.onnx")
	j, err := d.load("seasonal")
	if err != nil {
		return err
	}
	if err := d.trainForecaster(ctx, j, d.written, model); err != nil {
		return err
	}
	if d.job, err = d.load(model); err != nil {
		return err
	}
	d.spec = core.TrainSpec(d.job, "")
	return nil
}

// produce plays the curve from one moment to another; until makes it history, the zero time plays live.
func (d *demo) produce(ctx context.Context, from, to, until time.Time) (stream.Produced, error) {
	return stream.Produce(ctx, d.o.Log, stream.ProduceOptions{
		Client: d.kafka, Topic: "clicks", Curve: d.curve, Speedup: speedup, From: curveDay + time.Duration(float64(from.Sub(d.dawn))*speedup),
		Duration: to.Sub(from), Until: until, Seed: d.o.Seed, Drift: stream.DefaultDrift,
	})
}

func (d *demo) load(model string) (*job.Job, error) {
	path := filepath.Join(d.o.Dir, jobFileName)
	text, err := jobFile(d.place)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("write the demo's job file: %w", err)
	}
	j, files, diags := job.Load(path, map[string]string{"brokers": d.broker.Addr(), "dir": d.place.Checkpoint, "forecast": model}, nil)
	if diags.HasErrors() {
		return nil, errors.Join(diags, job.Render(os.Stderr, files, diags, 0, false))
	}
	return j, nil
}

func (d *demo) trainForecaster(ctx context.Context, j *job.Job, until time.Time, path string) error {
	kopts, err := core.KafkaOpts(j)
	if err != nil {
		return err
	}
	client, err := traffic.NewClient(traffic.ClientOptions{Brokers: j.Stream.Brokers, Topic: j.Stream.Topic, Opts: kopts})
	if err != nil {
		return err
	}
	defer client.Close()
	step := j.Forecast.Interval
	arrivals := traffic.NewArrivals(traffic.ArrivalsOptions{Keep: j.Forecast.History, Step: step, Fine: step})
	end := until.Truncate(step)
	from := end.Add(-j.Forecast.History)
	if _, err := traffic.Backfill(ctx, client, arrivals, traffic.BackfillOptions{Step: step, From: from, To: end}); err != nil {
		return err
	}
	model, report, err := forecast.TrainLinear(forecast.Series{Start: from, Step: step, Values: arrivals.Series(step, from, end)},
		forecast.LinearOptions{Horizon: int(j.Forecast.Horizon / step), Seasons: j.Forecast.Season, Source: "kale demo"})
	if err != nil {
		return err
	}
	words, err := held(report.Model.WAPE, report.Seasonal.WAPE, forecast.GateOptions{Window: j.Forecast.GateWindow, Tolerance: j.Forecast.GateTolerance})
	if err != nil {
		return err
	}
	d.o.Step("forecast model trained: " + words)
	return os.WriteFile(path, model, 0o600)
}

// held says how a model did beside the seasonal forecaster on what both had not seen, and what the gate makes of it: a model is not given up for a
// difference that moves no worker.
func held(model, seasonal float64, o forecast.GateOptions) (string, error) {
	worse, err := forecast.Worse(model, seasonal, o)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("on what it had not seen its error is %.1f %% of the traffic, the seasonal forecaster's %.1f %%", 100*model, 100*seasonal)
	switch {
	case worse:
		return text + ": the gate will fall back to the seasonal forecaster when live traffic shows the same", nil
	case model > seasonal:
		return text + ": no difference that would move a worker, so the gate lets the model forecast and keeps comparing", nil
	}
	return text + ": the gate lets the model forecast and keeps comparing", nil
}

// play runs the scheduler and the live traffic through the lead-in and the day, and stops the job.
func (d *demo) play(ctx context.Context) error {
	d.o.Step("starting the scheduler, two parameter servers and the first workers")
	program, err := d.o.Plugin(d.place.Backend)
	if err != nil {
		return err
	}
	plugin, err := backend.Launch(ctx, d.o.Log, program, backend.Options{Env: d.place.Env, SocketDir: d.stateDir})
	if err != nil {
		return err
	}
	defer func() { _ = plugin.Close() }() // its Close has no errors that matter here: the job is released by then
	s, diags, err := core.Open(ctx, core.Options{Job: d.job, StateDir: d.stateDir, Backend: plugin, Trainer: d.o.Trainer, Env: d.o.Env, Log: d.o.Log})
	if err != nil {
		return err
	}
	if diags.HasErrors() {
		return errors.Join(diags, s.Close())
	}
	defer func() {
		if err := s.Close(); err != nil {
			d.o.Step("close the scheduler: " + err.Error())
		}
	}()
	traffic, err := d.traffic(ctx)
	if err != nil {
		return err
	}
	defer traffic.halt()
	// The scheduler outlives ctx: when the demo is interrupted, it is what takes the job down.
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(own) }() // ends when the job has stopped, or with own
	viewed, viewing := make(chan struct{}), make(chan struct{})
	go func() { // ends when viewed is closed
		defer close(viewing)
		if d.o.View != nil {
			d.o.View(s, viewed)
		}
	}()
	live := d.live(ctx, s, ran, traffic)
	stopped := d.stop(own, s, ran)
	close(viewed)
	<-viewing
	return errors.Join(live, stopped)
}

// playing is the live traffic under way.
type playing struct {
	halt context.CancelFunc
	done chan error

	mu    sync.Mutex
	until time.Time
}

// goOn makes it go on until a later time.
func (p *playing) goOn(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = until
}

func (p *playing) end() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

// traffic first writes what would have arrived since the history was written, so that the record of arrivals has no hole, and then plays live.
func (d *demo) traffic(ctx context.Context) (*playing, error) {
	now := time.Now()
	if _, err := d.produce(ctx, d.written, now, now); err != nil {
		return nil, err
	}
	p := &playing{done: make(chan error, 1), until: d.end}
	ctx, p.halt = context.WithCancel(ctx)
	go func() { // ends with the day, or with halt
		var err error
		for from, to := now, p.end(); err == nil && from.Before(to); from, to = to, p.end() {
			_, err = d.produce(ctx, from, to, time.Time{})
		}
		p.done <- err
	}()
	return p, nil
}

// live follows the traffic through the lead-in and the day.
func (d *demo) live(ctx context.Context, s *core.Scheduler, ran <-chan error, p *playing) error {
	d.o.Step(fmt.Sprintf("lead-in until %s: the model learns its first steps; nothing of it is counted", d.begin.Format("15:04:05")))
	if err := waitUntil(ctx, d.begin, ran); err != nil {
		return err
	}
	v, err := d.workersTrain(ctx, s.View, ran, p)
	if err != nil {
		return err
	}
	if err := d.freeze(ctx, s, v); err != nil {
		return err
	}
	d.o.Step(fmt.Sprintf("the day begins: what happens until %s counts", d.end.Format("15:04:05")))
	select {
	case err := <-p.done:
		if err != nil {
			return err
		}
	case err := <-ran:
		return fmt.Errorf("the scheduler ended in the middle of the day: %w", err)
	}
	if v := s.View(); v != nil {
		d.atEnd = v.Chief
	}
	d.o.Step("the day is over; the last records are trained")
	return d.settle(ctx, s)
}

func waitUntil(ctx context.Context, at time.Time, ran <-chan error) error {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case err := <-ran:
		return fmt.Errorf("the scheduler ended: %w", err)
	}
}

// causes are what a view knows of why nothing is trained, as the end of a sentence.
func causes(v *core.View) string {
	if v == nil {
		return ": the scheduler has not looked at the job yet"
	}
	why := slices.Clone(v.Problems)
	for _, s := range []string{v.Cause, v.Sample.Unknown, v.Waits} {
		if s != "" {
			why = append(why, s)
		}
	}
	if len(why) == 0 {
		return ""
	}
	return ": " + strings.Join(why, "; ")
}

// trains says that a view knows of a worker that trains.
func trains(v *core.View) bool {
	return v != nil && v.Chief != nil && v.Sample.Running != nil && *v.Sample.Running > 0
}

// workersTrain makes the lead-in longer, and the day as much later, until a worker trains: that takes long on a machine that does much else.
func (d *demo) workersTrain(ctx context.Context, view func() *core.View, ran <-chan error, p *playing) (*core.View, error) {
	v := view()
	if trains(v) {
		return v, nil
	}
	d.o.Step(fmt.Sprintf("no worker trains yet%s. The lead-in goes on until one does, for up to %v: this machine is slow, or does much else", causes(v), leadMost))
	latest := d.begin.Add(leadMost)
	for ; !trains(v); v = view() {
		if time.Now().After(latest) {
			return nil, fmt.Errorf("no worker trains %v after the history was written%s (kale demo -keep leaves the logs to be read)", latest.Sub(d.written).Round(time.Second), causes(v))
		}
		if err := waitUntil(ctx, time.Now().Add(leadPoll), ran); err != nil {
			return nil, err
		}
	}
	d.begin = time.Now()
	d.end = d.begin.Add(day)
	p.goOn(d.end)
	return v, nil
}

// leadPoll is how often it is looked whether a worker trains.
const leadPoll = 200 * time.Millisecond

// freeze keeps the model as it is when the day begins: what it would be worth if it learnt no more.
func (d *demo) freeze(ctx context.Context, s *core.Scheduler, v *core.View) error {
	if err := s.Snapshot(ctx); err != nil {
		return err
	}
	d.atBegin = v.Chief
	d.beginEnds = map[int32]int64{}
	for _, p := range v.Chief.GetPartitions() {
		d.beginEnds[p.GetPartition()] = p.GetApplied()
	}
	var err error
	d.stale, _, err = audit.Frozen(audit.Stores{Kafka: d.kafka, Spec: d.spec})
	return err
}

// settle waits until everything that was produced is trained.
func (d *demo) settle(ctx context.Context, s *core.Scheduler) error {
	deadline := time.Now().Add(settleIn)
	for time.Now().Before(deadline) {
		if v := s.View(); v != nil && v.Sample.Lag != nil && v.Sample.LagRecords != nil && *v.Sample.LagRecords == 0 && v.Now.After(d.end.Add(time.Second)) {
			d.atEnd = v.Chief
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil // the summary will show what is missing
}

// stop takes the job down, in order, whatever happened before; when that does not end it is released by force.
func (d *demo) stop(ctx context.Context, s *core.Scheduler, ran <-chan error) error {
	d.o.Step("stopping the job: drain, snapshot, release")
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.Do(ctx, core.Order{Kind: "stop"}); err != nil && !errors.Is(err, core.ErrNotRunning) {
		d.o.Step("the job cannot be stopped in order: " + err.Error())
	}
	select {
	case err := <-ran:
		if v := s.View(); err == nil && v != nil && v.Stopped {
			return nil
		}
		return errors.Join(err, s.Kill(context.WithoutCancel(ctx)))
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stopping the job took longer than 30 s; it was released by force"), s.Kill(context.WithoutCancel(ctx)))
	}
}
