package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// bursts are rates every five minutes: now and then, for an hour or so, ten times what they are else, among spikes of one bin.
func bursts(n int, rng *rand.Rand) Series {
	level := 1.0
	return synthetic(n, 5*time.Minute, func(int) float64 {
		switch p := rng.Float64(); {
		case level > 1 && p < 1./10:
			level = 1
		case level == 1 && p < 1./300:
			level = 5 + 15*rng.Float64()
		}
		v := 100 * level * math.Exp(0.2*rng.NormFloat64())
		if rng.Float64() < 1./200 {
			v += 1500 * rng.Float64()
		}
		return v
	})
}

// What is rare is learnt by looking at every past origin: the bin after a high one is foreseen better than by a quarter of the origins.
func TestRareBurstsAreLearnt(t *testing.T) {
	t.Parallel()
	const n, first = 33 * 288, 28 * 288
	s := bursts(n, rand.New(rand.NewPCG(0, 5)))
	missed := func(origins int) (sum float64) {
		f := &seasonal{seasons: []time.Duration{24 * time.Hour}, origins: origins}
		for o := first; o < n; o++ {
			if s.Values[o-1] < 400 {
				continue
			}
			said, err := f.Forecast(s.Until(s.At(o)), 12)
			if err != nil {
				t.Fatal(err)
			}
			sum += math.Abs(said.Mean[0] - s.Values[o])
		}
		return sum
	}
	if few, all := missed(maxOrigins/4), missed(maxOrigins); !(all < 0.98*few) {
		t.Errorf("in bursts forecasts miss by %.0f in all, and by %.0f where a quarter as many origins were looked at", all, few)
	} else {
		t.Logf("missed by %.0f, and by %.0f with a quarter of the origins", all, few)
	}
}
