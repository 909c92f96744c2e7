package replay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/pool"
	"github.com/kale-sched/kale/forecast"
)

// FleetOptions say what a fleet is. All its jobs are live ones.
type FleetOptions struct {
	// Jobs is how many, each with the traffic of the same days, shifted and scaled by Seed.
	Jobs int
	// Days is how many days, the last without gaps; below 1 counts as 1.
	Days int
	// GPUs are those of all jobs together.
	GPUs int
	// Priority is how many of the jobs, the first, have priority 10 instead of 0.
	Priority int
	// Partitioned gives each job GPUs/Jobs of its own, instead of a share of the pool.
	Partitioned bool
	// Policy decides for every job; "" is the job's.
	Policy string
	// ForecastNoise is World.ForecastNoise.
	ForecastNoise float64
	Seed          uint64
	// Weights are those of Cost; nil: DefaultWeights.
	Weights *Weights
	// Throughput is Options.Throughput.
	Throughput string
	// Price of a GPU-hour; 0: what GPUs cost in money is not said.
	Price float64
	// Progress, where set, is told how many of the days' minutes are done.
	Progress func(what string, done, total int)

	trail *fleetTrail // where set, it is filled
}

// FleetResult is what became of a fleet, per day and over all its jobs. Of less than a day, rescales and what was preempted are of that.
type FleetResult struct {
	// OverPct is the share of the jobs' minutes with lag over the objective, of all jobs and of those with priority; of these nil where there are none.
	OverPct         float64  `json:"over_pct"`
	PriorityOverPct *float64 `json:"priority_over_pct"`
	// AccumulatedLagMin is the jobs' lag at the end of each minute, in minutes, summed up over the day and all jobs.
	AccumulatedLagMin float64 `json:"accumulated_lag_min"`
	GPUHours          float64 `json:"gpu_hours"`
	Cost              float64 `json:"cost"`
	// LeftCost is what of Cost is for the records that wait at the end: see [Metrics.LeftCost].
	LeftCost float64 `json:"left_cost,omitempty"`
	// Money is what the GPU-hours cost at the price of one.
	Money    float64 `json:"money,omitempty"`
	Rescales float64 `json:"rescales"`
	// Preempted is how many workers drained for another job.
	Preempted float64 `json:"preempted"`
	// MostHeld is the largest number of GPUs that were held at a time, and ShortPct the share of rounds in which the jobs together asked for more than the pool
	// has; 0 in parts, where nobody asks for what is another's.
	MostHeld int     `json:"most_held"`
	ShortPct float64 `json:"short_pct"`
}

// member is a job of a fleet.
type member struct {
	*run
	by     *policyDecider
	minute float64
	now    pool.Job // as the pool sees it
	wait   pool.Wait
	asked  pool.Asked
	obs    plan.Observation
	d      plan.Decision
}

// MostJobs is how many jobs a fleet may have: each takes 0.4 MB and a quarter of a second (a thousand were measured on two cores).
const MostJobs = 10_000

// fleetTick is the time between the rounds of a fleet, s: all its jobs decide in the same.
const fleetTick = 60

// fleetPatience is the pool's, as where a pool file does not say it.
const fleetPatience = time.Hour

// Fleet replays jobs that share a pool, or have each its own part of it, through one day, with the code that decides live: plan, core/pool and, where that
// gives less, plan again. Each job knows its own future but for ForecastNoise.
func Fleet(ctx context.Context, base *job.Job, tr Trace, o FleetOptions) (FleetResult, error) {
	if err := o.check(base); err != nil {
		return FleetResult{}, err
	}
	if o.Weights == nil {
		o.Weights = new(DefaultWeights())
	}
	o.Policy = cmp.Or(o.Policy, base.Autoscale.Policy)
	ms, err := members(base, tr, o)
	if err != nil {
		return FleetResult{}, err
	}
	f := fleet{o: o, members: ms}
	end := ms[0].end
	for t := 0.0; t < end; t += fleetTick {
		if err := ctx.Err(); err != nil {
			return FleetResult{}, err
		}
		if o.Progress != nil {
			o.Progress(o.name(), int(t/60), int(end/60))
		}
		f.round(t)
	}
	f.each(func(m *member) { m.to(end) })
	f.picture(end)
	return f.result(end), nil
}

