package replay

import (
	"context"
	"math"
	"time"
)

// liveOracle is the cheapest schedule of one part under one seed, where training goes on through a rescale: V(t, w, i) as in [oracle], and in every minute w'
// workers are chosen. More of them train after the lead that the minute has, and are held from the decision on; fewer are held until their drain is over. What a
// rescale costs depends on w and w', so the programme takes minutes · workers² · ages steps, of which those are left out that lie far from the load of the hours
// around (see [liveOracle.look]).
//
// The limit on rescales is an average over the whole course: each costs toll, and [Comparison.playLiveOracle] finds the least toll with which there are no
// more than are allowed. No schedule within the limit is cheaper than the programme's cost less the tolls of all that are allowed.
type liveOracle struct {
	oracle
	toll        float64
	lead, drain []float64 // s, by the minute of the decision
	windows     []span    // by minute
	goal        []uint16  // by minute, workers that are considered and state
	begins      []int     // where each minute's goals begin
}

// liveGrid is the grid for rescales that do not stop training: ages in steps of 15 s up to ten minutes, or twice the objective where
// that is less.
func liveGrid(maxLag time.Duration) Grid {
	oldest := min(max(2*maxLag, time.Minute), 10*time.Minute)
	return Grid{PerMinute: 4, Oldest: oldest, Behind: 1}
}

// How far from the load's need the programme looks.
const (
	windowBefore, windowAfter = 90, 90 // minutes
	windowBelow, windowAbove  = 2, 4   // workers
)

// span is the numbers of workers that are considered: all that are near what the load needs; with a backlog that the load has no part in, of all others
// every third, counted from best.
type span struct{ from, to, near, far, best int }

// everyOther is the third.
const everyOther = 3

func (n *span) has(w int) bool {
	return w >= n.near && w <= n.far || w >= n.from && w <= n.to && (w-n.best)%everyOther == 0
}

// nearest is w, or the next number from it that is considered.
func (n *span) nearest(w int) int {
	w = min(max(w, n.from), n.to)
	for d := 0; ; d++ {
		switch {
		case n.has(w + d):
			return w + d
		case n.has(w - d):
			return w - d
		}
	}
}

// look bounds the workers of each minute: from two below the least to four above the most that the load of the hour and a half before and after needs. While a
// backlog may be left that the load of its own minute has no part in, any number may be what is needed.
func (o *liveOracle) look() {
	s := o.s
	need := make([]int, s.minutes)
	for t := range need {
		rate := (s.arrived[(t+1)*s.m] - s.arrived[t*s.m]) / 60
		need[t] = sufficient(o.c.capacity, rate, o.lo, o.hi)
	}
	best := sufficient(o.c.capacity, math.Inf(1), o.lo, o.hi)
	o.windows = make([]span, s.minutes+1)
	for t := range o.windows {
		least, most, behind := o.hi, o.lo, false
		for k := max(0, t-windowBefore); k < min(s.minutes, t+windowAfter); k++ {
			least, most, behind = min(least, need[k]), max(most, need[k]), behind || s.behind[k+1]
		}
		near, far := max(o.lo, least-windowBelow), min(o.hi, most+windowAbove)
		o.windows[t] = span{near, far, near, far, best}
		if behind {
			o.windows[t].from, o.windows[t].to = o.lo, o.hi
		}
	}
}

// solve is [oracle.solve] for live rescales.
func (o *liveOracle) solve(ctx context.Context) (cost float64, first int) {
	s, workers := o.s, o.hi-o.lo+1
	longest := 1
	for _, d := range o.lead {
		longest = max(longest, o.span(d))
	}
	if o.goal == nil {
		if o.windows == nil {
			o.look()
		}
		o.begins = make([]int, s.minutes+1)
		for t, w := range o.windows[:s.minutes] {
			o.begins[t+1] = o.begins[t] + len(s.at[t])*(w.to-w.from+1)
		}
		o.goal = make([]uint16, o.begins[s.minutes])
		o.ring = make([][]float64, longest+1)
		for k := range o.ring {
			o.ring[k] = make([]float64, workers*s.n)
		}
	}
	o.last()
	for t := s.minutes - 1; t >= 0 && ctx.Err() == nil; t-- {
		v := o.value(t)
		for k := range v {
			v[k] = unreachable
		}
		for w := o.windows[t].from; w <= o.windows[t].to && ctx.Err() == nil; w++ {
			if o.windows[t].has(w) {
				o.choose(t, w)
			}
		}
	}
	v := o.value(0)
	cost = unreachable
	for w := o.lo; w <= o.hi; w++ {
		if at := v[(w-o.lo)*s.n]; at < cost {
			cost, first = at, w
		}
	}
	return cost, first
}

