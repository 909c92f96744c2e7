package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// BacktestOptions say where a backtest puts its origins. An origin is an index
// into the history: the forecast made there has seen Values[:origin].
type BacktestOptions struct {
	Steps int // horizons per origin, 1 or more
	First int // the first origin; 0 means the last 30 % of the history
	Every int // bins from one origin to the next; 0 means Steps
	// Whole leaves out the origins after which the history holds fewer than Steps bins.
	Whole bool
	// Season, in bins, is that of the naive forecast in MASE; 0 leaves MASE unknown.
	Season int
	// Losses has the report list the pinball loss of each forecast.
	Losses bool
	// Visit, where set, is called with every origin and its forecast.
	Visit func(origin int, f Forecast)
}

// Errors are sums over forecast bins that turned out to be known.
type Errors struct {
	Bins int // forecast bins that were scored
	// MAPE is the mean of |actual−mean|/actual over the bins with traffic, as a
	// fraction. NaN without such bins.
	MAPE float64
	// WAPE is Σ|actual−mean| / Σ actual, as a fraction: the error in samples for
	// each sample that arrived. NaN without traffic.
	WAPE float64
	// MAE is the mean of |actual−mean| and RMSE the root of the mean of its square,
	// in samples/s.
	MAE, RMSE float64
	// MASE is MAE divided by the mean of |y(t)−y(t−season)| over the history before
	// the first origin. NaN without a season.
	MASE float64
	// Pinball is the mean of the pinball losses max(q·(actual−ŷ), (q−1)·(actual−ŷ))
	// of the quantiles 0.1, 0.5 and 0.9, which every forecaster has, in samples/s. The
	// point forecast and the band stand for those that a forecast does not list.
	Pinball float64
	// Bias is Σ(mean−actual) / Σ actual, as a fraction; positive when too much
	// was expected.
	Bias float64
	// Coverage is the share of bins inside [Lower, Upper]; 0.8 is nominal. Coverage90
	// is that of those between the quantiles 0.05 and 0.95; each of the bins with such a
	// band, NaN without any. Coverage90SD is the standard deviation of the latter, as what lies outside comes in
	// spells: by block bootstrap, over seasons, or over stretches of √n forecasts without one. It is
	// there by horizon only.
	Coverage, Coverage90, Coverage90SD float64
}

// Report is what [Backtest] found.
type Report struct {
	Source  string // the forecaster
	Origins int    // forecasts made
	// Failed counts origins at which the forecaster gave an error, and FirstError
	// is the first of these. They are in no score.
	Failed     int
	FirstError error
	Errors
	// PerHorizon[h] are the errors of the bins h+1 bins after the last known one.
	PerHorizon []Errors
	// Losses[h] are, where they were asked for, the pinball losses of the bins h+1 bins after the last known one, in order of the origins; NaN where nothing was scored. Block is how many
	// of them depend on each other, as in Coverage90SD.
	Losses [][]float64
	Block  int
}

// Level says whether the mean of one forecaster's losses differs from that of another at the same origins by no more than chance: within two standard deviations of the paired differences, by
// bootstrap over blocks of so many. Of fewer than two blocks nothing is known, and they are level.
func Level(own, other []float64, block int) bool {
	by := make([]float64, min(len(own), len(other)))
	for i := range by {
		by[i] = own[i] - other[i]
	}
	sd := blockDeviation(by, block)
	return !(math.Abs(meanOrNaN(by)) > surely*sd)
}

// Backtest makes f forecast at past origins of the history and scores it with
// what came. Each forecast sees only what lies before its origin. The errors are
// of bins whose outcome is known, and no fault ([Series.Faults]). Backtest returns an error when no origin fits
// the history, or when f fails at every one.
func Backtest(f Forecaster, history Series, o BacktestOptions) (Report, error) {
	if err := checkRequest("backtest of "+f.Name(), history, o.Steps); err != nil {
		return Report{}, err
	}
	n := len(history.Values)
	if o.First == 0 {
		o.First = n * 7 / 10
	}
	if o.Every == 0 {
		o.Every = o.Steps
	}
	if o.First < 1 || o.Every < 1 {
		return Report{}, fmt.Errorf("backtest of %s: the first origin is %d and the distance %d; both must be 1 or more", f.Name(), o.First, o.Every)
	}
	last, need, why := n-1, o.First+1, "the first origin must have a bin after it"
	if o.Whole {
		last, need, why = n-o.Steps, o.First+o.Steps, "the first origin must have a horizon after it"
	}
	if o.First > last {
		return Report{}, shortHistory("backtest of "+f.Name(), history, need, why)
	}
	came := history.withoutFaults(o.Season).Values
	r := Report{Source: f.Name()}
	if o.Losses {
		r.Losses = make([][]float64, o.Steps)
	}
	total, per := tally{}, make([]tally, o.Steps)
	for origin := o.First; origin <= last; origin += o.Every {
		seen := Series{Start: history.Start, Step: history.Step, Values: history.Values[:origin:origin]}
		fc, err := f.Forecast(seen, o.Steps)
		r.Origins++
		if err != nil {
			r.Failed++
			if r.FirstError == nil {
				r.FirstError = err
			}
			continue
		}
		if o.Visit != nil {
			o.Visit(origin, fc)
		}
		for h := 0; h < o.Steps && origin+h < n; h++ {
			total.add(came[origin+h], fc.bin(h))
			per[h].add(came[origin+h], fc.bin(h))
			per[h].spell = append(per[h].spell, within(came[origin+h], fc.bin(h).q05, fc.bin(h).q95))
			if o.Losses {
				r.Losses[h] = append(r.Losses[h], fc.bin(h).loss(came[origin+h]))
			}
		}
	}
	if r.Failed == r.Origins {
		return r, fmt.Errorf("backtest of %s: all %d forecasts failed, the first one so: %w", f.Name(), r.Failed, r.FirstError)
	}
	scale := naiveError(came[:o.First], o.Season)
	r.Errors = total.errors(scale)
	block := int(math.Ceil(math.Sqrt(float64(r.Origins))))
	if o.Season > 0 {
		block = max(1, o.Season/o.Every)
	}
	if o.Losses {
		r.Block = block
	}
	for _, t := range per {
		e := t.errors(scale)
		e.Coverage90SD = blockDeviation(t.spell, block)
		r.PerHorizon = append(r.PerHorizon, e)
	}
	return r, nil
}

