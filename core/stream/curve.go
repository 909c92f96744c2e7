package stream

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Curve is an arrival rate over time: bins of equal length, each with its mean rate in records per second. A bin that
// is not known is NaN, never zero. A curve is not changed by its methods; they return new ones.
type Curve struct {
	Start time.Time     // of the first bin; the time of the trace, not of its playing
	Step  time.Duration // length of a bin
	Rates []float64     // records/s, one per bin; NaN where the trace has a gap
}

// mostRate is more records/s than anybody has: what is above it was misread.
const mostRate = 1e12

// Validate says what makes a curve unplayable: no bins, no known bin, a step that is not positive, a rate that cannot be.
func (c Curve) Validate() error {
	if c.Step <= 0 {
		return fmt.Errorf("curve: a bin of %v; it must be longer than 0", c.Step)
	}
	known := false
	for i, r := range c.Rates {
		if r < 0 || r > mostRate {
			return fmt.Errorf("curve: the rate at %s is %v; it must be 0 to %g records/s", c.Start.Add(time.Duration(i)*c.Step).Format(time.RFC3339), r, mostRate)
		}
		known = known || !math.IsNaN(r)
	}
	if !known {
		return errors.New("curve: it has no known rate")
	}
	return nil
}

// Duration is the length of the curve in its own time.
func (c Curve) Duration() time.Duration { return time.Duration(len(c.Rates)) * c.Step }

// At is the rate (records/s) at offset from the start of the curve, which repeats at both ends: an offset of -24 h in a
// curve of a week is its last day. ok is false in a gap.
func (c Curve) At(offset time.Duration) (rate float64, ok bool) {
	if len(c.Rates) == 0 {
		return math.NaN(), false
	}
	i := int(floorDiv(int64(offset), int64(c.Step)) % int64(len(c.Rates)))
	if i < 0 {
		i += len(c.Rates)
	}
	return c.Rates[i], !math.IsNaN(c.Rates[i])
}

// Peak is the highest known rate, Mean the mean of the known ones (records/s); NaN where none is known.
func (c Curve) Peak() float64 {
	peak := math.NaN()
	for _, r := range c.Rates {
		if !math.IsNaN(r) && !(r <= peak) {
			peak = r
		}
	}
	return peak
}

// Mean is the mean of the known rates (records/s), NaN where none is known.
func (c Curve) Mean() float64 {
	sum, n := 0.0, 0
	for _, r := range c.Rates {
		if !math.IsNaN(r) {
			sum, n = sum+r, n+1
		}
	}
	return sum / float64(n)
}

// Scale multiplies every rate by factor.
func (c Curve) Scale(factor float64) Curve {
	out := Curve{Start: c.Start, Step: c.Step, Rates: make([]float64, len(c.Rates))}
	for i, r := range c.Rates {
		out.Rates[i] = r * factor
	}
	return out
}

// ScaleTo scales the curve so that its highest rate is peak (records/s). A curve that is zero throughout stays so.
func (c Curve) ScaleTo(peak float64) Curve {
	if p := c.Peak(); p > 0 {
		return c.Scale(peak / p)
	}
	return c.Scale(1)
}

// Slice is the part of the curve from one offset to another, which repeats at both ends as in [Curve.At]. Both are cut
// down to whole bins.
func (c Curve) Slice(from, to time.Duration) Curve {
	first, last := floorDiv(int64(from), int64(c.Step)), floorDiv(int64(to), int64(c.Step))
	out := Curve{Start: c.Start.Add(time.Duration(first) * c.Step), Step: c.Step}
	for i := first; i < last; i++ {
		r, _ := c.At(time.Duration(i) * c.Step)
		out.Rates = append(out.Rates, r)
	}
	return out
}

// Gaps is the number of bins that are not known.
func (c Curve) Gaps() int {
	n := 0
	for _, r := range c.Rates {
		if math.IsNaN(r) {
			n++
		}
	}
	return n
}

// Fill returns the curve with its gaps bridged by straight lines, those at the ends by the nearest known rate: a guess,
// good enough to play a trace, never to learn from one.
func (c Curve) Fill() Curve {
	out := c.Scale(1)
	last := -1
	for i, r := range c.Rates {
		if math.IsNaN(r) {
			continue
		}
		for j := last + 1; j < i; j++ {
			if last < 0 {
				out.Rates[j] = r
				continue
			}
			share := float64(j-last) / float64(i-last)
			out.Rates[j] = c.Rates[last]*(1-share) + r*share
		}
		last = i
	}
	for j := last + 1; last >= 0 && j < len(c.Rates); j++ {
		out.Rates[j] = c.Rates[last]
	}
	return out
}

// Total is the number of records that the curve brings from one offset to another, in its own time: the integral of the
// rate. Gaps count as nothing; Fill first where that is not meant.
func (c Curve) Total(from, to time.Duration) float64 {
	w := newWalker(c, from, 1)
	w.advance(to - from)
	return w.sum
}

// walker integrates a curve forwards.
type walker struct {
	c      Curve
	at     time.Duration // offset in the curve
	sum    float64       // records so far
	weight float64       // records per record of the curve: 1/speedup
}

func newWalker(c Curve, from time.Duration, weight float64) *walker {
	return &walker{c: c, at: from, weight: weight}
}

// advance moves the walker on by d of the curve's time.
func (w *walker) advance(d time.Duration) {
	for end := w.at + d; w.at < end; {
		next := min(end, time.Duration(floorDiv(int64(w.at), int64(w.c.Step))+1)*w.c.Step)
		w.sum += w.rate() * (next - w.at).Seconds()
		w.at = next
	}
}

// reach moves the walker on to where its sum is want, but not beyond limit, and says whether it got there.
func (w *walker) reach(want float64, limit time.Duration) bool {
	for w.at < limit {
		next := min(limit, time.Duration(floorDiv(int64(w.at), int64(w.c.Step))+1)*w.c.Step)
		rate := w.rate()
		gain := rate * (next - w.at).Seconds()
		if w.sum+gain >= want && rate > 0 {
			w.at += time.Duration((want - w.sum) / rate * float64(time.Second))
			w.sum = want
			return true
		}
		w.sum += gain
		w.at = next
	}
	return false
}

func (w *walker) rate() float64 {
	r, ok := w.c.At(w.at)
	if !ok {
		return 0
	}
	return r * w.weight
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
