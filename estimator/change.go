package estimator

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Change is a capacity that became another at one and the same configuration: GPUs
// that slow down, a straggler, a neighbour that came or went.
type Change struct {
	// At is the end of the interval in which it was noticed.
	At time.Time `json:"at"`
	// Workers and Servers are where; Servers is 0 for forms with a fixed ratio.
	Workers int `json:"workers"`
	Servers int `json:"servers,omitempty"`
	// Before and After are the rates in samples per second. Before is what was expected
	// by an earlier change elsewhere, where nothing was measured here since.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// The change test. Of a point's saturated intervals the newest changeNew stand against
// the older ones, of which there must be changeOld. All of them must lie to one side of
// the older ones' median by changeEach standard deviations, and their median by
// changeMedian of them and by changeLeast of it. So up to three stalled intervals are
// no change, and chance alone passes about once in 10⁵ intervals where noise is large,
// by what TestNoiseIsNoChange counts, and seldom else. Where single intervals stall
// often, up to changeMost must lie there, so that all of them stalled by chance once in
// 1/changeChance intervals at most. Which are odd, usualOf intervals tell. [ours]
const (
	changeNew    = 4
	changeMost   = 6
	changeChance = 1e-5
	changeOld    = 3
	usualOf      = 20
	changeEach   = 3
	changeMedian = 3.5
	changeLeast  = 0.08
)

// notice looks for a change at a point to which an interval was just added. After one
// only the new intervals count there. Elsewhere capacity is taken to have changed by
// the same share since: what slows one worker count down is most often the same at
// others, and if those kept the old level beside it, the model would bend and take a
// slow GPU for contention. They are measured anew as soon as they are in use (anew.go).
func (o *Online) notice(p *OnlinePoint) {
	n := len(p.Rates)
	if n < changeNew+changeOld {
		return
	}
	k := o.inARow(p, median(p.Rates[n-changeNew:]) > median(p.Rates[:n-changeNew]))
	if n < k+changeOld {
		return
	}
	older, newer, at, noise := p.Rates[:n-k], p.Rates[n-k:], p.times(), o.usualNoise(p, k)
	before, after := median(older), median(newer)
	if !trusted(older, before, after) || !deviates(newer, before, noise) {
		return
	}
	local := o.asExpected(p, before, after, len(older))
	p.settle(newer, at[n-k:])
	if local {
		p.Anchor = Anchor{}
	} else {
		o.changed(p, at[n-k-1], before, after)
	}
}

// inARow is how many intervals must deviate upwards, or downwards, before that is a
// change: changeNew, or more where so many stall or burst by chance that changeNew of
// them in a row would be seen too often, and changeMost at most.
func (o *Online) inARow(tested *OnlinePoint, up bool) int {
	odd, all, noise := 0, changeNew*changeMost, max(o.usualNoise(tested, changeNew), changeLeast/changeMedian)
	for i := range o.points {
		rates := o.points[i].Rates
		if &o.points[i] == tested {
			rates = rates[:max(0, len(rates)-changeMost)]
		}
		m := median(rates)
		for _, r := range rates {
			if all++; r > m == up && math.Abs(r-m) > changeEach*noise*m {
				odd++
			}
		}
	}
	k, most := changeNew, min(changeMost, o.opt.Window-changeOld) // so that older ones are left to compare with
	for share := float64(odd) / float64(all); k < most && math.Pow(share, float64(k)) > changeChance; k++ {
	}
	return k
}

// deviates tells whether it is certain that rates are not of the capacity before, with
// noise as the relative standard deviation of one.
func deviates(newer []float64, before, noise float64) bool {
	after, spread := median(newer), before*noise
	for _, r := range newer {
		if (r-before)*(after-before) <= 0 || math.Abs(r-before) < changeEach*spread {
			return false
		}
	}
	return math.Abs(after-before) >= max(changeMedian*spread, changeLeast*before)
}

// changed takes up a change at a point that began after from and not after most of the
// rates were measured that the point has now: the first of them may have stalled before.
func (o *Online) changed(p *OnlinePoint, from time.Time, before, after float64) {
	p.Reached = nil
	o.change = &Change{At: p.Times[len(p.Times)-1], Workers: p.Workers, Servers: p.Servers, Before: before, After: after}
	o.shift(p, after/before, from, p.Times[len(p.Times)/2])
	o.moveAnchors(p, after/before, false)
	p.Anchor = Anchor{}
}

// LastChange is the last change of capacity that was noticed, nil for none.
func (o *Online) LastChange() *Change {
	if o.change == nil {
		return nil
	}
	c := *o.change
	return &c
}

// noise is the relative standard deviation of an interval, from how far those of all
// points lie from their medians. It is robust: what has just changed, and single
// stalls, do not widen it much. Of tested, a point under test, the newest do not
// count; nil for none.
func (o *Online) noise(tested *OnlinePoint, newest int) float64 {
	off, free := o.deviations(tested, newest)
	if len(off) == 0 {
		return assumedNoise
	}
	return noiseOf(robustSquares(off), free)
}

// usualNoise is the noise of intervals that neither stalled nor burst, where there are
// enough to tell.
func (o *Online) usualNoise(tested *OnlinePoint, newest int) float64 {
	off, free := o.deviations(tested, newest)
	if len(off) < usualOf {
		return o.noise(tested, newest)
	}
	edge, squares := robustEdge(off), 0.0
	for _, x := range off {
		if x > edge {
			free--
		} else {
			squares += x * x
		}
	}
	return noiseOf(squares, free)
}

// deviations are how far the rates lie from their points' medians, relative, and how
// many of them were free to.
func (o *Online) deviations(tested *OnlinePoint, newest int) (off []float64, free float64) {
	for i := range o.points {
		rates := o.points[i].Rates
		if &o.points[i] == tested {
			rates = rates[:max(0, len(rates)-newest)]
		}
		if len(rates) < 2 {
			continue
		}
		m := median(rates)
		for _, r := range rates {
			off = append(off, math.Abs(r/m-1))
		}
		free += float64(len(rates) - 1)
	}
	return off, free
}

// robustEdge is how far out normal noise reaches, by the median of all deviations.
func robustEdge(off []float64) float64 {
	const normal = 1.4826 // of the median absolute deviation to the standard deviation
	return 3 * normal * median(off)
}

// robustSquares is the sum of the squares of deviations. What lies farther out than
// normal noise does counts no more than its edge.
func robustSquares(off []float64) float64 {
	edge, squares := robustEdge(off), 0.0
	for _, x := range off {
		squares += min(x, edge) * min(x, edge)
	}
	return squares
}

// freshest is the end of the newest interval of all.
func (o *Online) freshest() time.Time {
	var t time.Time
	for _, p := range o.points {
		if p.Last.After(t) {
			t = p.Last
		}
	}
	return t
}

// leastWeight is what is left of a measurement, however old it is: the shape of the
// curve is better told by an old one than by the prior. [ours]
const leastWeight = 0.02

// freshness is the weight of a measurement: half for each half-life that it is older
// than the newest of all.
func (o *Online) freshness(at time.Time) float64 {
	return max(math.Exp2(-max(o.freshest().Sub(at), 0).Seconds()/o.opt.HalfLife.Seconds()), leastWeight)
}

func (o *Online) freshnessOf(p OnlinePoint) []float64 {
	at := p.times()
	w := make([]float64, len(at))
	for i := range at {
		w[i] = o.freshness(at[i])
	}
	return w
}

// adjustedWeight is that of a point whose level follows a change elsewhere, beside a
// measured one's 1, and adjustedError the relative standard error of that level, as a
// share of the logarithm of how far it has moved: a change elsewhere may be half or all
// of one here, or none. No level is surer than the least change that is
// noticed. [ours]
const (
	adjustedWeight = 0.1
	adjustedError  = 0.5
)

// weight is how much a point counts in a fit.
func (o *Online) weight(p OnlinePoint) float64 {
	w := o.freshness(p.Last)
	if p.Level != 0 {
		w *= adjustedWeight
	}
	return w
}

// Confidence says how sure the model in force is: from the measurements, by their age,
// and from the prior where there are none. Where capacity was measured lately, it is no
// less sure than these measurements and what they deviate from the model.
func (o *Online) Confidence() Confidence { return o.confidence(o.fitted, nil) }

// confidence is that of a model from all measurements but those at a point, nil for none.
func (o *Online) confidence(m Model, but *OnlinePoint) Confidence {
	var seen, here []reading
	for i, p := range o.points {
		rate, atLeast := o.capacity(p)
		if rate == 0 || atLeast || &o.points[i] == but { // a bound says little of how far above it capacity is
			continue
		}
		weight := o.weight(p)
		r := reading{w: p.Workers, p: max(p.Servers, 1), rate: rate, n: weight * float64(p.intervals()), trust: weight}
		if p.Level != 0 { // and what does not fit is the level first, not the form
			r.moved, r.trust = math.Hypot(adjustedError*math.Log(p.Level), changeLeast), 0
		} else if lag := p.drift(); lag > 0 {
			r.n, r.moved = weight*changeNew, lag
		}
		seen = append(seen, r)
		if p.Level == 0 && r.n >= float64(o.opt.MinSamples) {
			here = append(here, r)
		}
	}
	var prior []reading
	for _, p := range o.pseudo(nil, 1) {
		prior = append(prior, reading{w: p.w, p: p.p, rate: p.rate, n: 1})
	}
	priorError := o.opt.PriorError
	if o.recovery != nil {
		priorError = max(priorError, recoveryError)
	}
	c := assess(m, seen, prior, priorError, o.noise(nil, 0))
	c.here = here
	return c
}

// median is the middle value, 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return s[n/2-1] + (s[n/2]-s[n/2-1])/2
	}
	return s[len(s)/2]
}

// weightedMedian is the value below and above which lies half of the weight.
func weightedMedian(v, weights []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	order := make([]int, len(v))
	total := 0.0
	for i := range order {
		order[i] = i
		total += weights[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(v[a], v[b]) })
	sum := 0.0
	for k, i := range order {
		sum += weights[i]
		switch {
		case math.Abs(sum-total/2) <= 1e-9*total && k+1 < len(order):
			return v[i] + (v[order[k+1]]-v[i])/2
		case sum > total/2:
			return v[i]
		}
	}
	return v[order[len(order)-1]]
}
