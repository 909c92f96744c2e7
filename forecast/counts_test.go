package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// counted are bins of a minute with so many records each as chance has it, every one of so many samples, at a rate a minute that depends on the minute.
func counted(seed uint64, days int, samples float64, perMinute func(i int) float64) Series {
	rng := rand.New(rand.NewPCG(43, seed))
	return synthetic(days*1440, time.Minute, func(i int) float64 {
		records := 0.0
		for left := rng.Float64(); left > math.Exp(-perMinute(i)); left *= rng.Float64() { // Poisson
			records++
		}
		return records * samples / 60
	})
}

// byDay is a rate from eight to eight, and none at night.
func byDay(rate float64) func(i int) float64 {
	return func(i int) float64 {
		if hour := i % 1440 / 60; hour < 8 || hour >= 20 {
			return 0
		}
		return rate
	}
}

func steadily(rate float64) func(i int) float64 { return func(int) float64 { return rate } }

var countedStreams = []struct {
	name string
	s    Series
}{
	{"0.5 a minute, 5 days", counted(1, 5, 1, steadily(0.5))},
	{"0.5 a minute, 21 days", counted(2, 21, 1, steadily(0.5))},
	{"0.2 a minute, 21 days", counted(3, 21, 1, steadily(0.2))},
	{"batches by day, 21 days", counted(4, 21, 12_000, byDay(0.4))},
}

// Where a bin holds a record or none, a band at any horizon reaches not much further than what was ever seen, and neighbouring horizons are about as uncertain as each other.
func TestBandsOfCounts(t *testing.T) {
	t.Parallel()
	const steps, origins = 60, 30
	for _, c := range countedStreams {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, n := NewSeasonal([]time.Duration{24 * time.Hour, 7 * 24 * time.Hour}), len(c.s.Values)
			highest, held, most, apart := 0.0, 0.0, 0.0, 1.0
			for _, v := range c.s.Values {
				highest = max(highest, v)
			}
			for k := range origins {
				o := n*7/10 + k*(n*3/10-steps)/origins
				said := forecastOf(t, f, c.s.Until(c.s.At(o)), steps)
				low, high := said.quantile(0.05), said.quantile(0.95)
				for h := range steps {
					most = max(most, high[h])
					if y := c.s.Values[o+h]; low[h] <= y && y <= high[h] {
						held++
					}
					if h > 0 {
						a, b := high[h-1]-low[h-1], high[h]-low[h]
						apart = max(apart, max(a, b, highest/100)/max(min(a, b), highest/100))
					}
				}
			}
			held /= steps * origins
			t.Logf("q95 %.4f at most, the most seen %.4f; neighbours' widths differ by up to %.1f; held %.3f", most, highest, apart, held)
			if most > 1.5*highest {
				t.Errorf("q95 reaches to %.4f where %.4f is the most that was seen", most, highest)
			}
			if apart > 4 {
				t.Errorf("the bands of neighbouring horizons differ by a factor of %.1f", apart)
			}
			if held < 0.86 || held > 0.97 {
				t.Errorf("the band of 90 %% holds %.3f", held)
			}
		})
	}
}

// A night of nearly nothing that is as noisy as the day, in its own terms, has as wide a band, in its own terms: it is no stream of a record or none.
func TestBandOfAQuietNight(t *testing.T) {
	t.Parallel()
	const steps, day = 24, 288
	rng := rand.New(rand.NewPCG(43, 7))
	s := synthetic(21*day, 5*time.Minute, func(i int) float64 {
		return 1000 * (0.01 + math.Pow((1-math.Cos(2*math.Pi*float64(i)/day))/2, 2)) * math.Exp(0.6*rng.NormFloat64())
	})
	f := NewSeasonal([]time.Duration{24 * time.Hour, 7 * 24 * time.Hour})
	width := func(hour int) (sum float64) { // relative to what is said, from that hour of the last days on
		for d := 18; d < 21; d++ {
			said := forecastOf(t, f, s.Until(s.At(d*day+hour*12)), steps)
			low, high := said.quantile(0.05), said.quantile(0.95)
			for h, v := range said.Mean {
				sum += (high[h] - low[h]) / v / steps / 3
			}
		}
		return sum
	}
	night, noon := width(0), width(11)
	t.Logf("the band is %.2f of what is said at night, and %.2f by day", night, noon)
	if night > 2*noon {
		t.Errorf("the band is %.2f of what is said at night, and %.2f by day", night, noon)
	}
}
