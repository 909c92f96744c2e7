package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// sheet is the working sheet of one decision: the observation, what is derived
// from it, and the terms noted so far.
type sheet struct {
	o       *Observation
	current int
	curve   estimator.Curve
	prev    state // the state that the observation brought
	next    state // the state that the decision hands on
	terms   []Term
	load    float64 // what is expected, with headroom and without a backlog; NaN or 0: not known
	backlog float64 // the records that count in a lag over its threshold; 0: it is not
	noHelp  bool    // the reason says that more workers do not help
}

// proposal is what a policy wants, before the rules that bind every policy.
type proposal struct {
	want      int
	load      float64 // what want has to carry, samples/s; NaN: not known
	saturated bool
	source    string
	reason    string
	hold      []string // why the policy itself wants no change
	noIn      []string // why a scale-in would be blind, from the policy's view
	plan      Plan
}

// note adds a term.
func (s *sheet) note(name string, value float64, unit, expr string) {
	s.terms = append(s.terms, Term{Name: name, Expr: expr, Value: Number(value), Unit: unit})
}

func (s *sheet) noteDuration(name string, d time.Duration, expr string) {
	s.note(name, d.Seconds(), "s", expr)
}

// noteBacklog notes the records that wait, or that they are not known.
func (s *sheet) noteBacklog() {
	if s.o.lagKnown() && s.o.BacklogRecords >= 0 {
		s.note("backlog", float64(s.o.BacklogRecords), "records", "")
		return
	}
	s.note("backlog", math.NaN(), "records", fmt.Sprintf("reckoned as %s records", formatNumber(float64(max(s.o.BacklogRecords, 0)))))
}

// capacity is F(w) within the limits and also at the current count outside them.
func (s *sheet) capacity(w int) float64 { return s.o.Model.Throughput(w, s.o.Servers) }

// fewerDo says that w workers are no fewer than the limits allow, and that fewer would carry the load.
func (s *sheet) fewerDo(w int, load float64) bool {
	return w > 1 && w == s.o.Limits.Min && s.capacity(w-1) > load
}

// needs says for people how many workers a load needs, or that it needs no more than the least that are allowed, or more than any train.
func (s *sheet) needs(w int, load float64) string {
	switch lim := s.o.Limits; {
	case s.capacity(w) <= load && lim.Clamp(w) == w:
		return fmt.Sprintf("more than any %d to %d workers train", lim.Min, lim.Max)
	case s.fewerDo(w, load):
		return "no more than the " + workers(w) + " that are the least allowed"
	}
	return workers(w)
}

// noteNeeded puts down how many workers carry a load, of which load is the name.
func (s *sheet) noteNeeded(term string, w int, load float64, name string) {
	s.note(term, float64(w), "workers", s.holds(w, load, name, 1))
}

// holds is what holds of w, the multiple of so many workers that carries a load, of which load is the name: where a limit binds it is not the smallest that does.
func (s *sheet) holds(w int, load float64, name string, multiple int) string {
	lim := s.o.Limits
	switch {
	case s.capacity(w) <= load:
		return fmt.Sprintf("F(%d) is the most within the limits of %s, and no more than the %s", w, lim, name)
	case s.fewerDo(w, load):
		return fmt.Sprintf("the least allowed, and F(%d) > %s already", w-1, name)
	case multiple <= 1:
		return "smallest w with F(w) > " + name
	case w%multiple != 0:
		return fmt.Sprintf("the most allowed; the smallest multiple of %d with F(w) > %s is more", multiple, name)
	}
	return fmt.Sprintf("smallest multiple of %d with F(w) > %s", multiple, name)
}

// errorAt is the relative error of F at the number of workers that a load needs, 0 to
// 1; 0 where none is known.
func (s *sheet) errorAt(load float64) float64 {
	if len(s.o.ModelError) == 0 {
		return 0
	}
	w, _ := s.curve.Smallest(load)
	return s.doubt(w)
}

// doubt is the relative error of F(w), 0 to 1.
func (s *sheet) doubt(w int) float64 {
	if e := s.o.ModelError.At(w); e > 0 {
		return min(e, 1)
	}
	return 0
}

