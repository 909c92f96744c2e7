package replay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/estimator"
)

// Report is the outcome of a comparison. Its JSON form is what `kale replay -json` prints.
type Report struct {
	Trace string  `json:"trace"`
	Days  float64 `json:"days"`
	Seeds int     `json:"seeds"`
	// Bin is the length of the trace's own bins in seconds; Coarse says that they were so long that noise was put into them.
	Bin    float64 `json:"bin_s"`
	Coarse bool    `json:"coarse,omitempty"`
	// Scale is what the trace's rates were multiplied by; Peak is the highest rate after that, samples/s.
	Scale   float64   `json:"scale"`
	Peak    float64   `json:"peak_per_second"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Rescale string    `json:"rescale"` // "live", or the outage
	Min     int       `json:"workers_min"`
	Max     int       `json:"workers_max"`
	MaxLag  float64   `json:"max_lag_s"`
	Weights Weights   `json:"weights"`
	// ThroughputFrom says where the job's throughput comes from: theta of the job file, or a stored profile and what that is worth.
	ThroughputFrom string `json:"throughput_from,omitempty"`
	// ShareAtMin is the share of time in which workers.min carry the load, ShareBeyondMax that in which no number of workers up to workers.max does.
	ShareAtMin     float64 `json:"share_at_min"`
	ShareBeyondMax float64 `json:"share_beyond_max,omitempty"`
	// FluidGPUHours are those of the smallest F(w) ≥ L at every moment, and of the largest F(w) where there is none, with rescales that are free and instant. They
	// bound who lets no record wait: a schedule that does needs no whole worker for the last part of the load, so that its GPU-hours may be fewer (its cost has the lag).
	FluidGPUHours float64  `json:"fluid_gpu_hours"`
	Notes         []string `json:"notes,omitempty"`
	// Forecasts say who made them; none where no policy that is compared goes by any.
	Forecasts []Maker `json:"forecasts,omitempty"`
	Oracle    *Row    `json:"oracle,omitempty"`
	// Blind is the oracle that knows the mean traffic and not its noise; see [Comparison.blind].
	Blind *Row `json:"oracle_blind,omitempty"`
	// ChosenDays is the number of days before those of the report on which the best settings were chosen; 0: on these themselves, or there are none.
	ChosenDays float64 `json:"chosen_days,omitempty"`
	// Limited is the oracle solved once more within [Limits]; nil where nobody asked for it, or where (a note says so) there is none.
	Limited  *Row  `json:"oracle_limited"`
	Policies []Row `json:"policies"`

	course  *Course
	lacking *Row // stands for Limited, where with so many seeds, without, there is none
	without int
	losses  bool   // workers are lost
	policy  string // the job's
	price   float64
	gpus    float64
	model   func(w int) float64
	best    int  // the workers that train most
	rising  bool // one more than workers.max train more
}

// Row is a policy's figures: means over the seeds, and the half widths of their 95 % intervals.
type Row struct {
	Name    string `json:"name"`
	Setting string `json:"setting"`
	// AsInJob is that of the [Setting]: the job's own policy, with the params of the job file.
	AsInJob bool               `json:"as_in_job"`
	Mark    string             `json:"mark,omitempty"`
	Params  map[string]float64 `json:"params"`
	// Fixed are numbers that hold besides Params: "guard" 0 is a rival that runs as published, without Kale's rules for a safe scale-in and the job's cooldowns.
	Fixed map[string]float64 `json:"fixed,omitempty"`
	Metrics
	CI95 Metrics `json:"ci95"`

	by      []Metrics
	trail   *Trail
	lacking bool // there is no such schedule
}

// row sums up an outcome.
func (o outcome) row(oracle []Metrics) Row {
	for i := range o.by {
		if len(oracle) == len(o.by) {
			o.by[i].CostRatioOracle = o.by[i].Cost / oracle[i].Cost
			if floor := oracle[i].CostAboveFloor; floor > 1e-6 { // with workers.min all day nothing lies above it
				o.by[i].CostAboveFloorRatioOracle = o.by[i].CostAboveFloor / floor
			}
		}
	}
	r := Row{Name: o.setting.Policy, Setting: o.setting.Label, AsInJob: o.setting.AsInJob, Mark: markOf(o.setting.Policy), Params: o.setting.Params, Fixed: o.setting.fixed(), by: o.by, trail: o.trail}
	if r.Params == nil {
		r.Params = map[string]float64{}
	}
	r.Metrics, r.CI95 = summary(o.by)
	return r
}

// Run replays the policies and the oracle, each policy in its paper setting where it has one and, with sweep, in the cheapest of its grid; the job's own
// policy also as the job file has it, params and all. What the job sets changes no other setting of its policy, and no grid.
//
// Best settings are chosen on the first half of the days, and all figures are those of the second; of less than two days there is one half.
func (c *Comparison) Run(ctx context.Context, sweep bool) (*Report, error) {
	if !sweep {
		return c.run(ctx, nil)
	}
	first, second, apart := c.halves()
	best, err := first.sweep(ctx, c.o.Policies)
	if err != nil {
		return nil, err
	}
	r, err := second.run(ctx, best)
	if err != nil {
		return nil, err
	}
	if apart {
		r.ChosenDays = first.course.Days()
		r.Notes = append(r.Notes, fmt.Sprintf("Best settings were chosen on the %s before these, and measured on these.", days(r.ChosenDays)))
	} else {
		r.Notes = append(r.Notes, "Best settings were chosen on the day that they are measured on: for less than two days there is no other.")
	}
	if why := r.dearer(); why != "" {
		r.Notes = append(r.Notes, why)
	}
	return r, nil
}

// run replays the policies in their settings, and in the best ones where there are any, and the oracles.
func (c *Comparison) run(ctx context.Context, best []Setting) (*Report, error) {
	var compared []Setting
	for _, name := range c.o.Policies {
		compared = append(compared, settings(name, c.j)...)
	}
	outcomes, err := c.runAll(ctx, "replaying", append(compared, best...), c.o.Seeds, true)
	if err != nil {
		return nil, err
	}
	oracles, err := c.runOracle(ctx)
	if err != nil {
		return nil, err
	}
	limited, none, err := c.runLimited(ctx)
	if err != nil {
		return nil, err
	}
	blinds, err := c.runBlind(ctx)
	if err != nil {
		return nil, err
	}
	r := c.report()
	oracle, blind := oracles.row(oracles.by), blinds.row(oracles.by)
	r.Oracle, r.Blind = &oracle, &blind
	switch {
	case limited == nil:
	case none > 0:
		r.lacking = &Row{Name: limited.setting.Policy, Setting: LabelBest, Params: limited.setting.Params, lacking: true}
		r.without = none
	default:
		row := limited.row(oracles.by)
		r.Limited = &row
	}
	for _, o := range outcomes {
		r.Policies = append(r.Policies, o.row(oracles.by))
	}
	r.note()
	return r, nil
}

// runLimited is runOracle within the limits that were asked for, nil without any; none is with how many seeds there is no schedule within them.
func (c *Comparison) runLimited(ctx context.Context) (out *outcome, none int, err error) {
	l := c.o.OracleLimits
	if l == (Limits{}) {
		return nil, 0, nil
	}
	out = &outcome{setting: Setting{Policy: "oracle within limits", Label: LabelBest, Params: l.params()}, by: make([]Metrics, c.o.Seeds), trail: &Trail{}}
	found := make([]bool, c.o.Seeds)
	err = c.parallel(ctx, "solving the oracle within limits", c.o.Seeds, func(seed int) error {
		var trail *Trail
		if seed == 0 {
			trail = out.trail
		}
		sum, ok := c.playLimited(ctx, uint64(seed), l, trail)
		out.by[seed], found[seed] = sum.metrics(&c.fig), ok
		return nil
	})
	for _, ok := range found {
		if !ok {
			none++
		}
	}
	return out, none, err
}

// runOracle solves and plays the cheapest schedule for every seed.
func (c *Comparison) runOracle(ctx context.Context) (outcome, error) {
	out := outcome{setting: Setting{Policy: "oracle", Label: LabelBest}, by: make([]Metrics, c.o.Seeds), trail: &Trail{}}
	toll := -1.0 // what the first seed led to spares the others the search
	if c.o.World.Live {
		sum, _, first := c.playLiveOracle(ctx, 0, liveGrid(c.j.SLO.MaxLag), toll, out.trail)
		out.by[0], toll = sum.metrics(&c.fig), first
	}
	return out, c.parallel(ctx, "solving the oracle", c.o.Seeds, func(seed int) error {
		switch {
		case c.o.World.Live && seed == 0:
		case c.o.World.Live:
			sum, _, _ := c.playLiveOracle(ctx, uint64(seed), liveGrid(c.j.SLO.MaxLag), toll, nil)
			out.by[seed] = sum.metrics(&c.fig)
		default:
			var trail *Trail
			if seed == 0 {
				trail = out.trail
			}
			sum, _ := c.playOracle(ctx, uint64(seed), restartGrid(c.j.SLO.MaxLag, c.o.World), trail)
			out.by[seed] = sum.metrics(&c.fig)
		}
		return nil
	})
}

// runBlind plays the blind oracle's schedule for every seed.
func (c *Comparison) runBlind(ctx context.Context) (outcome, error) {
	out := outcome{setting: Setting{Policy: "blind oracle", Label: LabelBest}}
	c.o.Progress("solving the blind oracle", 0, 1)
	for _, t := range c.playBlind(ctx, c.o.Seeds) {
		out.by = append(out.by, t.metrics(&c.fig))
	}
	c.o.Progress("solving the blind oracle", 1, 1)
	return out, ctx.Err()
}

// report is what is known without any policy.
func (c *Comparison) report() *Report {
	parts := c.course.Parts
	last := parts[len(parts)-1]
	r := &Report{
		Trace: c.course.Trace, Days: c.course.Days(), Seeds: c.o.Seeds, Bin: c.course.Bin.Seconds(), Coarse: c.course.Coarse, Scale: c.course.Scale,
		Peak: c.course.Peak, From: parts[0].Start, To: last.Start.Add(last.Duration()), Rescale: "live", Min: c.j.Workers.Min, Max: c.j.Workers.Max,
		MaxLag: c.j.SLO.MaxLag.Seconds(), Weights: c.fig.weights, losses: c.o.World.LossesPerDay > 0, course: c.course, policy: c.j.Autoscale.Policy, price: c.o.Price, ThroughputFrom: c.o.Throughput, gpus: c.fig.gpus,
		model: func(w int) float64 { return c.capacity[w] },
	}
	if !c.o.World.Live {
		r.Rescale = c.o.World.Outage.String()
	}
	r.FluidGPUHours, r.ShareAtMin, r.ShareBeyondMax = c.fluid()
	r.best = sufficient(c.capacity, math.Inf(1), r.Min, r.Max)
	r.rising = r.best == r.Max && RateOf(c.j, float64(r.Max+1)) > c.capacity[r.Max]*(1+estimator.SameRate)
	r.Forecasts = c.makers()
	return r
}

// trainedBy says where a job's throughput comes from.
const trainedBy = "What workers train is by %s."

// note adds what a reader has to know about this comparison in particular.
func (r *Report) note() {
	add := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	r.Notes = append(r.Notes, r.course.Notes...)
	if r.ThroughputFrom != "" {
		add(trainedBy, r.ThroughputFrom)
	}
	if r.course.NoPast {
		add("The trace holds too little before what is replayed for a forecast: policies that forecast, cost and kale among them, begin without one, and go by what came until then.")
	}
	if r.Coarse {
		add("The trace's bins are longer than %s: what happens within them is noise, so the figures are not to be held against those of finer traces.", job.FormatDuration(CoarseBin))
	}
	if n := len(r.course.Parts); n > 1 {
		which := ""
		if r.course.Between != "" {
			which = ": " + r.course.Between
		}
		add("Gaps divide what is replayed into %d stretches; each begins without a backlog%s.", n, which)
	}
	if n, of := r.course.Filled(); n > 0 {
		add("%s of the %s bins replayed (%.2g %%) are not in the trace: they lie on straight lines between their neighbours, and forecasts take them as missing.",
			plan.Thousands(int64(n)), plan.Thousands(int64(of)), 100*float64(n)/float64(of))
	}
	if why := r.overloaded(); why != "" {
		add("%s", why)
	}
	if r.course.Fewer != "" {
		add("%s", r.course.Fewer)
	}
	r.Notes = append(r.Notes, makersWords(r.Forecasts)...)
	if r.short() {
		add("Only %s of arrivals were replayed: figures a day are as if it went on like that for one, and say nothing of other hours.", r.length())
	}
	if why := r.boundless(); why != "" {
		add("%s", why)
	}
	if p := r.lacking; p != nil {
		seeds := ""
		if r.Seeds > 1 {
			seeds = fmt.Sprintf(", with %d of %d seeds", r.without, r.Seeds)
		}
		add("No schedule was found within %s (minutes a day)%s: the workers that train most, held from beginning to end, have more.", formatParams(p.Params), seeds)
	}
}

// fluid is the GPU-hours a day of the smallest sufficient number of workers at every moment, and the share of time in which that is workers.min, and in which there
// is none.
func (c *Comparison) fluid() (gpuHours, atMin, beyond float64) {
	total, seconds := 0.0, 0.0
	for _, p := range c.course.Parts {
		for _, load := range p.Rates {
			w := sufficient(c.capacity, load, c.j.Workers.Min, c.j.Workers.Max)
			total += float64(w) * p.Step.Seconds()
			seconds += p.Step.Seconds()
			switch {
			case c.capacity[w]*(1+estimator.SameRate) < load: // a peak that was scaled to them is off by rounding
				beyond += p.Step.Seconds()
			case w == c.j.Workers.Min:
				atMin += p.Step.Seconds()
			}
		}
	}
	return total * c.fig.gpus / 3600 / (seconds / day.Seconds()), atMin / seconds, beyond / seconds
}

// sufficient is the least number of workers from lo to hi with F(w) ≥ load, or else the least of those that train most.
func sufficient(capacity []float64, load float64, lo, hi int) int {
	best := lo
	for w := lo; w <= hi; w++ {
		if capacity[w] >= load {
			return w
		}
		if capacity[w] > capacity[best]*(1+estimator.SameRate) {
			best = w
		}
	}
	return best
}

// Policies lists those that can be replayed, in the order of the tables.
func Policies() []string {
	names := plan.Names()
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names
}
