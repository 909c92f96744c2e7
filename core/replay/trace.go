package replay

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/forecast"
)

// Trace is a recorded arrival rate.
type Trace struct {
	// Name is a file, a topic, or [syntheticName].
	Name string
	stream.Curve
	// Notes say what was made of it as it was read.
	Notes []string
}

// syntheticWeeks is how many weeks the synthetic trace has: two to forecast from, and the one that is replayed.
const syntheticWeeks = 3

const syntheticName = "synthetic week"

// SyntheticWeek is the published week (Kale §4.4) after two others like it, with noise that differs by seed, in bins of one minute. It begins on a Monday.
func SyntheticWeek(seed uint64) Trace {
	return Trace{Name: syntheticName, Curve: stream.SyntheticWeeks(seed, syntheticWeeks)}
}

// Course is a trace made ready: the days to be replayed, each stretch without a gap being a part, and what had been measured before.
type Course struct {
	Trace string
	// Bin is the length of the trace's own bins. Coarse says that they were longer than [CoarseBin] and noise was put into them.
	Bin    time.Duration
	Coarse bool
	// Scale is what the trace's rates were multiplied by, Peak the highest rate after that, samples/s.
	Scale, Peak float64
	Parts       []Part
	// NoPast says that too little of the trace lies before what is replayed for a forecast.
	NoPast bool
	// Notes are the trace's.
	Notes []string
	// Fewer says why fewer days are replayed than could be wanted; "": they are not.
	Fewer string
	// Between says which gap lies between the parts, and what beside it is left out; "": there is one part, or Fewer names the gap.
	Between string
}

// Part is a stretch of a course without a gap. Its backlog starts at nothing.
type Part struct {
	Start time.Time
	// Rates are the arrivals in bins of Step, samples/s.
	Step  time.Duration
	Rates []float64
	// Filled says which of them the trace has not: a straight line bridges them.
	Filled []bool
	// History is what is measured, from the beginning of the trace to the end of the part, in bins of forecast.interval, unknown where the trace is; bin
	// First is the first of the part.
	History forecast.Series
	First   int
}

// Duration is the length of the part.
func (p Part) Duration() time.Duration { return time.Duration(len(p.Rates)) * p.Step }

// Days is the length of all parts, in days.
func (c *Course) Days() float64 {
	d := time.Duration(0)
	for _, p := range c.Parts {
		d += p.Duration()
	}
	return d.Hours() / 24
}

// Filled is how many bins of the trace are bridged in what is replayed, and of how many.
func (c *Course) Filled() (bridged, of int) {
	for _, p := range c.Parts {
		n := 0
		for _, filled := range p.Filled {
			if filled {
				n++
			}
		}
		bridged += int(time.Duration(n) * p.Step / c.Bin)
		of += int(p.Duration() / c.Bin)
	}
	return bridged, of
}

// Forecasts is how many forecasts a replay makes where each holds for so many bins of forecast.interval.
func (c *Course) Forecasts(every int) (n int) {
	for _, p := range c.Parts {
		n += (len(p.History.Values) - p.First) / max(every, 1)
	}
	return n
}

// CourseOptions say what of a trace is replayed.
type CourseOptions struct {
	// Days is how many days; 0: the last 14, or as many as have a past to forecast from.
	Days int
	// Interval is the length of a bin of what is measured: forecast.interval.
	Interval time.Duration
	// Past is how much of the trace has to lie before the first replayed day: what a forecast needs.
	Past time.Duration
	// ScaleTo is the highest rate that the replayed days are scaled to, samples/s; 0: they are left as they are.
	ScaleTo float64
	// Seed is that of the noise in coarse bins.
	Seed uint64
}

// What of a trace is replayed unless somebody says otherwise, and what bridges and ends a stretch.
const (
	defaultDays = 14
	// MostDays is the most that may be asked for: ten years.
	MostDays = 3650
	day      = 24 * time.Hour
	// CoarseBin is the longest bin that is taken as it is.
	CoarseBin = 5 * time.Minute
	// bridgedBins is the longest gap that is bridged by a straight line; a longer one ends a stretch.
	bridgedBins = 2
)

// leastAfter is which part of the past that a forecast needs must be left to replay after it, where that is no whole day: of two seasons, half of one. [ours]
const leastAfter = 4

// stretch is a run of bins without a gap: [from, to).
type stretch struct{ from, to int }