// recentRate is the largest measured rate in the last d before Now, in samples/s.
// ok is false when nothing was measured in that time.
func (s *sheet) recentRate(d time.Duration) (rate float64, ok bool) {
	r := s.o.Rates
	if r.Step <= 0 {
		return 0, false
	}
	for i := len(r.Values) - 1; i >= 0; i-- {
		end := r.Start.Add(lasts(i+1, r.Step))
		if s.o.Now.Sub(end) >= d {
			break
		}
		if v := r.Values[i]; finite(v) && v >= 0 && (!ok || v > rate) {
			rate, ok = v, true
		}
	}
	return rate, ok
}

// lastRate is the newest measured rate, if it is among the last five steps.
func (s *sheet) lastRate() (rate float64, ok bool) {
	v := s.o.Rates.Values
	for i := len(v) - 1; i >= 0 && i >= len(v)-5; i-- {
		if finite(v[i]) && v[i] >= 0 {
			return v[i], true
		}
	}
	return 0, false
}

// lastLoad is lastRate as a proposal's load.
func (s *sheet) lastLoad() float64 {
	if rate, ok := s.lastRate(); ok {
		return rate
	}
	return math.NaN()
}

// upcoming is foreseen for a forecast that is trusted.
func (s *sheet) upcoming() (mean []float64, start time.Time, why string) {
	if why := s.distrust(); why != "" {
		return nil, start, why
	}
	return s.foreseen()
}

// distrust says why a forecast is not to be acted upon, "" if it is.
func (s *sheet) distrust() string {
	switch f := s.o.Forecast; {
	case len(f.Mean) == 0 || f.Trusted:
		return "" // that there is none is said by foreseen
	case f.Reason != "":
		return "the forecast is not trusted: " + f.Reason
	}
	return "the forecast is not trusted"
}

// foreseen returns the forecast's mean from the step that holds Now on, and that
// step's start, trusted or not. why says why there is none, "" if there is.
func (s *sheet) foreseen() (mean []float64, start time.Time, why string) {
	f := s.o.Forecast
	switch {
	case len(f.Mean) == 0 && f.Reason != "":
		return nil, start, "there is no forecast: " + f.Reason
	case len(f.Mean) == 0:
		return nil, start, "there is no forecast"
	case f.Step <= 0:
		return nil, start, "the forecast has no step"
	case f.At.After(s.o.Now):
		return nil, start, "the forecast starts only at " + f.At.UTC().Format(time.RFC3339)
	}
	k := s.o.Now.Sub(f.At) / f.Step
	if k >= time.Duration(len(f.Mean)) {
		return nil, start, "the forecast ended at " + f.At.Add(lasts(len(f.Mean), f.Step)).UTC().Format(time.RFC3339)
	}
	mean = f.Mean[k:]
	for _, v := range mean {
		if !finite(v) {
			return nil, start, "the forecast holds a value that is not finite"
		}
	}
	return mean, f.At.Add(k * f.Step), ""
}

// within counts the steps, of those that begin at start, that touch the time from
// Now to Now+d; at least 1, at most n.
func (s *sheet) within(d time.Duration, start time.Time, step time.Duration, n int) int {
	until := addDurations(s.o.Now.Sub(start), d)
	return int(min(int64(until/step), int64(n-1))) + 1
}

// foreseenFor is how much of a time from Now on a forecast of n steps from start covers, and words for it where that is not all.
func (s *sheet) foreseenFor(d time.Duration, start time.Time, step time.Duration, n int) (covered time.Duration, cut string) {
	covered = min(d, max(start.Add(lasts(n, step)).Sub(s.o.Now), 0))
	if covered < d {
		cut = fmt.Sprintf(", cut from %s to what the forecast reaches (forecast.horizon)", formatDuration(d))
	}
	return covered, cut
}

// withHeadroom is a load plus the headroom; negative loads count as 0.
func (s *sheet) withHeadroom(load float64) float64 {
	return math.Max(load, 0) * (1 + s.o.Headroom)
}
