package plan

import (
	"fmt"
	"math"
	"time"
)

// split is what a course of action costs, by what it is paid for, in GPU-hours.
type split struct{ gpu, lag, risk, rescale float64 }

func (a split) minus(b split) split {
	return split{a.gpu - b.gpu, a.lag - b.lag, a.risk - b.risk, a.rescale - b.rescale}
}

// text names the parts that are not nothing; signed says whether as differences.
func (a split) text(signed bool) string {
	out := ""
	for _, part := range []struct {
		name string
		v    float64
	}{{"GPUs", a.gpu}, {"lag", a.lag}, {"risk of violation", a.risk}, {"rescales", a.rescale}} {
		if math.Abs(part.v) < 0.005 {
			continue
		}
		if out != "" {
			out += ", "
		}
		if signed {
			out += fmt.Sprintf("%s %+.2f", part.name, part.v)
		} else {
			out += fmt.Sprintf("%s %.2f", part.name, part.v)
		}
	}
	if out == "" {
		return "no difference"
	}
	return out
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
	}
	return sum
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
	return out
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

// course is the plan as it would go if the load were as expected.
func (p *program) course(s *sheet, first int) Plan {
	workers := make([]int, p.steps())
	p.walkOne(-1, p.start(s), p.index(s.current), first, workers)
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

// account notes the arithmetic behind a choice and returns its reason.
func (p *program) account(s *sheet, costs []float64, at, best int) string {
	o, v := s.o, p.v
	reach := formatDuration(seconds(v.at[p.steps()]).Round(time.Second))
	s.note("backlog", float64(max(o.BacklogRecords, 0)), "records", "")
	s.note("load", v.mean[0], "records/s", v.expected(o.Forecast.Trusted))
	if p.outage > 0 {
		s.noteDuration("rescale outage", o.RescaleCost.Value, "nothing is trained meanwhile")
	} else {
		s.noteDuration("lead", o.JoinTime.Value, o.JoinTime.parts()+" until new workers train; the others go on")
	}
	if left := p.cool.left; left > 0 {
		s.noteDuration("cooldown left", seconds(left), formatDuration(o.CooldownIn)+" from any change to a scale-in: none go before")
	}
	chosen := p.walk(s, at, best)
	s.note("expected cost", costs[best], "GPU-h", fmt.Sprintf("%s now, over the next %s; along the plan: %s", workers(p.workers[best]), reach, chosen.text(false)))
	reason := ""
	if best != at {
		d := p.walk(s, at, at).minus(chosen)
		s.note("to stay", costs[at]-costs[best], "GPU-h", fmt.Sprintf("more at %d: %s", p.workers[at], d.text(true)))
		reason = fmt.Sprintf("%s cost %s GPU-hours less than %d over the next %s: %s", workers(p.workers[best]), formatHours(costs[at]-costs[best]), p.workers[at], reach, split{}.minus(d).text(true))
	}
	for _, other := range []struct {
		name string
		i    int
	}{{"one fewer", best - 1}, {"one more", best + 1}} {
		if other.i < 0 || other.i >= len(p.workers) || other.i == at && best != at || math.IsInf(costs[other.i], 0) {
			continue
		}
		d := p.walk(s, at, other.i).minus(chosen)
		s.note(other.name, costs[other.i]-costs[best], "GPU-h", fmt.Sprintf("more at %d: %s", p.workers[other.i], d.text(true)))
		if reason == "" || best == at {
			if reason == "" {
				reason = fmt.Sprintf("no change pays over the next %s", reach)
			}
			reason += fmt.Sprintf("; %d would cost %s GPU-hours more", p.workers[other.i], formatHours(costs[other.i]-costs[best]))
		}
	}
	if reason == "" {
		reason = fmt.Sprintf("%s is all that may be had", workers(p.workers[best]))
	}
	return reason
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

// formatHours writes GPU-hours to the hundredth.
func formatHours(v float64) string { return fmt.Sprintf("%.2f", v) }
