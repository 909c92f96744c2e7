package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestLastBinsNotKnown: a stream that has left its season stays away from it in the forecast while its last bins are not measured yet, as just after a bin's edge or while
// brokers do not answer. A bin that is not known was taken for one of the season: the rate of a second after 95 of nothing was forecast as 170 to 930 records/s.
func TestLastBinsNotKnown(t *testing.T) {
	const season, n = 180, 540
	f := NewSeasonal([]time.Duration{season * time.Second})
	for seed := range uint64(6) {
		for _, zeros := range []int{60, 95, 120} {
			rng := rand.New(rand.NewPCG(seed, 7))
			phase := rng.IntN(season)
			s := synthetic(n, time.Second, func(i int) float64 {
				if i >= n-zeros {
					return 0
				}
				rate := cycle(float64(i+phase) / season)
				return max(0, math.Round(rate+math.Sqrt(rate)*rng.NormFloat64()))
			})
			known := forecastOf(t, f, s, 30)
			usual := s.Values[n-season : n-season+10]
			for missing := 1; missing <= 3; missing++ {
				late := s
				late.Values = slices.Clone(s.Values)
				for i := n - missing; i < n; i++ {
					late.Values[i] = math.NaN()
				}
				got := forecastOf(t, f, late, 30)
				for h := range 10 {
					if off := math.Abs(got.Mean[h] - known.Mean[h]); off > 0.1*usual[h] {
						t.Errorf("seed %d, %d seconds of nothing, the last %d not known: %.0f records/s are forecast for second %d, %.0f where they are known; usual are %.0f",
							seed, zeros, missing, got.Mean[h], h, known.Mean[h], usual[h])
						break
					}
				}
			}
		}
	}
}

// TestBandsOfLateForecasts: the bands of a forecast whose last bins are not known are those of so many bins further ahead.
func TestBandsOfLateForecasts(t *testing.T) {
	f := NewSeasonal([]time.Duration{120 * time.Second})
	rng := rand.New(rand.NewPCG(1, 2))
	level := 0.0
	s := synthetic(1200, time.Second, func(i int) float64 { // it wanders, so that errors grow with the horizon
		level += 20 * rng.NormFloat64()
		return max(0, cycle(float64(i)/120)+level)
	})
	known := forecastOf(t, f, s, 20)
	late := s
	late.Values = slices.Clone(s.Values)
	for i := len(s.Values) - 5; i < len(s.Values); i++ {
		late.Values[i] = math.NaN()
	}
	got := forecastOf(t, f, late, 20)
	width := func(f Forecast, h int) float64 { return (f.Upper[h] - f.Lower[h]) / f.Mean[h] }
	if ahead, now := width(got, 0), width(known, 5); math.Abs(ahead-now) > 0.25*now || width(known, 0) > 0.7*now {
		t.Errorf("the band is %.3f of the rate wide one bin ahead where five are missing, and %.3f six bins ahead where none is (one bin ahead: %.3f)", ahead, now, width(known, 0))
	}
}
