package view

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/guptarohit/asciigraph"

	"github.com/kale-sched/kale/core/job"
)

// Signs of the chart's lines, so that they differ without colour too.
var (
	lineBand     = asciigraph.CreateCharSet("·")
	lineForecast = asciigraph.CharSet{Horizontal: "╌", VerticalLine: "╎", ArcDownRight: "╭", ArcDownLeft: "╮", ArcUpRight: "╰", ArcUpLeft: "╯", EndCap: "╌", StartCap: "╌"}
	lineCapacity = asciigraph.CharSet{Horizontal: "━", VerticalLine: "┃", ArcDownRight: "┏", ArcDownLeft: "┓", ArcUpRight: "┗", ArcUpLeft: "┛", EndCap: "━", StartCap: "━"}
)

// Colours by the terminal's own palette, which its user can read on his background.
const (
	yellow  = asciigraph.AnsiColor(3)
	magenta = asciigraph.AnsiColor(5)
	cyan    = asciigraph.AnsiColor(6)
	grey    = asciigraph.AnsiColor(8)
)

// labelWidth is the width of the longest rate; asciigraph puts a blank on either side of it, and then the axis.
const labelWidth = 6

// point is a value at a time.
type point struct {
	at    time.Time
	value float64
}

// rateChart draws arrivals, forecast and capacity, two thirds before now and one third after: height lines and one with the times. It is nil
// when nothing is known, or when there is no room.
func rateChart(f Frame, width, height int) []string {
	columns := width - labelWidth - 3
	if columns < 12 || height < 3 {
		return nil
	}
	w := f.window(columns)
	series := w.series(f)
	highest := 0.0
	for _, s := range series {
		for _, v := range s {
			if !math.IsNaN(v) {
				highest = max(highest, v)
			}
		}
	}
	if highest <= 0 {
		return nil
	}
	colours := make([]asciigraph.AnsiColor, len(series))
	axis := asciigraph.Default
	if f.Coloured {
		colours, axis = []asciigraph.AnsiColor{yellow, yellow, yellow, magenta, cyan}, grey
	}
	drawn := asciigraph.PlotMany(series, asciigraph.Height(height-1), asciigraph.LowerBound(0), asciigraph.UpperBound(roundTick(highest*1.05/float64(height-1))*float64(height-1)),
		asciigraph.SeriesChars(lineBand, lineBand, lineForecast, lineCapacity, asciigraph.DefaultCharSet),
		asciigraph.SeriesColors(colours...), asciigraph.AxisColor(axis), asciigraph.LabelColor(axis), asciigraph.YAxisValueFormatter(func(v float64) string {
			label := rate(math.Abs(v))
			return strings.Repeat(" ", max(0, labelWidth-len(label))) + label
		}))
	lines := strings.Split(drawn, "\n")
	at := slices.IndexFunc([]rune(ansi.Strip(lines[0])), func(r rune) bool { return r == '┤' || r == '┼' }) // where the axis stands
	return append(lines, f.style("8").Render(w.axis(max(at, 0))))
}

// roundTick is the least round number that is not below x > 0: the lines of a chart stand so far apart.
func roundTick(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8} {
		if n*unit >= x {
			return n * unit
		}
	}
	return 10 * unit
}

// window maps columns to time.
type window struct {
	now     time.Time
	columns int
	past    int // columns before now
	step    time.Duration
}

// window chooses the time that is shown: the forecast's horizon after now, and twice that before.
func (f Frame) window(columns int) window {
	horizon := time.Minute
	if fc := f.View.Forecast; fc.Step > 0 && len(fc.Mean) > 0 {
		horizon = time.Duration(len(fc.Mean)) * fc.Step
	}
	w := window{now: f.View.Now, columns: columns, past: columns * 2 / 3}
	w.step = max(horizon/time.Duration(columns-w.past), time.Millisecond)
	return w
}

// column is the time that a column covers.
func (w window) column(c int) (from, to time.Time) {
	from = w.now.Add(time.Duration(c-w.past) * w.step)
	return from, from.Add(w.step)
}

// axis is the line of times under the chart.
func (w window) axis(indent int) string {
	line := []rune(strings.Repeat(" ", indent+1+w.columns))
	put := func(column int, text string, shift int) {
		at := indent + 1 + column - shift
		for i, r := range text {
			if k := at + i; k >= 0 && k < len(line) {
				line[k] = r
			}
		}
	}
	before, after := "-"+job.Length(time.Duration(w.past)*w.step), "+"+job.Length(time.Duration(w.columns-w.past)*w.step)
	put(0, before, 0)
	put(w.columns, after, len(after))
	put(w.past, "now", 1)
	return strings.TrimRight(string(line), " ")
}

