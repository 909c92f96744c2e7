package estimator

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Probe is a number of workers that is worth measuring.
type Probe struct {
	Workers int
	// Before and After are the relative error of F where it matters, as it is and as it
	// would be with that measurement: the root of the mean square over the targets.
	Before, After float64
}

// mostProbes is how many numbers of workers are tried, evenly spread.
const mostProbes = 256

// Probe finds the number of workers from min to max whose measurement in so many
// saturated intervals would lower the error of F at the targets most. Where it matters
// is most often within reach and then its own best probe; for targets beyond, and for
// several, it is not. servers is as for [Model.Curve].
func (c Confidence) Probe(targets []int, intervals, min, max int, servers func(w int) int) Probe {
	min = clip(min, 1, MaxWorkers)
	max = clip(max, min, MaxWorkers)
	with := func(w int) int {
		if servers == nil {
			return w
		}
		return servers(w)
	}
	best := Probe{Workers: min, Before: c.meanError(targets, with, nil, 1)}
	best.After = math.Inf(1)
	for w := min; w <= max; w += (max-min)/mostProbes + 1 {
		if c.cov == nil {
			break
		}
		g := c.share(w, with(w))
		var shift mat.VecDense
		shift.MulVec(c.cov, g)
		v := c.noise*c.noise/math.Max(float64(intervals), 1) + c.misfit*c.misfit + mat.Dot(g, &shift)
		if e := c.meanError(targets, with, &shift, v); e < best.After*(1-1e-9) {
			best.Workers, best.After = w, e
		}
	}
	if math.IsInf(best.After, 1) {
		best.After = best.Before
	}
	return best
}

// meanError is the root mean square error at the targets, once a measurement is taken
// up for which shift is the covariance with θ and v the variance; nil: none.
func (c Confidence) meanError(targets []int, servers func(int) int, shift *mat.VecDense, v float64) float64 {
	sum := 0.0
	for _, w := range targets {
		e := c.Error(w, servers(w))
		square := e * e
		if c.cov != nil && w >= 1 {
			g := c.share(w, servers(w))
			square = mat.Inner(g, c.cov, g) + c.misfit*c.misfit
			if shift != nil {
				d := mat.Dot(g, shift)
				square -= d * d / v
			}
			square = math.Min(square, c.measuredVariance(w, servers(w)))
		}
		sum += math.Max(square, 0)
	}
	return math.Sqrt(sum / math.Max(float64(len(targets)), 1))
}
