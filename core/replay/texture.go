package replay

import (
	"math"
	"time"
)

// The noise that is put into bins of over five minutes: an Ornstein-Uhlenbeck process on the logarithm of the rate, around a straight line between the bins'
// middles. Measured so on worldcup98 in bins of one minute, cut into bins of 30 and 60 min with a mean of 100 to 1,000 requests/s (below that the shot noise of
// single requests takes over): standard deviation 5.6 to 9.2 %, correlation 0.58 to 0.89 after one minute and 0.25 to 0.68 after five.
const (
	textureNoise  = 0.065
	textureMemory = 5 * time.Minute
)

// textured divides each bin into n of the given length: straight lines in the rate between the middles of the bins, with noise, each bin keeping its mean.
// Unknown bins stay unknown.
func textured(rates []float64, n int, step time.Duration, seed uint64) []float64 {
	out := make([]float64, 0, n*len(rates))
	c := chance{seed: seed}
	keep := math.Exp(-float64(step) / float64(textureMemory))
	x := textureNoise * c.normal(drawNoise, -1)
	for i, r := range rates {
		left, right := r, r
		if i > 0 && !math.IsNaN(rates[i-1]) {
			left = rates[i-1]
		}
		if i+1 < len(rates) && !math.IsNaN(rates[i+1]) {
			right = rates[i+1]
		}
		sum := 0.0
		for k := range n {
			u := (float64(k)+0.5)/float64(n) - 0.5
			v := r
			if u < 0 {
				v += -u * (left - r)
			} else {
				v += u * (right - r)
			}
			v *= math.Exp(x)
			x = keep*x + textureNoise*math.Sqrt(1-keep*keep)*c.normal(drawNoise, int64(i*n+k))
			out = append(out, v)
			sum += v
		}
		if sum > 0 {
			for k := range n {
				out[len(out)-1-k] *= r * float64(n) / sum
			}
		}
	}
	return out
}
