package plan

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// split is what a course of action costs, by what it is paid for, in GPU-hours.
type split struct {
	gpu, lag, risk, rescale float64
	after                   float64 // what is left to do at the end of the view
	other                   float64 // what the courses of the load that were not walked through add
}

func (a split) minus(b split) split {
	return split{a.gpu - b.gpu, a.lag - b.lag, a.risk - b.risk, a.rescale - b.rescale, a.after - b.after, a.other - b.other}
}

func (a split) sum() float64 { return a.gpu + a.lag + a.risk + a.rescale + a.after + a.other }

// parts are those that are not nothing.
func (a split) parts() []Part {
	all := []Part{
		{"GPUs", Number(a.gpu)}, {"lag", Number(a.lag)}, {"risk of violation", Number(a.risk)}, {"rescales", Number(a.rescale)},
		{"what is left at the end", Number(a.after)}, {"other courses of the load", Number(a.other)},
	}
	return slices.DeleteFunc(all, func(p Part) bool { return math.Abs(float64(p.Value)) < math.Pow10(-mostDecimals)/2 })
}

// walkScenarios is how many scenarios are walked through to tell what a cost is made
// of.
const walkScenarios = 12

// walk follows the program's own choices through some scenarios, candidate first
// being the first step from candidate from, and returns the mean split.
func (p *program) walk(s *sheet, from, first int) (sum split) {
	n := len(p.v.rows[0])
	walks := min(n, walkScenarios)
	for k := range walks {
		one := p.walkOne(k*n/walks, p.start(s), from, first, nil)
		share := 1 / float64(walks)
		sum.gpu, sum.lag = sum.gpu+share*one.gpu, sum.lag+share*one.lag
		sum.risk, sum.rescale = sum.risk+share*one.risk, sum.rescale+share*one.rescale
		sum.after += share * one.after
	}
	return sum
}

// made is what a candidate's expected cost is made of. That is the expectation over all
// courses that the load may take by its classes; the scenarios that are walked through
// are some of them, and what the others add is a part of its own.
func (p *program) made(s *sheet, from, first int, cost float64) split {
	out := p.walk(s, from, first)
	out.other = cost - out.sum()
	return out
}

// walkOne follows one scenario; workers, where given, takes the candidate in force
// at each step. Scenario −1 is the mean.
func (p *program) walkOne(k int, backlog float64, w, first int, workers []int) (out split) {
	v := p.v
	cooled := p.cool.now(v.at)
	blocked, dead := 0.0, 0.0 // until when nothing is decided, and how long is nothing trained
	for j := range p.steps() {
		load := v.mean[j]
		if k >= 0 && k < len(v.rows[j]) {
			load = v.rows[j][k]
		}
		to := w
		switch {
		case j == 0:
			to = first
		case v.at[j] >= blocked-1e-6:
			c, b := p.state(j, load, backlog)
			to = int(p.within(cooled, j)[w].to[c][b])
		}
		length := v.at[j+1] - v.at[j]
		trains := length
		if to != w {
			out.rescale, cooled = out.rescale+p.price, p.cool.until[j]
			dead = p.outage
			if m := p.landing(j); p.outage > 0 && m > 0 {
				blocked = v.at[m]
			}
			if p.outage == 0 && to > w {
				backlog += max(min(p.f[to], load)-p.f[w], 0) * min(p.lead, length)
			}
			w = to
		}
		if workers != nil {
			workers[j] = p.workers[w]
		}
		stopped := min(dead, length)
		dead -= stopped
		trains -= stopped
		before := v.oldest(j, k, backlog) / p.maxLag
		left := max(backlog+load*length-p.f[w]*trains, 0)
		after := v.oldest(j+1, k, left) / p.maxLag
		if left == 0 && backlog+load*stopped > 0 { // for part of the step only
			length *= min((backlog+load*stopped)/max(p.f[w]*trains, 1), 1)
		}
		out.gpu += float64(p.workers[w]) * (v.at[j+1] - v.at[j]) / 3600
		out.lag += 0.5 * p.lagCost.lag * (before + after) * length
		out.risk += 0.5 * (p.lagCost.risk(before) + p.lagCost.risk(after)) * length
		backlog = left
	}
	out.after = p.left(k, w, backlog)
	return out
}

