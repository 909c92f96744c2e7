// Package forecasttest checks that a forecaster keeps the contract of
// [forecast.Forecaster]. Every implementation runs it, ours and those of others.
package forecasttest

import (
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/kale-sched/kale/forecast"
)

// Conform runs the suite. history is a valid series that is long enough for f to
// forecast the given number of steps, and still is when its last bin is missing.
func Conform(t *testing.T, f forecast.Forecaster, history forecast.Series, steps int) {
	t.Helper()
	ask := func(t *testing.T, s forecast.Series, n int) forecast.Forecast {
		t.Helper()
		fc, err := f.Forecast(s, n)
		if err != nil {
			t.Fatal(err)
		}
		return fc
	}
	t.Run("result", func(t *testing.T) {
		for _, n := range []int{1, steps} {
			fc := ask(t, history, n)
			if err := fc.Validate(); err != nil {
				t.Error(err)
			}
			if len(fc.Mean) != n || !fc.At.Equal(history.End()) || fc.Step != history.Step || fc.Source != f.Name() {
				t.Errorf("%d steps after %v by %q: got %d steps of %v after %v by %q", n, history.End(), f.Name(), len(fc.Mean), fc.Step, fc.At, fc.Source)
			}
		}
	})
	t.Run("deterministic", func(t *testing.T) {
		first := ask(t, history, steps)
		if again := ask(t, history, steps); !reflect.DeepEqual(first, again) {
			t.Error("the same history gave two forecasts")
		}
	})
	t.Run("keeps nothing and writes nothing", func(t *testing.T) {
		want := ask(t, history, steps)
		mine := forecast.Series{Start: history.Start, Step: history.Step, Values: slices.Clone(history.Values)}
		got := ask(t, mine, steps)
		for i, v := range mine.Values {
			if math.Float64bits(v) != math.Float64bits(history.Values[i]) {
				t.Fatalf("it wrote to bin %d of the history", i)
			}
			mine.Values[i] = 0
		}
		for i := range got.Mean {
			got.Mean[i], got.Lower[i], got.Upper[i] = -1, -1, -1
		}
		if again := ask(t, history, steps); !reflect.DeepEqual(want, again) {
			t.Error("changing a history that it had been given, or a forecast that it had returned, changed the next")
		}
	})
	t.Run("causal", func(t *testing.T) {
		n := len(history.Values) - 1
		before := forecast.Series{Start: history.Start, Step: history.Step, Values: slices.Clone(history.Values[:n])}
		longer := slices.Clone(history.Values)
		longer[n] = 1e9
		within := forecast.Series{Start: history.Start, Step: history.Step, Values: longer[:n]} // with room behind its end
		if !reflect.DeepEqual(ask(t, before, steps), ask(t, within, steps)) {
			t.Error("a bin after the end of the history changed the forecast")
		}
	})
	t.Run("concurrent", func(t *testing.T) {
		want := ask(t, history, steps)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if got, err := f.Forecast(history, steps); err != nil || !reflect.DeepEqual(want, got) {
					t.Errorf("a forecast made at the same time as others differs (error %v)", err)
				}
			})
		}
		all.Wait()
	})
	t.Run("errors", func(t *testing.T) {
		bad := slices.Clone(history.Values)
		bad[0] = math.Inf(1)
		for name, c := range map[string]struct {
			s     forecast.Series
			steps int
		}{
			"no steps":      {history, 0},
			"negative":      {history, -3},
			"no step":       {forecast.Series{Start: history.Start, Values: history.Values}, steps},
			"infinite rate": {forecast.Series{Start: history.Start, Step: history.Step, Values: bad}, steps},
			"no history":    {forecast.Series{Start: history.Start, Step: history.Step}, steps},
		} {
			if _, err := f.Forecast(c.s, c.steps); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}
