package estimator

import (
	"math"
	"slices"
	"time"
)

// What a change of capacity at one count says of the others. Every measurement was made
// at a level of capacity: that of when it was made. A change is followed by what was
// measured before it began and by nothing else; a point's Level is the product of all
// that it has followed, and it ends with the first measurements after them. If these
// contradict it, capacity has changed again, and that is followed alike: so a recovery
// that is seen at another count undoes the change at all that were not measured since.

// levelNone is how far a level may be from 1 that counts as none: a change that was
// undone, within noise, leaves no trace. [ours]
const levelNone = changeLeast / 2

// levelMost is how far a level may be from 1 either way, as a factor; what was measured
// so many changes ago says nothing any more. [ours]
const levelMost = 32

// follow takes a change by factor to be the point's too.
func (p *OnlinePoint) follow(factor float64) {
	if p.anew() { // and what little there is was measured before the change
		p.Rates, p.Times, p.Old = p.Old, nil, nil
	}
	if p.Level == 0 {
		p.Level = 1
	}
	switch p.Level *= factor; {
	case len(p.Rates)+len(p.Reached) == 0:
		p.Level = 0
	case math.Abs(p.Level-1) < levelNone:
		p.Level = 0
	case !(p.Level < levelMost && p.Level > 1.0/levelMost):
		p.Rates, p.Times, p.Reached, p.Level, p.Anchor = nil, nil, nil, 0, Anchor{}
	}
}

// anew tells that the point follows a change, and that its rates were measured after it.
func (p *OnlinePoint) anew() bool { return p.Level != 0 && len(p.Old) > 0 }

// beginAnew makes room for measurements after a change that the point has followed.
// Until they say what capacity is, that is what was measured before, at the level of the
// change.
func (o *Online) beginAnew(p *OnlinePoint) {
	if p.Level == 0 || p.anew() {
		return
	}
	if len(p.Rates) >= o.opt.MinSamples {
		p.Old = p.Rates
	} else {
		p.Level = 0
	}
	p.Rates, p.Times, p.Reached = nil, nil, nil
}

// intervals is how many measurements the point's capacity rests on.
func (p *OnlinePoint) intervals() int {
	if p.anew() {
		return len(p.Old)
	}
	return len(p.Rates)
}

// confirm looks whether what was measured anew at a point agrees with the change that it
// has followed; then that counts from now on. If it is certain that it does not,
// capacity changed again since. That what was measured before the change is there again
// needs MinSamples intervals, since stalls do not look like that; else as many are
// needed as in [Online.notice]. A count that was slow, then was taken to have recovered
// since others had, and is found slow again: that is its own, a straggler that only so
// many workers have, and says nothing of others.
func (o *Online) confirm(p *OnlinePoint) {
	n := len(p.Rates)
	if n < o.opt.MinSamples {
		return
	}
	was := median(p.Old)
	expected := was * p.Level
	k := o.inARow(p, median(p.Rates) > expected)
	from := max(0, n-max(k, o.opt.MinSamples))
	newer, at, noise := p.Rates[from:], p.times()[from:], o.noise(nil, 0)
	after := median(newer)
	certain := deviates(newer, expected, noise)
	switch back := certain && within(newer, was, max(changeEach*noise, changeLeast)); {
	case back && was < expected: // it was slower here all along
		p.settle(newer, at)
		p.Anchor = Anchor{}
		return
	case back:
		after = was
	case certain && n >= k:
	case math.Abs(after/expected-1) < max(changeMedian*noise, changeLeast) || n >= min(changeOld+changeNew, o.opt.Window):
		p.settle(newer, at)
		return
	default: // some stalled, say: more will tell
		return
	}
	p.settle(newer, at)
	began := time.Time{}
	if o.change != nil {
		began = o.change.At
	}
	o.changed(p, began, expected, after)
}

// settle ends a point's following: these rates say what capacity is.
func (p *OnlinePoint) settle(rates []float64, at []time.Time) {
	p.Rates, p.Times, p.Old, p.Level = slices.Clone(rates), slices.Clone(at), nil, 0
}

// confirmFirst looks whether a count that was first measured after capacity fell
// elsewhere shows that it is back: changeNew intervals train what would have been
// expected without the fall, and certainly more than with it. A count that trains less
// than expected shows nothing of the kind, since that may be contention.
func (o *Online) confirmFirst(p *OnlinePoint) {
	c := o.change
	if c == nil || c.After >= c.Before || len(p.Rates) != changeNew || !p.times()[0].After(c.At) {
		return
	}
	m, err := o.fitMeasured(o.others(p))
	if err != nil {
		return
	}
	expected, noise := m.Throughput(p.Workers, max(p.Servers, 1)), o.noise(nil, 0)
	was := expected * c.Before / c.After
	if expected > 0 && deviates(p.Rates, expected, noise) && within(p.Rates, was, max(changeEach*noise, o.opt.PriorError)) {
		o.changed(p, c.At, expected, was)
	}
}

// within tells whether all rates lie that near to another, relative to it.
func within(rates []float64, to, share float64) bool {
	for _, r := range rates {
		if math.Abs(r/to-1) > share {
			return false
		}
	}
	return true
}

// shift lets the other points follow a change by factor that was noticed at p, which
// began after from and not after by. What was measured in between may have been measured
// before it or after: of both, that counts which fits better to what is certain. followed
// is false where all was measured after it.
func (o *Online) shift(p *OnlinePoint, factor float64, from, by time.Time) (followed bool) {
	var known []point
	var unsure []*OnlinePoint
	for i := range o.points {
		q := &o.points[i]
		switch {
		case q == p || q.since(by) >= o.opt.MinSamples:
		case !q.Last.After(from):
			q.follow(factor)
			followed = true
		default:
			unsure = append(unsure, q)
			continue
		}
		if pt, measured := o.measuredPoint(*q); measured {
			known = append(known, pt)
		}
	}
	if len(unsure) == 0 {
		return followed
	}
	m, err := o.fitMeasured(known)
	if err != nil {
		m = o.prior
	}
	for _, q := range unsure {
		rate, _ := o.capacity(*q)
		if rate == 0 {
			rate = median(q.Rates)
		}
		now := m.Throughput(q.Workers, max(q.Servers, 1))
		if rate > 0 && now > 0 && math.Abs(math.Log(rate*factor/now)) < math.Abs(math.Log(rate/now)) {
			q.follow(factor)
			followed = true
		}
	}
	return followed
}

// since is how many of the rates were measured at a time or after it.
func (p *OnlinePoint) since(at time.Time) int {
	n := 0
	for _, t := range p.times() {
		if !t.Before(at) {
			n++
		}
	}
	return n
}
