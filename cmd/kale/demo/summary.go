package demo

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/estimator"
)

// Summary is what a demo prints. All of it is computed after the run, from the broker's log, the tablets' snapshots and the scheduler's records; only
// AUC is what the workers counted themselves, as the chief last told it. What is said per day is about the two minutes of the day.
type Summary struct {
	Produced int64 `json:"produced"` // records from the job's start to the end of the log
	Trained  int64 `json:"trained"`
	Lost     int64 `json:"lost"`
	Repeated int64 `json:"repeated"`
	Dead     int64 `json:"dead"`

	// ViolationPct is the share of time with lag over max_lag; lag is the age of the oldest untrained record.
	ViolationPct float64 `json:"violation_pct"`
	SLOMaxLagS   float64 `json:"slo_max_lag_s"`
	LagP50S      float64 `json:"lag_p50_s"`
	LagP99S      float64 `json:"lag_p99_s"`
	LagMaxS      float64 `json:"lag_max_s"`

	ScaleOuts int `json:"scale_outs"`
	// ScaleOutsAhead counts those whose new workers trained before the 1-s mean arrival rate exceeded the old workers' configured capacity, within the
	// decision's horizon.
	ScaleOutsAhead int `json:"scale_outs_ahead"`
	// ScaleOutsLate counts those whose load came before the new workers trained. What is neither ahead nor late kept the job's headroom.
	ScaleOutsLate int `json:"scale_outs_late"`
	ScaleIns      int `json:"scale_ins"`
	// RescalesOutside were decided before the day, in the lead-in, or after it: the screen showed them, and nothing here counts them.
	RescalesOutside int `json:"rescales_outside_day"`
	// RescaleGapMaxMS is the longest time in which a partition with unread records had no applied record during a rescale, less the steady median.
	RescaleGapMaxMS float64 `json:"rescale_gap_max_ms"`
	// RescaleGapsUnknown counts the rescales whose gap could not be measured, for nobody could follow progress all the time: nothing is promised of these.
	RescaleGapsUnknown int `json:"rescale_gaps_unknown"`

	GPUHours          float64 `json:"gpu_hours"` // one worker is one (emulated) GPU
	GPUHoursStaticMax float64 `json:"gpu_hours_static_max"`
	// GPUBusyPct is the share of their time in which the workers' accelerators had a step to do. A step occupies one for its whole time, full or not, so a
	// worker with few records is busy too: GPUUsedPct is what was trained of what the same workers could have trained, by the job file's throughput prior.
	GPUBusyPct float64 `json:"gpu_busy_pct"`
	GPUUsedPct float64 `json:"gpu_used_pct"`
	Emulated   bool    `json:"emulated_accelerator"`

	// AUC is that of predictions made before training on each record of the day; AUCStale what a model that stopped learning when the day began has on the same records.
	AUC      float64 `json:"auc"`
	AUCStale float64 `json:"auc_stale"`

	// PromisesKept is the verdict, Missed the names (as in this object) of what broke it, RC the exit code of the demo.
	PromisesKept bool     `json:"promises_kept"`
	Missed       []string `json:"missed"`
	RC           int      `json:"rc"`

	Report   string `json:"report"`
	Mismatch string `json:"mismatch,omitempty"`
}

// Promise is one thing that a demo must show.
type Promise struct {
	Key   string // what it is about, as in the JSON summary
	Name  string // for people
	Value string // what was measured
	Note  string // what was asked for, or what it is measured against
	Kept  bool
}

// Promises holds the summary against what the demo is to show.
func (s Summary) Promises() []Promise {
	return []Promise{
		{
			"trained", "Every record trained once", fmt.Sprint(s.Trained), fmt.Sprintf("of %d produced; %d lost, %d repeated, by every tablet's count", s.Produced, s.Lost, s.Repeated),
			s.Lost == 0 && s.Repeated == 0 && s.Mismatch == "" && s.Trained > 0,
		},
		{
			"violation_pct", "Lag over its objective", fmt.Sprintf("%.2f %%", s.ViolationPct), fmt.Sprintf("of the day over %.3g s, which are 20 minutes of it; at most 0.5 %%", s.SLOMaxLagS),
			s.ViolationPct <= 0.5,
		},
		{"scale_outs_ahead", "Scale-outs ahead of the load", fmt.Sprintf("%d of %d", s.ScaleOutsAhead, s.ScaleOuts), s.outs(), s.ScaleOutsAhead >= 2},
		{"scale_ins", "Scale-ins", fmt.Sprint(s.ScaleIns), s.ins(), s.ScaleIns >= 2},
		{"rescale_gap_max_ms", "Longest gap of a rescale", fmt.Sprintf("%.0f ms", s.RescaleGapMaxMS), s.gaps(), s.RescaleGapMaxMS <= 500 && s.RescaleGapsUnknown == 0},
		{
			"gpu_hours", "Emulated GPU-hours", fmt.Sprintf("%.3f", s.GPUHours),
			fmt.Sprintf("%.0f %% of a fixed fleet's %.3f; at most 75 %%", 100*s.GPUHours/math.Max(s.GPUHoursStaticMax, 1e-9), s.GPUHoursStaticMax), s.GPUHours <= 0.75*s.GPUHoursStaticMax,
		},
		{"auc", "AUC of the day", fmt.Sprintf("%.4f", s.AUC), fmt.Sprintf("without the lead-in; a model that stopped learning when the day began: %.4f; at least 0.01 better", s.AUCStale), s.AUC >= s.AUCStale+0.01},
	}
}

