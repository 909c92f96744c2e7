package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/estimator"
)

// Options are a comparison's.
type Options struct {
	World World
	// Policies are those that are compared; empty: all.
	Policies []string
	Seeds    int      // 0: 20
	Weights  *Weights // nil: DefaultWeights
	// Price is that of a GPU-hour, for Metrics.Money; 0: not known.
	Price float64
	// ForecastEvery is how many bins of forecast.interval lie between two forecasts; 0: 1, as a scheduler does.
	ForecastEvery int
	// Forecaster is "" for the job's, "perfect" for one that knows the trace.
	Forecaster string
	// OracleLimits asks for the oracle once more, within limits; that of downtime only where a rescale stops training.
	OracleLimits Limits
	// Throughput says, for people, where the job's throughput comes from; "": nothing is said of it.
	Throughput string
	// Progress, where set, is told how far the work is.
	Progress func(what string, done, total int)
}

// DefaultSeeds is how many seeds are run unless somebody says otherwise, MostSeeds how many at most.
const (
	DefaultSeeds = 20
	MostSeeds    = 10_000
)

// PerfectForecast is the forecaster that knows the trace.
const PerfectForecast = "perfect"

// Comparison is a job and a course made ready: forecasts are made once, and used by all policies.
type Comparison struct {
	o        Options
	j        *job.Job
	course   *Course
	model    estimator.Model
	capacity []float64
	needs    plan.Needs  // of all policies
	outlooks [][]*packed // by part, then by bin
	arrived  []*arrivals // by part
	fig      figuring
}

// New makes a comparison ready; this is where forecasts are made, which takes the most time.
func New(ctx context.Context, j *job.Job, course *Course, o Options) (*Comparison, error) {
	if o.Seeds == 0 {
		o.Seeds = DefaultSeeds
	}
	if o.Weights == nil {
		o.Weights = new(DefaultWeights())
	}
	if o.ForecastEvery == 0 {
		o.ForecastEvery = 1
	}
	if len(o.Policies) == 0 {
		o.Policies = Policies()
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	if err := o.World.validate(); err != nil {
		return nil, err
	}
	if o.Seeds < 1 || o.Seeds > MostSeeds || o.ForecastEvery < 1 || o.Price < 0 || o.Weights.Lag < 0 || o.Weights.Violation < 0 {
		return nil, fmt.Errorf("replay: seeds must be 1 to %d, price and weights 0 or more", MostSeeds)
	}
	switch l := o.OracleLimits; {
	case !l.valid():
		return nil, errors.New("replay: oracle-lag and oracle-downtime are minutes of 0 or more")
	case l.DowntimeMin != nil && o.World.Live:
		return nil, errors.New("replay: the oracle's downtime is limited where a rescale stops training; live rescales have none")
	}
	model := core.Prior(j)
	if err := model.Validate(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	c := &Comparison{
		o: o, j: j, course: course, model: model, capacity: capacities(model, j.Workers.Max, j.Servers.Count),
		fig: figuring{weights: *o.Weights, min: j.Workers.Min, max: j.Workers.Max, gpus: float64(max(j.Workers.GPUs, 1)), price: o.Price},
	}
	for _, name := range c.o.Policies {
		n := plan.NeedsOf(name)
		c.needs = plan.Needs{Forecast: c.needs.Forecast || n.Forecast, Spread: c.needs.Spread || n.Spread, Beyond: c.needs.Beyond || n.Beyond}
	}
	for k := range course.Parts {
		p := &course.Parts[k]
		c.arrived = append(c.arrived, newArrivals(p.Step.Seconds(), p.Rates))
		outlook, err := c.foresee(ctx, p, k)
		if err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		c.outlooks = append(c.outlooks, outlook)
	}
	return c, nil
}

// Course is what is replayed.
func (c *Comparison) Course() *Course { return c.course }

// outcome is one setting's figures, by seed.
type outcome struct {
	setting Setting
	by      []Metrics
	trail   *Trail
}

// runAll runs every setting with every seed, on all processors, and gives the figures in order: which processor did what changes none of them.
func (c *Comparison) runAll(ctx context.Context, what string, settings []Setting, seeds int, trails bool) ([]outcome, error) {
	out := make([]outcome, len(settings))
	for i, s := range settings {
		if _, _, err := s.apply(c.j, c.o.World); err != nil {
			return nil, err
		}
		out[i] = outcome{setting: s, by: make([]Metrics, seeds)}
	}
	total := len(settings) * seeds
	err := c.parallel(ctx, what, total, func(k int) error {
		i, seed := k/seeds, k%seeds
		var trail *Trail
		if trails && seed == 0 {
			trail = &Trail{}
			out[i].trail = trail
		}
		t, err := c.play(ctx, settings[i], uint64(seed), trail)
		if err != nil {
			return err
		}
		out[i].by[seed] = t.metrics(&c.fig)
		return nil
	})
	return out, err
}

// parallel does n pieces of work on all processors and returns the error of the first piece that failed, or that of a context that has ended; no
// piece is begun once one has failed.
func (c *Comparison) parallel(ctx context.Context, what string, n int, work func(k int) error) error {
	errs := make([]error, n)
	next := make(chan int, n)
	for k := range n {
		next <- k
	}
	close(next)
	var wait sync.WaitGroup
	var lock sync.Mutex
	done, failed := 0, false
	for range min(runtime.GOMAXPROCS(0), n) { // each ends when next is empty, and is waited for below
		wait.Go(func() {
			for k := range next {
				lock.Lock()
				over := failed
				lock.Unlock()
				if over || ctx.Err() != nil {
					return
				}
				errs[k] = work(k)
				lock.Lock()
				done, failed = done+1, failed || errs[k] != nil
				c.o.Progress(what, done, n)
				lock.Unlock()
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// play runs all parts of the course under one setting and one seed.
func (c *Comparison) play(ctx context.Context, s Setting, seed uint64, trail *Trail) (*tally, error) {
	sum := &tally{}
	for k := range c.course.Parts {
		j, p, err := s.apply(c.j, c.o.World)
		if err != nil {
			return nil, err
		}
		c.playPart(ctx, k, j, &policyDecider{policy: plan.NewSuccession(p), outlook: c.outlooks[k], needs: plan.NeedsOf(s.Policy), model: c.model}, seed, trail, sum)
	}
	return sum, nil
}

// playPart runs one part and adds to sum. The trail goes on from part to part.
func (c *Comparison) playPart(ctx context.Context, k int, j *job.Job, by decider, seed uint64, trail *Trail, sum *tally) {
	r := &run{
		j: j, w: c.o.World, part: &c.course.Parts[k], chance: chance{seed: seed}, by: by, interval: j.Autoscale.Tick.Seconds(),
		capacity: c.capacity, trail: trail, tally: *sum,
	}
	r.tally.lags = histogram{}
	r.play(ctx)
	lags := sum.lags
	*sum = r.tally
	lags.merge(&sum.lags)
	sum.lags = lags
}
