package plan

import (
	"math"
	"slices"
)

// cost is Kale's own policy [ours]: of all courses of action over the coming hours
// it takes the first step of the one with the least expected cost, and asks again at
// the next decision (a receding horizon).
//
// Cost is in GPU-hours: of the GPUs held, of the lag (lag GPUs for a lag as long as
// the objective, in proportion), and of violation (over GPUs while the objective is
// broken, rising from 80 % of it on). What a rescale costs follows from these: the
// backlog of its measured outage, that has to be worked off, or what workers cost
// while they come. The future is the forecast's scenarios, in five classes of load
// whose persistence is measured, and what lies beyond its horizon; the model's own
// uncertainty widens the classes. A dynamic programme over time × workers × class ×
// backlog finds the course, which may answer to how the load turns out. So it
// rescales in the trough before a ramp where that is cheaper than in the ramp, rides
// out a spike that is not worth an outage, and takes one large step instead of two
// small ones where the second would cost more than the GPUs that it saves.
//
// There is no threshold that a change must exceed: waiting for the next decision
// always costs little, so a threshold would be a reason to wait for ever. Changes
// are kept rare by their price, which holds later as it does now. Where a rescale is
// live it knows too what the job's cooldown forbids after each (costcooldown.go).
//
// It needs no point forecast to trust, but one that knows its errors
// ([Forecast.Calibrated]): without, it is reactive, as kale is.
type cost struct {
	lag, over  float64 // GPUs
	price      float64 // GPU-hours
	modelError float64
	guard      bool // the job's cooldowns hold
}

func newCost(p Params) cost {
	return cost{lag: p["lag"], over: p["over"], price: p["rescale"], modelError: p["model_error"], guard: p["guard"] != 0}
}

func (p cost) propose(s *sheet) proposal {
	_, _, why := s.foreseen()
	if why == "" && !s.o.Forecast.Trusted && !s.o.Forecast.Calibrated {
		why = s.distrust()
	}
	if why != "" {
		out, expect := s.reactive(why)
		s.load = out.load
		s.lagFallback(&out, expect)
		return out
	}
	g := scratch.Get().(*program)
	defer scratch.Put(g)
	p.prepare(s, g)
	g.solve()
	return p.choose(s, g)
}

// prepare sets up the program for an observation.
func (p cost) prepare(s *sheet, g *program) {
	o := s.o
	g.v = s.look(p.modelError)
	g.outage, g.lead = o.outage().Seconds(), o.JoinTime.Value.Seconds()
	g.price, g.maxLag = p.change(o.Budget, g.v.at[len(g.v.at)-1]), o.MaxLag.Seconds()
	g.cool.length, g.cool.left = 0, 0
	if g.outage == 0 && p.guard {
		g.cool.length = o.CooldownIn.Seconds()
		g.cool.left = remaining(s.lastChange(), o.CooldownIn, o.Now).Seconds()
	}
	g.lagCost = costRate{lag: p.lag / 3600, over: p.over / 3600}
	g.workers = s.candidates(g)
	g.f = g.f[:0]
	for _, w := range g.workers {
		g.f = append(g.f, s.capacity(w))
	}
	g.ages = agesTo(g.v.oldest(0, -1, g.start(s)) / g.maxLag)
}

// priced is the view, in s, for which the price of a change is meant. In a shorter one nothing
// that it saves would ever pay it, so that it is less there, in proportion.
const priced = 1800

// change is what a change costs besides what follows from it, in a view of so many
// seconds. The parameter is there to keep changes rare. Where they are limited the limit
// does that, and a change costs what it takes from those that are left: with one left all
// of the parameter, and less the more there are, to a quarter where they last for the
// view, since by its end those that were not used are lost.
func (p cost) change(b Budget, reach float64) float64 {
	price := p.price * min(reach/priced, 1)
	if !b.Limited {
		return price
	}
	return price * math.Pow(4, -min(float64(max(b.Left-1, 0))*b.Every.Seconds()/reach, 1))
}

// mostCandidates is how many numbers of workers a program tells apart.
const mostCandidates = 48