// series are the values of each column: the band's lower and upper edge, forecast, capacity, arrivals.
func (w window) series(f Frame) [][]float64 {
	lower, upper, mean := f.expected()
	rows := [][]point{lower, upper, mean, f.capacity(w), f.arrivals()}
	reach := max(f.View.Forecast.Step, f.View.History.Step, 2*w.step)
	out := make([][]float64, len(rows))
	for i, points := range rows {
		out[i] = w.sample(points, reach)
	}
	for c := w.past + 1; c < w.columns; c++ {
		out[4][c] = math.NaN() // No record arrives in the future.
	}
	return out
}

// sample is the mean of the points in each column, or the last one before it when that is not further away than reach. points are by time.
func (w window) sample(points []point, reach time.Duration) []float64 {
	out := make([]float64, w.columns)
	k := 0
	for c := range out {
		from, to := w.column(c)
		for k < len(points) && points[k].at.Before(from) {
			k++
		}
		sum, n, end := 0.0, 0, k
		for ; end < len(points) && points[end].at.Before(to); end++ {
			sum += points[end].value
			n++
		}
		switch {
		case n > 0:
			out[c] = sum / float64(n)
		case k > 0 && from.Sub(points[k-1].at) <= reach:
			out[c] = points[k-1].value
		default:
			out[c] = math.NaN()
		}
	}
	return out
}

// add appends a point whose value can be drawn.
func add(points []point, at time.Time, v float64) []point {
	if math.IsNaN(v) || v > 1e15 {
		return points
	}
	return append(points, point{at, max(v, 0)})
}

// arrivals are the history that the forecast was made from, and then what was seen since.
func (f Frame) arrivals() []point {
	var out []point
	h := f.View.History
	for i, v := range h.Values {
		out = add(out, h.Start.Add(time.Duration(i)*h.Step+h.Step/2), v)
	}
	end := h.Start.Add(time.Duration(len(h.Values)) * h.Step)
	for _, s := range f.Trail {
		if s.Rate != nil && (len(h.Values) == 0 || s.At.After(end)) {
			out = add(out, s.At, *s.Rate)
		}
	}
	return out
}

// expected is what had been forecast for the past and is forecast now.
func (f Frame) expected() (lower, upper, mean []point) {
	fc := f.View.Forecast
	for _, s := range f.Trail {
		if s.Forecast != nil && (len(fc.Mean) == 0 || s.At.Before(fc.At)) {
			lower, upper, mean = add(lower, s.At, s.Forecast.Lower), add(upper, s.At, s.Forecast.Upper), add(mean, s.At, s.Forecast.Mean)
		}
	}
	for i, v := range fc.Mean {
		at := fc.At.Add(time.Duration(i)*fc.Step + fc.Step/2)
		mean = add(mean, at, v)
		if i < len(fc.Lower) && i < len(fc.Upper) {
			lower, upper = add(lower, at, fc.Lower[i]), add(upper, at, fc.Upper[i])
		}
	}
	return lower, upper, mean
}

// capacity is F of the workers that ran, and after now of those that the plan has.
func (f Frame) capacity(w window) []point {
	var out []point
	now := f.View.Sample.Capacity
	for _, s := range f.Trail {
		if s.Capacity != nil {
			out = add(out, s.At, *s.Capacity)
		}
	}
	if len(out) == 0 && now != nil {
		out = add(out, f.View.Now, *now)
	}
	planned := f.planned()
	for c := w.past + 1; c < w.columns; c++ {
		switch from, _ := w.column(c); {
		case planned != nil:
			out = add(out, from, planned(from))
		case now != nil:
			out = add(out, from, *now)
		}
	}
	return out
}

// planned gives the capacity that the last decision plans for a time; nil when it has no plan.
func (f Frame) planned() func(time.Time) float64 {
	d := f.View.Decision
	if d == nil || len(d.Decision.Plan.Workers) == 0 || d.Decision.Plan.Step <= 0 || d.Observation.Model.Validate() != nil {
		return nil
	}
	p := d.Decision.Plan
	return func(at time.Time) float64 {
		i := min(max(int(at.Sub(p.Start)/p.Step), 0), len(p.Workers)-1)
		return d.Observation.Model.Throughput(p.Workers[i], max(1, d.Observation.Servers))
	}
}
