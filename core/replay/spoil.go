package replay

import (
	"errors"
	"math"

	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
)

// errUnheard says that there was no forecast yet.
var errUnheard = errors.New("no forecast was made then")

// spoiled is the forecast f of a bin of the part with the errors of the world, as a worse forecaster would have made it: what is said is wrong, and the quantiles are those that
// what came of what was said before makes. The forecaster's own would tell of errors that are not the only ones any more.
func (p *policyDecider) spoiled(r *run, bin int, f plan.Forecast) plan.Forecast {
	if r.w.ForecastBias == 0 && r.w.ForecastNoise == 0 {
		return f
	}
	f = times(f, r.spoil(r.q.t))
	if p.outlook == nil || f.Step <= 0 || !p.needs.Spread {
		return f
	}
	if p.calibrator == nil {
		p.calibrator = forecast.NewCalibrator()
	}
	width := r.part.History.Step.Seconds()
	heard := r.part.History // as far as forecasts were made: from the part's first bin on
	heard.Start, heard.Values = heard.At(r.part.First), heard.Values[r.part.First:r.part.First+bin]
	out := p.calibrator.Calibrate(ratesOf(f), heard, func(past forecast.Series) (forecast.Forecast, error) {
		bin := heard.Bin(past.End())
		then := p.outlook[bin]
		if then == nil || then.band.Step <= 0 {
			return forecast.Forecast{}, errUnheard
		}
		return ratesOf(times(then.band, r.spoil(width*float64(bin)))), nil
	})
	f.Calibrated, f.Outcomes = f.Calibrated && out.Calibrated(), out.Outcomes
	if out.Calibrated() {
		f.Lower, f.Upper, f.Levels = out.Lower, out.Upper, out.Levels
		f.Quantiles, f.Scenarios = rows(out.Quantiles), rows(out.Scenarios)
	}
	return f
}

// spoil is by what forecasts made at a time of the part, in seconds, are multiplied.
func (r *run) spoil(t float64) float64 {
	factor := 1 + r.w.ForecastBias
	if r.w.ForecastNoise > 0 {
		factor *= math.Exp(r.w.ForecastNoise * r.chance.normal(drawForecast, r.minute(t)/30))
	}
	return factor
}

// ratesOf is what a forecast says, without its spread.
func ratesOf(f plan.Forecast) forecast.Forecast {
	return forecast.Forecast{At: f.At, Step: f.Step, Mean: f.Mean, Lower: f.Lower, Upper: f.Upper, Source: f.Source}
}

func rows(values [][]float64) []plan.Values {
	out := make([]plan.Values, len(values))
	for i, row := range values {
		out[i] = row
	}
	return out
}