// NewCourse makes a trace ready.
func NewCourse(tr Trace, o CourseOptions) (*Course, error) {
	if err := tr.Validate(); err != nil {
		return nil, fmt.Errorf("trace %s: %w", tr.Name, err)
	}
	if o.Interval <= 0 || o.Days < 0 || o.Days > MostDays || o.ScaleTo < 0 {
		return nil, fmt.Errorf("replay: the interval must be above 0, days 0 to %d, scale 0 or more", MostDays)
	}
	rates, bridged := bridge(tr.Rates)
	perDay := int(day / tr.Step)
	if perDay < 1 || day%tr.Step != 0 {
		return nil, fmt.Errorf("trace %s: bins of %v do not divide a day", tr.Name, tr.Step)
	}
	chosen, whole := choose(stretches(rates), perDay, o, tr.Step)
	c := &Course{Trace: tr.Name, Bin: tr.Step, Coarse: tr.Step > CoarseBin, Scale: 1, NoPast: whole, Fewer: fewer(tr, stretches(rates), chosen, perDay, o), Notes: tr.Notes}
	if b := between(tr, stretches(rates), chosen, perDay); !strings.Contains(c.Fewer, gapsAmong(tr, stretches(rates))) {
		c.Between = b
	}
	measured := append([]float64(nil), rates...) // what was bridged was not measured
	for i := range measured {
		if bridged[i] {
			measured[i] = math.NaN()
		}
	}
	rates, measured, step, err := c.refine(tr, rates, measured, chosen, o)
	if err != nil {
		return nil, err
	}
	if err := c.scaleTo(o.ScaleTo, rates, measured, chosen); err != nil {
		return nil, err
	}
	if n := int(tr.Step / step); n > 1 {
		bridged = repeated(bridged, n)
	}
	return c, c.cut(tr, step, rates, measured, bridged, chosen, o)
}

// scaleTo multiplies all rates so that the highest of the chosen ones is peak; 0 leaves them as they are.
func (c *Course) scaleTo(peak float64, rates, measured []float64, chosen []stretch) error {
	for _, s := range chosen {
		for _, r := range rates[s.from:s.to] {
			c.Peak = max(c.Peak, r)
		}
	}
	if peak == 0 {
		return nil
	}
	if c.Peak <= 0 {
		return fmt.Errorf("trace %s: nothing arrives in the replayed days, so that they cannot be scaled", c.Trace)
	}
	c.Scale, c.Peak = peak/c.Peak, peak
	for i := range rates {
		rates[i], measured[i] = rates[i]*c.Scale, measured[i]*c.Scale
	}
	return nil
}

// bridge fills gaps of up to bridgedBins by straight lines and says which bins those are.
func bridge(rates []float64) (out []float64, bridged []bool) {
	out, bridged = append([]float64(nil), rates...), make([]bool, len(rates))
	last := -1
	for i, r := range rates {
		if math.IsNaN(r) {
			continue
		}
		if n := i - last - 1; last >= 0 && n > 0 && n <= bridgedBins {
			for j := last + 1; j < i; j++ {
				share := float64(j-last) / float64(i-last)
				out[j], bridged[j] = rates[last]*(1-share)+r*share, true
			}
		}
		last = i
	}
	return out, bridged
}

// stretches are the runs of known bins.
func stretches(rates []float64) []stretch {
	var out []stretch
	for i := 0; i < len(rates); i++ {
		if math.IsNaN(rates[i]) {
			continue
		}
		from := i
		for i < len(rates) && !math.IsNaN(rates[i]) {
			i++
		}
		out = append(out, stretch{from, i})
	}
	return out
}

// choose takes whole days from the end of the stretches backwards, until there are as many as are wanted or the rest of the trace is the past that a forecast
// needs. Where no whole day leaves that past, it is the rest of a stretch that does unless somebody asked for days, and else as many whole days as there are without
// a past, or all: whole.
func choose(runs []stretch, perDay int, o CourseOptions, step time.Duration) (chosen []stretch, whole bool) {
	want := o.Days
	if want == 0 {
		want = defaultDays
	}
	past := int(o.Past / step)
	take := func(past int) (got []stretch) {
		left := want
		for k := len(runs) - 1; k >= 0 && left > 0; k-- {
			r := runs[k]
			days := min((r.to-max(r.from, runs[0].from+past))/perDay, left)
			if days > 0 {
				got = append([]stretch{{r.to - days*perDay, r.to}}, got...)
				left -= days
			}
		}
		return got
	}
	if chosen = take(past); len(chosen) > 0 {
		return chosen, false
	}
	if o.Days == 0 && past > 0 { // no whole day, but what leaves a past
		for k := len(runs) - 1; k >= 0; k-- {
			if from := max(runs[k].from, runs[0].from+past); runs[k].to-from >= max(past/leastAfter, 1) {
				return []stretch{{from, runs[k].to}}, false
			}
		}
	}
	if chosen = take(0); len(chosen) > 0 {
		return chosen, true
	}
	return runs[len(runs)-1:], true
}

// fewer says why less was chosen than was asked for, or than there would be without gaps; "": it was not.
func fewer(tr Trace, runs, chosen []stretch, perDay int, o CourseOptions) string {
	total := func(runs []stretch) (n int) {
		for _, r := range runs {
			n += r.to - r.from
		}
		return n
	}
	got := total(chosen)
	span := func(bins int) string { return days(float64(bins) / float64(perDay)) }
	if got < perDay {
		span = func(bins int) string { return job.Length(time.Duration(bins) * tr.Step) }
	}
	first, last := runs[0].from, runs[len(runs)-1].to
	unbroken, _ := choose([]stretch{{first, last}}, perDay, o, tr.Step)
	wanted := "not " + days(float64(total(unbroken))/float64(perDay))
	if o.Days > 0 {
		wanted = "not the " + days(float64(o.Days)) + " asked for"
	}
	switch {
	case got < total(unbroken):
		return fmt.Sprintf("Taken of the trace: %s, and %s: whole days are taken from what has no gap, and %s.", span(got), wanted, gapsAmong(tr, runs))
	case o.Days > 0 && got >= perDay && got < o.Days*perDay:
		why := "it holds no more whole days"
		if past := int(o.Past / tr.Step); past > 0 && last-first-past < o.Days*perDay && last-first >= o.Days*perDay {
			why = "forecasts need the " + job.Length(o.Past) + " before"
		}
		return fmt.Sprintf("Taken of the trace: %s, and %s: %s.", span(got), wanted, why)
	}
	return ""
}

