package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// with is a copy of the series in which bins have other values.
func with(s Series, bins map[int]float64) Series {
	s.Values = slices.Clone(s.Values)
	for i, v := range bins {
		s.Values[i] = v
	}
	return s
}

func TestFaults(t *testing.T) {
	t.Parallel()
	const season, n = 96, 960
	s := autoregressive(n, season, 15*time.Minute, 3)
	nan := math.NaN()
	daily := map[int]float64{}
	often, nothing := map[int]float64{}, map[int]float64{}
	for i := 40; i < n; i += season {
		daily[i+i/season%2] = 5e5 // one is a bin late
	}
	rng := rand.New(rand.NewPCG(3, 1))
	for range 12 {
		often[rng.IntN(n)], nothing[rng.IntN(n)] = 2e5, 0
	}
	for _, c := range []struct {
		name string
		bins map[int]float64
		want []int
	}{
		{"traffic", nil, nil},
		{"one", map[int]float64{500: 1e6}, []int{500}},
		{"three", map[int]float64{100: 1e6, 333: 1e6, 700: 3e5}, []int{100, 333, 700}},
		{"across the border of two bins", map[int]float64{500: 3e5, 501: 7e5}, []int{500, 501}},
		{"the first bin", map[int]float64{0: 1e6}, []int{0}},
		{"the last bin", map[int]float64{n - 1: 1e6}, []int{n - 1}},
		{"the last two are how it is now", map[int]float64{n - 2: 1e6, n - 1: 1e6}, nil},
		{"after a gap, and before one", map[int]float64{500: nan, 501: nan, 502: 1e6, 503: nan}, []int{502}},
		{"a burst of three bins", map[int]float64{500: 2e4, 501: 2e4, 502: 2e4}, nil},
		{"three bins of anything", map[int]float64{500: 1e6, 501: 1e6, 502: 1e6}, nil},
		{"a spike that is no ten times as high as what lasted", map[int]float64{500: 9000}, nil},
		{"a ramp to its end", map[int]float64{n - 4: 3e3, n - 3: 1e4, n - 2: 4e4, n - 1: 1.5e5}, nil},
		{"a peak that is led up to", map[int]float64{498: 4e3, 499: 1.3e4, 500: 6e4, 501: 1.3e4}, nil},
		{"a batch each day at its hour", daily, nil},
		{"what comes often", often, nil},
		{"a bin of nothing", map[int]float64{500: 0}, []int{500}},
		{"a bin of nothing in the trough", map[int]float64{480: 0}, nil},
		{"both", map[int]float64{500: 0, 400: 1e6, 502: 1e5}, []int{400, 500, 502}},
		{"a trough of three bins", map[int]float64{500: 0, 501: 0, 502: 0}, nil},
		{"nothing, as often as once a day at another hour", nothing, nil},
		{"a last bin of nothing", map[int]float64{n - 1: 0}, []int{n - 1}},
		{"the stream stands still", map[int]float64{n - 2: 0, n - 1: 0}, nil},
		{"a bin that is low, but no tenth of what lasted", map[int]float64{500: 60}, nil},
	} {
		if got := with(s, c.bins).Faults(season); !slices.Equal(got, c.want) {
			t.Errorf("%s: bins %v are faults, want %v", c.name, got, c.want)
		}
	}
	quiet := synthetic(200, time.Minute, func(int) float64 { return 0 })
	quiet.Values[100] = 5
	if got := quiet.Faults(0); got != nil {
		t.Errorf("of a stream that is all but silent bins %v are faults", got)
	}
	began := synthetic(200, time.Minute, func(i int) float64 { return 0.01 + 1000*float64(i/150) })
	for end := 3; end <= 200; end++ { // the first bin of the stream is in doubt until the second
		if got := began.Until(began.At(end)).Faults(0); len(got) > 0 && end != 151 {
			t.Errorf("bins %v of a stream that begins at bin 150 and is known up to %d are faults", got, end)
		}
	}
}

// A fault is mended from what is around it, and the series that was given stays as it is.
func TestFaultsAreMended(t *testing.T) {
	t.Parallel()
	const season, n = 96, 960
	// A day is a fifth higher than the one before.
	s := synthetic(n, 15*time.Minute, func(i int) float64 { return math.Pow(1.2, float64(i/season)) * cycle(float64(i%season)/season) })
	nan := math.NaN()
	for name, bins := range map[string]map[int]float64{
		"one": {500: 1e6}, "two in a row": {500: 1e6, 501: 1e6}, "the first": {0: 1e6}, "the last": {n - 1: 1e6}, "the last, of nothing": {n - 1: 0},
		"after a gap": {520: nan, 521: 1e6}, "before one": {500: 1e6, 501: nan}, "several": {50: 1e6, 400: 0, n - 1: 1e6},
	} {
		seen := with(s, bins)
		given := slices.Clone(seen.Values)
		got := seen.mended(season)
		for i, v := range got.Values {
			switch bad, changed := bins[i]; {
			case !math.IsNaN(bad) && changed && !(math.Abs(v-s.Values[i]) < 0.06*s.Values[i]):
				t.Errorf("%s: bin %d is mended to %.1f, and was %.1f", name, i, v, s.Values[i])
			case !changed && v != s.Values[i], changed && math.IsNaN(bad) && v == v:
				t.Errorf("%s: bin %d is %.1f, and no fault", name, i, v)
			}
			if same := seen.Values[i]; same != given[i] && same == same {
				t.Errorf("%s: bin %d of what was given is %v, and was %v", name, i, same, given[i])
			}
		}
	}
}

