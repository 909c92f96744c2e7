package replay

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// FleetReport compares a fleet on one pool with the same fleet in parts, for each of some policies.
type FleetReport struct {
	Trace         string  `json:"trace"`
	Jobs          int     `json:"jobs"`
	GPUs          int     `json:"gpus"`
	Priority      int     `json:"priority_jobs"`
	Seeds         int     `json:"seeds"`
	ForecastNoise float64 `json:"forecast_noise"`
	MaxLag        float64 `json:"max_lag_s"`
	Weights       Weights `json:"weights"`
	// ThroughputFrom is Report.ThroughputFrom, of all jobs.
	ThroughputFrom string `json:"throughput_from,omitempty"`
	// Tick is the job's autoscale.tick in seconds, which is not followed: see fleetTick.
	Tick float64 `json:"job_tick_s"`
	// SpanHours is how much was replayed of the trace; figures are per day all the same.
	SpanHours float64 `json:"span_hours"`
	// WorkerGPUs are those of a worker, Max is workers.max; Cramped is how many jobs need more at their peaks than an equal part, Capped how many need more than
	// workers.max, PeakGPUs what parts as large as each job's peak would take together; means over the seeds.
	WorkerGPUs int        `json:"worker_gpus"`
	Max        int        `json:"workers_max"`
	Cramped    float64    `json:"jobs_larger_than_part"`
	Capped     float64    `json:"jobs_larger_than_max"`
	PeakGPUs   float64    `json:"peak_gpus"`
	Rows       []FleetRow `json:"rows"`
	// Planned is how many rows there were to be. Partial: it was interrupted before.
	Planned int  `json:"planned_rows"`
	Partial bool `json:"partial,omitempty"`

	price float64
}

// FleetRow is a policy on one pool, or in parts; means over the seeds.
type FleetRow struct {
	Policy      string `json:"policy"`
	Partitioned bool   `json:"partitioned"`
	FleetResult

	trail *fleetTrail // of the first seed
}

// title names the row in the tables.
func (r FleetRow) title() string {
	if r.Partitioned {
		return r.Policy + ", parts"
	}
	return r.Policy + ", one pool"
}

// CompareFleets replays the fleet of o under each policy, on one pool and in parts, seeds times from o.Seed on. Where ctx ends, there is a report beside the error,
// with the rows that were whole by then.
func CompareFleets(ctx context.Context, base *job.Job, tr Trace, o FleetOptions, policies []string, seeds int) (*FleetReport, error) {
	if seeds < 1 {
		return nil, fmt.Errorf("replay: %d seeds must be 1 or more", seeds)
	}
	r := &FleetReport{
		Trace: tr.Name, Jobs: o.Jobs, GPUs: o.GPUs, Priority: o.Priority, Seeds: seeds, ForecastNoise: o.ForecastNoise, MaxLag: base.SLO.MaxLag.Seconds(),
		Weights: DefaultWeights(), ThroughputFrom: o.Throughput, price: o.Price,
	}
	if o.Weights != nil {
		r.Weights = *o.Weights
	}
	span, err := FleetSpan(tr, o.days())
	if err != nil {
		return nil, err
	}
	r.SpanHours, r.WorkerGPUs, r.Max, r.Tick = span.Hours(), base.PoolGPUs(), base.Workers.Max, base.Autoscale.Tick.Seconds()
	for i := range seeds {
		own := o
		own.Seed += uint64(i)
		cramped, capped, gpus := own.peaks(base)
		r.Cramped += float64(cramped) / float64(seeds)
		r.Capped += float64(capped) / float64(seeds)
		r.PeakGPUs += float64(gpus) / float64(seeds)
	}
	fleets := 0
	r.Planned = 2 * len(policies)
	for _, p := range policies {
		for _, parts := range []bool{false, true} {
			own := o
			own.Policy, own.Partitioned = p, parts
			if o.Progress != nil {
				own.Progress = func(what string, done, total int) {
					o.Progress(fmt.Sprintf("fleet %d of %d (%s)", fleets, r.Planned*seeds, what), done, total)
				}
			}
			row := FleetRow{Policy: p, Partitioned: parts, trail: new(fleetTrail)}
			for i := range seeds {
				own.Seed, own.trail = o.Seed+uint64(i), nil
				if i == 0 {
					own.trail = row.trail
				}
				fleets++
				got, err := Fleet(ctx, base, tr, own)
				switch {
				case err != nil && ctx.Err() != nil:
					r.Partial = true
					return r, err
				case err != nil:
					return nil, err
				}
				row.add(got, 1/float64(seeds))
			}
			r.Rows = append(r.Rows, row)
		}
	}
	return r, nil
}

// add takes a result into the mean; of the most that was held it keeps the most.
func (r *FleetResult) add(o FleetResult, share float64) {
	r.OverPct += share * o.OverPct
	if p := o.PriorityOverPct; p != nil {
		if r.PriorityOverPct == nil {
			r.PriorityOverPct = new(float64)
		}
		*r.PriorityOverPct += share * *p
	}
	r.AccumulatedLagMin += share * o.AccumulatedLagMin
	r.GPUHours += share * o.GPUHours
	r.Cost += share * o.Cost
	r.LeftCost += share * o.LeftCost
	r.Money += share * o.Money
	r.Rescales += share * o.Rescales
	r.Preempted += share * o.Preempted
	r.ShortPct += share * o.ShortPct
	r.MostHeld = max(r.MostHeld, o.MostHeld)
}

