package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// followed are the errors of forecasts one after another, of horizons that are independent of each other.
func followed(rng *rand.Rand, n, steps int, size func(k int) float64) (r *residuals, unrest []float64) {
	r = newResiduals(steps, 1, n)
	for k := range n {
		r.begin()
		for h := range steps {
			r.note(h, size(k)*rng.NormFloat64())
		}
		unrest = append(unrest, 0.1)
	}
	return r, unrest
}

// outside is the share of normal errors of a size that a 90 % band does not hold.
func outside(r *residuals, rng *rand.Rand, size float64) float64 {
	band, n, missed := r.quantiles([]float64{0.05, 0.95}), 0.0, 0.0
	for range 2000 {
		for h := range r.at {
			if e := size * rng.NormFloat64(); e < band[0][h] || e > band[1][h] {
				missed++
			}
			n++
		}
	}
	return missed / n
}

// Errors that have grown, or shrunk, since most of the past are met by a band of another width; errors as ever are not.
func TestWidthsFollowTheErrors(t *testing.T) {
	const n, steps = 256, 6
	for _, c := range []struct {
		name        string
		last        float64 // how large the errors of the last third are, beside those before
		plain       float64 // what a band of all of them misses: no less, or where last is below 1 no more
		least, most float64 // what the band with widths misses
	}{
		{"as ever", 1, 0.07, 0.07, 0.14},
		{"twice as large", 2, 0.18, 0.06, 0.15},
		{"half as large", 0.5, 0.04, 0.02, 0.14},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 9))
			r, unrest := followed(rng, n, steps, func(k int) float64 {
				if k < 2*n/3 {
					return 0.1
				}
				return 0.1 * c.last
			})
			m := &mixture{steps: steps, probes: probes(nil, steps, 0)}
			before := outside(r, rng, 0.1*c.last)
			r.widen(m.probes, r.widths(unrest, m.probes))
			after := outside(r, rng, 0.1*c.last)
			t.Logf("outside of the band without widths %.3f, with them %.3f", before, after)
			if c.last >= 1 && before < c.plain || c.last < 1 && before > c.plain {
				t.Errorf("%.3f lie outside of the band without widths: the test shows nothing", before)
			}
			if after < c.least || after > c.most {
				t.Errorf("%.3f lie outside of the band, want %v to %v", after, c.least, c.most)
			}
		})
	}
}

// Of few forecasts, and of none, nothing is concluded.
func TestWidthsOfFewForecasts(t *testing.T) {
	for n := range widthFirst {
		r, unrest := followed(rand.New(rand.NewPCG(1, 1)), n, 4, func(int) float64 { return 0.1 })
		for _, w := range r.widths(unrest, probes(nil, 4, 0)) {
			if w != 1 {
				t.Fatalf("after %d forecasts errors are multiplied by %v", n, w)
			}
		}
	}
}

// Where the horizon is many seasons, as in the published tables, enough of the origins have had their outcome.
func TestLongHorizonIsLearnt(t *testing.T) {
	const season = 24
	for _, steps := range []int{12, 96, 720} {
		rng := rand.New(rand.NewPCG(4, 2))
		s := synthetic(24*400, 1e9, func(i int) float64 { return cycle(float64(i)/season) * math.Exp(0.1*rng.NormFloat64()) })
		cands, err := (&seasonal{seasons: []time.Duration{season * time.Second}}).candidates(s)
		if err != nil {
			t.Fatal(err)
		}
		m := study(s.Values, cands, steps, maxOrigins)
		arrived := 0
		for _, tr := range m.trials {
			if tr.origin+steps <= len(s.Values) {
				arrived++
			}
		}
		if 3*arrived < 2*len(m.trials) {
			t.Errorf("horizon %d: of %d origins %d have had their outcome", steps, len(m.trials), arrived)
		}
		m.done()
	}
}

// What is learnt is of four weeks, of more of them where bins or horizons are long, and of no more than there is.
func TestSpanOfTheOrigins(t *testing.T) {
	for _, c := range []struct {
		name                     string
		season, steps, bins, was int // was: how many bins before the end the first origin lies
	}{
		{"five minutes", 288, 12, 60 * 288, 28 * 288},
		{"an hour", 24, 6, 400 * 24, 2048},
		{"an hour, a month ahead", 24, 720, 2000 * 24, 32 * 720}, // of which 31 have come without overlap
		{"an hour, a month ahead, of a year", 24, 720, 365 * 24, 365*24 - 24 - 3},
		{"an hour, of a month", 24, 6, 720, 720 - 24 - 3},
	} {
		m := &mixture{y: make([]float64, c.bins), steps: c.steps, cands: []candidate{{lag: c.season, level: 3}}}
		lo, hi := m.span()
		if c.bins-lo != c.was || hi < lo || hi >= c.bins {
			t.Errorf("%s: origins are from %d to %d bins before the end, want %d", c.name, c.bins-lo, c.bins-hi, c.was)
		}
	}
}

// Errors from which the forecaster learnt are too small for what it has not seen: the more so the fewer they are, and by a bound.
func TestSeenBefore(t *testing.T) {
	for n, want := range map[int]float64{0: 1.29, 32: 1.29, 92: 1.091, 245: 1.033, 1000: 1.008} {
		r, widths := newResiduals(2, 1, n), []float64{1, 0.5}
		for range n {
			r.begin()
			r.note(0, 0.1)
			r.note(1, 0.1)
		}
		r.seenBefore(widths, []int{0, 1})
		if math.Abs(widths[0]-want) > 0.001 || math.Abs(widths[1]-want/2) > 0.001 {
			t.Errorf("of %d outcomes: %.3f and %.3f, want %.3f and half of it", n, widths[0], widths[1], want)
		}
	}
}
