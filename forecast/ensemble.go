package forecast

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ensemble is the forecaster that [NewEnsemble] describes.
type ensemble struct{ members []Forecaster }

// NewEnsemble returns the forecaster that takes the plain mean of its members:
// of their point forecasts, and of their quantiles level by level, at the levels
// that all of them have. As these are calibrated, it holds a little more than it should:
// what one misses another may not. Its scenarios are theirs in turn, moved onto the common
// mean. A member that gives an error is left out, and the Note names it; an error
// is what all of them fail at.
func NewEnsemble(members ...Forecaster) Forecaster { return ensemble{slices.Clone(members)} }

func (ensemble) Name() string { return "ensemble" }

// Forecast implements [Forecaster].
func (e ensemble) Forecast(history Series, steps int) (Forecast, error) {
	if err := checkRequest(e.Name(), history, steps); err != nil {
		return Forecast{}, err
	}
	var said []Forecast
	var failed []string
	var errs []error
	for _, m := range e.members {
		f, err := m.Forecast(history, steps)
		if err != nil {
			failed, errs = append(failed, m.Name()), append(errs, err)
			continue
		}
		said = append(said, f)
	}
	if len(said) == 0 {
		return Forecast{}, fmt.Errorf("%s: no member has an answer: %w", e.Name(), errors.Join(errs...))
	}
	f := Forecast{At: history.End(), Step: history.Step, Source: e.Name(),
		Mean:  meanOf(said, func(f Forecast) []float64 { return f.Mean }),
		Lower: meanOf(said, func(f Forecast) []float64 { return f.Lower }),
		Upper: meanOf(said, func(f Forecast) []float64 { return f.Upper })}
	for _, level := range said[0].Levels {
		if row := meanOf(said, func(f Forecast) []float64 { return f.quantile(level) }); row != nil {
			f.Levels, f.Quantiles = append(f.Levels, level), append(f.Quantiles, row)
		}
	}
	f.Scenarios = scenariosOf(said, f.Mean)
	f.Outcomes = said[0].Outcomes
	for _, one := range said {
		f.Outcomes = min(f.Outcomes, one.Outcomes)
	}
	if len(failed) > 0 {
		f.Note = fmt.Sprintf("without %s: %v", strings.Join(failed, ", "), errors.Join(errs...))
	}
	return f, nil
}

// meanOf is the mean of one row of each forecast, bin by bin; nil where a
// forecast lacks the row.
func meanOf(said []Forecast, row func(Forecast) []float64) []float64 {
	out := make([]float64, len(said[0].Mean))
	for _, f := range said {
		values := row(f)
		if values == nil {
			return nil
		}
		for h, v := range values {
			out[h] += v / float64(len(said))
		}
	}
	return out
}

// scenariosOf takes scenarios of the forecasts in turn, each moved from its
// forecast's mean to the given one.
func scenariosOf(said []Forecast, mean []float64) [][]float64 {
	var out [][]float64
	for k := 0; k < maxScenarios; k++ {
		f := said[k%len(said)]
		if i := k / len(said); i < len(f.Scenarios) {
			row := slices.Clone(f.Scenarios[i])
			for h := range row {
				row[h] = max(0, row[h]-f.Mean[h]+mean[h])
			}
			out = append(out, row)
		}
	}
	return out
}
