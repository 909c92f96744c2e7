package forecast

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSeriesBins(t *testing.T) {
	s := demo()
	for _, c := range []struct {
		at    time.Duration
		bin   int
		until int
	}{
		{0, 0, 0}, {999 * time.Millisecond, 0, 0}, {time.Second, 1, 1}, {-time.Nanosecond, -1, 0},
		{-time.Second, -1, 0}, {359 * time.Second, 359, 359}, {time.Hour, 3600, 360},
	} {
		if got := s.Bin(epoch.Add(c.at)); got != c.bin {
			t.Errorf("bin at %v is %d, want %d", c.at, got, c.bin)
		}
		if got := s.Until(epoch.Add(c.at)); len(got.Values) != c.until {
			t.Errorf("%d bins are complete at %v, want %d", len(got.Values), c.at, c.until)
		}
	}
}

// Every figure is worked out by hand.
func TestBacktestFigures(t *testing.T) {
	s := synthetic(7, time.Second, func(i int) float64 { return []float64{5.5, 1, 10, 20, math.NaN(), 0, 30}[i] })
	nan := math.NaN()
	// At every origin it says 12 (from 10 to 15) for each of two bins.
	f := fixed{mean: 12, lower: 10, upper: 15}
	r, err := Backtest(f, s, BacktestOptions{Steps: 2, First: 2, Every: 2, Season: 1})
	if err != nil {
		t.Fatal(err)
	}
	// Origins 2, 4, 6; outcomes 10, 20 | unknown, 0 | 30. Errors +2, −8, +12, −18.
	want := Report{Source: "fixed", Origins: 3,
		Errors: Errors{Bins: 4, MAPE: (2./10 + 8./20 + 18./30) / 3, WAPE: 40. / 60, MAE: 10, RMSE: math.Sqrt(134), MASE: 10 / 4.5, Pinball: 13. / 3, Bias: -12. / 60, Coverage: 1. / 4, Coverage90: nan, Coverage90SD: nan},
		PerHorizon: []Errors{
			{Bins: 2, MAPE: (2./10 + 18./30) / 2, WAPE: 20. / 40, MAE: 10, RMSE: math.Sqrt(164), MASE: 10 / 4.5, Pinball: 26. / 6, Bias: -16. / 40, Coverage: 1. / 2, Coverage90: nan, Coverage90SD: nan},
			{Bins: 2, MAPE: 8. / 20, WAPE: 20. / 20, MAE: 10, RMSE: math.Sqrt(104), MASE: 10 / 4.5, Pinball: 26. / 6, Bias: 4. / 20, Coverage: 0, Coverage90: nan, Coverage90SD: nan},
		}}
	approx := cmp.Comparer(func(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-12 || math.IsNaN(a) && math.IsNaN(b) })
	if diff := cmp.Diff(want, r, approx); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type fixed struct{ mean, lower, upper float64 }

func (fixed) Name() string { return "fixed" }

func (f fixed) Forecast(s Series, steps int) (Forecast, error) {
	return Forecast{At: s.End(), Step: s.Step, Source: "fixed", Mean: slices.Repeat([]float64{f.mean}, steps),
		Lower: slices.Repeat([]float64{f.lower}, steps), Upper: slices.Repeat([]float64{f.upper}, steps)}, nil
}

// Changing the history after a moment changes no forecast made before it.
func TestBacktestIsCausal(t *testing.T) {
	t.Parallel()
	const since = 500
	a := autoregressive(700, 120, time.Second, 8)
	b := Series{Start: a.Start, Step: a.Step, Values: slices.Clone(a.Values)}
	for i := since; i < len(b.Values); i++ {
		b.Values[i] = 1e6
	}
	model, _ := train(t, a.Until(a.At(400)), demoOptions.Quick())
	for name, f := range map[string]Forecaster{
		"seasonal": NewSeasonal([]time.Duration{2 * time.Minute}),
		"linear":   open(t, model),
	} {
		t.Run(name, func(t *testing.T) {
			collect := func(s Series) (before, after []Forecast) {
				_, err := Backtest(f, s, BacktestOptions{Steps: 20, First: 420, Every: 16, Visit: func(origin int, fc Forecast) {
					if origin <= since {
						before = append(before, fc)
					} else {
						after = append(after, fc)
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				return before, after
			}
			wantBefore, wantAfter := collect(a)
			gotBefore, gotAfter := collect(b)
			if len(wantBefore) != 6 || len(wantAfter) != 12 {
				t.Fatalf("%d origins up to bin %d, and %d after; want 6 and 12", len(wantBefore), since, len(wantAfter))
			}
			if !reflect.DeepEqual(wantBefore, gotBefore) { // which is quicker; and where it is not so, they may be the same all the same
				if diff := cmp.Diff(wantBefore, gotBefore); diff != "" {
					t.Errorf("what came after bin %d changed forecasts made before it:\n%s", since, diff)
				}
			}
			if slices.EqualFunc(wantAfter, gotAfter, func(a, b Forecast) bool { return cmp.Equal(a, b) }) {
				t.Errorf("nothing that came after bin %d changed any forecast", since)
			}
		})
	}
}

func TestBacktestErrors(t *testing.T) {
	f := NewSeasonal([]time.Duration{2 * time.Minute})
	for _, c := range []struct {
		name string
		s    Series
		o    BacktestOptions
		want string
	}{
		{"no steps", demo(), BacktestOptions{}, "a forecast of 0 steps"},
		{"past the end", demo(), BacktestOptions{Steps: 5, First: 360}, "361 bins (6m1s) are needed"},
		{"negative", demo(), BacktestOptions{Steps: 5, First: -1}, "must be 1 or more"},
		{"too early", demo(), BacktestOptions{Steps: 200, First: 20, Every: 400}, "all 1 forecasts failed, the first one so: seasonal: history is too short"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Backtest(f, c.s, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
	r, err := Backtest(f, demo(), BacktestOptions{Steps: 5, First: 100, Every: 50})
	if err != nil || r.Failed != 1 || !errors.Is(r.FirstError, ErrShortHistory) || r.Origins != 6 {
		t.Errorf("with one origin too early: %d of %d failed, %v, %v", r.Failed, r.Origins, r.FirstError, err)
	}
}

func TestOuterQuantilesAreConformal(t *testing.T) {
	for _, c := range []struct {
		n      int
		lo, up float64
	}{{0, 0, 0}, {1, 1, 1}, {8, 1, 8}, {9, 1, 9}, {10, 1, 10}, {19, 2, 18}, {99, 10, 90}} {
		e := make([]float64, c.n)
		for i := range e {
			e[i] = float64(c.n - i)
		}
		slices.Sort(e)
		if lo, up := conformal(e, lowerQuantile), conformal(e, upperQuantile); lo != c.lo || up != c.up {
			t.Errorf("of 1…%d they are %v and %v, want %v and %v", c.n, lo, up, c.lo, c.up)
		}
	}
}

func TestTrainLinearErrors(t *testing.T) {
	gaps := demo()
	for i := range gaps.Values {
		if i%5 != 0 {
			gaps.Values[i] = math.NaN()
		}
	}
	two := []time.Duration{2 * time.Minute}
	for _, c := range []struct {
		name string
		s    Series
		o    LinearOptions
		want string
	}{
		{"nothing said", demo(), LinearOptions{}, "the horizon is 0 bins; want 1 to 1048576\nno season was given"},
		{"short", demo().Until(epoch.Add(150 * time.Second)), LinearOptions{Horizon: 20, Seasons: two}, "history is too short: it has 150 bins"},
		{"fraction", demo(), LinearOptions{Horizon: 20, Seasons: []time.Duration{2500 * time.Millisecond}}, "not two or more whole bins"},
		{"too far", demo(), LinearOptions{Horizon: 500, Seasons: two}, "a horizon of 500 bins is longer than 4 seasons of 120"},
		{"small input", demo(), LinearOptions{Horizon: 20, Seasons: two, Input: 100}, "an input of 100 bins holds no season"},
		{"mostly gaps", gaps, LinearOptions{Horizon: 20, Seasons: two}, "only 72 of 360 bins"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := TrainLinear(c.s, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestTrainLinearBridgesGaps(t *testing.T) {
	t.Parallel()
	s := autoregressive(1200, 120, time.Second, 2)
	o := demoOptions
	o.holdout = 40 // each bin of the holdout is forecast from three moments or four
	whole, r := train(t, s, o)
	for i := range s.Values {
		if i%10 == 3 || i > 700 && i < 760 {
			s.Values[i] = math.NaN()
		}
	}
	holed, h := train(t, s, o)
	if string(whole) == string(holed) {
		t.Error("the gaps change nothing at all")
	}
	if !(h.Model.WAPE < 1.3*r.Model.WAPE) {
		t.Errorf("gaps in a seventh of the bins raise the holdout's WAPE from %.4f to %.4f", r.Model.WAPE, h.Model.WAPE)
	}
}

// What lies outside in spells is less sure than what lies outside now and then.
func TestBlockDeviation(t *testing.T) {
	const n, block = 9000, 30
	now, spells := make([]float64, n), make([]float64, n)
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range n {
		if rng.Float64() < 0.9 {
			now[i] = 1
		}
		if i%block == 0 && rng.Float64() < 0.9 || i%block > 0 && spells[i-1] == 1 {
			spells[i] = 1
		}
	}
	for i := 5; i < n; i += 7 {
		now[i] = math.NaN()
	}
	for _, c := range []struct {
		name   string
		values []float64
		want   float64
	}{{"now and then", now, math.Sqrt(0.09 / (n * 6 / 7))}, {"in spells", spells, math.Sqrt(0.09 / (n / block))}} {
		if got := blockDeviation(c.values, block); math.Abs(got/c.want-1) > 0.2 {
			t.Errorf("%s: %.5f, want about %.5f", c.name, got, c.want)
		}
	}
	if got := blockDeviation(now[:block], block); got == got {
		t.Errorf("of one block: %v", got)
	}
}

// Of two that are as good as each other neither is the better, however one block of one's losses came out; one that is worse each time is.
func TestLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 4))
	const n, block = 400, 20
	hard, alike, worse, once := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		hard[i] = 10 * rng.ExpFloat64()
		alike[i], worse[i], once[i] = hard[i]+rng.NormFloat64(), 1.05*hard[i], hard[i]
		if i/block == 3 {
			once[i] *= 2
		}
	}
	worse[7], once[9] = math.NaN(), math.NaN() // not known there
	for _, c := range []struct {
		name  string
		of    []float64
		level bool
	}{{"as good", alike, true}, {"itself", hard, true}, {"worse each time", worse, false}, {"worse in one block", once, true}, {"of few", worse[:block], true}} {
		if got := Level(c.of, hard, block); got != c.level {
			t.Errorf("%s: level is %v", c.name, got)
		}
	}
}

// The losses by origin are those of which the report has the mean.
func TestBacktestListsLosses(t *testing.T) {
	r, err := Backtest(NewNaive(2*time.Minute), demo(), BacktestOptions{Steps: 4, Every: 7, Season: 120, Losses: true})
	if err != nil {
		t.Fatal(err)
	}
	for h, losses := range r.Losses {
		if mean := meanOrNaN(losses); len(losses) == 0 || math.Abs(mean-r.PerHorizon[h].Pinball) > 1e-9 {
			t.Errorf("horizon %d: the mean of %d losses is %v, and the report has %v", h, len(losses), mean, r.PerHorizon[h].Pinball)
		}
	}
	if r.Block != 120/7 {
		t.Errorf("blocks of %d", r.Block)
	}
}
