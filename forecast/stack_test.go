package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// stacked is the WAPE of the mix and of the mix with what is stacked on it, at the first horizons and at the last ones.
func stacked(t *testing.T, s Series, season, steps, first int) (mix, with [2]float64) {
	t.Helper()
	total := [2]float64{}
	for o := first; o+steps <= len(s.Values); o += 37 {
		cands, err := (&seasonal{seasons: []time.Duration{time.Duration(season) * s.Step}}).candidates(s.Until(s.At(o)))
		if err != nil {
			t.Fatal(err)
		}
		m := study(s.Values[:o], cands, steps, maxOrigins)
		all, at := m.mix(o)
		plain := slices.Clone(all)
		m.stack.learn(m)
		m.stack.onto(m, all, at, false)
		m.done()
		for h, a := range s.Values[o : o+steps] {
			i := 0
			if h >= steps/4 {
				i = 1
			}
			mix[i], with[i], total[i] = mix[i]+math.Abs(a-plain[h]), with[i]+math.Abs(a-all[h]), total[i]+a
		}
	}
	for i := range total {
		mix[i], with[i] = mix[i]/total[i], with[i]/total[i]
	}
	return mix, with
}

// What a season does not explain is foreseen as far as it lasts, and does no harm beyond.
func TestStackForeseesWhatLasts(t *testing.T) {
	t.Parallel()
	const season, n, steps = 288, 18 * 288, 48
	rng := rand.New(rand.NewPCG(11, 4))
	for _, c := range []struct {
		name        string
		next        func(level float64) float64
		rate        func(i int, level float64) float64
		near, later float64 // at most this share of the mix's error
	}{
		{"an error that lasts half an hour",
			func(level float64) float64 { return 0.85*level + 0.1*rng.NormFloat64() },
			func(i int, level float64) float64 { return 1000 * cycle(float64(i)/season) * math.Exp(level) }, 0.97, 1.02},
		{"no season at all",
			func(level float64) float64 { return 0.97*level + 0.2*rng.NormFloat64() },
			func(_ int, level float64) float64 { return 1000 * math.Exp(level) }, 0.9, 1},
		{"noise about a season",
			func(float64) float64 { return 0.4 * rng.NormFloat64() },
			func(i int, level float64) float64 { return 1000 * cycle(float64(i)/season) * math.Exp(level) }, 0.95, 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			level := 0.0
			s := synthetic(n, 5*time.Minute, func(i int) float64 {
				level = c.next(level)
				return c.rate(i, level)
			})
			mix, with := stacked(t, s, season, steps, 14*season)
			t.Logf("WAPE at the first horizons %.4f, the mix alone %.4f; later %.4f and %.4f", with[0], mix[0], with[1], mix[1])
			if with[0] > c.near*mix[0] || with[1] > c.later*mix[1] {
				t.Errorf("the error is %.3f of the mix's at the first horizons and %.3f later, want %v and %v at most", with[0]/mix[0], with[1]/mix[1], c.near, c.later)
			}
		})
	}
}

// Where the mix is right nothing is stacked on it, and what one burst seems to teach is not believed.
func TestStackTakesNothingUnproven(t *testing.T) {
	for _, c := range []struct {
		name  string
		burst func(i int) float64
	}{
		{"a season that repeats itself", func(int) float64 { return 1 }},
		{"and one bin of a hundred times the rate", func(i int) float64 {
			if i == 1200 {
				return 100
			}
			return 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const season, n, steps = 120, 1800, 20
			s := synthetic(n+steps, time.Second, func(i int) float64 { return c.burst(i) * cycle(float64(i)/season) })
			fc := forecastOf(t, NewSeasonal([]time.Duration{season * time.Second}), s.Until(s.At(n)), steps)
			near(t, "mean", fc.Mean, s.Values[n:], 0.02)
		})
	}
}

