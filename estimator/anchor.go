package estimator

import (
	"math"
	"time"
)

// Anchor is the level at which what is known of all other points was last consistent
// with one. A capacity that falls slowly never steps within one window of rates, and a
// fall by a few percent is less than a [Change] of four intervals must be; but against
// the anchor both add up. Each change that points follow moves the anchors of all with
// it, so that one and the same fall, seen at two counts in turn, counts once.
type Anchor struct {
	// Rate is the level, samples/s, and Intervals how many rates it was measured by.
	Rate      float64 `json:"rate"`
	Intervals int     `json:"intervals"`
	// Own is what was measured here last, samples/s, when others did not yet move Rate.
	Own float64 `json:"own"`
	// At is when others were last made consistent with it.
	At time.Time `json:"at"`
}

// The test against the anchor: the newest anchorLeast rates or all of the window, of which
// as many must be there, are off by anchorErrors standard errors of both and by
// anchorOff, relative. A rate that did not move by anchorSame standard errors is the
// same, and one that is off by anchorEdge is odd. A correlation of one interval with the
// next of runsSure standard errors counts. [ours]
const (
	anchorLeast  = changeNew + changeOld
	anchorErrors = 4.75
	anchorOff    = 0.045
	anchorSame   = 2
	anchorEdge   = 3
	runsSure     = 1.0
)

// adrift looks whether capacity at a point has left its anchor. Then that is a change
// for all that were not measured since the anchor was good.
func (o *Online) adrift(p *OnlinePoint) {
	n := len(p.Rates)
	if n < anchorLeast || p.Level != 0 {
		return
	}
	noise, usual := o.noise(nil, 0), o.usualNoise(nil, 0)
	all := levelOf(p.Rates, usual)
	if a := p.Anchor; a == nil || a.Rate == a.Own && n == a.Intervals+1 && p.since(a.At) == 2 {
		p.anchor(all, n) // the first rates of all, as long as none is forgotten
		return
	}
	one, newer := noise*math.Sqrt(o.runs(usual)), p.Rates[n-anchorLeast:]
	if !p.left(all, n, one) || !p.agrees(newer, all) {
		return
	}
	late, by := levelOf(newer, usual), anchorLeast
	if math.Abs(late/all-1) < anchorSame*one*math.Sqrt(1.0/anchorLeast-1.0/float64(n)) {
		late, by = all, n
	}
	a := *p.Anchor
	before, from := a.Rate, a.At
	same := math.Abs(late/a.Own-1) < max(anchorSame*one/math.Sqrt(anchorLeast), anchorOff/2)
	local := same && late < before || o.asExpected(p, before, late, a.Intervals)
	p.anchor(late, by)
	if local { // slower here all along, or what others let expect
		return
	}
	p.Reached = nil
	if a.Intervals >= anchorLeast { // else it corrects what a few intervals said of the last one
		o.change = &Change{At: p.Last, Workers: p.Workers, Servers: p.Servers, Before: before, After: late}
	}
	o.shift(p, late/before, from, from)
	o.moveAnchors(p, late/before, true)
}

// left tells whether a level of so many rates is surely not that of the anchor, with one
// as the relative standard error of a single rate.
func (p *OnlinePoint) left(level float64, n int, one float64) bool {
	off := math.Abs(math.Log(level / p.Anchor.Rate))
	return off > max(anchorOff, anchorErrors*one*math.Sqrt(1/float64(n)+1/float64(p.Anchor.Intervals)))
}

// agrees tells whether two thirds of the newest rates are on the side of the anchor where
// the level of all is: else some stalled, and that is all.
func (p *OnlinePoint) agrees(newer []float64, all float64) bool {
	agree := 0
	for _, r := range newer {
		if (r < p.Anchor.Rate) == (all < p.Anchor.Rate) {
			agree++
		}
	}
	return 3*agree >= 2*len(newer)
}

// anchor makes a level the one with which others are consistent from now on.
func (p *OnlinePoint) anchor(rate float64, n int) {
	p.Anchor = &Anchor{Rate: rate, Intervals: n, Own: rate, At: p.Last}
}

// moveAnchors takes a change by factor at p into the anchors of all others. Of a step it
// is known when it began: what was first measured after it stays. A drift has no such
// time.
func (o *Online) moveAnchors(p *OnlinePoint, factor float64, drift bool) {
	now := p.Last
	for i := range o.points {
		q := &o.points[i]
		if q == p || q.Anchor == nil {
			continue
		}
		rate, _ := o.capacity(*q)
		if rate == 0 {
			q.Anchor = nil
			continue
		}
		off := math.Log(rate / q.Anchor.Rate)
		if a := *q.Anchor; drift || math.Abs(off-math.Log(factor)) < math.Abs(off) {
			a.Rate, a.At = a.Rate*factor, now
			q.Anchor = &a
		}
	}
}

// pending is by how much capacity may be another than it was when a point was measured,
// and no change tells yet, relative: how far the point just measured is from its anchor,
// and the other from its own.
func (o *Online) pending(p *OnlinePoint) float64 {
	last := 0
	for i := range o.points {
		if o.points[i].Last.After(o.points[last].Last) {
			last = i
		}
	}
	newest := &o.points[last]
	if newest == p || newest.Level != 0 || newest.Anchor == nil || p.Anchor == nil || !newest.Last.After(p.Last) || newest.since(p.Last) < anchorLeast {
		return 0
	}
	off := math.Log(levelOf(newest.Rates[len(newest.Rates)-anchorLeast:], o.usualNoise(nil, 0)) / newest.Anchor.Rate)
	if rate, _ := o.capacity(*p); rate > 0 {
		off -= math.Log(rate / p.Anchor.Rate)
	}
	return math.Abs(off)
}

// runs is how many intervals say as much as one would that does not depend on the one
// before it: what is off stays off for a while, on many machines. It is 1 for none.
func (o *Online) runs(usual float64) float64 {
	along, squares, n, windows := 0.0, 0.0, 0.0, 0.0
	edge := anchorEdge * usual
	for i := range o.points {
		rates := o.points[i].Rates
		if len(rates) < anchorLeast {
			continue
		}
		m := levelOf(rates, usual)
		before := 0.0
		for _, r := range rates {
			x := max(-edge, min(r/m-1, edge))
			squares, along, before = squares+x*x, along+x*before, x
		}
		n, windows = n+float64(len(rates)), windows+1
	}
	if windows == 0 || squares == 0 {
		return 1
	}
	// Within so many rates about their own mean a correlation looks less by (1+3ρ) of
	// them; less than chance explains is none.
	each, seen := n/windows, along/squares
	if seen+1/each < runsSure/math.Sqrt(n) {
		return 1
	}
	rho := min(max((seen*each+1)/max(each-3, 1), 0), 0.9)
	return (1 + rho) / (1 - rho)
}

// levelOf is the mean of the rates that are no farther from their median than the usual
// noise of one reaches: of an odd one it says nothing by how much it is odd, nor which way.
func levelOf(rates []float64, usual float64) float64 {
	m, sum, n := median(rates), 0.0, 0.0
	for _, r := range rates {
		if math.Abs(r/m-1) <= anchorEdge*usual {
			sum, n = sum+r, n+1
		}
	}
	if n == 0 {
		return m
	}
	return sum / n
}