// What an event came to is not measured by a fault, and an event of two bins that was declared is none.
func TestEventsAndFaults(t *testing.T) {
	t.Parallel()
	const season = 96
	day := 24 * time.Hour
	s := synthetic(14*season, 15*time.Minute, func(i int) float64 { return cycle(float64(i%season) / season) })
	at := func(bin int) time.Time { return s.At(bin) }
	first := 13*season + 40
	c := Calendar{Seasons: []time.Duration{day}, Events: []Event{
		{Name: "push", From: at(first), To: at(first + 2), Uplift: 30},
		{Name: "sale", From: at(first + 10), To: at(first + 40), Uplift: 2},
	}}
	traffic := map[int]float64{first: 30 * s.Values[first], first + 1: 30 * s.Values[first+1]}
	for i := first + 10; i < first+40; i++ {
		traffic[i] = 2 * s.Values[i]
	}
	clean := with(s, traffic).Until(at(first + 20))
	f := c.With(NewSeasonal([]time.Duration{day}))
	want := forecastOf(t, f, clean, 12).Mean
	for h, v := range want {
		if actual := 2 * s.Values[first+20+h]; math.Abs(v-actual) > 0.02*actual {
			t.Errorf("in the event %.1f is expected in bin %d, want %.1f", v, h, actual)
		}
	}
	for _, bad := range []int{first - 20, first + 15} {
		near(t, fmt.Sprintf("with a fault in bin %d", bad-first), forecastOf(t, f, with(clean, map[int]float64{bad: 1e6}), 12).Mean, want, 0.02)
	}
}

// apart is the error over the bins of the last 30 % that are as they were in s, at origins that are every so many bins apart.
func apart(t *testing.T, f Forecaster, s, seen Series, steps, every int) float64 {
	t.Helper()
	missed, n := 0.0, 0.0
	for o := len(s.Values) * 7 / 10; o+steps <= len(s.Values); o += every {
		fc := forecastOf(t, f, seen.Until(seen.At(o)), steps)
		for h, m := range fc.Mean {
			if s.Values[o+h] == seen.Values[o+h] {
				missed, n = missed+math.Abs(s.Values[o+h]-m), n+1
			}
		}
	}
	return missed / n
}

// A bin that is a thousand times too high, wherever it is, changes no forecaster's errors in the others by more than a little, and neither does one of 0.
func TestFaultsAreNotLearnt(t *testing.T) {
	t.Parallel()
	const season, n, steps, step = 48, 900, 8, 30 * time.Minute
	s := autoregressive(n, season, step, 7)
	day := []time.Duration{24 * time.Hour}
	window := func(kind string, o WindowOptions) func(Series) Forecaster {
		o.Kind, o.Horizon, o.Season = kind, steps, day[0]
		return func(history Series) Forecaster {
			f, err := TrainWindow(history, o)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	nlinear := window(NLinear, WindowOptions{Input: season + 1})
	made := map[string]func(Series) Forecaster{
		"naive":    func(Series) Forecaster { return NewNaive(day[0]) },
		"seasonal": func(Series) Forecaster { return NewSeasonal(day) },
		NLinear:    nlinear,
		DLinear:    window(DLinear, WindowOptions{Input: season + 1}),
		SparseTSF:  window(SparseTSF, WindowOptions{}),
		"ensemble": func(history Series) Forecaster { return NewEnsemble(NewSeasonal(day), nlinear(history)) },
		"linear": func(history Series) Forecaster {
			model, _ := train(t, history, LinearOptions{Horizon: steps, Seasons: day}.Quick())
			return open(t, model)
		},
		"gate": func(history Series) Forecaster { return gated{t, nlinear(history), NewSeasonal(day)} },
	}
	first := n * 7 / 10
	for name, make := range made {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			every := 5
			if name == "gate" {
				every = 60 // it tries both of its forecasters on the past each time
			}
			errorOf := func(seen Series) float64 { return apart(t, make(seen.Until(seen.At(first))), s, seen, steps, every) }
			clean := errorOf(s)
			for _, bins := range []map[int]float64{{first + 5: 1e6}, {400: 1e6}, {123: 1e6, 555: 1e6, first + 130: 1e6}, {first + 45: 0}, {300: 0}} {
				if got := errorOf(with(s, bins)); !(got < 1.04*clean) {
					t.Errorf("with %s the mean error of the other bins is %.1f, and without %.1f", fmt.Sprint(bins), got, clean)
				}
			}
		})
	}
}

// gated forecasts by a gate that is new each time.
type gated struct {
	t             *testing.T
	first, second Forecaster
}

func (gated) Name() string { return "gate" }

func (g gated) Forecast(history Series, steps int) (Forecast, error) {
	gate := newGate(g.t, g.first, g.second)
	if _, err := gate.Warm(history, steps); err != nil {
		return Forecast{}, err
	}
	f, v, err := gate.Forecast(history.End(), history, steps)
	f.Source = g.Name()
	if !v.Trusted {
		g.t.Errorf("at bin %d the forecast is not trusted: %s", len(history.Values), v.Reason)
	}
	return f, err
}

// A burst that is real is still followed: three bins of ten times the traffic are expected to go on as they were before faults were told apart.
func TestBurstIsFollowed(t *testing.T) {
	t.Parallel()
	s := synthetic(14*96, 15*time.Minute, func(i int) float64 { return cycle(float64(i) / 96) })
	first := 13*96 + 30
	burst := map[int]float64{}
	for i := first; i < first+3; i++ {
		burst[i] = 10 * s.Values[i]
	}
	f := NewSeasonal([]time.Duration{24 * time.Hour})
	seen := with(s, burst).Until(s.At(first + 3))
	if got := forecastOf(t, f, seen, 4).Mean[0]; got < 3*s.Values[first+3] {
		t.Errorf("after three bins of ten times the traffic %.0f are expected, where without it %.0f come", got, s.Values[first+3])
	}
}
