package estimator

import "math"

// By how many of its standard errors a slope must differ from 0: driftSure or, where
// there are too few rates yet to notice a change, so that to use the newest alone costs
// little, driftLikely. [ours]
const (
	driftSure   = 3.5
	driftLikely = 1.5
)

// drift tells of a point whose rates fall or rise steadily, so that no [Change] is
// certain, but the older ones say what is no more: then the newest changeNew count alone.
// lag is how far capacity is from their median, relative, by the slope of all: that is
// one and a half intervals old, and two and a half when the next one ends. lag is 0
// where there is no drift. Chance alone is seldom taken for one, and then costs no more
// than the noise of changeNew intervals.
func (p *OnlinePoint) drift() (lag float64) {
	n := len(p.Rates)
	if n < changeNew || p.Level != 0 {
		return 0
	}
	noise, m := noiseOf(robustSquares(steps(p.Rates)), float64(n-1)), median(p.Rates)
	newer := p.Rates[n-changeNew:]
	if !within(newer, median(newer), changeEach*noise) { // a few stalled
		return 0
	}
	slope, squares := 0.0, 0.0
	for i, r := range p.Rates {
		x := float64(i) - float64(n-1)/2
		slope, squares = slope+x*(r/m-1), squares+x*x
	}
	slope /= squares
	sure := driftSure
	if n < changeNew+changeOld {
		sure = driftLikely
	}
	if math.Abs(slope)*math.Sqrt(squares) < sure*noise {
		return 0
	}
	return 2 * math.Abs(slope) * m / median(newer)
}

// steps are the deviations of rates, each from the one before, relative to their median
// and scaled to those of one.
func steps(rates []float64) []float64 {
	var out []float64
	m := median(rates)
	for k := 1; k < len(rates); k++ {
		out = append(out, math.Abs(rates[k]-rates[k-1])/m/math.Sqrt2)
	}
	return out
}
