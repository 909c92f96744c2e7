package forecast

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// synthetic is a series of n bins with values f(i).
func synthetic(n int, step time.Duration, f func(i int) float64) Series {
	s := Series{Start: epoch, Step: step, Values: make([]float64, n)}
	for i := range s.Values {
		s.Values[i] = f(i)
	}
	return s
}

// cycle is a traffic-like season: two humps, never zero, 1000 samples/s on
// average.
func cycle(phase float64) float64 {
	return 1000 - 500*math.Cos(2*math.Pi*phase) + 200*math.Sin(4*math.Pi*phase)
}

// demo is the history of the demo: three seasons of two minutes in bins of one
// second.
func demo() Series {
	return synthetic(360, time.Second, func(i int) float64 { return cycle(float64(i) / 120) })
}

func forecastOf(t testing.TB, f Forecaster, s Series, steps int) Forecast {
	t.Helper()
	fc, err := f.Forecast(s, steps)
	if err != nil {
		t.Fatal(err)
	}
	if err := fc.Validate(); err != nil {
		t.Fatal(err)
	}
	if len(fc.Mean) != steps || !fc.At.Equal(s.End()) || fc.Step != s.Step || fc.Source != f.Name() {
		t.Fatalf("forecast of %d steps from %v by %q is %d steps of %v from %v by %q",
			steps, s.End(), f.Name(), len(fc.Mean), fc.Step, fc.At, fc.Source)
	}
	return fc
}

// near fails the test when got is not want to the relative tolerance.
func near(t testing.TB, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for h := range got {
		if d := math.Abs(got[h] - want[h]); !(d <= tolerance*math.Abs(want[h])) {
			t.Fatalf("%s: bin %d is %v, want %v within %v", what, h, got[h], want[h], tolerance)
		}
	}
}

func TestSeasonalIsExactOnARepeatingSeries(t *testing.T) {
	const day, week = 24 * 60, 7 * 24 * 60
	weekly := func(i int) float64 {
		scale := 1.0
		if i%week >= 5*day {
			scale = 0.6 // the weekend
		}
		return scale * cycle(float64(i%day)/day)
	}
	for _, c := range []struct {
		name    string
		seasons []time.Duration
		step    time.Duration
		n       int
		steps   int
		f       func(i int) float64
	}{
		{"demo", []time.Duration{2 * time.Minute}, time.Second, 360, 20, func(i int) float64 { return cycle(float64(i) / 120) }},
		{"shortest history", []time.Duration{2 * time.Minute}, time.Second, 131, 20, func(i int) float64 { return cycle(float64(i) / 120) }},
		{"horizon beyond the season", []time.Duration{2 * time.Minute}, time.Second, 500, 300, func(i int) float64 { return cycle(float64(i) / 120) }},
		{"day", []time.Duration{24 * time.Hour}, time.Minute, 3*day + 77, 60, func(i int) float64 { return cycle(float64(i) / day) }},
		{"day and week, on a Friday night", []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}, time.Minute, 4*week + 5*day - 30, 60, weekly},
		{"day and week, the day alone fits", []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}, time.Minute, 4 * day, 60, func(i int) float64 { return cycle(float64(i) / day) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := synthetic(c.n+c.steps, c.step, c.f)
			past := all.Until(all.At(c.n))
			fc := forecastOf(t, NewSeasonal(c.seasons), past, c.steps)
			near(t, "mean", fc.Mean, all.Values[c.n:], 2e-3)
			near(t, "lower", fc.Lower, all.Values[c.n:], 2e-2)
			near(t, "upper", fc.Upper, all.Values[c.n:], 2e-2)
		})
	}
}

func TestSeasonalFollowsAChangeOfLevel(t *testing.T) {
	for _, factor := range []float64{0.4, 1.8, 3} {
		const n, steps, since = 360, 20, 12
		all := synthetic(n+steps, time.Second, func(i int) float64 {
			v := cycle(float64(i) / 120)
			if i >= n-since {
				v *= factor
			}
			return v
		})
		fc := forecastOf(t, NewSeasonal([]time.Duration{2 * time.Minute}), all.Until(all.At(n)), steps)
		near(t, "mean", fc.Mean, all.Values[n:], 0.01)
	}
}

func TestSeasonalClipsTheLevelRatio(t *testing.T) {
	s := demo()
	for i := 340; i < 360; i++ {
		s.Values[i] *= 1000
	}
	fc := forecastOf(t, NewSeasonal([]time.Duration{2 * time.Minute}), s, 20)
	for h, v := range fc.Mean {
		if limit := levelMaxRatio * cycle(float64(h)/120) * (1 + 1e-9); v > limit {
			t.Fatalf("bin %d is %v after a burst of 1000 times the level, want %v at most", h, v, limit)
		}
	}
}

