package replay

import (
	"github.com/kale-sched/kale/core/plan"
)

// packed is a forecast whose spread is kept in single precision: a trace of two weeks has twenty thousand forecasts, each of up to a hundred kilobytes. What is
// unpacked differs from what was packed by less than one part in ten million, of values that have five digits.
type packed struct {
	band               plan.Forecast // without spread
	quantiles, courses [][]float32
	beyond             *packed
	named, why         string // see [core.Made]; "" where nobody was asked
}

func pack(f plan.Forecast) *packed {
	p := &packed{band: f.Band(), quantiles: singles(f.Quantiles), courses: singles(f.Scenarios)}
	p.band.Levels = f.Levels
	if f.Beyond != nil {
		p.beyond = pack(*f.Beyond)
	}
	return p
}

func singles(rows []plan.Values) [][]float32 {
	if len(rows) == 0 {
		return nil
	}
	out := make([][]float32, len(rows))
	for i, row := range rows {
		out[i] = make([]float32, len(row))
		for k, v := range row {
			out[i][k] = float32(v)
		}
	}
	return out
}

func doubles(rows [][]float32) []plan.Values {
	if len(rows) == 0 {
		return nil
	}
	out := make([]plan.Values, len(rows))
	n := 0
	for _, row := range rows {
		n += len(row)
	}
	all := make(plan.Values, n)
	for i, row := range rows {
		out[i], all = all[:len(row):len(row)], all[len(row):]
		for k, v := range row {
			out[i][k] = float64(v)
		}
	}
	return out
}

// unpack is the forecast with what the policy needs of it.
func (p *packed) unpack(needs plan.Needs) plan.Forecast {
	f := p.band
	f.Levels = nil
	if needs.Spread {
		f.Levels, f.Quantiles, f.Scenarios = p.band.Levels, doubles(p.quantiles), doubles(p.courses)
	}
	if needs.Beyond && p.beyond != nil {
		beyond := p.beyond.unpack(needs)
		f.Beyond = &beyond
	}
	return f
}

// times multiplies every rate of the forecast.
func times(f plan.Forecast, factor float64) plan.Forecast {
	f.Mean, f.Lower, f.Upper = multiplied(f.Mean, factor), multiplied(f.Lower, factor), multiplied(f.Upper, factor)
	f.Quantiles, f.Scenarios = multipliedRows(f.Quantiles, factor), multipliedRows(f.Scenarios, factor)
	if f.Beyond != nil {
		beyond := times(*f.Beyond, factor)
		f.Beyond = &beyond
	}
	return f
}

func multiplied(v plan.Values, factor float64) plan.Values {
	out := make(plan.Values, len(v))
	for i, x := range v {
		out[i] = x * factor
	}
	return out
}

func multipliedRows(rows []plan.Values, factor float64) []plan.Values {
	out := make([]plan.Values, len(rows))
	for i, row := range rows {
		out[i] = multiplied(row, factor)
	}
	return out
}
