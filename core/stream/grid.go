package stream

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// order sorts the rows by time and leaves out those that say the same as another. Two rates at one time are an error.
func (p *rowParser) order() error {
	for i := 1; i < len(p.rows); i++ {
		if p.rows[i].at < p.rows[i-1].at {
			p.unsorted = p.rows[i].line
			break
		}
	}
	if p.unsorted > 0 {
		slices.SortFunc(p.rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.line, b.line)) })
	}
	kept := p.rows[:1]
	for _, r := range p.rows[1:] {
		last := kept[len(kept)-1]
		if r.at != last.at {
			kept = append(kept, r)
			continue
		}
		if r.rate != last.rate {
			advice := "keep the right one"
			if p.stamps.localTime {
				advice += "; where it is the hour that is lived twice when clocks are put back, write times in UTC or with their offset, such as 02:30:00+02:00"
			}
			return fmt.Errorf("%s:%d:1: %s has a rate of %v here and of %v on line %d: %s", p.name, r.line, r.time().Format(time.RFC3339Nano), r.rate, last.rate, last.line, advice)
		}
		if p.twice++; p.twice == 1 || r.line < p.twiceLine {
			p.twiceLine = r.line
		}
	}
	p.rows = kept
	return nil
}

// curve lays the rows, which are in order, on a grid.
func (p *rowParser) curve() (Curve, error) {
	shortest := int64(math.MaxInt64)
	for i := 1; i < len(p.rows); i++ {
		shortest = min(shortest, p.rows[i].at-p.rows[i-1].at)
	}
	first := p.rows[0].at
	off := slices.IndexFunc(p.rows, func(r row) bool { return (r.at-first)%shortest != 0 })
	if off < 0 && (p.rows[len(p.rows)-1].at-first)/shortest < maxBins {
		return p.onGrid(first, shortest)
	}
	usual := medianStep(p.rows)
	for _, step := range likelySteps(p.rows, usual) {
		if start, worst, ok := fits(p.rows, step); ok {
			p.snapped, p.usual = time.Duration(worst), time.Duration(usual)
			return p.onGrid(start, step)
		}
	}
	if off < 0 {
		return p.onGrid(first, shortest)
	}
	return Curve{}, fmt.Errorf("%s:%d:1: %s is not a whole number of bins of %v after the first row, nor are all rows within a quarter of a bin of a grid of %v: make the bins equal",
		p.name, p.rows[off].line, p.rows[off].time().Format(time.RFC3339Nano), time.Duration(shortest), time.Duration(roundStep(usual)))
}

// onGrid makes the curve of bins of step, the first at start, half a bin before and after each being its own.
func (p *rowParser) onGrid(start, step int64) (Curve, error) {
	last := p.rows[len(p.rows)-1]
	if bins := (last.at-start)/step + 1; bins > maxBins {
		return Curve{}, fmt.Errorf("%s:%d:1: from %s to %s in bins of %v are %d bins; that looks like a wrong timestamp", p.name, last.line,
			p.rows[0].time().Format(time.RFC3339), last.time().Format(time.RFC3339), time.Duration(step), bins)
	}
	c := Curve{Start: time.Unix(0, start).UTC(), Step: time.Duration(step)}
	c.Rates = make([]float64, 0, nearest(last.at-start, step)+1)
	before := row{}
	for _, r := range p.rows {
		bin := int(nearest(r.at-start, step))
		if bin < len(c.Rates) {
			return Curve{}, fmt.Errorf("%s:%d:1: %s lies in the bin of %v that line %d has: keep one of them", p.name, r.line, r.time().Format(time.RFC3339Nano), c.Step, before.line)
		}
		for len(c.Rates) < bin {
			c.Rates = append(c.Rates, math.NaN())
		}
		c.Rates, before = append(c.Rates, r.rate), r
	}
	return c, nil
}

// medianStep is the lower median of the distances between rows.
func medianStep(rows []row) int64 {
	steps := make([]int64, len(rows)-1)
	for i := range steps {
		steps[i] = rows[i+1].at - rows[i].at
	}
	slices.Sort(steps)
	return steps[(len(steps)-1)/2]
}

// wholeSteps are those of which a bin is a whole number where it has none of the usual lengths.
var wholeSteps = []time.Duration{5 * time.Minute, time.Minute, 30 * time.Second, 10 * time.Second, 5 * time.Second, time.Second, 100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond}

// likelySteps are the lengths of a bin that rows with a median distance may be meant to have, the likeliest first: a usual one; of those within the jitter a whole number of minutes before one of
// seconds, and so on; the mean distance on the grid that the median makes, where it is within the jitter; the median. The jitter is the median of how far the distances are from theirs.
func likelySteps(rows []row, usual int64) []int64 {
	bins, apart := int64(0), make([]int64, len(rows)-1)
	for i := range apart {
		d := rows[i+1].at - rows[i].at
		bins += nearest(d, usual)
		apart[i] = abs(d - usual)
	}
	slices.Sort(apart)
	jitter := apart[(len(apart)-1)/2]
	var out []int64
	if round := roundStep(usual); round != usual || slices.Contains(roundSteps, time.Duration(usual)) {
		out = append(out, round)
	}
	mean := nearest(rows[len(rows)-1].at-rows[0].at, max(1, bins))
	if abs(mean-usual) > jitter {
		mean = usual
	}
	for _, whole := range wholeSteps {
		if step := nearest(mean, int64(whole)) * int64(whole); step > 0 && abs(step-mean) <= jitter {
			out = append(out, step)
		}
	}
	return append(out, mean, usual)
}

// roundSteps are usual lengths of bins, all of which divide a day.
var roundSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute, 10 * time.Minute, 12 * time.Minute, 15 * time.Minute, 20 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// roundStep is the usual length of a bin that is within a tenth of step, step where there is none.
func roundStep(step int64) int64 {
	best := step
	for _, s := range roundSteps {
		if d := abs(int64(s) - step); d <= step/10 && (best == step || d < abs(best-step)) {
			best = int64(s)
		}
	}
	return best
}

// fits finds a grid of step that all rows are within a quarter of a bin of: its first bin, and how far the worst row is from it.
func fits(rows []row, step int64) (start, worst int64, ok bool) {
	// How far each row is from a grid that begins at the first: below half a bin, since the first is within a quarter of where it belongs.
	offs := make([]int64, len(rows))
	for i, r := range rows {
		offs[i] = wrapped(r.at-rows[0].at, step)
	}
	slices.Sort(offs)
	start = rows[0].at + offs[(len(offs)-1)/2]
	switch phase := wrapped(start, step); {
	case abs(phase) <= step/20: // all but on whole bins of the clock
		start -= phase
	case step >= int64(10*time.Second):
		start = time.Unix(0, start).Round(time.Second).UnixNano()
	}
	for _, r := range rows {
		worst = max(worst, abs(wrapped(r.at-start, step)))
	}
	return start, worst, 4*worst < step
}

// wrapped is how far d is from the nearest multiple of step.
func wrapped(d, step int64) int64 { return d - nearest(d, step)*step }

// nearest is d in whole steps.
func nearest(d, step int64) int64 {
	n := floorDiv(d, step)
	if rest := d - n*step; rest >= step-step/2 {
		n++
	}
	return n
}

func abs(v int64) int64 { return max(v, -v) }
