package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// stretch is the time from one sample to the next that is still one observation: longer, and nobody looked.
func stretch(samples []core.Sample) time.Duration {
	if len(samples) < 2 {
		return time.Minute
	}
	gaps := make([]time.Duration, 0, len(samples)-1)
	for i := 1; i < len(samples); i++ {
		gaps = append(gaps, samples[i].At.Sub(samples[i-1].At))
	}
	slices.Sort(gaps)
	return max(5*gaps[len(gaps)/2], time.Second)
}

// span is how long each sample holds: until the next, at most limit; the last holds for no time.
func span(samples []core.Sample, i int, limit time.Duration) time.Duration {
	if i+1 >= len(samples) {
		return 0
	}
	if d := samples[i+1].At.Sub(samples[i].At); d <= limit {
		return d
	}
	return 0
}

// unwatched are the times between samples in which nobody looked.
func unwatched(samples []core.Sample) (out [][2]time.Time) {
	limit := stretch(samples)
	for i := 1; i < len(samples); i++ {
		if from, to := samples[i-1].At, samples[i].At; to.Sub(from) > limit {
			out = append(out, [2]time.Time{from, to})
		}
	}
	return out
}

// watch says for how long of the time from the first sample to the last somebody looked: all figures are of that. partly: not nearly all the time.
func (in *Input) watch() (watched, of time.Duration, partly bool) {
	of = in.Samples[len(in.Samples)-1].At.Sub(in.Samples[0].At)
	watched = of
	for _, s := range unwatched(in.Samples) {
		watched -= s[1].Sub(s[0])
	}
	return watched, of, of-watched > of/100
}

// Ahead is how long the first new worker of a scale-out had trained when arrivals first went over what the old workers carry by the job
// file's throughput prior; negative when it came too late: of a load that was there when the change was decided, from when it had come. nil: a scale-in, a first start, or a load that never came within the horizon.
func Ahead(r core.Rescale, samples []core.Sample, horizon time.Duration) *time.Duration {
	if r.Kind != plan.KindOut || r.From < 1 || r.FirstTrained.IsZero() || r.ConfiguredCapacity <= 0 {
		return nil
	}
	from, _ := slices.BinarySearchFunc(samples, r.Decided, func(s core.Sample, t time.Time) int { return s.At.Compare(t) })
	over := func(i int) bool { return samples[i].Rate != nil && *samples[i].Rate > r.ConfiguredCapacity }
	for i := from; i < len(samples); i++ {
		if horizon > 0 && samples[i].At.Sub(r.Decided) > horizon {
			return nil
		}
		if !over(i) {
			continue
		}
		for i <= from && i > 0 && over(i-1) { // it was there before
			i--
		}
		d := samples[i].At.Sub(r.FirstTrained)
		return &d
	}
	return nil
}

// weighted is a value and the time for which it held.
type weighted struct {
	value float64
	span  time.Duration
}