// A regression finds what several opinions have to do with the truth, says of an origin what the others teach, and is not drawn aside by what lies far off.
func TestRegressionJoinsOpinions(t *testing.T) {
	const trials = 600
	rng := rand.New(rand.NewPCG(3, 8))
	m := &mixture{unit: 100, probes: []int{0}, trials: make([]trial, trials)}
	room := &m.stack.room
	room.actual, room.said = make([]float64, trials), make([]float64, trials)
	for k := range room.others {
		room.others[k] = make([]float64, trials)
	}
	truth := make([]float64, trials)
	for j := range trials {
		room.said[j] = 100 + 10*rng.Float64()
		for k := missedOn; k < opinions; k++ {
			room.others[k][j] = room.said[j] + 10*rng.NormFloat64()
		}
		truth[j] = room.said[j] + 0.9*(room.others[missedOn][j]-room.said[j]) - 0.5*(room.others[hold24th][j]-room.said[j])
		room.actual[j] = truth[j] + 0.3*rng.NormFloat64()
		switch {
		case j%50 == 7: // a burst
			room.actual[j] += 2000
		case j%50 == 8: // nothing is known: see learn
			room.actual[j], room.said[j], truth[j] = 0, 0, 0
			for k := range room.others {
				room.others[k][j] = 0
			}
		}
	}
	room.regression.fit(m)
	for k, b := range room.regression.coefficients[0] {
		want := map[int]float64{missedOn: 0.9, hold24th: -0.5}[missedOn+k]
		if math.Abs(b-want) > 0.05 {
			t.Errorf("opinion %d counts %.3f, want %v", missedOn+k, b, want)
		}
	}
	for j, want := range truth {
		if got := room.others[together][j]; math.Abs(got-want) > 4 {
			t.Errorf("origin %d: it says %.2f, want %.2f", j, got, want)
		}
	}
	// What only one stretch of time teaches is not said of that stretch.
	for j := range trials {
		room.actual[j] = room.said[j]
		if j < trials/regressionParts {
			room.actual[j] += 0.5 * (room.others[holdLast][j] - room.said[j])
		}
	}
	room.regression.fit(m)
	for j := range trials / regressionParts {
		if got := room.others[together][j]; math.Abs(got-room.said[j]) > 1 {
			t.Fatalf("origin %d: it says %.2f of what only its neighbours teach, and the mix %.2f", j, got, room.said[j])
		}
	}
}

// The probes are every horizon at first and then further and further apart, the last one among them.
func TestProbes(t *testing.T) {
	for steps := 1; steps < 2000; steps++ {
		got := probes(nil, steps, 0)
		for i, h := range got {
			if i == 0 && h != 0 || i > 0 && (h <= got[i-1] || h-got[i-1] > max(1, got[i-1]/2+1)) {
				t.Fatalf("of %d horizons %v are looked at", steps, got)
			}
		}
		if got[len(got)-1] != steps-1 || len(got) > 40 {
			t.Fatalf("of %d horizons %v are looked at", steps, got)
		}
	}
}

// A season changes nothing about the probes within it, and from its end on there are several in each: what lies a whole number of seasons on stands for none of the rest.
func TestProbesOfSeveralSeasons(t *testing.T) {
	for _, c := range []struct{ season, steps int }{{1440, 120}, {288, 288}, {48, 48}, {24, 96}, {24, 720}, {96, 720}, {5, 40}} {
		got, plain := probes(nil, c.steps, c.season), probes(nil, c.steps, 0)
		for i, h := range got {
			switch {
			case i == 0:
			case got[i-1] < c.season-1 && h != plain[i]:
				t.Errorf("season %d, %d bins: %d is looked at, want %d", c.season, c.steps, h, plain[i])
			case got[i-1] >= c.season-1 && h-got[i-1] > max(1, c.season/8):
				t.Errorf("season %d, %d bins: %d follows %d, want one that is at most %d on", c.season, c.steps, h, got[i-1], max(1, c.season/8))
			}
		}
		if got[len(got)-1] != c.steps-1 {
			t.Errorf("season %d, %d bins: the last one is %d", c.season, c.steps, got[len(got)-1])
		}
	}
}
