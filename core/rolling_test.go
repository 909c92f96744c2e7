package core

import (
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
	err = RollingForecasts(j, needs, s, 260, 2, func(i int, made Made) error {
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
	if err := RollingForecasts(j, plan.Needs{}, s, 260, 1, func(int, Made) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the caller's ends it with %v", err)
	}
}
