package forecast

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// tones is a sum of three tones of no common season: linear in its own past, of
// which seasonal naive knows nothing.
func tones(n int) Series {
	return synthetic(n, time.Second, func(i int) float64 {
		x := float64(i)
		return 1000 + 300*math.Sin(x/7.3) + 200*math.Sin(x/11.9) + 100*math.Sin(x/29.1)
	})
}

func TestWindowContinuesWhatIsLinearInItsPast(t *testing.T) {
	s := tones(1500)
	for _, kind := range []string{NLinear, DLinear} {
		w, err := TrainWindow(s.Until(s.At(1300)), WindowOptions{Kind: kind, Input: 96, Horizon: 30, Season: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		near(t, kind, forecastOf(t, w, s.Until(s.At(1400)), 30).Mean, s.Values[1400:1430], 1e-3)
		// A stream that is ten times as large is the same problem.
		grown := Series{Start: s.Start, Step: s.Step, Values: slices.Clone(s.Values[:1400])}
		for i := range grown.Values {
			grown.Values[i] *= 10
		}
		got := forecastOf(t, w, grown, 30).Mean
		for h := range got {
			got[h] /= 10
		}
		near(t, kind+" of ten times as much", got, s.Values[1400:1430], 1e-3)
	}
}

// A gap in the history is filled for the input, and is in no example as an outcome.
func TestWindowWithGaps(t *testing.T) {
	s := synthetic(1500, time.Second, func(i int) float64 { return cycle(float64(i) / 120) })
	for i := range s.Values {
		if i%97 < 5 {
			s.Values[i] = math.NaN()
		}
	}
	w, err := TrainWindow(s, WindowOptions{Kind: NLinear, Horizon: 12, Season: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	for i := range 12 {
		want = append(want, cycle(float64(1500+i)/120))
	}
	near(t, "with gaps", forecastOf(t, w, s, 12).Mean, want, 0.01)
}

func TestTrainWindowErrors(t *testing.T) {
	season := 2 * time.Minute
	unknown := tones(800)
	for i := range unknown.Values {
		if i%10 == 0 {
			unknown.Values[i] = math.NaN()
		}
	}
	for _, c := range []struct {
		name string
		s    Series
		o    WindowOptions
		want string
	}{
		{"kind", tones(800), WindowOptions{Kind: "arima", Horizon: 5, Season: season}, `"arima": want nlinear or dlinear`},
		{"short", tones(300), WindowOptions{Kind: NLinear, Horizon: 5, Season: season}, "history is too short"},
		{"input", tones(800), WindowOptions{Kind: NLinear, Input: 1, Horizon: 5, Season: season}, "needs 2 or more"},
		{"gaps", unknown, WindowOptions{Kind: NLinear, Horizon: 20, Season: season}, "only 0 of 800 bins"},
		{"season", tones(800), WindowOptions{Kind: NLinear, Horizon: 5}, "not two or more whole bins"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := TrainWindow(c.s, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	silent := synthetic(800, time.Second, func(int) float64 { return 0 })
	w, err := TrainWindow(silent, WindowOptions{Kind: NLinear, Horizon: 5, Season: season})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "silence", forecastOf(t, w, silent, 5).Mean, make([]float64, 5), 0)
}

// Naive looks a season further back where the last one is unknown.
func TestNaiveRepeatsTheSeason(t *testing.T) {
	s := synthetic(30, time.Second, func(i int) float64 { return float64(100*(i/10) + i%10) })
	s.Values[22] = math.NaN()
	got := forecastOf(t, NewNaive(10*time.Second), s, 13)
	near(t, "naive", got.Mean, []float64{200, 201, 102, 203, 204, 205, 206, 207, 208, 209, 200, 201, 102}, 0)
}

func TestEnsembleIsTheMeanOfItsMembers(t *testing.T) {
	s := autoregressive(700, 120, time.Second, 3)
	a, b := NewNaive(2*time.Minute), NewSeasonal([]time.Duration{2 * time.Minute})
	x, y := forecastOf(t, a, s, 15), forecastOf(t, b, s, 15)
	half := func(u, v []float64) []float64 {
		out := slices.Clone(u)
		for h := range out {
			out[h] = (u[h] + v[h]) / 2
		}
		return out
	}
	got := forecastOf(t, NewEnsemble(a, b), s, 15)
	near(t, "mean", got.Mean, half(x.Mean, y.Mean), 1e-12)
	near(t, "upper", got.Upper, half(x.Upper, y.Upper), 1e-12)
	near(t, "95 %", got.quantile(0.95), half(x.quantile(0.95), y.quantile(0.95)), 1e-12)
	if len(got.Scenarios) != maxScenarios {
		t.Errorf("%d scenarios, want %d", len(got.Scenarios), maxScenarios)
	}
	// A member without levels leaves the band; one that fails leaves itself out.
	if got := forecastOf(t, NewEnsemble(b, fixed{mean: 12, lower: 10, upper: 15}), s, 3); len(got.Levels) != 0 {
		t.Errorf("with a member that knows only the band it has levels %v", got.Levels)
	}
	short := NewNaive(20 * time.Minute)
	got = forecastOf(t, NewEnsemble(short, b), s, 15)
	near(t, "without the member that fails", got.Mean, y.Mean, 1e-12)
	if !strings.HasPrefix(got.Note, "without naive: ") {
		t.Errorf("note %q", got.Note)
	}
	if _, err := NewEnsemble(short).Forecast(s, 15); !errors.Is(err, ErrShortHistory) {
		t.Errorf("an ensemble whose members all fail: %v", err)
	}
}

// The bins between the quantiles 0.05 and 0.95 are counted, and whole horizons only where that is asked.
func TestBacktestCoverage90(t *testing.T) {
	s := autoregressive(900, 120, time.Second, 4)
	var inside, bins int
	r, err := Backtest(NewNaive(2*time.Minute), s, BacktestOptions{Steps: 20, First: 600, Every: 7, Whole: true, Visit: func(origin int, f Forecast) {
		for h := range 20 {
			bins++
			if v := s.Values[origin+h]; f.quantile(0.05)[h] <= v && v <= f.quantile(0.95)[h] {
				inside++
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "coverage", []float64{r.Coverage90}, []float64{float64(inside) / float64(bins)}, 1e-12)
	if r.Origins != (900-20-600)/7+1 || r.Bins != bins {
		t.Errorf("%d origins and %d bins, want %d whole ones and %d", r.Origins, r.Bins, (900-20-600)/7+1, bins)
	}
}