// check refuses a fleet that cannot be.
func (o *FleetOptions) check(base *job.Job) error {
	need := base.Workers.Min * base.PoolGPUs()
	switch {
	case o.Jobs < 1 || o.Jobs > MostJobs:
		return fmt.Errorf("replay: a fleet of %s jobs: want 1 to %s, which take some 4 GB of memory and about an hour", plan.Thousands(int64(o.Jobs)), plan.Thousands(MostJobs))
	case o.Jobs*o.days() > MostJobs:
		return fmt.Errorf("replay: %s jobs for %s: want %s at most, or fewer jobs: %s jobs for a day take some 4 GB of memory and about an hour",
			plan.Thousands(int64(o.Jobs)), job.Count(o.days(), "day"), job.Count(MostJobs/o.Jobs, "day"), plan.Thousands(MostJobs))
	case o.GPUs < o.Jobs*need:
		return fmt.Errorf("replay: %s for %s: each is guaranteed workers.min, which is %s of %s, so that the least is %s", job.Count(o.GPUs, "GPU"), job.Count(o.Jobs, "job"),
			job.Count(base.Workers.Min, "worker"), job.Count(base.PoolGPUs(), "GPU"), job.Count(o.Jobs*need, "GPU"))
	case !(o.ForecastNoise >= 0 && o.ForecastNoise <= MostNoise):
		return fmt.Errorf("replay: forecasts with an error of %g: want a standard deviation between 0 and %v, as a share", o.ForecastNoise, MostNoise)
	case o.Priority < 0 || o.Priority > o.Jobs:
		return fmt.Errorf("replay: %d jobs of a fleet of %d have priority: want 0 to %d", o.Priority, o.Jobs, o.Jobs)
	}
	return nil
}

// name says which fleet it is.
func (o *FleetOptions) name() string {
	how := "one pool"
	if o.Partitioned {
		how = "parts"
	}
	return fmt.Sprintf("%s, %s", o.Policy, how)
}

// members are the jobs of a fleet. A job's day begins at one of three hours and up to an hour later, as in three parts of the world, and its peak needs
// between 2 and 16 workers.
func members(base *job.Job, tr Trace, o FleetOptions) ([]*member, error) {
	w := LiveRescale()
	w.PerDay, w.ForecastNoise = 0, o.ForecastNoise
	j := *base
	j.Autoscale.Mode, j.Autoscale.Tick = w.mode(), fleetTick*time.Second
	if o.Policy != j.Autoscale.Policy {
		j.Autoscale.Policy, j.Autoscale.Params = o.Policy, nil
	}
	limit := j.Workers.Max
	if o.Partitioned {
		limit = min(limit, o.GPUs/o.Jobs/j.PoolGPUs())
	}
	day, err := fleetDays(tr, o.days())
	if err != nil {
		return nil, err
	}
	model := core.Prior(&j)
	var out []*member
	for i := range o.Jobs {
		c := o.chance(i)
		shift := int(c.bits(drawFleet, 0, 0)%3)*480 + int(c.uniform(drawFleet, 0, 1)*60)
		peak := model.Throughput(peakWorkers(c), j.Servers.Count)
		own := j
		own.Name = fmt.Sprintf("job-%05d", i)
		own.Workers.Max = limit
		p, err := plan.New(own.Autoscale.Policy, plan.Params(own.Autoscale.Params))
		if err != nil {
			return nil, err
		}
		part, needs := shifted(day, shift, peak), plan.NeedsOf(own.Autoscale.Policy)
		m := &member{
			run: &run{
				j: &own, w: w, part: part, chance: c, interval: fleetTick, capacity: capacities(model, max(limit, own.Workers.Min), own.Servers.Count),
			},
			by:  &policyDecider{policy: plan.NewSuccession(p), needs: needs, model: model, foresee: foreseeDay(part, &own, needs)},
			now: pool.Job{Name: own.Name, Guarantee: own.Workers.Min, Limit: own.Workers.Max, GPUs: own.PoolGPUs()}, minute: 60,
		}
		if i < o.Priority {
			m.now.Priority = 10
		}
		m.start()
		m.running = own.Workers.Min // nobody has more before the first round
		m.target = m.running
		out = append(out, m)
	}
	return out, nil
}

// days is how many are replayed.
func (o *FleetOptions) days() int { return max(o.Days, 1) }

