package estimator

import (
	"math"
	"slices"
)

// What other counts say of a change at one. Rates there that become others are a change
// of capacity, or what was measured before was none: intervals that stalled when the
// count was new, or a straggler that only this count had. Then the new rates are what
// was expected from the other counts all along, and nothing has changed there.

// expectedErrors is within how many standard errors of what is expected from other
// counts a rate agrees with it, surelyOff times as many are no error. [ours]
const (
	expectedErrors = 2
	surelyOff      = 3
)

// elsewhere fits the form to what was measured at all counts but p's, and to the prior
// where there is nothing; ok is false where nothing else was measured. rate is what is
// expected at p in samples per second, off the logarithm of by how much it may be wrong.
func (o *Online) elsewhere(p *OnlinePoint) (rate, off float64, ok bool) {
	others := o.others(p)
	if len(others) == 0 {
		return 0, 0, false
	}
	m, err := o.fitMeasured(others)
	if err != nil {
		return 0, 0, false
	}
	c, noise := o.confidence(m, p), o.noise(nil, 0)
	w, servers := p.Workers, max(p.Servers, 1)
	rate = m.Throughput(w, servers)
	return rate, max(changeLeast, expectedErrors*math.Hypot(c.Error(w, servers), noise/math.Sqrt(changeNew))), rate > 0
}

// others are the points but p whose capacity was measured.
func (o *Online) others(p *OnlinePoint) []point {
	var out []point
	for i := range o.points {
		if pt, measured := o.measuredPoint(o.points[i]); measured && &o.points[i] != p {
			out = append(out, pt)
		}
	}
	return out
}

// measuredPoint is a point as a fit takes it, and whether its capacity was measured.
func (o *Online) measuredPoint(p OnlinePoint) (pt point, measured bool) {
	rate, atLeast := o.capacity(p)
	return point{w: p.Workers, p: max(p.Servers, 1), rate: rate, weight: o.weight(p)}, rate > 0 && !atLeast
}

// asExpected tells whether rates that became after from before, after so many older
// ones, are what other counts let expect, and the older ones are not. Rates are low for
// many reasons and high for few: a fall is one, unless the older ones were farther out
// than any error of what is expected explains. Of a rise, the better explained side
// counts, and where the older ones are few, however little better it is.
func (o *Online) asExpected(p *OnlinePoint, before, after float64, older int) bool {
	expected, off, ok := o.elsewhere(p)
	if !ok {
		return false
	}
	was, is := math.Abs(math.Log(before/expected)), math.Abs(math.Log(after/expected))
	if after < before {
		return is <= off && was > surelyOff*off
	}
	few := older < changeNew+changeOld
	return was-is > off || few && is <= off && is < was
}

// trusted tells whether older rates say what capacity was before it became after: at
// least changeOld of them and two thirds are nearer to their median. Of three, two may
// have stalled.
func trusted(older []float64, before, after float64) bool {
	agree := 0
	for _, r := range older {
		if math.Abs(r-before) < math.Abs(r-after) {
			agree++
		}
	}
	return agree >= changeOld && 3*agree >= 2*len(older)
}

// plenty is how many intervals at a count must contradict what others have followed.
const plenty = changeNew + changeOld

// justMeasured is the point with the newest interval, if plenty tell its capacity and
// others follow a change; else nil.
func (o *Online) justMeasured() *OnlinePoint {
	last, moved := -1, false
	for i, p := range o.points {
		moved = moved || p.Level != 0
		if last < 0 || p.Last.After(o.points[last].Last) {
			last = i
		}
	}
	if !moved {
		return nil
	}
	p := &o.points[last]
	if _, atLeast := o.capacity(*p); p.Level != 0 || atLeast || len(p.Rates) < min(plenty, o.opt.Window) {
		return nil
	}
	return p
}

// apart is how far a model is from the capacity that was measured at a point: the
// logarithm of their ratio.
func (o *Online) apart(m Model, p *OnlinePoint) float64 {
	rate, _ := o.capacity(*p)
	return math.Abs(math.Log(m.Throughput(p.Workers, max(p.Servers, 1)) / rate))
}

// undo takes back what other points have followed, where that pulls the model off what
// was just measured often enough, and the model without it is nearer.
func (o *Online) undo() {
	p := o.justMeasured()
	if p == nil {
		return
	}
	with, err := o.fitTo(true)
	if err != nil || o.apart(with, p) < changeLeast {
		return
	}
	before := slices.Clone(o.points)
	for i := range o.points {
		if q := &o.points[i]; !q.anew() {
			q.Level = 0
		}
	}
	if without, err := o.fitTo(true); err != nil || !(o.apart(without, p) < min(o.apart(with, p)/2, changeLeast)) {
		copy(o.points, before)
		return
	}
	o.change = nil
	for i := range o.points {
		o.points[i].Anchor = Anchor{} // they moved with what is undone
	}
}
