package forecast

import (
	"fmt"
	"math"
)

// BacktestOptions say where a backtest puts its origins. An origin is an index
// into the history: the forecast made there has seen Values[:origin].
type BacktestOptions struct {
	Steps int // horizons per origin, 1 or more
	First int // the first origin; 0 means the last 30 % of the history
	Every int // bins from one origin to the next; 0 means Steps
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
	// MAE is the mean of |actual−mean|, in samples/s.
	MAE float64
	// Bias is Σ(mean−actual) / Σ actual, as a fraction; positive when too much
	// was expected.
	Bias float64
	// Coverage is the share of bins inside [Lower, Upper]; 0.8 is nominal.
	Coverage float64
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
}

// Backtest makes f forecast at past origins of the history and scores it with
// what came. Each forecast sees only what lies before its origin. The errors are
// of bins whose outcome is known. Backtest returns an error when no origin fits
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
	if o.First >= n {
		return Report{}, shortHistory("backtest of "+f.Name(), history, o.First+1, "the first origin must have a bin after it")
	}
	r := Report{Source: f.Name()}
	total, per := tally{}, make([]tally, o.Steps)
	for origin := o.First; origin < n; origin += o.Every {
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
			total.add(history.Values[origin+h], fc.Mean[h], fc.Lower[h], fc.Upper[h])
			per[h].add(history.Values[origin+h], fc.Mean[h], fc.Lower[h], fc.Upper[h])
		}
	}
	if r.Failed == r.Origins {
		return r, fmt.Errorf("backtest of %s: all %d forecasts failed, the first one so: %w", f.Name(), r.Failed, r.FirstError)
	}
	r.Errors = total.errors()
	for _, t := range per {
		r.PerHorizon = append(r.PerHorizon, t.errors())
	}
	return r, nil
}

// tally sums errors until they are asked for.
type tally struct {
	bins, busy, inside            int
	actual, absolute, signed, rel float64
}

func (t *tally) add(actual, mean, lower, upper float64) {
	if math.IsNaN(actual) || math.IsNaN(mean) {
		return
	}
	t.bins++
	t.actual += actual
	t.absolute += math.Abs(actual - mean)
	t.signed += mean - actual
	if actual > 0 {
		t.busy++
		t.rel += math.Abs(actual-mean) / actual
	}
	if lower <= actual && actual <= upper {
		t.inside++
	}
}

// errors turns the sums into figures. A quotient without a denominator is NaN.
func (t *tally) errors() Errors {
	return Errors{
		Bins:     t.bins,
		MAPE:     t.rel / float64(t.busy),
		WAPE:     t.absolute / t.actual,
		MAE:      t.absolute / float64(t.bins),
		Bias:     t.signed / t.actual,
		Coverage: float64(t.inside) / float64(t.bins),
	}
}
