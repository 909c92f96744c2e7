package forecast

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Series is a rate measured in consecutive bins of equal length.
type Series struct {
	// Start is where the first bin begins.
	Start time.Time
	// Step is the length of a bin.
	Step time.Duration
	// Values holds the mean rate in each bin, in samples per second.
	// Values[i] belongs to [Start+i·Step, Start+(i+1)·Step). NaN is unknown,
	// which is never zero.
	Values []float64
}

// End is where the last bin ends, which is the first moment that Series does
// not know.
func (s Series) End() time.Time { return s.At(len(s.Values)) }

// At is where bin i begins. Bins after the last one have a beginning as well.
func (s Series) At(i int) time.Time { return s.Start.Add(time.Duration(i) * s.Step) }

// Bin is the index of the bin that holds t; it may lie outside Values. A Series
// without a step has no bins, and Bin is 0.
func (s Series) Bin(t time.Time) int {
	if s.Step <= 0 {
		return 0
	}
	d := t.Sub(s.Start)
	i := int(d / s.Step)
	if d < 0 && d%s.Step != 0 {
		i--
	}
	return i
}

// Until is the part of the series that was complete at t. It shares Values.
func (s Series) Until(t time.Time) Series {
	n := min(max(s.Bin(t), 0), len(s.Values))
	return Series{Start: s.Start, Step: s.Step, Values: s.Values[:n:n]}
}

// Known counts the bins that hold a measurement.
func (s Series) Known() int {
	n := 0
	for _, v := range s.Values {
		if !math.IsNaN(v) {
			n++
		}
	}
	return n
}

// sinceKnown is the series from its first measured bin on; the whole where none was measured.
func (s Series) sinceKnown() Series {
	first := slices.IndexFunc(s.Values, func(v float64) bool { return v == v })
	if first <= 0 {
		return s
	}
	return Series{Start: s.At(first), Step: s.Step, Values: s.Values[first:]}
}

// Validate reports the first thing that makes the series unusable: a step that
// is not positive, or a rate that is negative or infinite. NaN is allowed.
func (s Series) Validate() error {
	if s.Step <= 0 {
		return fmt.Errorf("history has a step of %v; it needs a positive one", s.Step)
	}
	for i, v := range s.Values {
		// One comparison for the common case: NaN fails it too.
		if v >= 0 && v <= math.MaxFloat64 {
			continue
		}
		if math.IsNaN(v) {
			continue
		}
		return fmt.Errorf("history has a rate of %v records/s in the bin at %s; a rate is 0 or more, and a bin that was not measured is NaN",
			v, s.At(i).UTC().Format(time.RFC3339))
	}
	return nil
}

// Forecast is what a forecaster expects in the bins that follow a history.
type Forecast struct {
	// At is where the first forecast bin begins: the End of the history.
	At time.Time
	// Step is the length of a bin, that of the history.
	Step time.Duration
	// Mean, Lower and Upper have one element per bin, in samples per second:
	// the point forecast, and the 10 % and 90 % quantiles.
	// 0 ≤ Lower[h] ≤ Mean[h] ≤ Upper[h], all finite.
	Mean, Lower, Upper []float64
	// Levels are the probabilities of Quantiles, rising within (0, 1), and
	// Quantiles[i][h] is the rate that bin h stays below with probability Levels[i]:
	// finite, not negative, and not falling with the level. Where 0.1 and 0.9 are
	// among the levels, Lower and Upper are these quantiles, moved to Mean where
	// they lie on its other side. Both are empty when the forecaster knows only
	// the band.
	Levels    []float64
	Quantiles [][]float64
	// Scenarios are courses that the rate may take over all bins, in samples per
	// second, each as likely as any other: Mean with the errors of one past forecast
	// on it. Quantiles say how large an error is at one bin; only scenarios say how
	// long it lasts, which is what a backlog or the largest rate of a window depends
	// on. Empty when the forecaster has none.
	Scenarios [][]float64
	// Outcomes is how many past outcomes the quantiles were made from, at that horizon
	// which has the fewest: forecasts of this forecaster, of bins that it had not been
	// trained on, held against what came. 0: none. See [Forecast.Calibrated].
	Outcomes int
	// Usual is Mean without the events that a [Calendar] has added; nil where it has added none.
	Usual []float64
	// Source names the forecaster that made it.
	Source string
	// Note says what a reader should know about this forecast in particular,
	// such as a fallback and its reason. It is empty when there is nothing to say.
	Note string
}

// End is where the last forecast bin ends.
func (f Forecast) End() time.Time { return f.At.Add(time.Duration(len(f.Mean)) * f.Step) }

// quantile is the row of Quantiles at the level; nil where there is none.
func (f Forecast) quantile(level float64) []float64 {
	if i := slices.Index(f.Levels, level); i >= 0 {
		return f.Quantiles[i]
	}
	return nil
}

