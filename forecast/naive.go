package forecast

import (
	"fmt"
	"math"
	"time"
)

// naive is the forecaster that [NewNaive] describes.
type naive struct{ season time.Duration }

// NewNaive returns seasonal naive, ŷ(t+h) = y(t+h−season): what every other
// forecaster is measured against. Where that bin is unknown it takes the season
// before, up to four of them. Its band is that of its own errors over the last
// two weeks of seasons. The season must be a whole number of bins, and the
// history must hold one and eight bins more.
func NewNaive(season time.Duration) Forecaster { return naive{season} }

func (naive) Name() string { return "naive" }

// Forecast implements [Forecaster].
func (n naive) Forecast(history Series, steps int) (Forecast, error) {
	if err := checkRequest(n.Name(), history, steps); err != nil {
		return Forecast{}, err
	}
	season, err := seasonBins(n.Name(), n.season, history.Step)
	if err != nil {
		return Forecast{}, err
	}
	y := history.mended(season).Values
	if len(y) < season+minOrigins {
		return Forecast{}, shortHistory(n.Name(), history, season+minOrigins, fmt.Sprintf("one season of %v and %d bins to test itself on", length(n.season), minOrigins))
	}
	f := Forecast{At: history.End(), Step: history.Step, Mean: repeatSeason(y, season, steps), Source: n.Name()}
	if !fillGaps(f.Mean) {
		return Forecast{}, fmt.Errorf("%s: none of the %d bins asked for was measured one season before or earlier: it needs a history with fewer gaps", n.Name(), steps)
	}
	lo, hi := max(season, len(y)-spanSeasons*season), max(season, len(y)-steps)
	origins := spread(min(lo, hi), hi, maxFollowed)
	res := newResiduals(steps, scaleFloor*max(meanKnown(y), math.SmallestNonzeroFloat64), len(origins))
	for _, o := range origins {
		res.begin()
		said := repeatSeason(y[:o], season, steps)
		for h := range min(steps, len(y)-o) {
			res.add(h, y[o+h], said[h])
		}
	}
	res.adapt()
	res.spread(&f)
	return f, nil
}

// repeatSeason continues y by the values of a season before, or of the next
// earlier one that is known; NaN where none of seasonalCycles is.
func repeatSeason(y []float64, season, steps int) []float64 {
	out := make([]float64, steps)
	for h := range out {
		out[h] = math.NaN()
		first := (h/season + 1) * season
		for lag := first; lag < first+seasonalCycles*season && lag <= len(y)+h && out[h] != out[h]; lag += season {
			out[h] = y[len(y)+h-lag]
		}
	}
	return out
}