// quantile is the value that lag was at or under for the share q of the time. values are sorted in place.
func quantile(values []weighted, q float64) float64 {
	slices.SortFunc(values, func(a, b weighted) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	var total, seen time.Duration
	for _, v := range values {
		total += v.span
	}
	for _, v := range values {
		if seen += v.span; float64(seen) >= q*float64(total) {
			return v.value
		}
	}
	return math.NaN()
}

// figures are what the samples say, weighted by time.
type figures struct {
	lags               []weighted
	known, over        time.Duration // time with a known lag; of it, over the objective
	worst              float64       // s
	held, busy, busyOf time.Duration // worker time held, by the last count where there is none; worker time busy, of running worker time
	watched            time.Duration
}

func (in *Input) figures() figures {
	var f figures
	held := 0
	limit := stretch(in.Samples)
	for i, s := range in.Samples {
		d := span(in.Samples, i, limit)
		f.watched += d
		if s.Held != nil {
			held = *s.Held
		}
		f.held += time.Duration(held) * d
		if s.Running != nil && s.Busy != nil {
			f.busy += time.Duration(*s.Busy * float64(*s.Running) * float64(d))
			f.busyOf += time.Duration(*s.Running) * d
		}
		if s.Lag == nil || s.Repairing || math.IsNaN(*s.Lag) {
			continue
		}
		f.lags = append(f.lags, weighted{*s.Lag, d})
		f.worst = max(f.worst, *s.Lag)
		f.known += d
		if in.MaxLag > 0 && *s.Lag > in.MaxLag.Seconds() {
			f.over += d
		}
	}
	return f
}

// Summarise computes the tiles that samples and rescales can tell: time within the objective, lag, rescales and their gaps, accelerator time
// against the constant maximum.
func Summarise(in Input) []Tile {
	if in.check() != nil {
		return nil
	}
	f := in.figures()
	ofTheTime, throughout := "of the time", "throughout"
	if watched, _, partly := in.watch(); partly {
		ofTheTime, throughout = "of the "+job.Length(watched)+" watched", "throughout the "+job.Length(watched)+" watched"
	}
	var tiles []Tile
	if f.known > 0 && in.MaxLag > 0 {
		share := 100 * (1 - float64(f.over)/float64(f.known))
		t := Tile{Name: "Within the objective", Value: percent(share), Note: ofTheTime + ", lag was at most " + job.Length(in.MaxLag), Verdict: Good}
		if share < 99.5 {
			t.Verdict = Bad
		}
		tiles = append(tiles, t)
	}
	if f.known > 0 {
		tiles = append(tiles, Tile{
			Name: "Lag, 99th percentile", Value: seconds(quantile(f.lags, 0.99)),
			Note: "median " + seconds(quantile(f.lags, 0.5)) + ", highest " + seconds(f.worst),
		})
	}
	tiles = append(tiles, in.lossTiles()...)
	tiles = append(tiles, in.rescaleTiles()...)
	if constant := time.Duration(in.Max) * f.watched; constant > 0 {
		tiles = append(tiles, Tile{
			Name: in.unit() + "-hours", Value: fmt.Sprintf("%.3g", f.held.Hours()*float64(max(1, in.GPUs))),
			Note: fmt.Sprintf("%.0f %% of the %.3g of %d workers %s", 100*float64(f.held)/float64(constant), constant.Hours()*float64(max(1, in.GPUs)), in.Max, throughout),
		})
	}
	if f.busyOf > 0 {
		tiles = append(tiles, Tile{Name: in.accelerator() + " busy", Value: percent(100 * float64(f.busy) / float64(f.busyOf)), Note: "of the time of running workers"})
	}
	return tiles
}

// lossTiles are what was not trained; nothing where all was.
func (in *Input) lossTiles() []Tile {
	sums, setAside := map[core.LossKind]uint64{}, uint64(0)
	for _, l := range in.Losses {
		if l.DeadLetter != "" {
			setAside += l.Records
		} else {
			sums[l.Kind] += l.Records
		}
	}
	var tiles []Tile
	if n := sums[core.LossRetention]; n > 0 {
		tiles = append(tiles, Tile{Name: "Lost to retention", Value: plan.Thousands(n), Note: "offsets, removed before they were trained", Verdict: Bad})
	}
	if n := sums[core.LossCutOff]; n > 0 {
		tiles = append(tiles, Tile{Name: "Cut off the log", Value: plan.Thousands(n), Note: "offsets, once they were trained; what the log has there now is not", Verdict: Bad})
	}
	if n := sums[core.LossUndecodable]; n > 0 {
		tiles = append(tiles, Tile{Name: "Skipped", Value: plan.Thousands(n), Note: "records that could not be decoded", Verdict: Bad})
	}
	if setAside > 0 {
		tiles = append(tiles, Tile{Name: "Set aside", Value: plan.Thousands(setAside), Note: "records that could not be decoded, in the dead-letter topic"})
	}
	return tiles
}

func (in *Input) rescaleTiles() []Tile {
	var out, ahead, inward, measured, unknown int
	var gap time.Duration
	for _, r := range in.Rescales {
		switch {
		case r.From < 1 || r.Aborted:
			continue
		case r.Kind == plan.KindOut:
			out++
		default:
			inward++
		}
		if r.Ahead != nil && *r.Ahead > 0 {
			ahead++
		}
		if !r.GapKnown {
			unknown++
			continue
		}
		measured++
		gap = max(gap, r.Gap)
	}
	tiles := []Tile{
		{Name: "Scale-outs", Value: fmt.Sprint(out), Note: fmt.Sprintf("%d ahead of the load that needed them", ahead)},
		{Name: "Scale-ins", Value: fmt.Sprint(inward), Note: in.extent()},
	}
	tile := Tile{Name: "Longest gap of a rescale", Value: job.Length(gap), Note: "without a record applied, beyond the usual"}
	switch {
	case measured == 0 && unknown == 0:
		return tiles
	case measured == 0:
		tile.Value = "unknown"
	case unknown > 0:
		tile.Note += fmt.Sprintf("; %d unknown", unknown)
	}
	tiles = append(tiles, tile)
	return tiles
}

// extent says between how many workers the job ran.
func (in *Input) extent() string {
	low, high := math.MaxInt, 0
	for _, s := range in.Samples {
		if s.Running != nil && *s.Running > 0 {
			low, high = min(low, *s.Running), max(high, *s.Running)
		}
	}
	if high == 0 {
		return ""
	}
	return fmt.Sprintf("between %d and %d workers ran", low, high)
}

// unit is what a worker holds, named as emulated where it is.
func (m Meta) unit() string {
	switch {
	case m.Emulated:
		return "Emulated GPU"
	case m.GPUs == 0:
		return "Worker"
	}
	return "GPU"
}

func (m Meta) accelerator() string {
	if m.Emulated {
		return "Emulated accelerators"
	}
	return "Accelerators"
}
