package forecast

import (
	"math"
	"slices"
)

// The quantiles of Forecast.Lower and Forecast.Upper.
const (
	lowerQuantile = 0.1
	upperQuantile = 0.9
)

// residuals collects, per horizon, what arrived relative to what was said:
// (actual − said) / max(said, floor).
type residuals struct {
	floor float64
	at    [][]float64
}

// newResiduals makes an empty collection for the given number of horizons.
// floor, in samples/s, keeps a forecast of nearly nothing from making its error
// infinite.
func newResiduals(steps int, floor float64) *residuals {
	return &residuals{floor: floor, at: make([][]float64, steps)}
}

// add notes one outcome at horizon h. Unknowns are skipped.
func (r *residuals) add(h int, actual, said float64) {
	if e := (actual - said) / max(said, r.floor); e == e {
		r.at[h] = append(r.at[h], e)
	}
}

// count is the number of outcomes over all horizons.
func (r *residuals) count() int {
	n := 0
	for _, e := range r.at {
		n += len(e)
	}
	return n
}

// quantiles are the relative 10 % and 90 % residuals per horizon. A horizon with
// fewer than minOrigins outcomes takes those of the horizon before it, or, where
// there is none, of all outcomes together; without any outcome both are 0.
func (r *residuals) quantiles() (lower, upper []float64) {
	lower, upper = make([]float64, len(r.at)), make([]float64, len(r.at))
	lo, up := 0.0, 0.0
	if len(r.at[0]) < minOrigins {
		lo, up = outerQuantiles(slices.Concat(r.at...))
	}
	for h, e := range r.at {
		if len(e) >= minOrigins {
			lo, up = outerQuantiles(e)
		}
		lower[h], upper[h] = lo, up
	}
	return lower, upper
}

// band puts the quantiles around mean, which has as many horizons.
func (r *residuals) band(mean []float64) (lower, upper []float64) {
	lower, upper = r.quantiles()
	for h, m := range mean {
		scale := max(m, r.floor)
		lower[h] = min(max(m+lower[h]*scale, 0), m)
		upper[h] = max(m+upper[h]*scale, m)
	}
	return lower, upper
}

// outerQuantiles gives the 10 % and 90 % quantiles of e, which it sorts, by the
// conformal rank: the ⌈(n+1)·q⌉-th smallest, so that with few outcomes the band is
// too wide rather than too narrow. Without outcomes both are 0.
func outerQuantiles(e []float64) (lo, up float64) {
	n := len(e)
	if n == 0 {
		return 0, 0
	}
	slices.Sort(e)
	k := int(math.Ceil(float64(n+1) * upperQuantile))
	k = min(k, n)
	return e[n-k], e[k-1]
}