// left is the value at the end of the view of candidate w and a backlog, in scenario k.
func (p *program) left(k, w int, backlog float64) float64 {
	n := p.steps()
	load := p.v.mean[n-1]
	if k >= 0 && k < len(p.v.rows[n-1]) {
		load = p.v.rows[n-1][k]
	}
	b := 0
	for b < lags-2 && backlog > p.held[n][b+1] {
		b++
	}
	row := p.at(n, w).cost[p.v.class(n-1, load)]
	return row[b] + (backlog-p.held[n][b])*p.rise[n][b]*(row[b+1]-row[b])
}

// oldest is how long ago the oldest of so many records arrived, the newest first,
// in s, at step j of scenario k; scenario −1 is the mean.
func (v *view) oldest(j, k int, records float64) (age float64) {
	course := func(i int) float64 {
		if k < 0 || k >= len(v.rows[i]) {
			return v.mean[i]
		}
		return v.rows[i][k]
	}
	rate := 0.0
	for i := j - 1; i >= 0 && records > 0; i-- {
		rate = course(i)
		records, age = since(records, age, rate, v.at[i+1]-v.at[i])
	}
	for i := len(v.past) - 1; i >= 0 && records > 0; i-- {
		rate = v.past[i]
		records, age = since(records, age, rate, v.pastStep)
	}
	if records > 0 { // older than what was measured
		age += records / max(rate, 1)
	}
	return age
}

// since goes back over a time in which records arrived at a rate.
func since(records, age, rate, length float64) (left, older float64) {
	if come := rate * length; come < records {
		return records - come, age + length
	}
	return 0, age + records/rate
}

// state is the class and the lag that are nearest.
func (p *program) state(j int, load, backlog float64) (c, b int) {
	for b+1 < lags && backlog > (p.held[j][b]+p.held[j][b+1])/2 {
		b++
	}
	return p.v.class(j, load), b
}

// steer is how many workers each step of the plan has if the load is as expected.
func (p *program) steer(s *sheet, first int) []int {
	workers := make([]int, p.steps())
	p.walkOne(-1, p.start(s), p.index(s.current), first, workers)
	return workers
}

// course is the plan as it would go if the load were as expected.
func (p *program) course(s *sheet, first int) Plan {
	workers := p.steer(s, first)
	// In steps of one length, as a plan is written.
	step := s.o.Forecast.Step
	for lasts(60, step) < seconds(p.v.at[p.steps()]) {
		step *= 2
	}
	out := Plan{Start: s.o.Now, Step: step}
	j := 0
	for t := 0.0; t < p.v.at[p.steps()]-1e-6; t += step.Seconds() {
		for p.v.at[j+1] <= t {
			j++
		}
		out.Workers = append(out.Workers, workers[j])
	}
	out.Raw = out.Workers
	return out
}

func (p *program) index(w int) int {
	for i, v := range p.workers {
		if v == w {
			return i
		}
	}
	return 0
}

// account notes the arithmetic behind a choice and returns its reason. chosen is the
// candidate of least cost within the limits, at the one in force.
func (p *program) account(s *sheet, costs []float64, at, chosen int) string {
	o, v := s.o, p.v
	s.noteBacklog()
	s.note("load", v.mean[0], "records/s", v.expected(o.Forecast.Trusted))
	if p.outage > 0 {
		s.noteDuration("rescale outage", o.RescaleCost.Value, "nothing is trained meanwhile")
	} else {
		s.noteDuration("lead", o.JoinTime.Value, o.JoinTime.parts()+" until new workers train; the others go on")
	}
	if left := p.cool.left; left > 0 {
		s.noteDuration("cooldown left", seconds(left), formatDuration(o.CooldownIn)+" from any change to a scale-in: none go before")
	}
	if math.IsInf(costs[chosen], 0) { // it may not be changed to
		return s.outside()
	}
	own := p.made(s, at, chosen, costs[chosen])
	s.noteParts("expected cost", fmt.Sprintf("%s now, over the next %s, along the plan", workers(p.workers[chosen]), p.reach()), own)
	reason := p.because(s, costs, at, chosen, own)
	for _, other := range []struct {
		name string
		i    int
	}{{"one fewer", chosen - 1}, {"one more", chosen + 1}} {
		if !p.mayBe(s, other.i) || other.i == at && chosen != at || math.IsInf(costs[other.i], 0) {
			continue
		}
		d := p.made(s, at, other.i, costs[other.i]).minus(own)
		s.noteParts(other.name, fmt.Sprintf("more at %d", p.workers[other.i]), d)
		if chosen == at || !p.mayBe(s, at) {
			reason += fmt.Sprintf("; %d would cost %s", p.workers[other.i], compared(d.sum()))
		}
	}
	return reason
}