// Validate reports the first way in which f breaks what the fields promise.
func (f Forecast) Validate() error {
	if len(f.Lower) != len(f.Mean) || len(f.Upper) != len(f.Mean) {
		return fmt.Errorf("forecast by %s has %d means, %d lower and %d upper bounds; it needs as many of each",
			f.Source, len(f.Mean), len(f.Lower), len(f.Upper))
	}
	for h, m := range f.Mean {
		lo, up := f.Lower[h], f.Upper[h]
		if !(0 <= lo && lo <= m && m <= up && up <= math.MaxFloat64) {
			return fmt.Errorf("forecast by %s for bin %d is %v (lower %v, upper %v); it must be 0 ≤ lower ≤ mean ≤ upper, and finite",
				f.Source, h, m, lo, up)
		}
	}
	return f.validateSpread()
}

// validateSpread is the part of Validate on quantiles and scenarios.
func (f Forecast) validateSpread() error {
	if len(f.Levels) != len(f.Quantiles) {
		return fmt.Errorf("forecast by %s has %d levels and %d rows of quantiles; it needs as many of each", f.Source, len(f.Levels), len(f.Quantiles))
	}
	for i, row := range f.Quantiles {
		if q := f.Levels[i]; !(q > 0 && q < 1) || i > 0 && q <= f.Levels[i-1] {
			return fmt.Errorf("forecast by %s has the levels %v; they must rise within 0 and 1", f.Source, f.Levels)
		}
		if err := f.validateRow(fmt.Sprintf("quantile %g", f.Levels[i]), row); err != nil {
			return err
		}
		for h := range row {
			if i > 0 && row[h] < f.Quantiles[i-1][h] {
				return fmt.Errorf("forecast by %s for bin %d has quantiles that cross: %v at level %g and %v at level %g", f.Source, h, f.Quantiles[i-1][h], f.Levels[i-1], row[h], f.Levels[i])
			}
		}
	}
	for i, row := range f.Scenarios {
		if err := f.validateRow(fmt.Sprintf("scenario %d", i), row); err != nil {
			return err
		}
	}
	return nil
}

// validateRow checks that row has a rate for every bin.
func (f Forecast) validateRow(what string, row []float64) error {
	if len(row) != len(f.Mean) {
		return fmt.Errorf("forecast by %s has %d means and a %s of %d; it needs as many of each", f.Source, len(f.Mean), what, len(row))
	}
	for h, v := range row {
		if !(v >= 0 && v <= math.MaxFloat64) {
			return fmt.Errorf("forecast by %s for bin %d: %s is %v; it must be 0 or more, and finite", f.Source, h, what, v)
		}
	}
	return nil
}

// Forecaster predicts the bins that follow a history.
//
// Forecast is pure and deterministic: it reads no clock and no random source,
// keeps nothing between calls that changes an answer, does not write to
// history.Values or hold on to it, and may be called from several goroutines at
// once. It does not block on anything but its own computation.
//
// The result has exactly steps bins and keeps what the fields of [Forecast]
// promise. Forecast returns an error for steps < 1 and for a history that is
// not valid; one that is too short gives an error that wraps [ErrShortHistory]
// and says how much is needed.
type Forecaster interface {
	// Name is what goes into Forecast.Source: constant, short, unique among
	// the forecasters of a job.
	Name() string
	Forecast(history Series, steps int) (Forecast, error)
}

// ErrShortHistory is wrapped by the error of a forecaster, of [TrainLinear] or
// of [Backtest] that needs a longer history than it was given.
var ErrShortHistory = errors.New("history is too short")

// ErrUnmeasured is wrapped by the error of a model of whose input too few bins were measured, or too few of the last of them.
var ErrUnmeasured = errors.New("too few bins of the history were measured")

// shortHistory says that have bins of history are fewer than need.
func shortHistory(who string, s Series, need int, why string) error {
	have := len(s.Values)
	return fmt.Errorf("%s: %w: it has %d bins of %v (%v) and %d bins (%v) are needed: %s", who, ErrShortHistory,
		have, length(s.Step), length(time.Duration(have)*s.Step), need, length(time.Duration(need)*s.Step), why)
}

// length is a duration for people: 5.2s, 3m5s, 20m, 1h30m.
func length(d time.Duration) string {
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// checkRequest is what every forecaster asks of its arguments.
func checkRequest(who string, history Series, steps int) error {
	if steps < 1 {
		return fmt.Errorf("%s: a forecast of %d steps was asked for; ask for 1 or more", who, steps)
	}
	if err := history.Validate(); err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	return nil
}

// seasonBins turns a season into bins. A season that is not a whole number of
// bins would drift against the history, so it is an error.
func seasonBins(who string, season, step time.Duration) (int, error) {
	if season < 2*step || season%step != 0 {
		return 0, fmt.Errorf("%s: a season of %v is not two or more whole bins of %v: choose a season that is a multiple of the step, or another step",
			who, length(season), length(step))
	}
	return int(season / step), nil
}

// durations turns bins back into time.
func durations(bins []int, step time.Duration) []time.Duration {
	out := make([]time.Duration, len(bins))
	for i, b := range bins {
		out[i] = time.Duration(b) * step
	}
	return out
}

// longestGap is where the longest run of unknown bins begins, and how many they are.
func (s Series) longestGap() (from, bins int) {
	since := 0
	for i, v := range s.Values {
		if v == v {
			since = i + 1
		} else if n := i + 1 - since; n > bins {
			from, bins = since, n
		}
	}
	return from, bins
}
