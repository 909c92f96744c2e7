package core

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
)

// foresight makes the job's forecasts: the job file's model behind the gate, which falls back to the seasonal forecaster and says so.
type foresight struct {
	lg    *slog.Logger
	steps int
	gate  *forecast.Gate
	model *forecast.ONNXModel // nil: seasonal only
	warm  bool
	last  plan.Forecast
}

// newForesight opens the job's forecast model. One that cannot be used is an error: the job file names it, and a person must know.
func newForesight(lg *slog.Logger, j *job.Job, saved json.RawMessage) (*foresight, error) {
	f := &foresight{lg: lg, steps: int(j.Forecast.Horizon / j.Forecast.Interval)}
	var primary forecast.Forecaster
	if j.Forecast.Model != job.ForecastSeasonal {
		m, err := forecast.OpenONNX(j.Forecast.Model, forecast.ONNXOptions{Threads: 1})
		if err != nil {
			return nil, fmt.Errorf("forecast.model of job %q: %w", j.Name, err)
		}
		f.model, primary = m, m
	}
	var err error
	f.gate, err = forecast.NewGate(primary, forecast.NewSeasonal(j.Forecast.Season), forecast.GateOptions{Window: j.Forecast.GateWindow, Tolerance: j.Forecast.GateTolerance})
	if err != nil {
		return nil, err
	}
	if len(saved) > 0 {
		var st forecast.GateState
		if err = json.Unmarshal(saved, &st); err == nil {
			err = f.gate.Restore(st)
		}
		if err != nil {
			lg.Warn("what the forecast gate had learnt cannot be used", "err", err)
		}
	}
	return f, nil
}

// forecast is what is expected for the bins after the history, with the gate's verdict.
func (f *foresight) forecast(now time.Time, history forecast.Series) plan.Forecast {
	if !f.warm && history.Known() > 0 {
		f.warm = true
		if n, err := f.gate.Warm(history, f.steps); err != nil {
			f.lg.Warn("the forecasters could not be tried on the past", "err", err)
		} else {
			f.lg.Info("forecasters tried on the past", "origins", n)
		}
	}
	fc, v, err := f.gate.Forecast(now, history, f.steps)
	if err != nil {
		f.last = plan.Forecast{At: history.End(), Step: history.Step, Source: v.Using, Reason: v.Reason}
		return f.last
	}
	if v.Changed {
		f.lg.Warn("another forecaster is in use", "using", v.Using, "why", v.Why)
	}
	reason := v.Reason
	if v.FallenBack {
		reason = fc.Note + "; " + v.Reason
	}
	f.last = plan.Forecast{
		At: fc.At, Step: fc.Step, Mean: plan.Values(fc.Mean), Lower: plan.Values(fc.Lower), Upper: plan.Values(fc.Upper),
		Source: fc.Source, Trusted: v.Trusted, Reason: reason,
	}
	return f.last
}

// state is what the gate remembers, to survive a restart.
func (f *foresight) state() json.RawMessage {
	raw, err := json.Marshal(f.gate.State())
	if err != nil {
		f.lg.Warn("the forecast gate's memory cannot be saved", "err", err)
		return nil
	}
	return raw
}

// at is what the last forecast expected for a moment, nil when it does not reach there or has a hole.
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
	if finite(b.Mean) != b.Mean || finite(b.Lower) != b.Lower || finite(b.Upper) != b.Upper {
		return nil
	}
	return b
}

func (f *foresight) close() {
	if f.model != nil {
		_ = f.model.Close()
	}
}