// parts says what the comparison with equal parts is worth.
func (r *FleetReport) parts() string {
	peaks := fmt.Sprintf("Peaks need %d to %d workers of %s", LeastPeak, MostPeak, job.Count(r.WorkerGPUs, "GPU"))
	if r.Cramped == 0 && r.Capped == 0 {
		return peaks + ": no job needs more than its part."
	}
	var said []string
	if r.Cramped > 0 {
		said = append(said, fmt.Sprintf("%.0f of the jobs need more than their part, and fall behind there whatever the\npolicy. Parts as large as each job's peak would take %s GPUs together.",
			math.Ceil(r.Cramped), plan.Thousands(int64(math.Round(r.PeakGPUs)))))
	}
	if r.Capped > 0 {
		need := "jobs need more than workers.max at their peak"
		if math.Ceil(r.Capped) == 1 {
			need = "job needs more than workers.max at its peak"
		}
		said = append(said, fmt.Sprintf("%.0f %s (%d), on one pool and in parts.", math.Ceil(r.Capped), need, r.Max))
	}
	return peaks + ": " + strings.Join(said, "\n")
}

// headline says what was replayed, facts how.
func (r *FleetReport) headline() string {
	span := "one day"
	switch {
	case r.SpanHours > 24:
		span = job.Length(time.Duration(r.SpanHours * float64(time.Hour)).Round(time.Minute))
	case r.SpanHours < 24:
		span = job.FormatDuration(time.Duration(r.SpanHours * float64(time.Hour)).Round(time.Minute))
	}
	line := fmt.Sprintf("%s jobs on %s GPUs for %s of %s, rescaled live", plan.Thousands(int64(r.Jobs)), plan.Thousands(int64(r.GPUs)), span, r.Trace)
	if r.Priority > 0 {
		line += fmt.Sprintf(", %s with priority", plan.Thousands(int64(r.Priority)))
	}
	return line + "."
}

func (r *FleetReport) facts() []string {
	know := "Forecasts know the future"
	if r.ForecastNoise > 0 {
		know += fmt.Sprintf(", but for an error of %s in each half hour (a standard deviation)", percent(r.ForecastNoise))
	}
	facts := []string{fmt.Sprintf("%s. In parts, each job has %s of its own.", know, job.Count(r.GPUs/r.Jobs, "GPU"))}
	switch {
	case r.SpanHours > 24:
		facts = append(facts, "Acc. lag, GPU-h, cost, rescales and preempted are of a day.")
	case r.SpanHours < 24:
		facts = append(facts, "The trace is shorter than a day: acc. lag, GPU-h and cost are scaled up to one.")
	}
	if r.Tick > 0 && r.Tick != fleetTick {
		facts = append(facts, fmt.Sprintf("A tick of %s (autoscale.tick) is not followed: a fleet is decided once a minute.", job.FormatDuration(time.Duration(r.Tick*float64(time.Second)))))
	}
	if r.ThroughputFrom != "" {
		facts = append(facts, fmt.Sprintf(trainedBy, r.ThroughputFrom))
	}
	return append(facts, r.parts())
}

// sheet is the table.
func (r *FleetReport) sheet() sheet {
	s := sheet{Head: []string{"over %", "priority %", "acc. lag", "GPU-h", "cost", "rescales", "preempted", "most held", "short %"}}
	if r.price > 0 {
		s.Head = slices.Insert(s.Head, 4, "money")
	}
	for _, row := range r.Rows {
		priority, short := "-", "-"
		if p := row.PriorityOverPct; p != nil {
			priority = fmt.Sprintf("%.2f", *p)
		}
		if !row.Partitioned {
			short = fmt.Sprintf("%.1f", row.ShortPct)
		}
		cells := []string{fmt.Sprintf("%.2f", row.OverPct), priority, fmt.Sprintf("%.0f", row.AccumulatedLagMin), fmt.Sprintf("%.1f", row.GPUHours), fmt.Sprintf("%.1f", row.Cost),
			fmt.Sprintf("%.0f", row.Rescales), fmt.Sprintf("%.0f", row.Preempted), strconv.Itoa(row.MostHeld), short}
		if r.price > 0 {
			cells = slices.Insert(cells, 4, money(row.Money))
		}
		s.Rows = append(s.Rows, sheetRow{Name: row.title(), Ours: row.Policy == "cost" && !row.Partitioned, Cells: cells})
	}
	return s
}

// legend says what the columns are.
func (r *FleetReport) legend() string {
	paid := ""
	if r.price > 0 {
		paid = fmt.Sprintf("\nMoney: what the GPU-hours cost at %g each, a day.", r.price)
	}
	return fmt.Sprintf(`over %%: share of the jobs' minutes with lag over their objective; priority %%: of the jobs with priority, - where there
are none. acc. lag: minutes of all jobs.
Cost: GPU-hours + %g x accumulated lag + %g x minutes over the objective, with what it takes to train what waits at the end.
short %%: share of the rounds in which the jobs together asked for more than the pool has; preempted: workers that drained for
another job. Means over %s.`, r.Weights.Lag, r.Weights.Violation, job.Count(r.Seeds, "seed")) + paid
}

// cut says what is missing of a report that is partial, or "".
func (r *FleetReport) cut() string {
	if !r.Partial {
		return ""
	}
	return fmt.Sprintf("PARTIAL: it was interrupted when %d of %d rows were whole", len(r.Rows), r.Planned)
}

// WriteText writes the report for a terminal.
func (r *FleetReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n\n", r.headline(), strings.Join(r.facts(), "\n"))
	if err := r.sheet().write(&b, false); err != nil {
		return err
	}
	if cut := r.cut(); cut != "" {
		fmt.Fprintf(&b, "%s\n", cut)
	}
	fmt.Fprintf(&b, "\n%s\n", r.legend())
	_, err := io.WriteString(w, b.String())
	return err
}