// choose fills V(t, w, ·) and the goals.
func (o *liveOracle) choose(t, w int) {
	s, price := o.s, o.lagPrice()
	arrived, from, capacity := s.arrived, s.at[t], o.c.capacity[w]
	row := o.row(t, w)
	goal := o.goals(t, w)
	for to := o.windows[t].from; to <= o.windows[t].to; to++ {
		if !o.windows[t].has(to) {
			continue
		}
		n, lead := 1, 0.0
		extra := 0.0
		switch {
		case to > w:
			n, lead, extra = o.span(o.lead[t]), o.lead[t], o.toll
		case to < w:
			extra = o.toll + float64(w-to)*o.c.fig.gpus*min(o.drain[t], float64(s.minutes-t)*60)/3600
		}
		if t+n > s.minutes || !o.windows[t+n].has(to) {
			continue
		}
		cost := extra + float64(to)*o.c.fig.gpus*float64(n)/60
		before, after := capacity*lead, o.c.capacity[to]*(60*float64(n)-lead)
		inLead, all := o.arrivedBy(float64(t)*60+lead), arrived[(t+n)*s.m]
		later, nodes, now := o.row(t+n, to), s.at[t+n], float64((t+n)*s.m)
		oldest, k := now-nodes[0].at, len(nodes)-1
		marks := make([]int, n-1) // of the minutes that end within the lead, as k
		for m := range marks {
			marks[m] = len(s.at[t+m+1]) - 1
		}
		for i, least := range row {
			trained := from[len(from)-1-i].arrived
			sum := cost
			var whole int
			var rest, steps float64
			for m, k := range marks {
				minute := (t + m + 1) * s.m
				_, _, steps, marks[m] = age(s.at[t+m+1], float64(minute), k, min(trained+capacity*60*float64(m+1), arrived[minute]))
				sum += price.of(steps)
			}
			whole, rest, steps, k = age(nodes, now, k, min(min(trained+before, inLead)+after, all))
			sum += price.after(later, oldest, whole, rest, steps)
			if sum < least {
				row[i], goal[i] = sum, uint16(to)
			}
		}
	}
}

// goals are the numbers of workers to go to from w at the end of minute t, by state.
func (o *liveOracle) goals(t, w int) []uint16 {
	n := len(o.s.at[t])
	return o.goal[o.begins[t]+(w-o.windows[t].from)*n:][:n]
}

// arrivedBy is the number of samples that arrived before a moment, on straight lines between steps.
func (o *liveOracle) arrivedBy(at float64) float64 {
	x := at / 60 * float64(o.s.m)
	k := min(int(x), len(o.s.arrived)-2)
	return o.s.arrived[k] + (x-float64(k))*(o.s.arrived[k+1]-o.s.arrived[k])
}

// followLive carries a live schedule out.
type followLive struct {
	o     *liveOracle
	first int
}

func (f followLive) decide(r *run) (int, bool) {
	o := f.o
	t := int(r.q.t/60 + 0.5)
	switch {
	case r.q.t == 0:
		return f.first, true
	case t >= o.s.minutes || r.rescale != nil:
		return 0, false
	}
	w := r.target
	if to := o.windows[t].nearest(w); to != w {
		return to, true
	}
	goal := int(o.goals(t, w)[o.s.state(t, r.q.lag())])
	return goal, goal != w
}