func TestSeasonalBridgesGaps(t *testing.T) {
	truth := func(i int) float64 { return cycle(float64(i) / 120) }
	want := synthetic(380, time.Second, truth).Values[360:]
	for _, c := range []struct {
		name      string
		gap       func(i int) bool
		tolerance float64
	}{
		{"the same phase in the last season", func(i int) bool { return i >= 240 && i < 260 }, 5e-3},
		{"the last bins", func(i int) bool { return i >= 350 }, 5e-3},
		{"half of all bins, at random", func(i int) bool { return rand.New(rand.NewPCG(1, uint64(i))).Float64() < 0.5 }, 5e-2},
		{"the same phase in every season, but for its ends", func(i int) bool { return i%120 > 3 && i%120 < 16 }, 5e-2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := demo()
			for i := range s.Values {
				if c.gap(i) {
					s.Values[i] = math.NaN()
				}
			}
			fc := forecastOf(t, NewSeasonal([]time.Duration{2 * time.Minute}), s, 20)
			near(t, "mean", fc.Mean, want, c.tolerance)
		})
	}
}

func TestSeasonalDoesNotReadUnknownAsZero(t *testing.T) {
	s := demo()
	full := forecastOf(t, NewSeasonal([]time.Duration{2 * time.Minute}), s, 20)
	for i := 352; i < 360; i++ {
		s.Values[i] = math.NaN()
	}
	unknown := forecastOf(t, NewSeasonal([]time.Duration{2 * time.Minute}), s, 20)
	near(t, "mean with the last bins unknown", unknown.Mean, full.Mean, 1e-2)
	for i := 352; i < 360; i++ {
		s.Values[i] = 0
	}
	zero := forecastOf(t, NewSeasonal([]time.Duration{2 * time.Minute}), s, 20)
	if zero.Mean[0] > full.Mean[0]/2 {
		t.Fatalf("eight bins of no traffic lower the forecast only from %v to %v", full.Mean[0], zero.Mean[0])
	}
}

func TestSeasonalBandsCoverNoise(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	s := synthetic(120*40, time.Second, func(i int) float64 {
		return cycle(float64(i)/120) * math.Exp(0.1*rng.NormFloat64())
	})
	r, err := Backtest(NewSeasonal([]time.Duration{2 * time.Minute}), s, BacktestOptions{Steps: 20, First: 600, Every: 83})
	if err != nil {
		t.Fatal(err)
	}
	// 50 origins, far from independent: the nominal 80 % to a few points.
	if r.Coverage < 0.75 || r.Coverage > 0.85 {
		t.Errorf("the 10–90 %% band covers %.3f of the bins, want about 0.80", r.Coverage)
	}
	// Noise of 10 % costs Σ|e|/Σy ≈ 8 % to a forecaster that knows the cycle.
	if r.WAPE > 0.11 {
		t.Errorf("WAPE is %.3f under 10 %% noise, want 0.11 at most", r.WAPE)
	}
}

func TestSeasonalErrors(t *testing.T) {
	negative, empty := demo(), demo()
	negative.Values[17] = -1
	for i := range empty.Values {
		empty.Values[i] = math.NaN()
	}
	minute2 := []time.Duration{2 * time.Minute}
	for _, c := range []struct {
		name    string
		seasons []time.Duration
		s       Series
		steps   int
		want    string
		short   bool
	}{
		{"short", minute2, demo().Until(epoch.Add(100 * time.Second)), 20,
			"seasonal: history is too short: it has 100 bins of 1s (1m40s) and 131 bins (2m11s) are needed: one season of 2m, a level window and 8 bins to test itself on", true},
		{"empty", minute2, Series{Start: epoch, Step: time.Second}, 20, "it has 0 bins", true},
		{"no steps", minute2, demo(), 0, "a forecast of 0 steps", false},
		{"no step", minute2, Series{Start: epoch}, 1, "a step of 0s", false},
		{"negative", minute2, negative, 20, "a rate of -1 records/s in the bin at 2026-03-01T00:00:17Z", false},
		{"no season", nil, demo(), 20, "no season was given", false},
		{"fraction", []time.Duration{2500 * time.Millisecond}, demo(), 20, "a season of 2.5s is not two or more whole bins of 1s", false},
		{"all unknown", minute2, empty, 20, "none of the 20 bins asked for was measured", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewSeasonal(c.seasons).Forecast(c.s, c.steps)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error is %v, want %q in it", err, c.want)
			}
			if errors.Is(err, ErrShortHistory) != c.short {
				t.Errorf("error %v: ErrShortHistory is %v, want %v", err, !c.short, c.short)
			}
		})
	}
}

