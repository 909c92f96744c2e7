package forecast

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// rough is a season with a trend and what looks like noise, so that SparseTSF averages its points.
func rough(n int) Series {
	return synthetic(n, time.Second, func(i int) float64 {
		return (1+float64(i)/4000)*cycle(float64(i%120)/120) + 30*math.Sin(float64(i*i%977))
	})
}

// The file says what the model says that was trained in Go: at every horizon, of whole seasons and of parts of one, with gaps, and of ten times the traffic.
func TestWindowGraphIsTheForecaster(t *testing.T) {
	t.Parallel()
	s := rough(1400)
	for i := 1250; i < 1262; i++ {
		s.Values[i] = math.NaN()
	}
	grown := Series{Start: s.Start, Step: s.Step, Values: slices.Clone(s.Values)}
	for i := range grown.Values {
		grown.Values[i] *= 10
	}
	for _, kind := range windowKinds {
		input := 60
		if kind == SparseTSF {
			input = 240
		}
		for _, horizon := range []int{7, 150} { // of SparseTSF one point of a phase, and two
			o := LinearOptions{Horizon: horizon, Seasons: []time.Duration{2 * time.Minute}, Input: input}
			file, r, err := TrainWindowModel(s, kind, o.Quick())
			if err != nil {
				t.Fatal(err)
			}
			w, err := trainWindow(s, WindowOptions{Kind: kind, Input: r.Info.Input, Horizon: horizon, Season: o.Seasons[0]})
			if err != nil {
				t.Fatal(err)
			}
			if kind == SparseTSF && w.around == 0 {
				t.Fatal("its points are no averages: choose another series")
			}
			m := open(t, file)
			for _, history := range []Series{s, grown, s.Until(s.At(1290))} {
				got, want := forecastOf(t, m, history, horizon), forecastOf(t, w, history, horizon)
				near(t, kind, got.Mean, want.Mean, 2e-5)
				if got.quantile(0.95) == nil || got.quantile(0.05)[0] >= got.quantile(0.95)[0] {
					t.Errorf("%s: levels %v, %v to %v", kind, got.Levels, got.quantile(0.05), got.quantile(0.95))
				}
			}
			if i := r.Info; i.Name != kind || i.TrainedBins != 1400 || !i.TrainedUntil.Equal(s.End()) || i.SeasonBins[0] != 120 || i.Horizon != horizon {
				t.Errorf("%s says of itself %+v", kind, i)
			}
		}
	}
}

// What the report says of the model is of one that has seen nothing of what it is measured on: a stream that changes its course there is not foreseen.
func TestWindowModelIsMeasuredUnseen(t *testing.T) {
	t.Parallel()
	s := tones(2000)
	for i := 1700; i < len(s.Values); i++ {
		s.Values[i] = 1000 + 500*float64(i/7%2)
	}
	o := LinearOptions{Horizon: 10, Seasons: []time.Duration{2 * time.Minute}, Input: 60}.Quick()
	_, r, err := TrainWindowModel(s, NLinear, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.From.Before(s.At(1600)) || r.Holdout == 0 || !(r.Model.WAPE > 0.1) || !(r.Naive.WAPE > 0) || !(r.Seasonal.WAPE > 0) || r.Info.Input != 60 {
		t.Errorf("%+v", r)
	}
	again, _, err := TrainWindowModel(s, NLinear, o)
	first, _, err2 := TrainWindowModel(s, NLinear, o)
	if err != nil || err2 != nil || string(again) != string(first) {
		t.Errorf("the same history gives another file (%v, %v)", err, err2)
	}
}

func TestTrainWindowModelErrors(t *testing.T) {
	seasons := []time.Duration{2 * time.Minute}
	for want, train := range map[string]func() error{
		"history is too short": func() error {
			_, _, err := TrainWindowModel(tones(300), NLinear, LinearOptions{Horizon: 5, Seasons: seasons})
			return err
		},
		"measure it on the last fifth of the history, of which it has learnt nothing: train nlinear: history is too short": func() error {
			_, _, err := TrainWindowModel(tones(380), NLinear, LinearOptions{Horizon: 5, Seasons: seasons})
			return err
		},
	} {
		if err := train(); !errors.Is(err, ErrShortHistory) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, o := range map[string]LinearOptions{
		"no season was given":               {Horizon: 5},
		"every measured rate is 0":          {Horizon: 5, Seasons: seasons},
		"the horizon is 0 bins; want 1 to ": {Seasons: seasons},
	} {
		silent := synthetic(800, time.Second, func(int) float64 { return 0 })
		if _, _, err := TrainWindowModel(silent, DLinear, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, _, err := TrainWindowModel(tones(800), "arima", LinearOptions{Horizon: 5, Seasons: seasons}); err == nil || !strings.Contains(err.Error(), `"arima": want nlinear`) {
		t.Error(err)
	}
}

// The ensemble that needs no file is the mean of the seasonal forecaster and of an NLinear of what had arrived by the season's beginning, and seasonal alone before that.
func TestSeasonalEnsembleLearnsByItself(t *testing.T) {
	t.Parallel()
	s, seasons := rough(1500), []time.Duration{2 * time.Minute}
	e := NewSeasonalEnsemble(seasons)
	for _, at := range []int{1319, 1320, 1400} {
		history := s.Until(s.At(at))
		_, to := milestones(history, 120)
		from, _ := milestones(history, 120)
		past := Series{Start: s.At(from), Step: s.Step, Values: s.Values[from:to]}
		w, err := TrainWindow(past, WindowOptions{Kind: NLinear, Input: min(336, len(past.Values)/4), Horizon: 20, Season: seasons[0]})
		if err != nil {
			t.Fatal(err)
		}
		want := forecastOf(t, NewEnsemble(NewSeasonal(seasons), w), history, 20)
		got := forecastOf(t, e, history, 20)
		near(t, "the ensemble", got.Mean, want.Mean, 1e-12)
		if got.Source != "ensemble" || got.Note != "" {
			t.Errorf("by %s: %s", got.Source, got.Note)
		}
	}
	// With fewer than four seasons the map would see less than one of them, and be far off (24.6 % where seasonal is 4.1 % off, after three).
	for _, at := range []int{150, 360, 479} {
		early := s.Until(s.At(at))
		got, want := forecastOf(t, e, early, 20), forecastOf(t, NewSeasonal(seasons), early, 20)
		near(t, "early", got.Mean, want.Mean, 0)
		if !strings.Contains(got.Note, "has learnt nothing yet: ") || !strings.Contains(got.Note, "it learns from 480 or more: 4 seasons of 120") {
			t.Errorf("after %d bins it notes %q", at, got.Note)
		}
	}
	if got := forecastOf(t, e, s.Until(s.At(600)), 20); got.Note != "" {
		t.Errorf("after five seasons it notes %q", got.Note)
	}
}
