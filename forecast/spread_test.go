package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// noisy is a daily cycle in minutes with an error of level that lasts about an
// hour, and noise from minute to minute.
func noisy(seed uint64, days int) Series {
	rng := rand.New(rand.NewPCG(seed, 77))
	level := 0.0
	return synthetic(days*1440, time.Minute, func(i int) float64 {
		level = 0.98*level + 0.012*rng.NormFloat64()
		return cycle(float64(i%1440)/1440) * math.Exp(level+0.03*rng.NormFloat64())
	})
}

// shareBelow counts, for each level, how often what came lay below the quantile.
func shareBelow(t *testing.T, s Series, steps, first, every int) (levels, share []float64, bins int) {
	t.Helper()
	f := NewSeasonal([]time.Duration{24 * time.Hour})
	var below []int
	for o := first; o+steps <= len(s.Values); o += every {
		fc := forecastOf(t, f, s.Until(s.At(o)), steps)
		levels = fc.Levels
		if below == nil {
			below = make([]int, len(levels))
		}
		for h := range steps {
			a := s.Values[o+h]
			if math.IsNaN(a) {
				continue
			}
			bins++
			for i, row := range fc.Quantiles {
				if a <= row[h] {
					below[i]++
				}
			}
		}
	}
	for _, n := range below {
		share = append(share, float64(n)/float64(bins))
	}
	return levels, share, bins
}

func TestQuantilesCover(t *testing.T) {
	levels, share, bins := shareBelow(t, noisy(1, 18), 60, 12*1440, 61)
	for i, q := range levels {
		t.Logf("level %.2f: %.3f of %d bins below", q, share[i], bins)
		if d := math.Abs(share[i] - q); d > 0.06 {
			t.Errorf("%.3f of what came lay below the quantile of level %g", share[i], q)
		}
	}
}

// TestQuantilesCoverTraces measures coverage on real traffic.
func TestQuantilesCoverTraces(t *testing.T) {
	for _, c := range []struct {
		file  string
		step  time.Duration
		every int
		keep  int
	}{
		{"worldcup98_1min.csv.gz", time.Minute, 97, 28 * 1440},
		{"twitter_mentions10_5min.csv.gz", 5 * time.Minute, 11, 28 * 288},
		{"aws_elb_requests_5min.csv.gz", 5 * time.Minute, 7, 14 * 288},
		{"nyc_taxi_30min.csv.gz", 30 * time.Minute, 5, 56 * 48},
	} {
		t.Run(c.file, func(t *testing.T) {
			s := trace(t, c.file, c.step)
			n := min(len(s.Values), c.keep)
			s = Series{Start: s.At(len(s.Values) - n), Step: s.Step, Values: s.Values[len(s.Values)-n:]}
			levels, share, bins := shareBelow(t, s, 12, n*6/10, c.every)
			for i, q := range levels {
				t.Logf("level %.2f: %.3f of %d bins below", q, share[i], bins)
			}
			if i := slices.Index(levels, 0.9); math.Abs(share[i]-0.9) > 0.08 {
				t.Errorf("%.3f of what came lay below the 90 %% quantile", share[i])
			}
		})
	}
}

// The errors of level last: the mean of an hour varies more over the scenarios
// than it would if each bin's error were drawn anew, and as much as it does in
// truth.
func TestScenariosKeepErrorsTogether(t *testing.T) {
	s := noisy(2, 20)
	const steps = 60
	f := NewSeasonal([]time.Duration{24 * time.Hour})
	var truth, said, alone []float64
	for o := 14 * 1440; o+steps <= len(s.Values); o += 83 {
		fc := forecastOf(t, f, s.Until(s.At(o)), steps)
		if len(fc.Scenarios) != maxScenarios {
			t.Fatalf("%d scenarios, want %d", len(fc.Scenarios), maxScenarios)
		}
		mean := meanKnown(fc.Mean)
		truth = append(truth, meanKnown(s.Values[o:o+steps])/mean-1)
		for k, path := range fc.Scenarios {
			said = append(said, meanKnown(path)/mean-1)
			mixed := make([]float64, steps)
			for h := range mixed {
				mixed[h] = fc.Scenarios[(k+7*h)%len(fc.Scenarios)][h]
			}
			alone = append(alone, meanKnown(mixed)/mean-1)
		}
	}
	sd := func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += x * x
		}
		return math.Sqrt(sum / float64(len(v)))
	}
	t.Logf("the mean of an hour is off by %.4f in truth, %.4f in the scenarios, %.4f in shuffled ones", sd(truth), sd(said), sd(alone))
	if r := sd(said) / sd(truth); r < 0.75 || r > 1.5 {
		t.Errorf("the scenarios' spread of an hour's mean is %.2f times the truth", r)
	}
	if sd(alone) > 0.8*sd(said) {
		t.Errorf("scenarios spread no more than shuffled ones: %.4f and %.4f", sd(said), sd(alone))
	}
}

