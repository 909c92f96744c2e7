package estimator

import (
	"math"
	"time"
)

// What a slow or small change of capacity at one count says of the others. It never steps
// within one window of rates, or by less than a [Change] of four intervals must, and what
// was measured before it is soon forgotten. So each point keeps an anchor, the level
// with which all other points were last consistent: against it, a slow fall adds up.

// Anchor is the capacity of one configuration at which all others were last consistent
// with it. Each change that is noticed elsewhere moves it, so that one and the same fall,
// seen at two counts in turn, counts once.
type Anchor struct {
	// Rate is that capacity in samples per second; 0 for no anchor.
	Rate float64 `json:"rate"`
	// Own is what was measured here last, samples/s, before changes elsewhere moved Rate.
	Own float64 `json:"own"`
	// At is when others were last made consistent with Rate.
	At time.Time `json:"at"`
}

// anchorErrors is by how many standard errors of their difference a full window must be
// off the anchor, so that chance alone passes once in 1/changeChance windows, and
// leastIndependent how few of its intervals tell its level and their spread. [ours]
const (
	anchorErrors     = 4.5
	leastIndependent = 2
)

// adrift looks whether capacity at a point whose window is full has left its anchor, by
// as much as others follow. Then it has for all that were not measured since. A fall to what
// was last measured here, which only others had left, is this count's own.
func (o *Online) adrift(p *OnlinePoint) {
	n := len(p.Rates)
	if n < max(o.opt.Window, plenty) || p.Level != 0 {
		return
	}
	usual, a := o.usualNoise(nil, 0), p.Anchor
	level := levelOf(p.Rates, usual)
	if a.Rate == 0 {
		p.Anchor = Anchor{Rate: level, Own: level, At: p.Last}
		return
	}
	off := math.Abs(level/a.Rate - 1)
	if off < levelNone {
		return
	}
	// A window that drifts fast looks like one long run, so some are taken to be independent.
	independent := max(float64(n)/o.runs(usual), leastIndependent)
	if off < anchorErrors*o.noise(nil, 0)*math.Sqrt(2/(independent-1)) {
		return
	}
	slowAllAlong := level < a.Rate && math.Abs(level/a.Own-1) < off
	local := slowAllAlong || o.asExpected(p, a.Rate, level, n)
	p.Anchor = Anchor{Rate: level, Own: level, At: p.Last}
	if local {
		return
	}
	p.Reached = nil
	if o.shift(p, level/a.Rate, a.At, a.At) {
		o.change = &Change{At: p.Last, Workers: p.Workers, Servers: p.Servers, Before: a.Rate, After: level}
	}
	o.moveAnchors(p, level/a.Rate, true)
}

// moveAnchors takes a change by factor at p into the anchors of all others. Of a step it
// is known when it began: what was measured after it stays. A drift has no such time.
func (o *Online) moveAnchors(p *OnlinePoint, factor float64, drift bool) {
	for i := range o.points {
		q := &o.points[i]
		rate, _ := o.capacity(*q)
		if q == p || q.Anchor.Rate == 0 || rate == 0 {
			continue
		}
		off := math.Log(rate / q.Anchor.Rate)
		if drift || math.Abs(off-math.Log(factor)) < math.Abs(off) {
			q.Anchor.Rate, q.Anchor.At = q.Anchor.Rate*factor, p.Last
		}
	}
}

// runs is how many intervals in a row say as much as one would that does not depend on the
// one before it: what is off stays off for a while, on many machines. It is
// (1+ρ)/(1−ρ), where ρ is the correlation of an interval with the next.
func (o *Online) runs(usual float64) float64 {
	along, squares, n, windows := 0.0, 0.0, 0.0, 0.0
	edge := changeEach * usual
	for i := range o.points {
		rates := o.points[i].Rates
		if len(rates) < plenty {
			continue
		}
		m, before := levelOf(rates, usual), 0.0
		for _, r := range rates {
			x := max(-edge, min(r/m-1, edge))
			squares, along, before = squares+x*x, along+x*before, x
		}
		n, windows = n+float64(len(rates)), windows+1
	}
	if squares == 0 {
		return 1
	}
	// About their own mean, ρ of so many rates looks less by (1+3ρ)/each (Kendall 1954).
	each := n / windows
	rho := min(max((each*along/squares+1)/(each-3), 0), 1)
	return (1 + rho) / (1 - rho)
}

// levelOf is the mean of the rates that are no farther from their median than usual noise
// reaches: of an odd one it says nothing by how much it is odd.
func levelOf(rates []float64, usual float64) float64 {
	m, sum, n := median(rates), 0.0, 0.0
	for _, r := range rates {
		if math.Abs(r/m-1) <= changeEach*usual {
			sum, n = sum+r, n+1
		}
	}
	if n == 0 {
		return m
	}
	return sum / n
}
