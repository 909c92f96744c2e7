package core

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
)

// rolled is a job and a history of one hour a day, for which forecasts are quickly made.
func rolled() (*job.Job, forecast.Series) {
	j := &job.Job{Name: "rolled"}
	j.Forecast = job.Forecast{
		Interval: time.Minute, Horizon: 10 * time.Minute, Season: []time.Duration{time.Hour}, History: 4 * time.Hour,
		Model: job.ForecastSeasonal, GateWindow: time.Hour, GateTolerance: 0.1,
	}
	j.Autoscale.Policy = "kale"
	s := forecast.Series{Start: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), Step: time.Minute}
	for i := range 400 {
		s.Values = append(s.Values, 1000+500*math.Sin(float64(i)*2*math.Pi/60)+float64(i*i%37))
	}
	return j, s
}

// Rolling forecasts are those that a scheduler would have made one after another, whatever was made ahead.
func TestRollingForecasts(t *testing.T) {
	j, s := rolled()
	needs := plan.Needs{Spread: true, Beyond: true}
	f, err := newForesight(slog.New(slog.DiscardHandler), j, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.needs = needs
	seen := 0
	err = RollingForecasts(t.Context(), j, Rolling{Series: s, First: 260, Every: 2, Needs: needs}, func(i int, made Made) error {
		got := made.Forecast
		want := f.forecast(s.At(i), pastOf(j, s, i))
		if !reflect.DeepEqual(want, got) { // which is quicker than to tell where they differ
			diff := cmp.Diff(want, got)
			t.Fatalf("after %d bins (-one by one +rolling):\n%s", i, diff)
		}
		if !got.At.Equal(s.At(i)) || len(got.Mean) != 10 || got.Beyond == nil || len(got.Quantiles) == 0 {
			t.Fatalf("after %d bins: from %v, %d steps, %d quantiles, beyond %v", i, got.At, len(got.Mean), len(got.Quantiles), got.Beyond)
		}
		seen++
		return nil
	})
	if err != nil || seen != 71 { // more than are made ahead at once
		t.Errorf("%d forecasts, %v; want one in each two of 140 bins, and at both ends", seen, err)
	}
	stop := errors.New("enough")
	if err := RollingForecasts(t.Context(), j, Rolling{Series: s, First: 260, Every: 1}, func(int, Made) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the caller's ends it with %v", err)
	}
}

// With the end of the context rolling forecasts end in the midst of the work of a model that is held to the past, how far that is told, and so does the one forecast of a plan.
func TestForecastsEndWithTheContext(t *testing.T) {
	j, s := heavy(t, 128)
	last, total := 0, 0
	ending := func() (context.Context, func(string, int, int)) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		last, total = 0, 0
		return ctx, func(what string, done, of int) {
			if what != holdingToThePast {
				t.Errorf("it tells of %s", what)
			}
			if last, total = done, of; done == 3 {
				cancel()
				time.Sleep(20 * time.Millisecond) // the model is closed beside
			}
		}
	}
	ctx, progress := ending()
	err := RollingForecasts(ctx, j, Rolling{Series: s, First: len(s.Values) - 20, Every: 1, Progress: progress}, func(i int, _ Made) error {
		t.Errorf("it has a forecast after %d bins", i)
		return nil
	})
	if !errors.Is(err, context.Canceled) || last < 3 || last > 6 || total < 16 {
		t.Errorf("rolling: %v, at %d of %d moments", err, last, total)
	}

	ctx, progress = ending()
	plan := &Scheduler{job: j, opt: Options{Progress: progress}}
	f, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, plan.asks())
	if err != nil {
		t.Fatal(err)
	}
	done := f.closeOn(ctx)
	defer done()
	if got := f.forecast(s.End(), s); got.Source != "seasonal" || last > 6 {
		t.Errorf("a plan's is by %s, when the model was held to %d of %d moments", got.Source, last, total)
	}
}

// A model that does not answer is waited for once, and not at each moment of the past.
func TestRollingForecastsGiveUp(t *testing.T) {
	f := &foresight{tried: &tryProgress{}}
	if !f.options().Once {
		t.Error("one that is waited for is asked again and again")
	}
	if f.opened.spawn = func(func()) {}; f.options().Once {
		t.Error("one that is asked beside is given up for good")
	}
}
