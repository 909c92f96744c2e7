package plan

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Forecast is the expected arrival rate in samples/s: Mean[i], and the band
// Lower[i] to Upper[i] where the forecaster has one, for the step that starts at
// At + i·Step. At may lie before Now; the steps that have passed are skipped.
type Forecast struct {
	At    time.Time     `json:"at,omitzero"`
	Step  time.Duration `json:"step,omitempty"`
	Mean  Values        `json:"mean,omitempty"`
	Lower Values        `json:"lower,omitempty"`
	Upper Values        `json:"upper,omitempty"`
	// Levels are probabilities, rising within (0, 1), and Quantiles[k][i] is the
	// rate that step i stays below with probability Levels[k]. Without them, or with
	// rows that do not fit, a quantile is derived from the band: see
	// [Forecast.Quantile].
	Levels    []float64 `json:"levels,omitempty"`
	Quantiles []Values  `json:"quantiles,omitempty"`
	// Scenarios are courses of the rate over all steps, each as likely as any
	// other. They tell how long errors last. Without them, or with rows that do not
	// fit, errors are taken to last: see scenarios below.
	Scenarios []Values `json:"scenarios,omitempty"`
	// Beyond is what is expected after the last step, in coarser steps; it may begin
	// where this forecast does. nil: nothing is known. It has no Beyond of its own.
	Beyond *Forecast `json:"beyond,omitempty"`
	// Source names the forecaster.
	Source string `json:"source,omitempty"`
	// Trusted is the gate's verdict, and Reason its words for it.
	Trusted bool   `json:"trusted"`
	Reason  string `json:"reason,omitempty"`
	// Calibrated tells that the bands were made from forecast.CalibratedOutcomes or more past outcomes at each horizon, that the forecaster in use
	// was scored, and that measurements are recent: quantiles and scenarios then say how large its errors are, even where
	// these are too large for Trusted. Outcomes is how many there were, at the horizon with the fewest.
	Calibrated bool `json:"calibrated,omitempty"`
	Outcomes   int  `json:"outcomes,omitempty"`
}

// Band is the forecast without quantiles, scenarios and what lies beyond: what a chart needs.
func (f Forecast) Band() Forecast {
	f.Levels, f.Quantiles, f.Scenarios, f.Beyond = nil, nil, nil, nil
	return f
}

// The levels of Lower and Upper.
const (
	lowerLevel = 0.1
	upperLevel = 0.9
)

// Quantile is the rate that step i stays below with probability level, in
// samples/s, no less than 0.
//
// Between two of the forecast's own levels it is interpolated along the normal
// distribution's z, and beyond the outermost it is theirs. A forecast without
// quantiles is taken for two halves of normal distributions around Mean, of which
// Lower is the 10 % and Upper the 90 % quantile; one without a band is certain of
// its Mean. level is cut to [0.001, 0.999]. A step outside Mean gives NaN.
func (f Forecast) Quantile(level float64, i int) float64 {
	if i < 0 || i >= len(f.Mean) {
		return math.NaN()
	}
	return f.quantile(probit(min(max(level, 0.001), 0.999)), i, f.levelZ())
}

// quantile is Quantile at the level of z, of a step that there is; own is the forecast's levelZ, which costs a look at all quantiles.
func (f *Forecast) quantile(z float64, i int, own []float64) float64 {
	if len(own) > 0 {
		return max(f.between(z, i, own), 0)
	}
	edge, reach := f.Mean[i], probit(upperLevel)
	switch {
	case z < 0 && len(f.Lower) == len(f.Mean):
		edge = f.Lower[i]
	case z > 0 && len(f.Upper) == len(f.Mean):
		edge = f.Upper[i]
	}
	if !finite(edge) {
		edge = f.Mean[i]
	}
	return max(f.Mean[i]+math.Abs(z)/reach*(edge-f.Mean[i]), 0)
}

// levelZ is the z of each of Levels; nil where these and Quantiles cannot be used.
func (f *Forecast) levelZ() []float64 {
	if len(f.Levels) == 0 || len(f.Levels) != len(f.Quantiles) {
		return nil
	}
	z := make([]float64, len(f.Levels))
	for k, q := range f.Levels {
		if !(q > 0 && q < 1) || k > 0 && q <= f.Levels[k-1] || !fits(f.Quantiles[k], len(f.Mean)) {
			return nil
		}
		z[k] = probit(q)
	}
	return z
}

// fits tells whether row holds n finite values.
func fits(row Values, n int) bool {
	return len(row) == n && !slices.ContainsFunc(row, func(v float64) bool { return !finite(v) })
}

// between interpolates step i's quantiles, which lie at the levels of own, at z.
func (f *Forecast) between(z float64, i int, own []float64) float64 {
	last, lastZ := f.Quantiles[0][i], own[0]
	if z <= lastZ {
		return last
	}
	for k := 1; k < len(f.Levels); k++ {
		v, vz := max(f.Quantiles[k][i], last), own[k]
		if z <= vz {
			return last + (v-last)*(z-lastZ)/(vz-lastZ)
		}
		last, lastZ = v, vz
	}
	return last
}

// derivedScenarios is how many scenarios stand in for a forecaster's own.
const derivedScenarios = 16

// derivedZ are the z of their levels at each step, from the lowest to the highest.
var derivedZ = func() (z [derivedScenarios]float64) {
	for r := range z {
		z[r] = probit((float64(r) + 0.5) / derivedScenarios)
	}
	return z
}()

// scenarios are the forecast's own where they fit its steps, and else
// [derivedScenarios] that wander through the quantiles as a random walk would: the
// errors of steps i and k after the first are correlated by √(i/k), so that what is
// off soon says little of what will be off late, and what is off late stays so.
func (f Forecast) scenarios() []Values { return f.scenariosOf(len(f.Mean)) }

// scenariosOf is scenarios of the first n steps; to derive them takes as long as they are many.
func (f Forecast) scenariosOf(n int) []Values {
	var own []Values
	for _, row := range f.Scenarios {
		if fits(row, len(f.Mean)) {
			own = append(own, row[:n])
		}
	}
	if len(own) >= 2 {
		return own
	}
	rows := make([]Values, derivedScenarios)
	for k := range rows {
		rows[k] = make(Values, n)
	}
	levels := f.levelZ()
	z := make([]float64, derivedScenarios)
	order := make([]int, derivedScenarios)
	for i := range n {
		rho := math.Sqrt(float64(i) / float64(i+1))
		for k := range z {
			// The golden ratio's multiples stand in for chance: they fill 0 to 1 evenly.
			_, u := math.Modf(float64(i*derivedScenarios+k+1)*math.Phi + float64(k)*math.Sqrt2)
			z[k] = rho*z[k] + math.Sqrt(1-rho*rho)*probit(0.001+0.998*u)
			order[k] = k
		}
		// Ranks and not z, so that every step has one scenario at each of the levels.
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(z[a], z[b]) })
		for r, k := range order {
			rows[k][i] = f.quantile(derivedZ[r], i, levels)
		}
	}
	return rows
}

// probit is the normal distribution's quantile: z with Φ(z) = p, 0 < p < 1.
func probit(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