// fleetDays are the last days of a trace without a gap, or what there is of them.
func fleetDays(tr Trace, days int) (Part, error) {
	if tr.Step%time.Minute != 0 { // it goes by minutes, and its forecasts, which know the future, have no bins
		return Part{}, fmt.Errorf("trace %s: a fleet is replayed minute by minute: its bins of %s have to be whole minutes", tr.Name, job.FormatDuration(tr.Step))
	}
	course, err := NewCourse(tr, CourseOptions{Days: days, Interval: time.Minute})
	if err != nil {
		return Part{}, err
	}
	switch {
	case len(course.Parts) != 1 && days > 1:
		return Part{}, fmt.Errorf("replay: a fleet needs its days without a gap between them, and the last %d of %s have one: ask for fewer, or cut the trace", days, tr.Name)
	case len(course.Parts) != 1:
		return Part{}, fmt.Errorf("replay: a fleet needs a day without a gap, and the last of %s has one", tr.Name)
	case course.Peak <= 0:
		return Part{}, fmt.Errorf("trace %s: nothing arrives in the replayed days, so that they cannot be scaled to the peaks of a fleet's jobs", tr.Name)
	}
	return course.Parts[0], nil
}

// FleetSpan is how much of so many days a fleet is replayed for.
func FleetSpan(tr Trace, days int) (time.Duration, error) {
	p, err := fleetDays(tr, days)
	if err != nil {
		return 0, err
	}
	return p.Duration(), nil
}

// chance draws for the i-th job.
func (o *FleetOptions) chance(i int) chance { return chance{seed: o.Seed*1_000_003 + uint64(i)} }

// LeastPeak and MostPeak are how many workers the peaks of a fleet's jobs need.
const LeastPeak, MostPeak = 2, 16

// peakWorkers is how many workers a job needs at its peak.
func peakWorkers(c chance) int {
	return LeastPeak + int(c.uniform(drawFleet, 0, 2)*(MostPeak-LeastPeak+1))
}

// peaks are how many jobs need more at their peaks than an equal part of the GPUs, how many need more than workers.max, and how many GPUs all peaks take together.
func (o *FleetOptions) peaks(base *job.Job) (cramped, capped, gpus int) {
	for i := range o.Jobs {
		workers := peakWorkers(o.chance(i))
		peak := workers * base.PoolGPUs()
		gpus += peak
		if peak > o.GPUs/o.Jobs {
			cramped++
		}
		if workers > base.Workers.Max {
			capped++
		}
	}
	return cramped, capped, gpus
}

// shifted is a day, or several, that begin so many minutes later in themselves, and whose peak is so high. Their past is what was before, which was the same.
func shifted(p Part, minutes int, peak float64) *Part {
	n := len(p.Rates)
	high := 0.0
	for _, r := range p.Rates {
		high = max(high, r)
	}
	out := p
	out.Rates = make([]float64, n)
	for i := range out.Rates {
		out.Rates[i] = p.Rates[(i+minutes)%n] / high * peak
	}
	past := append(append([]float64{}, out.Rates...), out.Rates...)
	out.History = forecast.Series{Start: p.Start.Add(-time.Duration(n) * p.Step), Step: p.Step, Values: past}
	out.First = n
	return &out
}

// foreseeDay forecasts what comes: after the end all begins again.
func foreseeDay(p *Part, j *job.Job, needs plan.Needs) func(bin int) plan.Forecast {
	a := newArrivals(p.Step.Seconds(), p.Rates)
	end := p.Duration().Seconds()
	until := func(t float64) float64 { // how many records arrive until then
		days := math.Floor(t / end)
		return days*a.at(end) + a.at(t-days*end)
	}
	s := foresight(p, j, len(p.Rates), func(from, width time.Duration) float64 {
		t, d := from.Seconds(), width.Seconds()
		return max((until(t+d)-until(t))/d, 0)
	})
	return func(bin int) plan.Forecast { return s.see(bin).unpack(needs) }
}

// to brings a job to a moment.
func (m *member) to(t float64) {
	for m.q.t < t {
		next := min(t, m.minute, m.nextChange())
		m.advance(next)
		m.change()
		if next == m.minute {
			m.mark(m.minute - 60)
			m.minute += 60
		}
	}
}

// fleet is the jobs and what is counted of them.
type fleet struct {
	o         FleetOptions
	members   []*member
	rounds    int
	short     int
	preempted int
	most      int
}

// each does something to every member, on all processors: what members do before they meet in the pool is their own.
func (f *fleet) each(do func(*member)) {
	var wg sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for k := range n {
		wg.Go(func() {
			for i := k; i < len(f.members); i += n {
				do(f.members[i])
			}
		})
	}
	wg.Wait()
}