// gapsAmong says which gaps lie between runs of a trace: the one, or how many and the longest.
func gapsAmong(tr Trace, runs []stretch) string {
	longest := stretch{}
	for k := 1; k < len(runs); k++ {
		if g := (stretch{runs[k-1].to, runs[k].from}); g.to-g.from > longest.to-longest.from {
			longest = g
		}
	}
	length := job.Length(time.Duration(longest.to-longest.from) * tr.Step)
	which := "there is a gap of " + length
	if n := len(runs) - 1; n > 1 {
		which = fmt.Sprintf("there are %d gaps, the longest of %s", n, length)
	}
	return fmt.Sprintf("%s, at %s UTC", which, tr.Start.Add(time.Duration(longest.from)*tr.Step).UTC().Format("2006-01-02 15:04"))
}

// between says which gaps lie between the chosen stretches, and how much beside them is left out since it is no whole day; "": there is one stretch.
func between(tr Trace, runs, chosen []stretch, perDay int) string {
	if len(chosen) < 2 {
		return ""
	}
	from, to := chosen[0].from, chosen[len(chosen)-1].to
	var within []stretch
	left := 0
	for _, r := range runs {
		if r.to > from && r.from < to {
			within = append(within, r)
			left += r.to - max(r.from, from)
		}
	}
	for _, s := range chosen {
		left -= s.to - s.from
	}
	text := gapsAmong(tr, within)
	if left > 0 {
		after := "it"
		if len(within) > 2 {
			after = "them"
		}
		rest := job.Length(time.Duration(left) * tr.Step)
		if left%perDay == 0 {
			rest = days(float64(left) / float64(perDay))
		}
		text += fmt.Sprintf("; %s after %s, before whole days begin, are left out", rest, after)
	}
	return text
}

// refine divides bins that are longer than what is measured into such, the coarse ones with noise.
func (c *Course) refine(tr Trace, rates, measured []float64, chosen []stretch, o CourseOptions) (fine, known []float64, step time.Duration, err error) {
	if tr.Step <= o.Interval {
		return rates, measured, tr.Step, nil
	}
	n := int(tr.Step / o.Interval)
	if tr.Step%o.Interval != 0 {
		return nil, nil, 0, fmt.Errorf("trace %s: bins of %v are not a whole number of forecast.interval = %v", tr.Name, tr.Step, o.Interval)
	}
	for i, s := range chosen {
		chosen[i] = stretch{s.from * n, s.to * n}
	}
	if !c.Coarse {
		return repeated(rates, n), repeated(measured, n), o.Interval, nil
	}
	fine = textured(rates, n, o.Interval, o.Seed)
	return fine, masked(fine, measured, n), o.Interval, nil
}

// cut makes the parts of a course.
func (c *Course) cut(tr Trace, step time.Duration, rates, measured []float64, filled []bool, chosen []stretch, o CourseOptions) error {
	group := int(o.Interval / step)
	if o.Interval%step != 0 {
		return fmt.Errorf("trace %s: forecast.interval = %v is not a whole number of its bins of %v", tr.Name, o.Interval, step)
	}
	for _, s := range chosen {
		// Measured bins are counted from the part's own beginning, so that its first decision falls on the end of one.
		skip := s.from % group
		history := forecast.Series{Start: tr.Start.Add(time.Duration(skip) * step), Step: o.Interval}
		for i := skip; i+group <= s.to; i += group {
			sum := 0.0
			for _, v := range measured[i : i+group] {
				sum += v // unknown stays unknown
			}
			history.Values = append(history.Values, sum/float64(group))
		}
		c.Parts = append(c.Parts, Part{Start: tr.Start.Add(time.Duration(s.from) * step), Step: step, Rates: rates[s.from:s.to], Filled: filled[s.from:s.to], History: history, First: (s.from - skip) / group})
	}
	return nil
}

// repeated gives each bin n times.
func repeated[T any](bins []T, n int) []T {
	out := make([]T, 0, n*len(bins))
	for _, r := range bins {
		for range n {
			out = append(out, r)
		}
	}
	return out
}

// masked is rates, unknown where a coarse bin was.
func masked(rates, coarse []float64, n int) []float64 {
	out := append([]float64(nil), rates...)
	for i := range out {
		if math.IsNaN(coarse[i/n]) {
			out[i] = math.NaN()
		}
	}
	return out
}
