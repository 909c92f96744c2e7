package forecast

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// How it is measured whether an event comes; see [Calendar.came].
const (
	eventDoubt   = 0.5       // standard deviation of an event's strength before any of it is seen: nearly all come with 0 to 2 times what was declared
	eventNoise   = 0.1       // least standard deviation of log(came / usual) in one bin
	eventBlock   = 1. / 24   // of the shortest season: over so long an event has one strength
	eventMinBins = 3         // and no fewer than these
	eventLags    = 4         // times that a season is looked back, for what is usual
	leastSaid    = 0.01      // |log uplift| below which a bin tells nothing of the strength
	strongest    = 4.0       // times what was declared, in the logarithm
	comesAbove   = 0.25      // an event of less than this strength did not come,
	asDeclared   = 0.65      // of less than this it came weaker than declared, and
	comesBeyond  = 1.0 + 0.5 // beyond this stronger
)

// came are the factors of the events in the bins of a history and in so many after it; nil: all are 1.
//
// An event is what people expect, and may not come, or more weakly or strongly. Its strength s says how much of it does:
//
//	came / usual = uplift^s
//
// is 1 where it does not come (s = 0) and the uplift where it comes as declared (s = 1). What is usual is that of the same phase in the seasons before, without
// their events, at the level that traffic had before the event began. The strength of a stretch of an hour (of a day's season) is the median of
// log(came/usual) / log(uplift) over its bins, drawn towards 1 as far as these bins do not tell: s ~ N(1, 0.5²) before, a bin's log(came/usual) with the
// standard deviation that it had in the last bins before the event. What follows the history has the strength of the last stretch of it. Events that are at once
// have one strength.
func (c Calendar) came(history Series, steps int, days *dayTable) []float64 {
	out := c.declared(history, steps)
	if out == nil || len(c.Seasons) == 0 {
		return out
	}
	plain := history.over(out) // at first as was declared, then as it came
	if days != nil {
		for i := range plain.Values {
			if f := days.factor(plain.At(i), plain.Step, c.Zone); f != 1 {
				plain.Values[i] = undone(plain.Values[i], f)
			}
		}
	}
	n := len(history.Values)
	for from := 0; from < n; from++ {
		if out[from] == 1 {
			continue
		}
		to := from
		for to < len(out) && out[to] != 1 {
			to++
		}
		e := episode{calendar: c, history: history, plain: plain, days: days, from: from, to: min(to, n)}
		e.block = max(eventMinBins, int(eventBlock*float64(slices.Min(c.Seasons))/float64(history.Step)))
		e.measure(out, to)
		from = to
	}
	return out
}

// episode is a stretch of bins with events.
type episode struct {
	calendar Calendar
	history  Series
	plain    Series // without events and holidays, as far as that is known
	days     *dayTable
	from, to int // bins of the history
	block    int
	usual    []float64 // of the bins from from on; nil: not known
	noise    float64   // standard deviation of the logarithm of what comes over what is usual
}

// measure sets the factors of the episode, and those of it that follow the history, up to bin upTo, to what came.
func (e *episode) measure(factors []float64, upTo int) {
	if !e.compare() {
		return
	}
	declared := slices.Clone(factors[e.from:upTo])
	set := func(i int, strength float64) {
		factors[i] = factorOf(declared[i-e.from], strength)
	}
	last, since := 1.0, e.from // since when the same events have been on
	for from := e.from; from < e.to; {
		to := from + 1
		for to < min(from+e.block, e.to) && declared[to-e.from] == declared[from-e.from] {
			to++
		}
		if from > e.from && declared[from-e.from] != declared[from-1-e.from] {
			since = from
		}
		last = e.strength(declared, from, to)
		if to == len(e.history.Values) && to < upTo { // it goes on: a whole hour tells, not what there is of one by chance
			last = e.strength(declared, max(since, to-e.block), to)
		}
		for i := from; i < to; i++ {
			set(i, last)
			e.plain.Values[i] = undone(e.history.Values[i], factors[i])
		}
		from = to
	}
	until := e.calendar.underWay(e.history.At(e.to - 1))
	for i := e.to; i < upTo && e.history.At(i).Before(until); i++ { // of what begins later nothing has been seen
		set(i, last)
	}
}