// round is one decision of every job at a moment, through the pool.
func (f *fleet) round(t float64) {
	f.each(func(m *member) {
		m.to(t)
		m.obs = m.by.observe(m.run)
		m.d = m.by.policy.Decide(m.obs)
	})
	asked, held := 0, 0
	for _, m := range f.members {
		m.window = window{served: m.q.served}
		m.now.Staying, m.now.Leaving, m.now.Worth = m.target, m.held()-m.target, nil
		m.now.Ask, m.now.Kept = m.d.Wants(), m.d.Kept()
		asked += m.now.Ask * m.now.GPUs
		held += m.held() * m.now.GPUs
	}
	f.rounds++
	f.most = max(f.most, held)
	f.picture(t)
	if f.o.Partitioned {
		for _, m := range f.members {
			m.follow(m.d.Target)
		}
		return
	}
	jobs := make([]pool.Job, len(f.members))
	for i, m := range f.members {
		if asked > f.o.GPUs { // else all get what they ask for, whatever it is worth
			m.now.Worth, m.now.Move = plan.Worth(m.obs, m.now.Ask), core.PoolMove(m.obs, m.now.GPUs, m.w.Drain.To)
		}
		m.wait.Tell(&m.now, m.obs.Now, fleetPatience, m.moveTime())
		core.Calmly(&m.now, m.obs, m.d, m.past(), m.moveTime())
		m.asked = m.asked.After(&m.now, m.obs.Now, m.moveTime())
		m.asked.Tell(&m.now)
		jobs[i] = m.now
	}
	if asked > f.o.GPUs {
		f.short++
	}
	d := pool.Divide(f.o.GPUs, jobs)
	for i, m := range f.members {
		sh := &core.PoolShare{Pool: "fleet", Size: d.Size, Held: d.Held, Free: d.Free, Share: d.Shares[i]}
		m.wait = m.wait.After(sh.Share, m.obs.Now, fleetPatience, m.moveTime())
		_, m.d = sh.Within(m.by.policy.Again, m.obs, m.d)
		if m.d.Target < m.target && sh.Short() > 0 {
			f.preempted += m.target - m.d.Target
		}
		m.follow(m.d.Target)
	}
}

// moveTime is how long it takes to move a worker to the job.
func (m *member) moveTime() time.Duration {
	return m.obs.JoinTime.Value + m.obs.RescaleCost.Value + m.w.Drain.To
}

// follow opens the rescale to what was decided.
func (m *member) follow(target int) {
	if target < 1 || target == m.target || target >= len(m.capacity) {
		return
	}
	m.tally.rescales++
	m.aim(target)
}

// hours and cost are the GPU-hours of a job so far, and what they, its lag and its minutes over the objective cost.
func (m *member) hours() float64 { return m.tally.held * float64(m.now.GPUs) / 3600 }

func (m *member) cost(w *Weights) float64 {
	return m.hours() + w.Lag*m.tally.lagSum + w.Violation*m.tally.over
}

func (f *fleet) result(end float64) FleetResult {
	out := FleetResult{Preempted: float64(f.preempted), MostHeld: f.most, ShortPct: 100 * float64(f.short) / float64(f.rounds)}
	minutes, over, first, firstOver := 0.0, 0.0, 0.0, 0.0
	for _, m := range f.members {
		t := &m.tally
		minutes, over = minutes+t.minutes, over+t.over
		if m.now.Priority > 0 {
			first, firstOver = first+t.minutes, firstOver+t.over
		}
		out.Rescales += float64(t.rescales)
		out.AccumulatedLagMin += t.lagSum
		out.GPUHours += m.hours()
		m.leave()
		waits := t.left.cost(*f.o.Weights, float64(m.now.GPUs))
		out.Cost, out.LeftCost = out.Cost+m.cost(f.o.Weights)+waits, out.LeftCost+waits
	}
	days := end / day.Seconds()
	out.AccumulatedLagMin, out.GPUHours, out.Cost = out.AccumulatedLagMin/days, out.GPUHours/days, out.Cost/days
	out.LeftCost /= days
	out.Money = f.o.Price * out.GPUHours
	out.Rescales, out.Preempted = out.Rescales/math.Max(days, 1), out.Preempted/math.Max(days, 1)
	out.OverPct = 100 * over / minutes
	if first > 0 {
		out.PriorityOverPct = new(100 * firstOver / first)
	}
	return out
}
