package estimator

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// What intervals that are not saturated say against a capacity that was measured. A slowdown
// that passed leaves a measurement behind, and a job with workers enough is never saturated
// again, so that nothing would ever correct it. But it trains more than was measured, and
// that again and again: the measurement then is of a time that is past. By how much
// more can be trained is not known. So what is believed rises step by step while nobody is
// saturated, towards the prior or what was measured before, and a smaller number of
// workers is tried one after the other; the first that is saturated is measured, and ends it.

// Recovery is a rise of capacity of which only the least is known.
type Recovery struct {
	// At is the end of the interval by which it was noticed.
	At time.Time `json:"at"`
	// Refuted is the capacity that is surely exceeded, as a share of the prior's, Level what is
	// believed now, and Until where that ends.
	Refuted float64 `json:"refuted"`
	Level   float64 `json:"level"`
	Until   float64 `json:"until"`
	// Intervals is how many have trained more than Refuted since Level was raised last.
	Intervals int `json:"intervals,omitempty"`
}

// liftStep is by which factor the level rises after each MinSamples intervals that are not
// saturated: by less than what one worker of six is. refutedErrors is by how many standard
// errors of a median an interval must exceed it to say anything. Points that were measured
// within 1/spellShare of the half-life of each other may have been slow for the same
// reason. recoveryError is the relative error of what is believed on the way. [ours]
const (
	recoveryError = 0.3
	liftStep      = 1.15
	refutedErrors = 2
	spellShare    = 24
)

func (r *Recovery) check() error {
	for _, v := range []float64{r.Refuted, r.Level, r.Until} {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("a recovery of %+v; expected shares above 0", *r)
		}
	}
	return nil
}

// speaksAgainst tells whether a sample that is not saturated trains more than what was
// measured at its count, or than what was refuted is worth there.
func (o *Online) speaksAgainst(s Sample) bool {
	if i, ok := o.find(s.Workers, s.Servers); ok {
		p := &o.points[i]
		if m := o.measuredOf(*p); m > 0 {
			return s.Rate > m || p.Level != 0 && o.beyondRefuted(s)
		}
	}
	return o.beyondRefuted(s)
}

// beyondRefuted tells whether a sample trains more than was refuted at another count, for its own.
func (o *Online) beyondRefuted(s Sample) bool {
	r := o.recovery
	return r != nil && s.Rate > r.Refuted*(1+levelNone)*o.prior.Throughput(s.Workers, max(s.Servers, 1))
}

// refutes tells whether what was reached at a point, surely and beyond noise, is more than was
// measured there, by changeMost intervals: chance alone would pass once in 1/changeChance times,
// and stalled intervals that were measured are fewer.
func (o *Online) refutes(p *OnlinePoint) bool {
	m := o.measuredOf(*p)
	least := max(o.opt.MinSamples, min(changeMost, o.opt.Window))
	if m == 0 || len(p.Reached) < least {
		return false
	}
	const medianError = 1.2533 // of a median, beside that of a mean
	noise := o.noise(nil, 0)
	sure := m * (1 + refutedErrors*medianError*noise/math.Sqrt(float64(max(p.intervals(), 1))))
	above, chance := 0, 1.0
	for _, r := range p.Reached {
		if r > sure {
			above++
			chance *= math.Erfc((r/sure-1)/noise/math.Sqrt2) / 2
		}
	}
	return above >= least && chance <= changeChance
}

// recover looks whether an interval that is not saturated shows that what was measured
// at its point is past, and follows the recovery.
func (o *Online) recover(p *OnlinePoint, s Sample) {
	if o.refutes(p) {
		o.forget(p, s)
		return
	}
	r := o.recovery
	if r == nil || !o.beyondRefuted(s) {
		return
	}
	if r.Intervals++; r.Intervals < o.opt.MinSamples {
		return
	}
	r.Intervals = 0
	o.lift(min(r.Level*liftStep, r.Until))
}

// forget makes what was measured at a point what was reached, there and at all counts
// that were slow with it.
func (o *Online) forget(p *OnlinePoint, s Sample) {
	prior := func(p *OnlinePoint) float64 { return o.prior.Throughput(p.Workers, max(p.Servers, 1)) }
	least, _ := o.bound(*p)
	refuted, level := o.measuredOf(*p)/prior(p), least/prior(p)
	if !(refuted > 0) || math.IsInf(refuted, 0) || math.IsInf(level, 0) {
		return
	}
	r := &Recovery{At: s.At, Refuted: refuted, Level: level, Until: max(1, level)}
	if c := o.change; c != nil && c.After < c.Before {
		if f := o.prior.Throughput(c.Workers, max(c.Servers, 1)); f > 0 {
			r.Until = max(r.Until, c.Before/f)
		}
	}
	from := p.times()
	measured := false
	for i := range o.points {
		q := &o.points[i]
		switch m := o.measuredOf(*q); {
		case m == 0 || q.Level != 0 && (q.Level < 1 || q != p): // what followed a fall rises again
		case q == p || m/prior(q) < level && o.together(q, from):
			q.Rates, q.Times, q.Old, q.Level, q.Anchor = nil, nil, nil, 0, Anchor{}
		default:
			measured = true
		}
	}
	o.points = slices.DeleteFunc(o.points, func(q OnlinePoint) bool { return len(q.Rates)+len(q.Reached)+len(q.Old) == 0 })
	o.change = nil
	if o.recovery = r; measured { // they say what capacity is elsewhere
		o.lift(r.Until)
		return
	}
	o.lift(level)
}

// together tells whether a point was measured in the same spell as another, of which the times of the rates are given.
func (o *Online) together(q *OnlinePoint, at []time.Time) bool {
	return len(at) == 0 || at[0].Sub(q.Last) <= o.opt.HalfLife/spellShare
}

// lift raises what is believed to a level. What followed a fall rises with it, to where it was before
// at most, and there it ends.
func (o *Online) lift(level float64) {
	r := o.recovery
	for i := range o.points {
		p := &o.points[i]
		if p.Level == 0 || p.Level >= 1 {
			continue
		}
		f := o.prior.Throughput(p.Workers, max(p.Servers, 1))
		rates := p.Rates
		if p.anew() {
			rates = p.Old
		}
		if before := median(rates) / f; !(before > 0) || level >= before*(1-levelNone) {
			if p.anew() {
				p.Rates, p.Times, p.Old = p.Old, nil, nil
			}
			p.Level = 0
		} else {
			p.Level = max(p.Level, level/before)
		}
	}
	if r.Level = level; level >= r.Until {
		o.recovery = nil
	}
}

// recovering is a copy of the recovery that is followed, nil for none.
func (o *Online) recovering() *Recovery {
	if o.recovery == nil {
		return nil
	}
	r := *o.recovery
	return &r
}
