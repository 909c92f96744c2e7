package plan

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// kale is the policy of Kale §3.4: the forecast through Eq. 10 and Algorithm 1,
// and the fallback of §3.4.3 (fallback.go).
//
// What the paper leaves open, and how it is read here:
//
//   - The plan is made anew at each decision. Algorithm 1 walks from the workers
//     in force, so that it judges the step from now to the plan as well; else
//     its first value, which it never changes, would rule every decision.
//   - The target is the largest value of the plan from now until a worker asked
//     for at the next decision would train (join time + interval): a plan
//     shifted earlier by the join.
//   - A scale-in goes no lower than the plan's largest value within τ, since a
//     worker that is needed again within τ is not worth letting go.
//   - A scale-in leaves inRoom times the headroom, so that a load whose headroom just fills
//     the workers that would stay does not take a worker away and give it back by turns.
//     Without a headroom, as in the paper, it is Eq. 10 both ways.
//   - Where the last bins came above all that is forecast for now, they count (surge.go).
//   - Where the forecast does not reach τ beyond that lead, τ is cut to what it
//     reaches; else the tail rule of Algorithm 1 would put off every scale-out.
//   - Without a forecast to trust it is reactive: the largest rate of the last τ
//     and the lag, scale-out only.
//   - Workers and servers keep their ratio, rounded up, so that workers come and go
//     by so many at once: two in the paper, whose plotted day has even numbers only.
type kale struct {
	multiple int // 1 unless the job says so
}

func (k kale) propose(s *sheet) proposal {
	mean, start, why := s.upcoming()
	var p proposal
	var expect float64 // the largest load expected until the lead, without headroom
	if why == "" {
		p, expect = k.planned(s, mean, start)
		s.surge(&p)
	} else {
		p, expect = s.reactive(why)
	}
	s.load = p.load
	s.keepEnough(&p)
	s.lagFallback(&p, expect)
	s.utilisationFallback(&p, why == "", expect)
	p.want = k.whole(p.want, s.o.Limits)
	return p
}

// whole is the next multiple that is not less than w, or the limit below it.
func (k kale) whole(w int, l Limits) int {
	if k.multiple <= 1 {
		return w
	}
	return min((w+k.multiple-1)/k.multiple*k.multiple, max(l.Max, w))
}

// inRoom is how much of the headroom a scale-in leaves: a quarter more than what a scale-out is made for. At the default headroom, a tenth, and at a fifth
// that is 2.3 and 4.2 % between the load that takes a worker away and the one that brings it back, about what a measured interval is off by. [ours]
const inRoom = 1.25

// planFor is Eq. 10 and Algorithm 1 for a forecast with so much headroom.
func (k kale) planFor(s *sheet, mean []float64, tau time.Duration, headroom float64) (raw, plan []int, saturated []bool) {
	loads := make([]float64, len(mean))
	for i, v := range mean {
		loads[i] = max(v, 0) * (1 + headroom)
	}
	raw, saturated = eq10(loads, s.curve)
	for i, w := range raw {
		raw[i] = k.whole(w, s.o.Limits)
	}
	head := s.o.Limits.Clamp(s.current)
	return raw, Stabilise(append([]int{head}, raw...), s.o.Rho, s.o.Forecast.Step, tau)[1:], saturated
}

// planned reads the target off the stabilised plan.
func (k kale) planned(s *sheet, mean []float64, start time.Time) (p proposal, expect float64) {
	o, step := s.o, s.o.Forecast.Step
	tau := s.reachableTau(start, step, len(mean))
	raw, plan, saturated := k.planFor(s, mean, tau, o.Headroom)

	lead := o.lead()
	soon := s.within(lead, start, step, len(plan))
	later := s.within(max(lead, tau), start, step, len(plan))
	expect = slices.Max(mean[:soon])
	out, keep := slices.Max(plan[:soon]), slices.Max(plan[:later])
	want := out
	roomy := keep
	if out < s.current {
		if o.Headroom > 0 {
			_, with, _ := k.planFor(s, mean, tau, inRoom*o.Headroom)
			roomy = max(keep, slices.Max(with[:later]))
		}
		want = min(s.current, roomy)
	}
	p = proposal{
		want: want, load: s.withHeadroom(expect), source: "forecast",
		saturated: slices.Contains(saturated[:soon], true),
		plan:      Plan{Start: start, Step: step, Workers: plan, Raw: raw},
	}
	ahead, cut := s.foreseenFor(lead, start, step, len(plan))
	s.noteForecast(mean, soon, later, cut)
	need := slices.Max(raw[:soon])
	expr := "most within the lead, " + s.holds(need, s.withHeadroom(expect), "load", k.multiple)
	if s.capacity(need) > s.withHeadroom(expect) {
		expr += ", within " + o.Limits.String()
	}
	s.note("Eq. 10", float64(need), "workers", expr)
	s.note("Algorithm 1", float64(out), "workers", fmt.Sprintf("most within the lead, ρ = %d, τ = %s", max(o.Rho, 1), formatDuration(tau)))
	s.note("until τ", float64(keep), "workers", "most within "+formatDuration(max(lead, tau))+": a scale-in goes no lower")
	if roomy > keep {
		s.note("with room", float64(roomy), "workers", fmt.Sprintf("until τ with %g × the headroom, which a scale-in leaves", inRoom))
	}
	p.reason = s.planReason(p, expect, ahead)
	if want > keep && want == s.current {
		p.reason += fmt.Sprintf("; %s would do without %g × the headroom, which a scale-in leaves", workers(keep), inRoom)
	}
	if p.want < need {
		p.reason += fmt.Sprintf("; a swing that needs %d for less than τ = %s is cut by Algorithm 1", need, formatDuration(tau))
	}
	return p, expect
}

