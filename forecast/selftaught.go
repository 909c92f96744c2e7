package forecast

import (
	"fmt"
	"time"
)

// selfTaught is the forecaster that [NewSelfTaught] describes.
type selfTaught struct {
	season time.Duration
	taught memory[selfTaughtLesson]
}

// selfTaughtLesson is what was learnt, or why nothing was.
type selfTaughtLesson struct {
	window *window
	err    error
}

// NewSelfTaught returns an NLinear (see [TrainWindow]) of the last 336 bins, or a quarter of the history where that is less, that learns by itself: anew once a season,
// from the bins up to the last milestone, at the latest level (shifts.go), so that a forecast depends on nothing but its history. From fewer than four seasons it learns nothing: what it saw would be
// shorter than a season, or its examples too few for so many weights.
func NewSelfTaught(season time.Duration) Forecaster { return &selfTaught{season: season} }

// NewSeasonalEnsemble returns the mean ([NewEnsemble]) of [NewSeasonal] and of [NewSelfTaught], of the shortest season. Where the history is too short for the latter
// the seasonal forecaster answers alone, and the Note says so. It needs no model file.
func NewSeasonalEnsemble(seasons []time.Duration) Forecaster {
	members := []Forecaster{NewSeasonal(seasons)}
	if season := shortest(seasons); season > 0 {
		members = append(members, NewSelfTaught(season))
	}
	return NewEnsemble(members...)
}

// shortest is the shortest season; 0 where there is none.
func shortest(seasons []time.Duration) (out time.Duration) {
	for _, s := range seasons {
		if out == 0 || s < out {
			out = s
		}
	}
	return out
}

func (*selfTaught) Name() string { return NLinear }

// Forecast implements [Forecaster].
func (s *selfTaught) Forecast(history Series, steps int) (Forecast, error) {
	if err := checkRequest(s.Name(), history, steps); err != nil {
		return Forecast{}, err
	}
	season, err := seasonBins(s.Name(), s.season, history.Step)
	if err != nil {
		return Forecast{}, err
	}
	history = history.sinceKnown().levelled([]time.Duration{s.season})
	from, to := milestones(history, season)
	past := Series{Start: history.At(from), Step: history.Step, Values: history.Values[from:to]}
	of := lessonOf{bins: len(past.Values), sum: digest(past), steps: steps}
	t := s.taught.get(of, mapsKept, func(t *selfTaughtLesson) {
		if t.err = enoughSeasons(len(past.Values), season); t.err != nil {
			return
		}
		input := min(windowLeast, len(past.Values)/mapMemory)
		t.window, t.err = trainWindow(past, WindowOptions{Kind: NLinear, Input: max(input, 2), Horizon: steps, Season: s.season})
	})
	if t.err != nil {
		return Forecast{}, fmt.Errorf("the %s that teaches itself anew once a season, from no more than came before, has learnt nothing yet: %w", s.Name(), t.err)
	}
	return t.window.Forecast(history, steps)
}

// enoughSeasons says whether a history of so many bins is long enough for a map that teaches itself.
func enoughSeasons(bins, season int) error {
	if least := mapMemory * season; bins < least {
		return fmt.Errorf("%d bins were there at the last milestone, and it learns from %d or more: %d seasons of %d", bins, least, mapMemory, season)
	}
	return nil
}