// Summer time begins in the middle of this history in one of the two zones; a
// forecast counts elapsed time and must not care.
func TestSeasonalKnowsNoSummerTime(t *testing.T) {
	berlin := time.FixedZone("winter", 3600)
	if z, err := time.LoadLocation("Europe/Berlin"); err == nil {
		berlin = z
	}
	const day = 96
	a := synthetic(day*40, 15*time.Minute, func(i int) float64 { return cycle(float64(i)/day) * (1 + 0.1*math.Sin(float64(i))) })
	b := a
	b.Start = a.Start.In(berlin)
	seasons := []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}
	fa, fb := forecastOf(t, NewSeasonal(seasons), a, 8), forecastOf(t, NewSeasonal(seasons), b, 8)
	if diff := cmp.Diff(fa, fb); diff != "" {
		t.Errorf("the zone changes the forecast (-UTC +Berlin):\n%s", diff)
	}
}

func TestSeasonalOfASilentStreamIsZero(t *testing.T) {
	fc := forecastOf(t, NewSeasonal([]time.Duration{2 * time.Minute}), synthetic(360, time.Second, func(int) float64 { return 0 }), 20)
	for h := range fc.Mean {
		if fc.Mean[h] != 0 || fc.Upper[h] != 0 {
			t.Fatalf("bin %d is %v (upper %v) after a season of silence", h, fc.Mean[h], fc.Upper[h])
		}
	}
}

func BenchmarkSeasonal(b *testing.B) {
	day := 24 * time.Hour
	for _, c := range []struct {
		name    string
		s       Series
		seasons []time.Duration
		steps   int
	}{
		{"demo", demo(), []time.Duration{2 * time.Minute}, 20},
		{"day+week,4weeks,60steps", synthetic(4*7*1440, time.Minute, func(i int) float64 { return cycle(float64(i) / 1440) }), []time.Duration{day, 7 * day}, 60},
		{"day+week,2weeks,120steps", synthetic(2*7*1440, time.Minute, func(i int) float64 { return cycle(float64(i) / 1440) }), []time.Duration{day, 7 * day}, 120}, // as kale replay's reference job
	} {
		b.Run(c.name, func(b *testing.B) {
			f := NewSeasonal(c.seasons)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Forecast(c.s, c.steps); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Bins from before the topic began are no history: a season that was not measured is not looked up, nor replaced by what came since.
func TestSeasonalCountsWhatWasMeasured(t *testing.T) {
	const season = 120
	begins := func(known int) Series {
		return synthetic(3*season, time.Second, func(i int) float64 {
			switch since := i - (3*season - known); {
			case since < 0:
				return math.NaN()
			case since < 40:
				return 100
			}
			return 150
		})
	}
	f := NewSeasonal([]time.Duration{season * time.Second})
	if _, err := f.Forecast(begins(season-10), 30); !errors.Is(err, ErrShortHistory) {
		t.Errorf("less than a season was measured: %v", err)
	}
	fc, err := f.Forecast(begins(2*season), 30)
	if err != nil {
		t.Fatal(err)
	}
	if fc.Mean[29] < 149 || fc.Mean[29] > 151 {
		t.Errorf("after a change of level a season ago: %.0f, want 150", fc.Mean[29])
	}
}

// Each lag has the same level windows. Where a season is so short that two of them are one, the lag without a level is a candidate too, at every lag.
func TestCandidates(t *testing.T) {
	for season, want := range map[int][]int{24: {3, 6, 24, 0}, 48: {3, 12, 48, 0}, 288: {3, 12, 72, 288}} {
		s := Series{Step: time.Minute, Values: make([]float64, 16*season)}
		cands, err := (&seasonal{seasons: []time.Duration{time.Duration(season) * s.Step}}).candidates(s)
		if err != nil {
			t.Fatal(err)
		}
		got := map[int][]int{}
		for _, c := range cands {
			got[c.lag] = append(got[c.lag], c.level)
		}
		if len(got) < 2 {
			t.Errorf("a season of %d bins: %d lags", season, len(got))
		}
		for lag, levels := range got {
			if !slices.Equal(levels, want) {
				t.Errorf("a season of %d bins, lag %d: levels of %v bins, want %v", season, lag, levels, want)
			}
		}
	}
}
