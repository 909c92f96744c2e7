package report

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
)

// column is one row of numbers of a chart; NaN and infinities are null in JSON, and a gap in the picture.
type column []float64

// MarshalJSON writes the shortest numbers that decode to the same values.
func (c column) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 8*len(c)+2)
	out = append(out, '[')
	for i, v := range c {
		if i > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			out = append(out, "null"...)
			continue
		}
		format := byte('f')
		if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
			format = 'e'
		}
		out = strconv.AppendFloat(out, v, format, -1, 64)
	}
	return append(out, ']'), nil
}

// table is the samples by column; all columns have the length of T.
type table struct {
	T        column `json:"t"` // s since 1970
	Rate     column `json:"rate"`
	Trained  column `json:"trained"`
	Mean     column `json:"mean"`
	Lower    column `json:"lower"`
	Upper    column `json:"upper"`
	Capacity column `json:"capacity"`
	Running  column `json:"running"`
	Pending  column `json:"pending"`
	Draining column `json:"draining"`
	Target   column `json:"target"`
	Held     column `json:"held"`
	Lag      column `json:"lag"`
	Busy     column `json:"busy"` // %
}

// values are the columns but T.
func (t *table) values() []*column {
	return []*column{
		&t.Rate, &t.Trained, &t.Mean, &t.Lower, &t.Upper, &t.Capacity, &t.Running, &t.Pending, &t.Draining, &t.Target, &t.Held, &t.Lag, &t.Busy,
	}
}

// row appends a row in which only the time is known, and returns its index.
func (t *table) row(at time.Time) int {
	t.T = append(t.T, unix(at))
	for _, c := range t.values() {
		*c = append(*c, math.NaN())
	}
	return len(t.T) - 1
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// tabulate writes samples as columns. Where nobody looked for a while there is an empty row, so that no line bridges the time.
func tabulate(samples []core.Sample, outlook plan.Forecast) *table {
	t := &table{}
	limit := stretch(samples)
	for i, s := range samples {
		if i > 0 && s.At.Sub(samples[i-1].At) > limit {
			t.row(samples[i-1].At.Add(time.Millisecond))
		}
		k := t.row(s.At)
		if s.Lag != nil && !s.Repairing {
			t.Lag[k] = *s.Lag
		}
		if s.Forecast != nil {
			t.Mean[k], t.Lower[k], t.Upper[k] = s.Forecast.Mean, s.Forecast.Lower, s.Forecast.Upper
		}
		t.Rate[k], t.Trained[k], t.Capacity[k], t.Busy[k] = drawn(s.Rate), drawn(s.Trained), drawn(s.Capacity), 100*drawn(s.Busy)
		t.Running[k], t.Pending[k], t.Draining[k] = drawn(s.Running), drawn(s.Pending), float64(s.Draining)
		t.Target[k], t.Held[k] = float64(s.Target), drawn(s.Held)
	}
	t.extend(outlook, samples[len(samples)-1].At)
	return t
}

// drawn is a value in a column: nothing where it is not known.
func drawn[T int | float64](v *T) float64 {
	if v == nil {
		return math.NaN()
	}
	return float64(*v)
}

// extend draws what is expected after the last sample.
func (t *table) extend(f plan.Forecast, last time.Time) {
	if f.Step <= 0 {
		return
	}
	for i, mean := range f.Mean {
		at := f.At.Add(time.Duration(i) * f.Step)
		if !at.After(last) {
			continue
		}
		k := t.row(at)
		t.Mean[k], t.Lower[k], t.Upper[k] = mean, mean, mean
		if i < len(f.Lower) && i < len(f.Upper) {
			t.Lower[k], t.Upper[k] = f.Lower[i], f.Upper[i]
		}
	}
}

// thin returns a table of at most limit rows, all of them rows of t, in order: the first and the last, and of each of a number of equal
// parts its first row and, for each column, the rows of its lowest and its highest value and the first in which it is missing. So no peak,
// no trough and no gap disappears. As many parts are made as fit, but for an eighth. The same table gives the same rows. limit is at least 50.
func (t *table) thin(limit int) *table {
	if len(t.T) <= limit {
		return t
	}
	rows, _ := t.choose(limit)
	out := &table{T: make(column, len(rows))}
	from, to := append(t.values(), &t.T), append(out.values(), &out.T)
	for c := range from {
		*to[c] = make(column, len(rows))
		for k, row := range rows {
			(*to[c])[k] = (*from[c])[row]
		}
	}
	return out
}

// choose finds the rows to keep, and into how many parts the table was cut for that: a part has at most 40 rows to
// keep (three for each of 13 columns, and its first), so there are limit/46 parts or more.
func (t *table) choose(limit int) (rows []int, parts int) {
	for parts = limit; ; parts = parts * 7 / 8 {
		if rows = t.extremes(parts); len(rows) <= limit {
			return rows, parts
		}
	}
}

// extremes lists the rows to keep when t is cut into parts.
func (t *table) extremes(parts int) []int {
	n := len(t.T)
	rows := []int{n - 1}
	for p := range parts {
		from, to := p*n/parts, (p+1)*n/parts
		if from == to {
			continue
		}
		rows = append(rows, from)
		for _, c := range t.values() {
			low, high, missing := -1, -1, -1
			for i, v := range (*c)[from:to] {
				switch {
				case math.IsNaN(v) || math.IsInf(v, 0):
					if missing < 0 {
						missing = from + i
					}
				default:
					if low < 0 || v < (*c)[low] {
						low = from + i
					}
					if high < 0 || v > (*c)[high] {
						high = from + i
					}
				}
			}
			for _, k := range []int{low, high, missing} {
				if k >= 0 {
					rows = append(rows, k)
				}
			}
		}
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// violations are the times, from and to in s since 1970, in which lag was over the objective; all samples are asked, before any are thinned.
func violations(samples []core.Sample, maxLag time.Duration) [][2]float64 {
	spans := [][2]float64{}
	if maxLag <= 0 {
		return spans
	}
	limit := stretch(samples)
	for i, s := range samples {
		if s.Lag == nil || s.Repairing || !(*s.Lag > maxLag.Seconds()) { // not NaN either
			continue
		}
		from, to := unix(s.At), unix(s.At.Add(span(samples, i, limit)))
		if last := len(spans) - 1; last >= 0 && spans[last][1] == from {
			spans[last][1] = to
		} else {
			spans = append(spans, [2]float64{from, to})
		}
	}
	return spans
}
