package core

import (
	"encoding/json"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
)

// foresight makes the job's forecasts: the job file's model behind the gate, which falls back to the seasonal forecaster.
type foresight struct {
	steps   int
	primary forecast.Forecaster
	last    plan.Forecast
	closer  func() error
}

func newForesight(j *job.Job, _ json.RawMessage) (*foresight, error) {
	f := &foresight{steps: int(j.Forecast.Horizon / j.Forecast.Interval), primary: forecast.NewSeasonal(j.Forecast.Season), closer: func() error { return nil }}
	return f, nil
}

func (f *foresight) forecast(now time.Time, history forecast.Series) plan.Forecast {
	fc, err := f.primary.Forecast(history, f.steps)
	if err != nil {
		f.last = plan.Forecast{At: now, Step: history.Step, Source: f.primary.Name(), Reason: err.Error()}
		return f.last
	}
	f.last = plan.Forecast{
		At: fc.At, Step: fc.Step, Mean: plan.Values(fc.Mean), Lower: plan.Values(fc.Lower), Upper: plan.Values(fc.Upper),
		Source: fc.Source, Trusted: true, Reason: fc.Note,
	}
	return f.last
}

// at is what the last forecast expected for a moment, nil when it does not reach there.
func (f *foresight) at(t time.Time) *Band {
	if f.last.Step <= 0 || t.Before(f.last.At) {
		return nil
	}
	i := int(t.Sub(f.last.At) / f.last.Step)
	if i >= len(f.last.Mean) {
		return nil
	}
	b := &Band{Mean: f.last.Mean[i], Lower: f.last.Mean[i], Upper: f.last.Mean[i]}
	if i < len(f.last.Lower) && i < len(f.last.Upper) {
		b.Lower, b.Upper = f.last.Lower[i], f.last.Upper[i]
	}
	return b
}

func (f *foresight) close() { _ = f.closer() }
