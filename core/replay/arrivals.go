package replay

// arrivals is a piecewise constant arrival rate and its integral. Times are seconds since its start.
type arrivals struct {
	step float64   // s per bin
	rate []float64 // samples/s, one per bin
	cum  []float64 // samples that arrived before bin i; one more than bins
}

func newArrivals(step float64, rate []float64) *arrivals {
	a := &arrivals{step: step, rate: rate, cum: make([]float64, len(rate)+1)}
	for i, r := range rate {
		a.cum[i+1] = a.cum[i] + r*step
	}
	return a
}

// bin is the bin that holds t.
func (a *arrivals) bin(t float64) int { return min(max(int(t/a.step), 0), len(a.rate)-1) }

// at is the number of samples that arrived before t.
func (a *arrivals) at(t float64) float64 {
	i := a.bin(t)
	return a.cum[i] + a.rate[i]*(t-float64(i)*a.step)
}

// when is the moment at which the sample after the first n arrived, known to lie in bin i.
func (a *arrivals) when(n float64, i int) float64 {
	if a.rate[i] <= 0 {
		return float64(i+1) * a.step
	}
	return float64(i)*a.step + min(max((n-a.cum[i])/a.rate[i], 0), a.step)
}
