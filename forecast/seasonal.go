package forecast

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// seasonal is the forecaster that [NewSeasonal] describes.
type seasonal struct {
	seasons []time.Duration
	origins int // past ones that it learns from

	lessons memory[lesson] // a forecast is the same without them
	maps    memory[linearMap]
}

// NewSeasonal returns the level-corrected seasonal naive forecaster, stacked. It begins from
//
//	ŷ(t+h) = y(t+h−lag) · ratio,  ratio = Σ y(t−i) / Σ y(t−i−lag),  i = 1…L
//
// where lag is a whole number of seasons. The sums run over the last L bins, as
// far as they are known on both sides, and the ratio is clipped to [1/5, 5].
// There is one candidate for each lag (up to four of each season, as far as the
// history reaches) and each of several lengths L, and the forecast is their mix:
// a candidate weighs the less, the worse it would have done at past origins, at
// the same horizon, and in the last bins. So a change of level takes the weight
// from candidates that are slow to see it. A bin for which a candidate knows
// nothing is left to the others; one for which none knows anything is
// interpolated between its neighbours.
//
// What the mix cannot say is stacked on it: that what the last bins were off by goes on, that
// the rate stays as it was lately, that a phase is as it was in the mean of many seasons, that what follows is a linear map of the last bins. How
// much each of these is worth at a horizon is learnt at the past origins, and no more of it is
// taken than is proven there: see stack.go.
//
// Where the level of a stream that had kept to its season is another from some moment on, what lay before is read as if it had been at that level: see shifts.go.
//
// Band, quantiles and scenarios come from the forecaster's own past, relative to
// what it would have said: the quantiles are those of what arrived, per horizon,
// and a scenario is the course of the errors of one past forecast. Where the errors
// were the larger, the further off the bins just before, they are scaled to how far off
// the last bins are now.
// Where more or fewer of the outcomes lie outside of the band than should, its width follows,
// horizon by horizon: see widths.go.
//
// Seasons are for instance a day and a week. Each must be a whole number of
// bins. The history must hold the shortest season, a level window and eight bins
// more; longer seasons count as soon as it holds them. A history that repeats
// itself, up to a change of level that is a level window old, is continued
// without error.
func NewSeasonal(seasons []time.Duration) Forecaster {
	return &seasonal{seasons: slices.Clone(seasons), origins: maxOrigins}
}

func (s *seasonal) Name() string { return "seasonal" }

// Forecast implements [Forecaster].
func (s *seasonal) Forecast(history Series, steps int) (Forecast, error) {
	if err := checkRequest(s.Name(), history, steps); err != nil {
		return Forecast{}, err
	}
	season := slices.Min(append([]time.Duration{math.MaxInt64}, s.seasons...))
	history = history.mended(int(season / history.Step)).sinceKnown() // from before there was a topic no season can be looked up
	history = history.levelled(s.seasons)
	l, y, err := s.lesson(history, steps)
	if err != nil {
		return Forecast{}, err
	}
	mean, errors := l.forecast(y)
	if !fillGaps(mean) {
		return Forecast{}, fmt.Errorf("%s: none of the %d bins asked for was measured one season before or earlier: it needs a history with fewer gaps", s.Name(), steps)
	}
	f := Forecast{At: history.End(), Step: history.Step, Mean: mean, Source: s.Name()}
	errors.spread(&f)
	return f, nil
}

// How candidates are made. These constants and those of mixture.go were chosen
// by the rolling-origin backtest of traces_test.go, for the lowest WAPE over all
// of its traces.
const (
	seasonalCycles = 4 // how many seasons back the same phase is looked up
	levelMinBins   = 3 // shortest level window, in bins
	minOrigins     = 8 // fewer outcomes than these say nothing about an error
)

// levelShares are the lengths over which a level ratio is taken, as shares of
// the shortest season. Of a day: ten minutes, an hour, six hours, the day.
var levelShares = [...]float64{1. / 144, 1. / 24, 1. / 4, 1}

// candidate is one way to continue the history: from lag bins ago, scaled by
// the ratio of the last level bins to those lag bins before them; a level of 0
// leaves it as it was.
type candidate struct{ lag, level int }

// first is the earliest origin at which the candidate is defined.
func (c candidate) first() int { return c.lag + max(c.level, levelMinBins) }

// candidates are those that the history is long enough for, shortest lag and
// level window first.
func (s *seasonal) candidates(history Series) ([]candidate, error) {
	if len(s.seasons) == 0 {
		return nil, fmt.Errorf("%s: no season was given: name one, such as 24h", s.Name())
	}
	season := math.MaxInt
	var lags []int
	for _, d := range s.seasons {
		b, err := seasonBins(s.Name(), d, history.Step)
		if err != nil {
			return nil, err
		}
		season = min(season, b)
		for c := 1; c <= seasonalCycles; c++ {
			lags = append(lags, c*b)
		}
	}
	slices.Sort(lags)
	var levels []int
	for _, share := range levelShares {
		levels = append(levels, max(levelMinBins, int(share*float64(season))))
	}
	if levels = slices.Compact(levels); len(levels) < len(levelShares) { // of a short season two are one: there it pays to have what was a season before as it was, too
		levels = append(levels, 0)
	}
	var cands []candidate
	for _, lag := range slices.Compact(lags) {
		for _, level := range levels {
			if c := (candidate{lag: lag, level: level}); c.first()+minOrigins <= len(history.Values) {
				cands = append(cands, c)
			}
		}
	}
	if len(cands) == 0 {
		need := candidate{lag: season, level: levels[0]}.first() + minOrigins
		return nil, shortHistory(s.Name(), history, need,
			fmt.Sprintf("one season of %v, a level window and %d bins to test itself on", length(slices.Min(s.seasons)), minOrigins))
	}
	return cands, nil
}