// factorOf is by what an event of an uplift multiplies when it comes at a strength; 0 where about nothing is left.
func factorOf(uplift, strength float64) float64 {
	f := math.Exp(strength * math.Log(max(uplift, leastFactor)))
	if f <= leastFactor*1.5 {
		return 0
	}
	return f
}

// underWay is until when the events of a moment go on.
func (c Calendar) underWay(at time.Time) (until time.Time) {
	for _, e := range c.Events {
		if !e.From.After(at) && e.To.After(until) {
			until = e.To
		}
	}
	return until
}

// strength is that of some bins of the episode.
func (e *episode) strength(declared []float64, from, to int) float64 {
	var all []float64
	weight := 0.0
	for i := from; i < to; i++ {
		said := math.Log(max(declared[i-e.from], leastFactor))
		usual, got := e.usual[i-e.from], e.history.Values[i]
		if math.Abs(said) < leastSaid || usual+got != usual+got || usual <= 0 {
			continue
		}
		all = append(all, math.Log(max(got/usual, leastFactor))/said)
		weight += said * said / (e.noise * e.noise)
	}
	if len(all) == 0 {
		return 1
	}
	const prior = 1 / (eventDoubt * eventDoubt)
	s := (prior + weight*median(all)) / (prior + weight)
	return min(max(s, -strongest), strongest)
}

// compare finds what is usual in the episode, and says whether that is known.
func (e *episode) compare() bool {
	lags := e.lags()
	if len(lags) == 0 {
		return false
	}
	season := int(slices.Min(e.calendar.Seasons) / e.history.Step)
	before := max(0, e.from-max(eventMinBins, season)) // the level is that of the season before,
	usual := func(i int) float64 {
		sum, n := 0.0, 0.0
		for _, lag := range lags {
			if at := i - lag; at >= 0 && at < len(e.plain.Values) && (at < e.from || at >= e.to) {
				if v := e.plain.Values[at]; v == v {
					sum, n = sum+v, n+1
				}
			}
		}
		return sum / n
	}
	var ratios []float64
	for i := before; i < e.from; i++ {
		if u, v := usual(i), e.plain.Values[i]; u > 0 && v > 0 {
			ratios = append(ratios, math.Log(v/u))
		}
	}
	if len(ratios) < eventMinBins {
		return false
	}
	latest := ratios[max(0, len(ratios)-max(eventMinBins, 3*e.block)):] // and of its last hours as much
	level := (median(ratios) + median(latest)) / 2
	off := make([]float64, len(ratios))
	for i, r := range ratios {
		off[i] = math.Abs(r - level)
	}
	e.noise = max(eventNoise, 1.4826*median(off)) // of a normal distribution
	e.usual = make([]float64, e.to-e.from)
	for i := range e.usual {
		e.usual[i] = math.Exp(level) * usual(e.from+i)
		if e.days != nil {
			e.usual[i] *= e.days.factor(e.history.At(e.from+i), e.history.Step, e.calendar.Zone)
		}
	}
	return true
}