func (c *Comparison) newLiveOracle(k int, seed uint64, g Grid, price prices) *liveOracle {
	p := &c.course.Parts[k]
	whole := int(p.Duration().Minutes())
	o := &liveOracle{
		oracle: oracle{c: c, part: p, a: c.arrived[k], price: price, s: newAges(c.arrived[k], whole, g, c.fastest()), lo: max(c.j.Workers.Min, 1), hi: c.j.Workers.Max},
		lead:   make([]float64, whole), drain: make([]float64, whole),
	}
	for t := range o.lead {
		minute := p.Start.Unix()/60 + int64(t)
		o.lead[t] = c.o.World.Lead.draw(chance{seed: seed}, drawLead, minute)
		o.drain[t] = c.o.World.Drain.draw(chance{seed: seed}, drawDrain, minute)
	}
	return o
}

// How the toll is found.
const (
	tollMost  = 4.0  // GPU-hours for a rescale; more than any is worth
	tollSteps = 10   // of a bisection
	tollGrows = 1.05 // where the toll of another seed leads to too many
)

// playLiveOracle finds the cheapest schedule with no more rescales than are allowed, for one seed. hint is the toll that another seed led to, negative
// without one.
func (c *Comparison) playLiveOracle(ctx context.Context, seed uint64, g Grid, hint float64, trail *Trail) (sum *tally, bound, toll float64) {
	return c.playLivePriced(ctx, seed, g, prices{Weights: c.fig.weights}, hint, trail)
}

// playLivePriced is playLiveOracle for other prices than the report's.
func (c *Comparison) playLivePriced(ctx context.Context, seed uint64, g Grid, price prices, hint float64, trail *Trail) (sum *tally, bound, toll float64) {
	oracles := make([]*liveOracle, len(c.course.Parts))
	for k := range oracles {
		oracles[k] = c.newLiveOracle(k, seed, g, price)
	}
	allowed := c.allowed()
	try := func(toll float64, trail *Trail) (*tally, float64) {
		sum, promised := c.playSchedules(ctx, oracles, toll, seed, trail)
		return sum, promised - toll*min(allowed, 1e18)
	}
	within := func(t *tally) bool { return float64(t.rescales) <= allowed }
	switch {
	case math.IsInf(allowed, 1):
	case hint >= 0:
		toll = tollFrom(hint, func(toll float64) bool {
			t, _ := try(toll, nil)
			return within(t)
		})
	default:
		if t, _ := try(0, nil); within(t) {
			break
		}
		lo, hi := 0.0, tollMost
		for range tollSteps {
			// Tolls matter by their ratio, once they are not nothing.
			mid := math.Sqrt(max(lo, 1e-3) * hi)
			if t, _ := try(mid, nil); within(t) {
				hi = mid
			} else {
				lo = mid
			}
		}
		toll = hi
	}
	sum, bound = try(toll, trail)
	if toll == 0 {
		bound = sum.metrics(&c.fig).Cost * sum.seconds / day.Seconds()
	}
	return sum, bound, toll
}

// tollFrom is the least toll within the limit among hint, hint·tollGrows, hint·tollGrows², …, found in steps that double and are then halved; tollMost where none
// below it is.
func tollFrom(hint float64, within func(toll float64) bool) float64 {
	if within(hint) {
		return hint
	}
	first := max(hint, 1e-4)
	at := func(k int) float64 { return min(first*math.Pow(tollGrows, float64(k)), tollMost) }
	lo, hi := 0, 1
	if hint < first {
		lo, hi = -1, 0
	}
	for at(hi) < tollMost && !within(at(hi)) {
		lo, hi = hi, hi+max(1, 2*(hi-lo))
	}
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; within(at(mid)) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return at(hi)
}

// playSchedules solves all parts for a toll and carries the schedules out, with no limit on rescales but the toll.
func (c *Comparison) playSchedules(ctx context.Context, oracles []*liveOracle, toll float64, seed uint64, trail *Trail) (sum *tally, promised float64) {
	sum = &tally{}
	j := *c.j
	j.Autoscale.Mode, j.Autoscale.Tick = c.o.World.mode(), time.Minute
	free := *c
	free.o.World.PerDay = 0
	for k, o := range oracles {
		o.toll = toll
		cost, first := o.solve(ctx)
		promised += cost
		free.playPart(ctx, k, &j, followLive{o, first}, seed, trail, sum)
	}
	return sum, promised
}
