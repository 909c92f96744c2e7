package forecast

import (
	"errors"
	"math"
	"math/rand/v2"
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
	var want []float64
	for i := range 12 {
		want = append(want, cycle(float64(1500+i)/120))
	}
	for _, kind := range []string{NLinear, SparseTSF} {
		w, err := TrainWindow(s, WindowOptions{Kind: kind, Horizon: 12, Season: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		near(t, kind+" with gaps", forecastOf(t, w, s, 12).Mean, want, 0.01)
	}
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
		{"kind", tones(800), WindowOptions{Kind: "arima", Horizon: 5, Season: season}, `"arima": want nlinear, dlinear, sparsetsf`},
		{"short", tones(300), WindowOptions{Kind: NLinear, Horizon: 5, Season: season}, "history is too short"},
		{"whole seasons", tones(800), WindowOptions{Kind: SparseTSF, Input: 130, Horizon: 5, Season: season}, "130 bins is not whole seasons of 120"},
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
	for _, kind := range windowKinds {
		w, err := TrainWindow(silent, WindowOptions{Kind: kind, Horizon: 5, Season: season})
		if err != nil {
			t.Fatal(err)
		}
		near(t, "silence, of "+kind, forecastOf(t, w, silent, 5).Mean, make([]float64, 5), 0)
	}
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
	if len(got.Scenarios) != maxScenarios || got.Outcomes != min(x.Outcomes, y.Outcomes) || !got.Calibrated() {
		t.Errorf("%d scenarios, want %d, made from %d outcomes", len(got.Scenarios), maxScenarios, got.Outcomes)
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

// cross is a season of 24 bins whose shape of today is four fifths of that of two days ago and a fifth of that of three days ago, of a level of its own:
// each phase goes its own way, by one law.
func cross(n int) Series {
	rng := rand.New(rand.NewPCG(7, 1))
	shape := make([]float64, n)
	for i := range shape {
		switch {
		case i < 72:
			shape[i] = 100 * rng.Float64()
		default:
			shape[i] = 0.8*shape[i-48] + 0.2*shape[i-72]
		}
	}
	return synthetic(n, time.Hour, func(i int) float64 { return 1000 + shape[i] })
}

// One map for all phases, and no more coefficients than that, continues what is linear in the past of each, over horizons of less than a season and of more.
func TestSparseTSFContinuesEachPhase(t *testing.T) {
	s := cross(24 * 40)
	for _, c := range []struct{ horizon, columns int }{{1, 1}, {7, 1}, {24, 1}, {50, 3}, {96, 4}} {
		f, err := TrainWindow(s.Until(s.At(24*30)), WindowOptions{Kind: SparseTSF, Input: 24 * 6, Horizon: c.horizon, Season: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		w := f.(*window)
		if n, m := w.coefficients.Dims(); n != 6 || m != c.columns {
			t.Errorf("horizon %d: %d × %d coefficients, want 6 × %d", c.horizon, n, m, c.columns)
		}
		if w.around != 0 {
			t.Errorf("horizon %d: points are means of %d bins on either side, where each tells all", c.horizon, w.around)
		}
		at := 24*33 + 5 // no whole number of seasons after what was learnt
		near(t, "continued", forecastOf(t, w, s.Until(s.At(at)), c.horizon).Mean, s.Values[at:at+c.horizon], 1e-3)
		part := c.horizon/2 + 1
		near(t, "a part of the horizon", forecastOf(t, w, s.Until(s.At(at)), part).Mean, s.Values[at:at+part], 1e-3)
	}
}

// The forecast is what the definition says, computed bin by bin: less the mean, the points' means, the phase's seasons times the coefficients, and the mean.
func TestSparseTSFByItsDefinition(t *testing.T) {
	const season = 24
	s := synthetic(season*40, time.Hour, func(i int) float64 { return 500 * cycle(float64(i)/season) * (1 + 0.1*math.Sin(float64(i*i))) })
	f, err := TrainWindow(s, WindowOptions{Kind: SparseTSF, Input: 5 * season, Horizon: 60, Season: season * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := f.(*window)
	if w.around == 0 {
		t.Error("points are single bins, in spite of the noise of each")
	}
	x := s.Values[len(s.Values)-w.input:]
	mean := meanKnown(x)
	want := make([]float64, 60)
	for h := range want {
		want[h] = mean
		for j := range 5 {
			sum, bins := 0.0, 0
			for i := j*season + h%season - w.around; i <= j*season+h%season+w.around; i++ {
				if i >= 0 && i < len(x) {
					sum, bins = sum+x[i]-mean, bins+1
				}
			}
			want[h] += w.coefficients.At(j, h/season) * sum / float64(bins)
		}
	}
	near(t, "forecast", forecastOf(t, w, s, 60).Mean, want, 1e-9)
}

// Its window is whole seasons: seven, and fewer where the history is short.
func TestSparseTSFInput(t *testing.T) {
	for _, c := range []struct{ days, want int }{{40, 7}, {14, 7}, {13, 6}, {6, 3}} {
		f, err := TrainWindow(cross(24*c.days), WindowOptions{Kind: SparseTSF, Horizon: 5, Season: 24 * time.Hour})
		if err != nil {
			t.Fatalf("%d days: %v", c.days, err)
		}
		if got := f.(*window).input; got != 24*c.want {
			t.Errorf("of %d days it sees %d bins, want %d days", c.days, got, c.want)
		}
	}
}

// A window of which little was measured is lent from the seasons before it, so that each kind has an answer soon after a weekend without any, and learns from such; where these
// were not measured either, or the level of now is not seen, it has none.
func TestWindowsAreLent(t *testing.T) {
	t.Parallel()
	const season = 48
	at := func(i int) float64 { return 100 * cycle(float64(i%season)/season) }
	s := synthetic(40*season+10, 30*time.Minute, at)
	hide := func(s Series, from, to int) Series {
		gap := map[int]float64{}
		for i := from; i < to; i++ {
			gap[i] = math.NaN()
		}
		return with(s, gap)
	}
	for week := range 5 { // of each week two days are missing
		s = hide(s, (7*week+5)*season, (7*week+7)*season)
	}
	s = hide(s, 35*season, 40*season) // then five
	want := make([]float64, 12)
	for h := range want {
		want[h] = at(len(s.Values) + h)
	}
	for _, kind := range windowKinds {
		w, err := TrainWindow(s.Until(s.At(34*season)), WindowOptions{Kind: kind, Input: 2 * season, Horizon: 12, Season: season * 30 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		near(t, kind+" after days of nothing", forecastOf(t, w, s, 12).Mean, want, 0.02)
		if _, err := w.Forecast(s.Until(s.At(40*season)), 12); err == nil || !strings.Contains(err.Error(), "only 0 of the last 16 bins") {
			t.Errorf("%s, without the level of now: %v", kind, err)
		}
		if _, err := w.Forecast(hide(s, 30*season, 40*season), 12); err == nil || !strings.Contains(err.Error(), "same phase of 7 seasons before; it needs half of them") {
			t.Errorf("%s, without the seasons before: %v", kind, err)
		}
	}
	seen := lent(s.Values, season)
	if all, few := len(origins(s.Values, seen, season, 4)), len(origins(s.Values, s.Values, season, 4)); all < few+5*season/2-20 {
		t.Errorf("%d origins are learnt from, and %d where nothing is lent", all, few)
	}
}