// naiveError is the mean of |y(t)−y(t−season)| where both are known; NaN without.
func naiveError(y []float64, season int) float64 {
	sum, n := 0.0, 0
	for i := season; season > 0 && i < len(y); i++ {
		if d := math.Abs(y[i] - y[i-season]); d == d {
			sum, n = sum+d, n+1
		}
	}
	return sum / float64(n)
}

// said is what a forecast says of one bin.
type said struct {
	mean, lower, upper float64
	q05, q50, q95      float64
}

// bin is what f says of bin h.
func (f Forecast) bin(h int) said {
	s := unsure(f.Mean[h])
	s.lower, s.upper = f.Lower[h], f.Upper[h]
	s.q50 = s.mean
	for i, level := range f.Levels {
		switch v := f.Quantiles[i][h]; level {
		case 0.05:
			s.q05 = v
		case 0.5:
			s.q50 = v
		case 0.95:
			s.q95 = v
		}
	}
	return s
}

// loss is the mean of the pinball losses at the three quantiles that every forecaster has; NaN where it is not known what came.
func (s said) loss(actual float64) float64 {
	return (pinball(lowerQuantile, actual, s.lower) + pinball(0.5, actual, s.q50) + pinball(upperQuantile, actual, s.upper)) / 3
}

// unsure is a point forecast without a band.
func unsure(mean float64) said {
	nan := math.NaN()
	return said{mean, nan, nan, nan, nan, nan}
}

// tally sums errors until they are asked for.
type tally struct {
	bins, busy                            int
	actual, absolute, square, signed, rel float64
	pinball                               float64
	inside, inside90                      share     // of the bins with a band
	spell                                 []float64 // 1 for each bin within the band of 90 %, 0 outside, NaN unknown
}

func (t *tally) add(actual float64, s said) {
	if math.IsNaN(actual) || math.IsNaN(s.mean) {
		return
	}
	t.bins++
	t.actual += actual
	t.absolute += math.Abs(actual - s.mean)
	t.square += (actual - s.mean) * (actual - s.mean)
	t.signed += s.mean - actual
	if actual > 0 {
		t.busy++
		t.rel += math.Abs(actual-s.mean) / actual
	}
	t.pinball += s.loss(actual)
	t.inside.add(within(actual, s.lower, s.upper))
	t.inside90.add(within(actual, s.q05, s.q95))
}

// share is of what is known, so far; NaN of nothing.
type share struct{ hits, of float64 }

func (s *share) add(v float64) {
	if v == v {
		s.hits, s.of = s.hits+v, s.of+1
	}
}

func (s share) value() float64 { return s.hits / s.of }

// bootstraps is how many times the blocks are drawn anew. Their chance is always the same.
const bootstraps = 1000

// blockDeviation is the standard deviation of the mean of what is known of values, by bootstrap over blocks of so many of them that follow each other; NaN of fewer
// than two blocks.
func blockDeviation(values []float64, block int) float64 {
	type sum struct{ hits, n float64 }
	var blocks []sum
	for part := range slices.Chunk(values, block) {
		var b sum
		for _, v := range part {
			if v == v {
				b.hits, b.n = b.hits+v, b.n+1
			}
		}
		if b.n > 0 {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) < 2 {
		return math.NaN()
	}
	rng := rand.New(rand.NewPCG(1, 1))
	means := make([]float64, bootstraps)
	for i := range means {
		var total sum
		for range blocks {
			b := blocks[rng.IntN(len(blocks))]
			total.hits, total.n = total.hits+b.hits, total.n+b.n
		}
		means[i] = total.hits / total.n
	}
	return stat.StdDev(means, nil)
}

func pinball(level, actual, quantile float64) float64 {
	return max(level*(actual-quantile), (level-1)*(actual-quantile))
}

// within is 1 or 0; NaN without a band, or of what is not known.
func within(v, lower, upper float64) float64 {
	switch {
	case math.IsNaN(v) || math.IsNaN(lower) || math.IsNaN(upper):
		return math.NaN()
	case lower <= v && v <= upper:
		return 1
	}
	return 0
}

// errors turns the sums into figures; scale is the unit of MASE, in samples/s. A
// quotient without a denominator is NaN.
func (t *tally) errors(scale float64) Errors {
	n := float64(t.bins)
	return Errors{
		Bins:       t.bins,
		MAPE:       t.rel / float64(t.busy),
		WAPE:       t.absolute / t.actual,
		MAE:        t.absolute / n,
		RMSE:       math.Sqrt(t.square / n),
		MASE:       t.absolute / n / scale,
		Pinball:    t.pinball / n,
		Bias:       t.signed / t.actual,
		Coverage:   t.inside.value(),
		Coverage90: t.inside90.value(), Coverage90SD: math.NaN(),
	}
}
