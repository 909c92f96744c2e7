package estimator

import "slices"

// contradicts tells whether a sample that is not saturated shows more than the
// model in force allows.
func (o *Online) contradicts(s Sample) bool {
	return s.Workers >= 1 && s.Rate > 0 && (s.Rate > o.fitted.Throughput(s.Workers, max(s.Servers, 1)) || o.speaksAgainst(s))
}

// fewShare is what counts of the highest rate that was reached, while fewer than
// MinSamples intervals reached more. An interval that was miscounted, or a short
// burst, by less than its inverse moves nothing; a prior that is far too low is
// corrected by one full load, however short. [ours]
const fewShare = 0.5

// bound returns the rate in samples per second that MinSamples of the kept
// intervals reached at least, and how many show it; or fewShare of the highest,
// where that is more and above the prior, and capacity was not measured; else 0.
func (o *Online) bound(p OnlinePoint) (rate float64, intervals int) {
	n := len(p.Reached)
	if n == 0 {
		return 0, 0
	}
	s := slices.Sorted(slices.Values(p.Reached))
	if n >= o.opt.MinSamples {
		rate, intervals = s[n-o.opt.MinSamples], n
	}
	few := fewShare * s[n-1]
	if len(p.Rates) >= o.opt.MinSamples || p.anew() || few <= max(rate, o.prior.Throughput(p.Workers, max(p.Servers, 1))) {
		return rate, intervals
	}
	above := 0
	for _, r := range s {
		if r >= few {
			above++
		}
	}
	return few, above
}

// Measured tells whether so many saturated intervals are known of a configuration
// that its capacity rests on them, and not on the prior or on bounds alone.
func (o *Online) Measured(workers, servers int) bool {
	i, ok := o.find(workers, servers)
	return ok && len(o.points[i].Rates) >= o.opt.MinSamples
}

// capacity returns the measured capacity of a point, 0 where it was not saturated
// often enough, and whether newer intervals reached more than that, so that the
// rate is a lower bound on capacity only.
func (o *Online) capacity(p OnlinePoint) (rate float64, atLeast bool) {
	rate = o.measuredOf(p)
	b, _ := o.bound(p)
	if p.Level != 0 && !p.anew() { // it was reached before the change
		b *= p.Level
	}
	if b > rate {
		rate, atLeast = b, true
	}
	return rate, atLeast
}

// measuredOf is what saturated intervals say of a point's capacity, whatever was reached since;
// 0 where they are too few.
func (o *Online) measuredOf(p OnlinePoint) float64 {
	var rate float64
	switch {
	case p.anew():
		return median(p.Old) * p.Level
	case len(p.Rates) < o.opt.MinSamples:
		return 0
	case p.drift() > 0:
		rate = median(p.Rates[len(p.Rates)-changeNew:])
	default:
		rate = weightedMedian(p.Rates, o.freshnessOf(p))
	}
	if p.Level != 0 {
		rate *= p.Level
	}
	return rate
}

// boundRounds and boundPull bound the search for a model that keeps all bounds: in
// each round those that are broken pull boundPull times as hard as before. Eight
// rounds reach every form that can keep them (measured with 300 random models).
const (
	boundRounds = 8
	boundPull   = 4
)

// fit finds the model of what is remembered. Where capacity was measured, the
// measurement counts; a bound counts, as a point on the curve, only while the
// curve without it lies below it: an active-set method. Where what was just measured
// often enough is missed for points that only follow a change, these do not count.
func (o *Online) fit() (Model, error) {
	m, err := o.fitTo(true)
	p := o.justMeasured()
	if err != nil || p == nil {
		return m, err
	}
	if off := o.apart(m, p); off > changeLeast {
		if without, err := o.fitTo(false); err == nil && o.apart(without, p) < off/2 {
			return without, nil
		}
	}
	return m, nil
}

// fitTo finds the model of the points, with or without those that follow a change.
func (o *Online) fitTo(moved bool) (Model, error) {
	var measured, bounds []point
	for _, p := range o.points {
		if p.Level != 0 && !moved {
			continue
		}
		rate, atLeast := o.capacity(p)
		pt := point{w: p.Workers, p: max(p.Servers, 1), rate: rate, weight: o.weight(p)}
		switch {
		case rate == 0:
		case atLeast && len(p.Rates) < o.opt.MinSamples:
			pt.weight = 0 // not active
			bounds = append(bounds, pt)
		default:
			measured = append(measured, pt)
		}
	}
	active := slices.Clone(measured)
	for round := 0; ; round++ {
		m, err := o.fitMeasured(active)
		if err != nil {
			return m, err
		}
		broken := false
		for i, b := range bounds {
			if m.Throughput(b.w, b.p) < b.rate*(1-1e-6) {
				broken = true
				bounds[i].weight = max(1, boundPull*b.weight)
			}
		}
		if !broken || round == boundRounds {
			return m, nil
		}
		active = slices.Clone(measured)
		for _, b := range bounds {
			if b.weight > 0 {
				active = append(active, b)
			}
		}
	}
}

// Evidence is what is known of one configuration by measurement. Where there is
// none, the model rests on the prior, at the level of what was measured elsewhere.
type Evidence struct {
	// Workers and Servers are the configuration; Servers is 0 for forms with a
	// fixed ratio.
	Workers int `json:"workers"`
	Servers int `json:"servers,omitempty"`
	// Rate is the capacity in samples per second or, with AtLeast, a rate that was
	// reached without being saturated: a lower bound.
	Rate    float64 `json:"rate"`
	AtLeast bool    `json:"at_least,omitempty"`
	// Intervals is how many measurements it rests on.
	Intervals int `json:"intervals"`
	// Adjusted tells that capacity has changed elsewhere since it was measured, and that
	// Rate follows that change ([Change]).
	Adjusted bool `json:"adjusted,omitempty"`
}

// Evidence lists what the model in force rests on beside the prior, by workers,
// then servers; empty while nothing has been measured often enough.
func (o *Online) Evidence() []Evidence {
	var out []Evidence
	for _, p := range o.points {
		rate, atLeast := o.capacity(p)
		if rate == 0 {
			continue
		}
		e := Evidence{Workers: p.Workers, Servers: p.Servers, Rate: rate, AtLeast: atLeast, Intervals: p.intervals(), Adjusted: p.Level != 0}
		if atLeast {
			_, e.Intervals = o.bound(p)
		}
		out = append(out, e)
	}
	return out
}
