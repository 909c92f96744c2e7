package stream

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// poisson is a draw from Poisson's distribution.
func poisson(rng *rand.Rand, mean float64) float64 {
	if mean > 50 {
		return math.Max(0, math.Round(mean+math.Sqrt(mean)*rng.NormFloat64()))
	}
	k, p := 0.0, rng.Float64()
	for limit := math.Exp(-mean); p > limit; k++ {
		p *= rng.Float64()
	}
	return k
}

// refused says in how many of some runs values are refused as a counter's.
func refused(t *testing.T, runs int, n int, values func(rng *rand.Rand, n int) []float64) (share float64) {
	t.Helper()
	for seed := range uint64(runs) {
		var b strings.Builder
		for i, v := range values(rand.New(rand.NewPCG(seed, 6)), n) {
			fmt.Fprintf(&b, "%d,%v\n", start.Add(time.Duration(i)*time.Minute).Unix(), v)
		}
		_, _, err := ParseCurve("r.csv", strings.NewReader(b.String()), RatesOnly)
		if errors.Is(err, ErrCounter) {
			share += 1 / float64(runs)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return share
}

// pods is the sum of counters of which each grows by as many a bin, and one in so many rows begins anew.
func pods(count int, each float64, restarts float64) func(rng *rand.Rand, n int) []float64 {
	return func(rng *rand.Rand, n int) (out []float64) {
		at := make([]float64, count)
		for i := range n {
			sum := 0.0
			for k := range at {
				if at[k] += poisson(rng, each*(1+0.5*math.Sin(float64(i)/100))); rng.Float64() < restarts/float64(count) {
					at[k] = 0
				}
				sum += at[k]
			}
			out = append(out, sum)
		}
		return out
	}
}

// each is values made one by one.
func each(value func(rng *rand.Rand, i int) float64) func(rng *rand.Rand, n int) []float64 {
	return func(rng *rand.Rand, n int) (out []float64) {
		for i := range n {
			out = append(out, max(0, value(rng, i)))
		}
		return out
	}
}

// What kinds of counters are told from rates, and that no kind of rates is taken for one.
func TestKindsOfCounters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		n      int
		values func(rng *rand.Rand, n int) []float64
		least  float64 // of the runs it has to be refused
	}{
		{"one", 400, pods(1, 500, 0.005), 0.9},
		{"a few a bin", 400, pods(1, 3, 0), 0.7},
		{"one a bin", 400, pods(1, 1, 0), 0.7},
		{"one in two bins", 400, pods(1, 0.5, 0), 0.7},
		{"begins anew in two rows running", 400, func(rng *rand.Rand, n int) []float64 {
			out := pods(1, 500, 0)(rng, n)
			for i := 200; i < n; i++ {
				out[i] -= out[200] - 400
			}
			for i := 201; i < n; i++ {
				out[i] -= out[201] - 300
			}
			return out
		}, 1},
		{"of five pods", 1500, pods(5, 200, 0.005), 0.95},
		{"of twenty pods", 1500, pods(20, 50, 0.005), 0.95},
	} {
		share := refused(t, 40, c.n, c.values)
		t.Logf("counter %s: told in %.0f %%", c.name, 100*share)
		if share < c.least {
			t.Errorf("a counter, %s: told in %.0f %% of the runs, want %.0f %%", c.name, 100*share, 100*c.least)
		}
	}
	for name, values := range map[string]func(rng *rand.Rand, n int) []float64{
		"traffic": each(func(rng *rand.Rand, i int) float64 {
			return 100 * (1 + 0.5*math.Sin(float64(i)/60)) * (1 + 0.1*rng.NormFloat64())
		}),
		"quiet traffic": each(func(rng *rand.Rand, i int) float64 {
			return 100 * (1 + 0.5*math.Sin(float64(i)/60)) * (1 + 0.001*rng.NormFloat64())
		}),
		"a few a bin":         each(func(rng *rand.Rand, i int) float64 { return poisson(rng, 3) }),
		"sparse":              each(func(rng *rand.Rand, i int) float64 { return poisson(rng, 0.05) }),
		"bursts":              each(func(rng *rand.Rand, i int) float64 { return 1000 * math.Floor(rng.Float64()*1.03) }),
		"a noisy ramp":        each(func(rng *rand.Rand, i int) float64 { return 100 + 2.5*float64(i) + 0.4*rng.NormFloat64() }),
		"a load test":         each(func(rng *rand.Rand, i int) float64 { return 50*float64(i) + poisson(rng, 20) }),
		"a noisy saw":         each(func(rng *rand.Rand, i int) float64 { return 10*float64(i%100) + 2*rng.NormFloat64() + 5 }),
		"a noisy saw by half": each(func(rng *rand.Rand, i int) float64 { return 1000 + 10*float64(i%100) + 2*rng.NormFloat64() }),
		"stairs with noise":   each(func(rng *rand.Rand, i int) float64 { return float64(100*(1+i/40)) + 0.5*rng.NormFloat64() }),
		"a launch": each(func(rng *rand.Rand, i int) float64 {
			return 10 * math.Exp(float64(i)/100) * (1 + 0.002*rng.NormFloat64())
		}),
		"a rounded launch":   each(func(rng *rand.Rand, i int) float64 { return math.Round(10 * math.Exp(float64(i)/60)) }),
		"a rounded parabola": each(func(rng *rand.Rand, i int) float64 { return math.Round(0.13 * float64(i) * float64(i)) }),
		"rises by day":       each(func(rng *rand.Rand, i int) float64 { return 200 * float64(i%300) * (1 + 0.0005*rng.NormFloat64()) }),
		"a smoothed mean": func(rng *rand.Rand, n int) (out []float64) { // of a day's rise, over ten rows
			sum := 0.0
			for i := range n {
				sum += 0.1 * (float64(i)*5 + 20*rng.NormFloat64() + 100 - sum)
				out = append(out, max(0, sum))
			}
			return out
		},
	} {
		for _, n := range []int{50, 60, 100, 400, 1500} {
			if share := refused(t, 20, n, values); share > 0 {
				t.Errorf("rates, %s, %d rows: taken for a counter in %.0f %% of the runs", name, n, 100*share)
			}
		}
	}
}
