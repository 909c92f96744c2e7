package estimator

import (
	"math"
	"sort"
)

// Curve is a model tabulated over a range of worker counts. Building it costs
// one evaluation per count; each [Curve.Smallest] is then a binary search, so
// a plan over a long horizon pays for the curve once.
type Curve struct {
	min  int
	f    []float64 // f[i] = F(min+i), samples/s
	best []float64 // best[i] = the largest of f[0..i], non-decreasing
	peak int       // the smallest w with the largest F, but for rounding
}

// SameRate is the relative difference below which two rates are the same: many
// times that of rounding, far below what anything measures.
const SameRate = 1e-9

// Curve tabulates F over workers min … max, both clipped to [0, MaxWorkers];
// a max below min counts as min. servers gives the parameter servers that w
// workers run with; nil means one per worker.
func (m Model) Curve(min, max int, servers func(w int) int) Curve {
	min = clip(min, 0, MaxWorkers)
	max = clip(max, min, MaxWorkers)
	c := Curve{min: min, f: make([]float64, max-min+1), best: make([]float64, max-min+1), peak: min}
	top, most := -1.0, -1.0 // the peak's rate; the largest
	for i := range c.f {
		w := min + i
		p := w
		if servers != nil {
			p = servers(w)
		}
		c.f[i] = m.Throughput(w, p)
		if c.f[i] > top*(1+SameRate) {
			top, c.peak = c.f[i], w
		}
		if c.f[i] > most {
			most = c.f[i]
		}
		c.best[i] = most
	}
	return c
}

// At returns F(w), and 0 outside the tabulated range.
func (c Curve) At(w int) float64 {
	if w < c.min || w-c.min >= len(c.f) {
		return 0
	}
	return c.f[w-c.min]
}

// Peak returns the smallest worker count with the largest throughput, and that
// throughput in samples per second. Rates that differ by rounding only, a
// relative 1e-9, count as the same.
func (c Curve) Peak() (w int, rate float64) { return c.peak, c.At(c.peak) }

// Smallest returns the smallest w in the range with F(w) > load (Kale Eq. 10),
// load in samples per second. If no w suffices, it returns the peak and
// saturated = true. A load of 0 or less needs the range's lower end; a NaN
// load is unanswerable and counts as more than any capacity.
func (c Curve) Smallest(load float64) (w int, saturated bool) {
	if load <= 0 {
		return c.min, false
	}
	if math.IsNaN(load) {
		return c.peak, true
	}
	// The first w whose running maximum exceeds the load is the first whose own
	// F does, though F itself may fall again beyond it.
	i := sort.Search(len(c.best), func(i int) bool { return c.best[i] > load })
	if i == len(c.best) {
		return c.peak, true
	}
	return c.min + i, false
}

// Smallest returns the smallest sufficient worker count within [min, max] for
// load samples per second; see [Curve.Smallest] and [Model.Curve].
func (m Model) Smallest(load float64, min, max int, servers func(w int) int) (w int, saturated bool) {
	return m.Curve(min, max, servers).Smallest(load)
}

func clip(v, lo, hi int) int {
	if v < lo {
		return lo
	}
	if v > hi {
		return hi
	}
	return v
}