// candidates are the numbers of workers that may be worth having within the view,
// and the one in force: from what the lowest load needs to what the highest and the
// backlog do.
func (s *sheet) candidates(g *program) []int {
	o := s.o
	low, high := math.Inf(1), 0.0
	for j := range g.v.load {
		low, high = min(low, g.v.load[j][0]), max(high, g.v.load[j][classes-1])
	}
	backlog := float64(max(o.BacklogRecords, 0)) + g.outage*high
	high += backlog / (0.25 * g.maxLag)
	from, _ := s.curve.Smallest(low)
	to, saturated := s.curve.Smallest(high)
	if saturated {
		to, _ = s.curve.Peak()
	}
	from, to = max(from-1, o.Limits.Min), min(to+1, o.Limits.Max)
	if to < from {
		from, to = o.Limits.Min, o.Limits.Max
	}
	stride := (to-from)/mostCandidates + 1
	list := g.workers[:0]
	for w := from; w <= to; w += stride {
		list = append(list, w)
	}
	for _, w := range []int{s.current, s.current - 1, s.current + 1, to, o.Limits.Clamp(s.current)} {
		if w >= o.Limits.Min && w <= o.Limits.Max || w == s.current {
			list = append(list, w)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// start is the records that wait, and those that will before workers on their way
// have come.
func (p *program) start(s *sheet) float64 {
	o := s.o
	backlog := float64(max(o.BacklogRecords, 0))
	if missing := s.capacity(s.current) - s.capacity(o.Workers.Running); o.Workers.Pending > 0 && missing > 0 && p.outage == 0 {
		left := o.JoinTime.Value
		if !o.Action.Since.IsZero() {
			left = max(left-max(o.Now.Sub(o.Action.Since), 0), 0)
		}
		backlog += missing * left.Seconds()
	}
	return backlog
}

// now is the expected cost of each candidate as the first step, made
// before the class of the first step is known.
func (p *program) now(s *sheet) []float64 {
	start := p.start(s)
	k := 0
	for k < lags-2 && start > p.held[0][k+1] {
		k++
	}
	share := (start - p.held[0][k]) / (p.held[0][k+1] - p.held[0][k])
	expected := func(cost *costs) float64 {
		sum := 0.0
		for c, likely := range p.v.likely {
			r := cost[c]
			sum += likely * (r[k] + share*(r[k+1]-r[k]))
		}
		return sum
	}
	out := make([]float64, len(p.workers))
	at := slices.Index(p.workers, s.current)
	m := p.landing(0)
	held := p.cool.now(p.v.at)
	if p.outage == 0 {
		m = p.joined(0)
		p.expect(p.cool.own, p.within(p.cool.until[0], 1), p.rho(0))
	}
	p.expect(p.ev, p.within(held, 1), p.rho(0))
	if m > 0 {
		p.expectAt(0, m)
	}
	change := p.change(0, m, p.evs)
	var cost costs
	for w := range p.workers {
		switch {
		case w == at:
			p.stay(0, w, &p.ev[w], &cost)
		case p.outage > 0 && m > 0:
			change(w, &cost)
		case p.outage > 0, held > 0 && w < at:
			out[w] = math.Inf(1)
			continue
		default:
			p.liveNow(at, w, m, &cost)
		}
		out[w] = expected(&cost)
	}
	return out
}

// liveNow is the cost of a live change from candidate from to w at the first step. Fewer
// train from now on. More are held from now on and train after the lead, the others
// alone until then; their values by the end of it are those of step m.
func (p *program) liveNow(from, w, m int, out *costs) {
	if w < from {
		p.stay(0, w, &p.cool.own[w], out)
	} else {
		span := p.v.at[m]
		alone := min(p.lead, span)
		change := p.v.arrivals(0, m)
		for c := range change {
			change[c] -= p.f[from]*alone + p.f[w]*(span-alone)
		}
		p.keep(0, m, w, float64(p.workers[w])*span/3600, &change, &p.evs[w], out)
	}
	for c := range out {
		for b := range lags {
			out[c][b] += p.price
		}
	}
}

// joined is the first step at whose begin workers train that are added at step j, or the end of the
// view.
func (p *program) joined(j int) int {
	m := j + 1
	for m < p.steps() && p.v.at[m]-p.v.at[j] < p.lead-1e-6 {
		m++
	}
	return m
}

// choose takes the candidate of the least expected cost.
func (p cost) choose(s *sheet, g *program) proposal {
	costs := g.now(s)
	at := slices.Index(g.workers, s.current)
	best := at
	if !g.mayBe(s, at) { // it is no choice to stay outside the limits
		best = slices.Index(g.workers, s.o.Limits.Clamp(s.current))
	}
	for w, c := range costs {
		if c < costs[best] && g.mayBe(s, w) {
			best = w
		}
	}
	why := ""
	if best == at {
		if put, says := g.notPutOff(s, costs, at); put >= 0 {
			best, why = put, says
		}
	}
	out := proposal{want: g.workers[best], load: g.v.mean[0], source: "cost", saturated: g.v.mean[0] >= s.peak()}
	if out.reason = g.account(s, costs, at, best); why != "" {
		out.reason = why + ": " + out.reason
	}
	out.plan = g.course(s, best)
	return out
}
