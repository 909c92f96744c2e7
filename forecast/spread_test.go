package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// noisyDay is its bins of five minutes.
const noisyDay = 288

// noisy is a daily cycle in bins of five minutes with an error of level that lasts
// about an hour, and noise from bin to bin.
func noisy(seed uint64, days int) Series {
	rng := rand.New(rand.NewPCG(seed, 77))
	level := 0.0
	return synthetic(days*noisyDay, 5*time.Minute, func(i int) float64 {
		level = 0.904*level + 0.026*rng.NormFloat64()
		return cycle(float64(i%noisyDay)/noisyDay) * math.Exp(level+0.03*rng.NormFloat64())
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
	t.Parallel()
	levels, share, bins := shareBelow(t, noisy(1, 18), 12, 12*noisyDay, 59)
	for i, q := range levels {
		t.Logf("level %.2f: %.3f of %d bins below", q, share[i], bins)
		if d := math.Abs(share[i] - q); d > 0.06 {
			t.Errorf("%.3f of what came lay below the quantile of level %g", share[i], q)
		}
	}
}

// Errors come in bursts: a band is wide where the last bins were missed by much and
// narrow where they were not, and covers as much in either.
func TestBandFollowsUnrest(t *testing.T) {
	t.Parallel()
	const season, spell = 120, 30
	rng := rand.New(rand.NewPCG(5, 7))
	s := synthetic(2400, time.Second, func(i int) float64 {
		noise := 0.02
		if i/spell%2 == 1 {
			noise = 0.2
		}
		return 1000 * cycle(float64(i)/season) * math.Exp(noise*rng.NormFloat64())
	})
	var width, covered, n [2]float64
	for o := 1200; o < len(s.Values); o += 7 {
		k, at := o/spell%2, o%spell
		if at < 12 || at > spell-2 { // the last bins, and the next, are of one spell
			continue
		}
		f := forecastOf(t, NewSeasonal([]time.Duration{season * time.Second}), s.Until(s.At(o)), 1)
		lower, upper := f.quantile(0.05)[0], f.quantile(0.95)[0]
		width[k] += (upper - lower) / f.Mean[0]
		covered[k] += within(s.Values[o], lower, upper)
		n[k]++
	}
	for k, name := range []string{"calm", "restless"} {
		width[k], covered[k] = width[k]/n[k], covered[k]/n[k]
		t.Logf("%s: the 90 %% band is %.3f of the mean wide and covers %.3f of %v", name, width[k], covered[k], n[k])
	}
	if !(width[1] > 2*width[0]) {
		t.Errorf("the band is %.3f of the mean wide in restless spells and %.3f in calm ones", width[1], width[0])
	}
	if covered[1] < 0.78 {
		t.Errorf("%.3f of what came in restless spells lay in the 90 %% band", covered[1])
	}
}

// Errors are scaled to the unrest of now where the forecasts show that they depend on it.
func TestTemperScalesWhatUnrestExplains(t *testing.T) {
	for _, c := range []struct {
		name  string
		power float64 // of the unrest in the errors
		now   float64 // the unrest, of which 0.1 is usual
		want  float64 // by what the mean error is multiplied
	}{
		{"unrest tells nothing", 0, 10, 1},
		{"twice the usual unrest", 1, 0.2, 1.8}, // two, less what is not proven
		{"not more than fourfold", 1, 50, 4},
		{"not less than half", 1, 0, 0.5},
		{"unknown", 1, math.NaN(), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 9))
			res, unrest, before, after := newResiduals(1, 1, 128), make([]float64, 128), 0.0, 0.0
			for k := range unrest {
				unrest[k] = 0.1 * math.Exp(0.3*rng.NormFloat64())
				res.begin()
				res.add(0, 100*(1+math.Pow(unrest[k], c.power)*(0.8+0.4*rng.Float64())), 100)
				before += res.at[0][k]
			}
			res.temper(unrest, c.now)
			for k, e := range res.at[0] {
				if e != res.paths[k][0] {
					t.Fatalf("forecast %d has the error %v among the outcomes and %v on its path", k, e, res.paths[k][0])
				}
				after += e
			}
			if math.Abs(after/before/c.want-1) > 0.1 {
				t.Errorf("errors are %.3f times what they were, want about %v", after/before, c.want)
			}
		})
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
	t.Parallel()
	s := noisy(2, 20)
	const steps = 12
	f := NewSeasonal([]time.Duration{24 * time.Hour})
	var truth, said, alone []float64
	for o := 14 * noisyDay; o+steps <= len(s.Values); o += 37 {
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
