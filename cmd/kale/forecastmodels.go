package main

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

// namedModel is a model with the file that it is of; "": it was just trained.
type namedModel struct {
	*forecast.ONNXModel
	path string
}

// openModels opens what it can until the first that it cannot. A file that is named twice is opened once. One that is too slow for an answer is asked for no other.
func (a *app) openModels(paths []string) (models []namedModel, err error) {
	var seen []string
	bar := a.progress()
	for _, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			return models, err
		}
		if slices.Contains(seen, abs) {
			continue
		}
		seen = append(seen, abs)
		m, err := forecast.OpenONNX(path, forecast.ONNXOptions{Once: true, Limit: a.answerWithin, Progress: bar.holding(path)})
		if err != nil {
			return models, err
		}
		models = append(models, namedModel{m, path})
	}
	return models, nil
}

func closeModels(models []namedModel) {
	for _, m := range models {
		_ = m.Close() // it was only read
	}
}

// modelNames tells models apart: by their kind, of two of one kind by their files' names too, and of two such by their paths.
func modelNames(models []namedModel) []string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name()
	}
	for _, with := range []func(string) string{filepath.Base, func(path string) string { return path }} {
		shared := slices.Clone(names)
		for i, m := range models {
			alike := 0
			for _, name := range shared {
				if name == shared[i] {
					alike++
				}
			}
			if alike > 1 && m.path != "" {
				names[i] = m.Name() + " " + with(m.path)
			}
		}
	}
	return names
}

// answers says, as an error, why a model can have no answer at any moment of a history, however that goes on: shortest is the shortest horizon, in bins, and interval
// what was asked for, 0: nothing.
func (m namedModel) answers(p past, shortest int, interval time.Duration) error {
	i, step := m.Info(), p.series.Step
	span := func(bins int, step time.Duration) string { return job.FormatDuration(time.Duration(bins) * step) }
	switch {
	case i.Step > step && i.Step%step == 0:
		return usagef("model %s forecasts bins of %s, and %s has bins of %s: measure with -interval %[2]s", m.path, span(1, i.Step), p.source, span(1, step))
	case i.Step != step && interval != 0:
		return usagef("model %s forecasts bins of %s, and -interval %s makes others of %s: give -interval %[2]s, or train a model on such bins", m.path, span(1, i.Step), span(1, step), p.source)
	case i.Step != step:
		return usagef("model %s forecasts bins of %s, and %s has bins of %s: train one with kale forecast train on such a history", m.path, span(1, i.Step), p.source, span(1, step))
	case i.Horizon < shortest:
		return usagef("model %s forecasts no further than %s, and the shortest -horizon is %s: take a shorter one, or train it with a longer one", m.path, span(i.Horizon, step), span(shortest, step))
	case i.Input >= len(p.series.Values):
		return usagef("model %s forecasts from the last %s, and all of %s is %s: take a longer history", m.path, span(i.Input, step), p.source, span(len(p.series.Values), step))
	}
	return nil
}