// because says why a candidate was chosen, as against the one in force where that may
// stay, and notes what it would cost to stay.
func (p *program) because(s *sheet, costs []float64, at, chosen int, own split) string {
	lim := s.o.Limits
	switch {
	case !p.mayBe(s, at):
		return fmt.Sprintf("%s; of these %s least over the next %s", s.outside(), costing(fmt.Sprint(p.workers[chosen]), p.workers[chosen]), p.reach())
	case chosen != at:
		d := p.made(s, at, at, costs[at]).minus(own)
		s.noteParts("to stay", fmt.Sprintf("more at %d", p.workers[at]), d)
		gain := split{}.minus(d)
		reason := fmt.Sprintf("%s %s than %d over the next %s", costing(workers(p.workers[chosen]), p.workers[chosen]), compared(gain.sum()), p.workers[at], p.reach())
		if parts := partsText(gain.sum(), gain.parts()); parts != "" {
			reason += ": " + parts
		}
		return reason
	case lim.Min == lim.Max:
		return fmt.Sprintf("the limits allow %s, no fewer and no more", workers(lim.Min))
	case p.outage > 0 && p.landing(0) == 0:
		return fmt.Sprintf("a rescale stops training for %s, longer than the %s that are looked ahead", formatDuration(s.o.RescaleCost.Value), p.reach())
	case p.cool.now(p.v.at) > 0 && p.mayBe(s, at-1):
		return fmt.Sprintf("none may go for another %s (the cooldown), and to add none now costs least over the next %s", formatDuration(seconds(p.cool.left)), p.reach())
	}
	return "to change nothing now costs least over the next " + p.reach()
}

// mayBe tells whether there is candidate i and the limits allow it: the workers in force may be outside of them.
func (p *program) mayBe(s *sheet, i int) bool {
	return i >= 0 && i < len(p.workers) && s.o.Limits.Clamp(p.workers[i]) == p.workers[i]
}

// reach is how far the view goes.
func (p *program) reach() string {
	return formatDuration(seconds(p.v.at[p.steps()]).Round(time.Second))
}

// noteParts notes costs with what they are made of.
func (s *sheet) noteParts(name, expr string, of split) {
	s.terms = append(s.terms, Term{Name: name, Expr: expr, Value: Number(of.sum()), Unit: unitHours, Parts: of.parts()})
}

// costing says that so many workers, in words, cost something.
func costing(words string, n int) string {
	if n == 1 {
		return words + " costs"
	}
	return words + " cost"
}

// compared says by how much a cost differs from another.
func compared(more float64) string {
	switch {
	case math.Abs(more) < math.Pow10(-mostDecimals)/2:
		return "0 GPU-hours more"
	case more < 0:
		return formatHours(-more) + " GPU-hours less"
	}
	return formatHours(more) + " GPU-hours more"
}

// expected says what the load of the first step rests on. The mean is the forecast's and the range that of its past errors, which need not hold it.
func (v *view) expected(trusted bool) string {
	by := ""
	if !trusted {
		by = ", by a forecast that is not trusted"
	}
	low, high := min(v.load[0][0], v.mean[0]), max(v.load[0][classes-1], v.mean[0])
	return fmt.Sprintf("expected next%s; %s to %s in nine of ten cases", by, formatNumber(low), formatNumber(high))
}
