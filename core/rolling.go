package core

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
)

// Rolling is which forecasts of the past are made.
type Rolling struct {
	Series forecast.Series
	First  int        // the bin of the series at the end of which the first is made
	Every  int        // bins from one forecast to the next; 1: one in each
	Needs  plan.Needs // what of them is wanted
	// Progress, where set, is told how far the job's model file is where it is held to the past, from any of the goroutines but from one at a time.
	Progress func(what string, done, total int)
}

// RollingForecasts are the forecasts that a scheduler of job j would have made, one at the end of each of the bins r.First, r.First+r.Every, … of the series: made by the
// same forecasters, behind the same gate, of the same length of history. out(i, m) gets them in order, m being made when i bins were known. Each has
// seen Values[:i] and nothing later. With the end of ctx it ends, also in the midst of an answer of a model file.
//
// The forecasters run on all processors, which changes no forecast; the gate sees the forecasts in order.
func RollingForecasts(ctx context.Context, j *job.Job, r Rolling, out func(i int, m Made) error) error {
	series, first, every := r.Series, r.First, r.Every
	if every < 1 || first < 0 {
		return fmt.Errorf("rolling forecasts: from bin %d, one in %d bins: want a bin of the history, and 1 or more", first, every)
	}
	memo := &memory{known: map[int64]map[string]foreseen{}}
	how := asked{wrap: memo.wrap}
	if r.Progress != nil {
		how.progress = func(done, total int) { r.Progress(holdingToThePast, done, total) }
	}
	f, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, how)
	if err != nil {
		return err
	}
	defer f.close()
	defer f.closeOn(ctx)()
	needs := r.Needs
	f.needs, f.outlook = needs, memo.outlook
	memo.beyond = needs.Beyond
	f.needs = plan.Needs{Spread: true, Beyond: true} // one set of forecasts serves all policies
	const chunk = 64
	for from := first; from <= len(series.Values); from += chunk * every {
		origins := make([]int, 0, chunk)
		for i := from; i <= len(series.Values) && len(origins) < chunk; i += every {
			origins = append(origins, i)
		}
		memo.ahead(ctx, j, series, origins, f.steps)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, i := range origins {
			made := f.forecast(series.At(i), pastOf(j, series, i)) // which says what f.instead is
			if err := out(i, Made{Forecast: made, Named: f.gate.First(), Why: f.instead}); err != nil {
				return err
			}
		}
		clear(memo.known)
	}
	return nil
}

// Made is a forecast, and who made it: that is its Source, "" where it holds nothing.
type Made struct {
	plan.Forecast
	// Named is the forecaster that the job names, Why why another made the forecast, or none could; "": it was made by that.
	Named, Why string
}

// pastOf is what a scheduler of j knows of the series when i bins are complete.
func pastOf(j *job.Job, s forecast.Series, i int) forecast.Series {
	from := max(0, i-int(j.Forecast.Past()/s.Step))
	return forecast.Series{Start: s.At(from), Step: s.Step, Values: s.Values[from:i:i]}
}

// memory holds forecasts that were made ahead of being asked for.
type memory struct {
	made  []forecast.Forecaster
	known map[int64]map[string]foreseen // by the end of the history (ns), then by forecaster
	// beyond says that outlooks are wanted too; they are known by no name.
	beyond bool
}

type foreseen struct {
	bins int
	f    forecast.Forecast
	err  error
}

func (m *memory) wrap(f forecast.Forecaster) forecast.Forecaster {
	m.made = append(m.made, f)
	return remembered{Forecaster: f, memory: m}
}

// ahead makes the forecasts at the origins, on all processors, as long as ctx lasts.
func (m *memory) ahead(ctx context.Context, j *job.Job, series forecast.Series, origins []int, steps int) {
	made := make([]map[string]foreseen, len(origins))
	next := make(chan int, len(origins))
	for k := range origins {
		next <- k
	}
	close(next)
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(origins)) { // each ends when next is empty, and is waited for below
		wait.Go(func() {
			for k := range next {
				if ctx.Err() != nil {
					return
				}
				past := pastOf(j, series, origins[k])
				made[k] = map[string]foreseen{}
				for _, f := range m.made {
					fc, err := f.Forecast(past, steps)
					made[k][f.Name()] = foreseen{bins: len(past.Values), f: fc, err: err}
				}
				if m.beyond {
					fc, err := forecast.Outlook(past, j.Forecast.Season)
					made[k][""] = foreseen{bins: len(past.Values), f: fc, err: err}
				}
			}
		})
	}
	wait.Wait()
	for k, i := range origins {
		m.known[series.At(i).UnixNano()] = made[k]
	}
}

// remembered answers from memory where it can.
type remembered struct {
	forecast.Forecaster
	memory *memory
}

func (r remembered) Forecast(history forecast.Series, steps int) (forecast.Forecast, error) {
	if known, ok := r.memory.known[history.End().UnixNano()][r.Name()]; ok && known.bins == len(history.Values) && (known.err != nil || len(known.f.Mean) == steps) {
		return known.f, known.err
	}
	return r.Forecaster.Forecast(history, steps)
}

// ID and TrainedUntil pass on what a model file says of itself: the gate asks.
func (r remembered) ID() string {
	if m, ok := r.Forecaster.(interface{ ID() string }); ok {
		return m.ID()
	}
	return ""
}

func (r remembered) TrainedUntil() time.Time {
	if m, ok := r.Forecaster.(interface{ TrainedUntil() time.Time }); ok {
		return m.TrainedUntil()
	}
	return time.Time{}
}

// outlook is forecast.Outlook from memory where it can be.
func (m *memory) outlook(history forecast.Series, seasons []time.Duration) (forecast.Forecast, error) {
	if known, ok := m.known[history.End().UnixNano()][""]; ok && known.bins == len(history.Values) {
		return known.f, known.err
	}
	return forecast.Outlook(history, seasons)
}
