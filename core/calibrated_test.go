package core

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
)

// untried forecasts as another does, and says that its bands were made from so many outcomes.
type untried struct {
	forecast.Forecaster
	outcomes int
}

func (u untried) Forecast(history forecast.Series, steps int) (forecast.Forecast, error) {
	f, err := u.Forecaster.Forecast(history, steps)
	f.Outcomes = u.outcomes
	return f, err
}

// Calibrated is told of bands that rest on enough past outcomes, and that a forecaster was scored is not enough. The band of 90 % is in every forecast.
func TestCalibratedTakesOutcomes(t *testing.T) {
	j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir())) // interval 1 s, horizon 20 s, season 1 min
	for outcomes, want := range map[int]bool{forecast.CalibratedOutcomes: true, forecast.CalibratedOutcomes - 1: false} {
		f, err := wrappedForesight(slog.New(slog.DiscardHandler), j, nil, func(f forecast.Forecaster) forecast.Forecaster { return untried{f, outcomes} })
		if err != nil {
			t.Fatal(err)
		}
		f.needs = plan.Needs{}
		s := forecast.Series{Start: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), Step: time.Second, Values: make([]float64, 300)}
		for i := range s.Values {
			s.Values[i] = 100 + float64(i%7)
		}
		got := f.forecast(s.End(), s)
		if !got.Trusted || got.Calibrated != want || got.Outcomes != outcomes {
			t.Errorf("of %d outcomes: trusted %v, calibrated %v, want %v; it says %d", outcomes, got.Trusted, got.Calibrated, want, got.Outcomes)
		}
		if !slices.Equal(got.Levels, []float64{0.05, 0.95}) || len(got.Quantiles) != 2 || got.Quantiles[1][3] < got.Upper[3]-0.01 {
			t.Errorf("levels %v, rows %v, upper %v", got.Levels, got.Quantiles, got.Upper)
		}
		if late := f.forecast(s.End().Add(10*time.Second), s); late.Calibrated {
			t.Error("it is called calibrated ten seconds after the last measurement")
		}
	}
}
