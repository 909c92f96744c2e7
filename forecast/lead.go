package forecast

import "math"

// Lead is by how much one forecaster's error is less than another's over the same bins, and how sure that is.
type Lead struct {
	By float64 // WAPE of the other less the forecaster's own, a fraction; negative where it is the worse, NaN where nothing is known
	SE float64 // standard error of By; NaN where there are too few forecasts to tell
}

// surely is how many standard errors a lead has to be: of two forecasters that are as good as each other one in forty leads by so much, by chance.
const surely = 2

// Sure says whether the lead is more than chance.
func (l Lead) Sure() bool { return l.By > 0 && l.By > surely*l.SE }

// Margin is the lead above which it would be sure.
func (l Lead) Margin() float64 { return surely * l.SE }

// duel compares two forecasters origin by origin: a paired test. What is hard to foresee is so for both, so that their difference varies much less than the error of either.
type duel struct {
	less, came []float64 // at each origin: Σ |actual − other| − |actual − own| and Σ actual, over the bins that both forecast
}

// begin opens an origin.
func (d *duel) begin() { d.less, d.came = append(d.less, 0), append(d.came, 0) }

// add takes in what both said of a bin of the origin that was opened last.
func (d *duel) add(actual, own, other float64) {
	if v := actual + own + other; v != v {
		return
	}
	k := len(d.less) - 1
	d.less[k] += math.Abs(actual-other) - math.Abs(actual-own)
	d.came[k] += actual
}

// lead is By = Σ less / Σ came. Its variance is that of the sum of e = less − By·came over the origins (a quotient, to first order), which are no chance of their own: horizons overlap and
// what misleads a forecaster lasts. With γ(k) the covariance of e at k origins apart, it is Newey and West's (Econometrica 55, 1987)
//
//	Var Σ e = n · (γ(0) + 2 Σ_{k=1..L} (1 − k/(L+1)) γ(k)) · n/(n−L−1)
//
// with L the origins whose horizons overlap, and no less than n^⅓; the last factor, ours, makes up for the mean that was taken off of few. It is the test of Diebold and Mariano (1995).
// overlap is how many origins after one are within its horizon.
func (d *duel) lead(overlap int) Lead {
	n := len(d.less)
	less, came := 0.0, 0.0
	for i := range d.less {
		less, came = less+d.less[i], came+d.came[i]
	}
	l := Lead{By: less / came, SE: math.NaN()}
	lags := max(overlap, int(math.Cbrt(float64(n))))
	if n < leastUnseen || n < 2*(lags+1) || !(came > 0) {
		return l
	}
	e := make([]float64, n)
	for i := range e {
		e[i] = d.less[i] - l.By*d.came[i]
	}
	long := 0.0
	for k := 0; k <= lags; k++ {
		sum := 0.0
		for i := k; i < n; i++ {
			sum += e[i] * e[i-k]
		}
		weight := 2 * (1 - float64(k)/float64(lags+1))
		if k == 0 {
			weight = 1
		}
		long += weight * sum // n·γ(k), with its weight
	}
	l.SE = math.Sqrt(max(0, long)*float64(n)/float64(n-lags-1)) / came
	return l
}