// outs says what became of the scale-outs that were not ahead of a load.
func (s Summary) outs() string {
	text := "trained before the load came; at least 2"
	if s.ScaleOutsLate > 0 {
		text += fmt.Sprintf("; late: %d", s.ScaleOutsLate)
	}
	if spare := s.ScaleOuts - s.ScaleOutsAhead - s.ScaleOutsLate; spare > 0 {
		text += fmt.Sprintf("; for headroom only: %d", spare)
	}
	return text
}

// gaps says what a rescale's gap is, and whether one is not known.
func (s Summary) gaps() string {
	text := "a partition without an applied record; at most 500 ms"
	if s.RescaleGapsUnknown > 0 {
		text += "; not known of " + job.Count(s.RescaleGapsUnknown, "rescale")
	}
	return text
}

// ins says what was asked of the scale-ins, and what was seen besides the day and is not counted.
func (s Summary) ins() string {
	if s.RescalesOutside == 0 {
		return "at least 2"
	}
	return fmt.Sprintf("at least 2; not counted: %d rescales in the lead-in or after the day", s.RescalesOutside)
}

// judged is the summary with its verdict; failed is the exit code of a demo that broke a promise.
func (s Summary) judged(failed int) Summary {
	s.PromisesKept, s.Missed, s.RC = true, []string{}, 0
	for _, p := range s.Promises() {
		if !p.Kept {
			s.PromisesKept, s.Missed, s.RC = false, append(s.Missed, p.Key), failed
		}
	}
	return s
}

// Print writes the summary for people.
func (s Summary) Print(w io.Writer) {
	for _, p := range s.Promises() {
		mark := "ok  "
		if !p.Kept {
			mark = "MISS"
		}
		fmt.Fprintf(w, "  %s  %-28s  %-9s  %s\n", mark, p.Name, p.Value, p.Note)
	}
	fmt.Fprintf(w, "        Lag p50 %.2f s, p99 %.2f s, max %.2f s\n", s.LagP50S, s.LagP99S, s.LagMaxS)
	fmt.Fprintf(w, "        Emulated accelerators %s\n", s.Accelerators())
	if s.Mismatch != "" {
		fmt.Fprintf(w, "        %s\n", s.Mismatch)
	}
}

// Accelerators says how much of them was used, and what busy means.
func (s Summary) Accelerators() string {
	return fmt.Sprintf("busy %.0f %% of the time (a step takes as long with few records as with many); %.0f %% of what they could train was trained", s.GPUBusyPct, s.GPUUsedPct)
}

// summarise computes the summary from the stores.
func (d *demo) summarise(ctx context.Context, st *state.Store) (Summary, error) {
	stores := audit.Stores{Kafka: d.kafka, Spec: d.spec}
	counts, err := audit.Check(ctx, stores)
	if err != nil {
		return Summary{}, err
	}
	s := Summary{
		Produced: counts.Produced, Trained: counts.Trained, Lost: counts.Lost, Repeated: counts.Repeated, Dead: counts.Dead, Mismatch: counts.Mismatch,
		SLOMaxLagS: d.job.SLO.MaxLag.Seconds(), Emulated: d.job.Workers.EmulateStep > 0,
	}
	_, pinned, err := audit.Frozen(stores)
	if err != nil {
		return Summary{}, err
	}
	entries, err := audit.ReadEntries(ctx, d.kafka, d.job.Stream.Topic, pinned.Starts)
	if err != nil {
		return Summary{}, err
	}
	if err := d.fromSamples(st, entries, &s); err != nil {
		return Summary{}, err
	}
	if err := d.fromRescales(st, entries, &s); err != nil {
		return Summary{}, err
	}
	if err := d.accuracy(ctx, stores, &s); err != nil {
		return Summary{}, err
	}
	return s.judged(d.o.FailedRC), nil
}