// lags are those by which what is usual is looked up, in bins: of the longest season that the history has before the episode or, where it has none, after it.
func (e *episode) lags() (out []int) {
	seasons := slices.Clone(e.calendar.Seasons)
	slices.Sort(seasons)
	slices.Reverse(seasons)
	step := e.history.Step
	for _, sign := range []int{1, -1} {
		for _, season := range seasons {
			shortest := int(seasons[len(seasons)-1] / step)
			for k := 1; k <= eventLags; k++ {
				lag := sign * k * int(season/step)
				if zone := e.calendar.Zone; zone != nil {
					if d := ahead(zone, e.history.At(e.from)) - ahead(zone, e.history.At(e.from-lag)); d%step == 0 {
						lag -= int(d / step)
					}
				}
				if sign > 0 && e.from-shortest-lag >= 0 && lag > 0 || sign < 0 && e.to-lag <= len(e.plain.Values) && lag < e.from-e.to+1 {
					out = append(out, lag)
				}
			}
			if len(out) > 0 {
				return out
			}
		}
	}
	return out
}

// median is that of values in any order, NaN of none.
func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	return (values[n/2] + values[(n-1)/2]) / 2
}

// EventOutcome is what came of a declared event, as far as it has been.
type EventOutcome struct {
	Event
	Bins     int     // of it that have been and were measured
	Measured float64 // what came, in proportion to what is usual then; the median over its bins
	Strength float64 // see [Calendar.came]: 0 as if there were none, 1 as was declared
	Lately   float64 // Strength over the last hour of it (of a day's season) that was measured: what follows is forecast by it
	Sure     bool    // what came is no chance
	Over     bool    // the event has ended
}

// Says is what to tell people of it; "": it came as was declared, or that is not known.
func (o EventOutcome) Says() string {
	so, did := "", "did not come"
	if !o.Over {
		so, did = " so far", "has not come so far"
	}
	measured := fmt.Sprintf("(measured %.2fx of the usual, declared %.4gx)", o.Measured, o.Uplift)
	switch {
	case !o.Sure:
		return ""
	case o.Strength < comesAbove:
		return fmt.Sprintf("the declared event %q %s %s", o.Name, did, measured)
	case o.Strength < asDeclared:
		return fmt.Sprintf("the declared event %q came weaker than declared%s %s", o.Name, so, measured)
	case o.Strength > comesBeyond:
		return fmt.Sprintf("the declared event %q came stronger than declared%s %s", o.Name, so, measured)
	}
	return ""
}

// otherwise is by what the event multiplies what is usual, where that is surely not as was declared: while it goes on lately, then in all of it. nil: as was declared, or that is not known.
func (o EventOutcome) otherwise() *float64 {
	strength := o.Lately
	if o.Over {
		strength = o.Strength
	}
	if !o.Sure || strength >= asDeclared && strength <= comesBeyond {
		return nil
	}
	factor := factorOf(o.Uplift, strength)
	return &factor
}

// sureBins is how many bins of an event say that it is none of a slow beginning.
const sureBins = 6

// Outcomes are what came of the events that the history has a part of, in the order in which they are declared. Without seasons there are none.
func (c Calendar) Outcomes(history Series) (out []EventOutcome) {
	declared := c.declared(history, 0)
	if len(c.Seasons) == 0 || declared == nil {
		return nil
	}
	l := c.look(history, 1) // what goes on goes on by its last hour
	for _, e := range c.Events {
		if !e.From.Before(history.End()) || !history.Start.Before(e.To) || e.Uplift == 1 {
			continue
		}
		var strengths []float64
		for i := max(0, history.Bin(e.From)); i < min(len(history.Values), history.Bin(e.To)); i++ {
			if said := math.Log(max(declared[i], leastFactor)); math.Abs(said) >= leastSaid && history.Values[i] == history.Values[i] {
				strengths = append(strengths, math.Log(max(l.factors[i], leastFactor))/said)
			}
		}
		if len(strengths) == 0 {
			continue
		}
		o := EventOutcome{Event: e, Bins: len(strengths), Strength: median(strengths), Lately: strengths[len(strengths)-1], Over: !history.End().Before(e.To)}
		o.Measured = factorOf(e.Uplift, o.Strength)
		o.Sure = o.Bins >= sureBins || o.Over && o.Bins >= eventMinBins
		out = append(out, o)
	}
	return out
}