// reachableTau is τ, or what the forecast reaches beyond the lead if that is less.
func (s *sheet) reachableTau(start time.Time, step time.Duration, n int) time.Duration {
	reach := max(start.Add(lasts(n, step)).Sub(s.o.Now), 0) - s.o.lead()
	tau := min(s.o.Tau, max(reach, 0))
	if tau < s.o.Tau {
		s.noteDuration("τ", tau, fmt.Sprintf("%s, cut to what the forecast reaches beyond the lead", formatDuration(s.o.Tau)))
	}
	return tau
}

// parts are a join time and the wait in the cluster's queue, which is in it, as a sum.
func (m Measured) parts() string {
	how, queue := "measured", ""
	if m.Samples == 0 {
		how = "assumed"
	}
	if m.Queue > 0 {
		queue = fmt.Sprintf("wait in the cluster's queue %s + ", formatDuration(m.Queue))
	}
	return fmt.Sprintf("%sjoin time %s (%s)", queue, formatDuration(m.Value-m.Queue), how)
}

func (s *sheet) noteForecast(mean []float64, soon, later int, cut string) {
	o := s.o
	s.noteDuration("lead", o.lead(), fmt.Sprintf("%s + autoscale.tick %s", o.JoinTime.parts(), formatDuration(o.Interval)))
	s.note("forecast now", mean[0], "records/s", "by "+o.Forecast.Source)
	s.note("forecast peak", slices.Max(mean[:soon]), "records/s", "largest mean within the lead"+cut)
	s.note("load", s.withHeadroom(slices.Max(mean[:soon])), "records/s", fmt.Sprintf("forecast peak × (1 + %g)", o.Headroom))
	s.note("load until τ", s.withHeadroom(slices.Max(mean[:later])), "records/s", "largest mean until τ, with headroom")
	if o.RescaleCost.Value > 0 {
		s.noteDuration("rescale outage", o.RescaleCost.Value, "reported only: Kale's plan does not weigh it")
	}
}

func (s *sheet) planReason(p proposal, expect float64, lead time.Duration) string {
	if p.saturated {
		return fmt.Sprintf("the forecast peak of %s within %s is more than any %d to %d workers train (%s at most): saturated",
			formatRate(expect), formatDuration(lead), s.o.Limits.Min, s.o.Limits.Max, formatRate(s.peak()))
	}
	load := formatRate(p.load)
	switch {
	case s.capacity(p.want) <= p.load:
		return fmt.Sprintf("the plan keeps to %s for the next %s", workers(p.want), formatDuration(lead))
	case p.want > s.current:
		return fmt.Sprintf("the plan needs %s within %s for a load of %s, and %d train %s",
			s.needs(p.want, p.load), formatDuration(lead), load, s.current, formatRate(s.capacity(s.current)))
	case p.want < s.current:
		return fmt.Sprintf("the plan needs %s until τ for a load of %s", s.needs(p.want, p.load), load)
	}
	return fmt.Sprintf("the plan needs %s for a load of %s within %s", s.needs(p.want, p.load), load, formatDuration(lead))
}

// peak is the largest capacity within the limits.
func (s *sheet) peak() float64 {
	_, f := s.curve.Peak()
	return f
}

// reactive follows the recent rate upwards, because the forecast cannot be used.
func (s *sheet) reactive(why string) (p proposal, expect float64) {
	window := max(s.o.Tau, s.o.lead())
	p = proposal{want: s.current, load: math.NaN(), source: "reactive", noIn: []string{why}}
	rate, ok := s.recentRate(window)
	if !ok {
		p.hold = []string{why, "no rate was measured in the last " + formatDuration(window)}
		p.reason = why + ", and no rate was measured in the last " + formatDuration(window)
		return p, 0
	}
	p.load = s.withHeadroom(rate)
	w, saturated := s.curve.Smallest(p.load)
	s.note("recent rate", rate, "records/s", "largest in the last "+formatDuration(window))
	s.note("load", p.load, "records/s", fmt.Sprintf("recent rate × (1 + %g)", s.o.Headroom))
	s.noteNeeded("needed", w, p.load, "load")
	p.want, p.saturated = max(s.current, w), saturated
	p.reason = fmt.Sprintf("%s; the recent rate of %s needs %s", why, formatRate(rate), s.needs(w, p.load))
	if w < s.current {
		s.note("kept", float64(s.current-w), "workers", "held for want of a forecast alone: other jobs of a pool may have them")
		p.hold = []string{why}
		p.reason += fmt.Sprintf(", but none of the %d is let go without a forecast", s.current)
	}
	return p, rate
}