// fromSamples adds lag, GPU-hours and the busy share.
func (d *demo) fromSamples(st *state.Store, entries *audit.Entries, s *Summary) error {
	var lags []float64
	var over, total, busy, running, trained, could float64
	prior := d.prior()
	last := d.begin
	held := 0 // by the last count
	var applied map[int32]int64
	err := state.Scan(st, state.Samples, d.begin, func(p core.Sample) bool {
		if p.At.After(d.end) {
			return false
		}
		dt := p.At.Sub(last).Seconds()
		last = p.At
		if p.Applied != nil {
			applied = p.Applied
		}
		lag := entries.Oldest(p.At, applied).Seconds()
		lags = append(lags, lag)
		total += dt
		if lag > s.SLOMaxLagS {
			over += dt
		}
		if p.Held != nil {
			held = *p.Held
		}
		s.GPUHours += float64(held) * dt / 3600
		if p.Running != nil && p.Busy != nil && p.Trained != nil {
			busy += *p.Busy * float64(*p.Running) * dt
			running += float64(*p.Running) * dt
			trained += *p.Trained * dt
			could += prior.Throughput(*p.Running, d.job.Servers.Count) * dt
		}
		return true
	})
	if err != nil {
		return err
	}
	if total <= 0 || running <= 0 {
		return fmt.Errorf("the scheduler recorded no samples of the day")
	}
	s.ViolationPct = 100 * over / total
	s.LagP50S, s.LagP99S, s.LagMaxS = audit.Percentile(lags, 50), audit.Percentile(lags, 99), audit.Percentile(lags, 100)
	s.GPUHoursStaticMax = float64(d.job.Workers.Max) * total / 3600
	s.GPUBusyPct, s.GPUUsedPct = 100*busy/running, 100*trained/could
	return nil
}

// prior is the job file's throughput model.
func (d *demo) prior() estimator.Model {
	t := d.job.Throughput
	return estimator.Model{Form: estimator.Form(t.Form), Theta: t.Theta, Batch: float64(t.Batch)}
}

// fromRescales adds what the changes of the number of workers did.
func (d *demo) fromRescales(st *state.Store, entries *audit.Entries, s *Summary) error {
	return state.Scan(st, state.Rescales, d.written, func(r core.Rescale) bool {
		switch {
		case r.From == 0:
			return true // the job's start
		case r.Decided.Before(d.begin) || r.Decided.After(d.end):
			s.RescalesOutside++
			return true
		case r.Aborted: // another one took its place
		case r.Kind == plan.KindOut:
			s.ScaleOuts++
			switch needed, ahead := Ahead(r, entries, d.job.Forecast.Horizon); {
			case ahead:
				s.ScaleOutsAhead++
			case needed:
				s.ScaleOutsLate++
			}
		case r.Kind == plan.KindIn:
			s.ScaleIns++
		}
		switch {
		case r.GapKnown:
			s.RescaleGapMaxMS = math.Max(s.RescaleGapMaxMS, float64(r.Gap.Microseconds())/1000)
		case !r.Aborted: // another decision may take one's place before any record could have been trained
			s.RescaleGapsUnknown++
		}
		return true
	})
}

// Ahead says whether a scale-out's new workers were needed, that is, whether the 1-s mean arrival rate exceeded the configured capacity of the old ones
// within the horizon, and whether they trained before that.
func Ahead(r core.Rescale, entries *audit.Entries, horizon time.Duration) (needed, ahead bool) {
	at, needed := entries.FirstAbove(r.ConfiguredCapacity, r.Decided, r.Decided.Add(horizon), time.Second)
	return needed, needed && !r.FirstTrained.IsZero() && r.FirstTrained.Before(at)
}

// accuracy adds what learning all day was worth.
func (d *demo) accuracy(ctx context.Context, stores audit.Stores, s *Summary) error {
	auc, ok := core.AUC(since(d.atEnd.GetTotals().GetValidation(), d.atBegin.GetTotals().GetValidation()))
	if !ok {
		return fmt.Errorf("no record of the day was validated")
	}
	v, err := audit.Score(ctx, stores, d.stale, d.beginEnds, nil)
	if err != nil {
		return err
	}
	stale, ok := core.AUC(v)
	if !ok {
		return fmt.Errorf("the records of the day have one label only")
	}
	s.AUC, s.AUCStale = auc, stale
	return nil
}

// since is a histogram less what it held before.
func since(now, before *rpc.Validation) *rpc.Validation {
	return &rpc.Validation{Positive: less(now.GetPositive(), before.GetPositive()), Negative: less(now.GetNegative(), before.GetNegative())}
}

func less(a, b []uint64) []uint64 {
	out := append([]uint64(nil), a...)
	for i := range b {
		if i < len(out) && b[i] <= out[i] {
			out[i] -= b[i]
		}
	}
	return out
}
