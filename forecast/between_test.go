package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A few records now and then are foreseen between the horizons that weights are learnt for as they are at these, also beyond those that a map is learnt for: the band holds as much,
// misses as little, and does not reach to many times what was ever seen.
func TestSparseCountsBetweenProbes(t *testing.T) {
	t.Parallel()
	const n, day = 21 * 1440, 24 * time.Hour
	rng := rand.New(rand.NewPCG(43, 1))
	highest := 0.0
	s := synthetic(n, time.Minute, func(int) float64 {
		records := 0.0
		for left := rng.Float64(); left > math.Exp(-0.2); left *= rng.Float64() { // Poisson, 0.2 a minute
			records++
		}
		highest = max(highest, records/60)
		return records / 60
	})
	for _, c := range []struct {
		steps, from, origins int
		held, times, reach   float64
	}{{120, 0, 60, 0.04, 1.2, 2}, {600, mapEach, 20, 0.12, 2, 4}} {
		f := NewSeasonal([]time.Duration{day, 7 * day})
		at := probes(nil, c.steps, 1440)
		var held, missed, count [2]float64
		most := 0.0
		for k := range c.origins {
			o := n*7/10 + k*(n*3/10-c.steps)/c.origins
			said := forecastOf(t, f, s.Until(s.At(o)), c.steps)
			low, high := said.quantile(0.05), said.quantile(0.95)
			for h := c.from; h < c.steps; h++ {
				i, y := 0, s.Values[o+h]
				if !slices.Contains(at, h) {
					i = 1
				}
				count[i]++
				most = max(most, high[h])
				if low[h] <= y && y <= high[h] {
					held[i]++
				}
				for q, v := range map[float64]float64{0.05: low[h], 0.95: high[h]} {
					missed[i] += max(q*(y-v), (q-1)*(y-v))
				}
			}
		}
		for i := range count {
			held[i], missed[i] = held[i]/count[i], missed[i]/count[i]
		}
		t.Logf("%d bins: at the probes the band holds %.3f and misses by %.6f, between them %.3f and %.6f; it reaches to %.3f of %.3f", c.steps, held[0], missed[0], held[1], missed[1], most, highest)
		if math.Abs(held[1]-held[0]) > c.held || missed[1] > c.times*missed[0] || most > c.reach*highest {
			t.Errorf("%d bins: at the probes the band holds %.3f and misses by %.6f, between them %.3f and %.6f; it reaches to %.3f where %.3f was the most", c.steps, held[0], missed[0], held[1], missed[1], most, highest)
		}
	}
}

// A wave beside the season, of which the mix knows nothing, is foreseen between the probes as it is at them.
func TestWaveBetweenProbes(t *testing.T) {
	t.Parallel()
	const n, steps = 3600, 60
	s := synthetic(n+steps, time.Second, func(i int) float64 {
		return 1000 + 300*math.Sin(2*math.Pi*float64(i)/120) + 200*math.Sin(2*math.Pi*float64(i)/13)
	})
	f := NewSeasonal([]time.Duration{2 * time.Minute})
	wrong, total, held := 0.0, 0.0, 0.0
	for o := n - 600; o < n; o += 50 {
		said := forecastOf(t, f, s.Until(s.At(o)), steps)
		low, high := said.quantile(0.05), said.quantile(0.95)
		for h, v := range said.Mean {
			y := s.Values[o+h]
			wrong, total = wrong+math.Abs(v-y), total+y
			if low[h] <= y && y <= high[h] {
				held++
			}
		}
	}
	wape := wrong / total
	held /= 12 * steps
	t.Logf("WAPE %.4f, held %.3f", wape, held)
	if wape > 0.005 || held < 0.8 {
		t.Errorf("two waves are foreseen with a WAPE of %.4f, and the band holds %.3f; want 0.005 at most, and 0.8", wape, held)
	}
}