func TestForecastKeepsBandAndQuantilesConsistent(t *testing.T) {
	s := noisy(3, 12)
	fc := forecastOf(t, NewSeasonal([]time.Duration{24 * time.Hour}), s, 30)
	lo, up := slices.Index(fc.Levels, lowerQuantile), slices.Index(fc.Levels, upperQuantile)
	for h, m := range fc.Mean {
		if fc.Lower[h] != min(fc.Quantiles[lo][h], m) || fc.Upper[h] != max(fc.Quantiles[up][h], m) {
			t.Fatalf("bin %d: band %v to %v, quantiles %v and %v, mean %v", h, fc.Lower[h], fc.Upper[h], fc.Quantiles[lo][h], fc.Quantiles[up][h], m)
		}
	}
	for _, spoil := range []func(*Forecast){
		func(f *Forecast) { f.Quantiles[3][5] = f.Quantiles[4][5] + 1 },
		func(f *Forecast) { f.Levels[2] = f.Levels[1] },
		func(f *Forecast) { f.Levels = f.Levels[1:] },
		func(f *Forecast) { f.Quantiles[0] = f.Quantiles[0][1:] },
		func(f *Forecast) { f.Scenarios[0][0] = math.NaN() },
	} {
		bad := forecastOf(t, NewSeasonal([]time.Duration{24 * time.Hour}), s, 30)
		spoil(&bad)
		if bad.Validate() == nil {
			t.Error("a broken forecast passes its validation")
		}
	}
}

func TestQuantilesOfAModelAreOrdered(t *testing.T) {
	levels, rows := inOrderOfLevel([]float64{0.9, 0.1, 0.5, 0.1}, [][]float64{{3, 1}, {1, 2}, {2, 3}, {9, 9}})
	if !slices.Equal(levels, []float64{0.1, 0.5, 0.9}) {
		t.Fatalf("levels %v", levels)
	}
	for h, want := range [][]float64{{1, 2, 3}, {1, 2, 3}} {
		for i := range rows {
			if rows[i][h] != want[i] {
				t.Errorf("bin %d: row %d is %v, want %v", h, i, rows[i][h], want[i])
			}
		}
	}
}

func TestCoarsen(t *testing.T) {
	nan := math.NaN()
	s := Series{Start: epoch, Step: time.Minute, Values: []float64{7, 1, 3, nan, 5, nan, nan, 2, nan, 4}}
	c := s.Coarsen(3)
	if c.Step != 3*time.Minute || !c.End().Equal(s.End()) || len(c.Values) != 3 {
		t.Fatalf("coarse series %+v", c)
	}
	if c.Values[0] != 2 || !math.IsNaN(c.Values[1]) || c.Values[2] != 3 {
		t.Errorf("values %v, want 2, unknown, 3", c.Values)
	}
}

func TestOutlook(t *testing.T) {
	for _, c := range []struct {
		name         string
		season, step time.Duration
		n            int
		bin          time.Duration
		steps        int
	}{
		{"a day in minutes", 24 * time.Hour, time.Minute, 3 * 1440, 15 * time.Minute, 24},
		{"a day in five minutes", 24 * time.Hour, 5 * time.Minute, 4 * 288, 15 * time.Minute, 24},
		{"a day in half hours", 24 * time.Hour, 30 * time.Minute, 6 * 48, 30 * time.Minute, 12},
		{"the demo", 2 * time.Minute, time.Second, 360, time.Second, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			bins := float64(c.season / c.step)
			s := synthetic(c.n, c.step, func(i int) float64 { return cycle(float64(i) / bins) })
			f, err := Outlook(s, []time.Duration{c.season})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Validate(); err != nil {
				t.Fatal(err)
			}
			if f.Step != c.bin || len(f.Mean) != c.steps || !f.At.Equal(s.End()) {
				t.Errorf("%d bins of %v from %v, want %d of %v from %v", len(f.Mean), f.Step, f.At, c.steps, c.bin, s.End())
			}
		})
	}
	if _, err := Outlook(demo(), nil); err == nil {
		t.Error("an outlook without a season is no error")
	}
	if _, err := Outlook(demo(), []time.Duration{1500 * time.Millisecond}); err == nil {
		t.Error("a season that is not whole bins is no error")
	}
}
