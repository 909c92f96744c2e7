package replay

import (
	"context"
	"math"
	"slices"
)

// oracle is the cheapest schedule of one part under one seed, where a rescale stops training. It knows the trace and every outage.
//
// It is a dynamic programme over minute x workers x age of the oldest waiting sample (see [ages]): V(t, w, i) is the least cost from the end of minute t on. In
// every minute the workers stay, or all stop for the outage that a rescale decided then would have, and w' go on after it. What the rescale costs depends on w'
// alone and not on w (the GPUs of the new number are held from the decision on), so the best w' is found once for each (t, i), and the programme takes
// 2 · minutes · workers · ages steps. Costs of lag are exact; V is interpolated between ages.
type oracle struct {
	c       *Comparison
	part    *Part
	a       *arrivals
	s       *ages
	end     []float64 // what each state costs at the end of the part; nil: not reckoned yet
	lo, hi  int
	outage  []float64 // s, by the minute of the decision
	ring    [][]float64
	best    []uint16 // by minute and state: the number of workers that a rescale goes to
	rescale []uint64 // by minute, workers and state: one bit
	words   int      // of a minute and a number of workers
	// few and worth are those of solve.
	few, worth int
	// price is what makes up the cost: the report's weights, or others that bring the schedule within limits.
	price prices
}

// prices are what the programme minimises, in GPU-hours.
type prices struct {
	Weights
	rescale  float64 // besides what it costs otherwise
	downtime float64 // of a minute
}

// unreachable is more than any schedule costs.
const unreachable = math.MaxFloat64 / 4

// tooOld is what a minute beyond the oldest age of the grid costs, in GPU-hours: more than any work that could be saved by going there.
const tooOld = 100

// fill fills the programme for the numbers of workers up to hi, and returns what solve does.
func (o *oracle) fill(ctx context.Context) (cost float64, first int) {
	s, workers := o.s, o.hi-o.lo+1
	o.words = (s.n + 63) / 64
	o.best = make([]uint16, s.minutes*s.n)
	o.rescale = make([]uint64, s.minutes*workers*o.words)
	o.worth = 0
	longest := 0
	for _, d := range o.outage {
		longest = max(longest, o.span(d))
	}
	o.ring = make([][]float64, longest+1)
	for k := range o.ring {
		o.ring[k] = make([]float64, workers*s.n)
	}
	o.last()
	jump := make([]float64, s.n)
	for t := s.minutes - 1; t >= 0 && ctx.Err() == nil; t-- {
		o.jumps(ctx, t, jump)
		o.stay(ctx, t, jump)
	}
	v := o.value(0)
	for w := o.lo; w <= o.hi; w++ {
		if at := v[(w-o.lo)*s.n]; w == o.lo || at < cost {
			cost, first = at, w
		}
	}
	return cost, first
}

// span is how many whole minutes an outage touches, at least one.
func (o *oracle) span(outage float64) int { return max(1, int(math.Ceil(outage/60))) }

// value is V(t, ·, ·).
func (o *oracle) value(t int) []float64 { return o.ring[t%len(o.ring)] }

// last is what a backlog costs at the end of the part: what every policy is charged for it, whatever workers there are.
func (o *oracle) last() {
	if o.end == nil {
		nodes := o.s.at[o.s.minutes]
		most := trainsMost(o.c.capacity, max(o.c.j.Workers.Min, 1), o.c.j.Workers.Max)
		o.end = make([]float64, len(nodes))
		for k, n := range nodes {
			l := leftAt(o.a, n.arrived, float64(o.s.minutes)*60, most, o.c.capacity[most], o.c.j.SLO.MaxLag.Seconds())
			o.end[len(nodes)-1-k] = l.cost(o.price.Weights, o.c.fig.gpus)
		}
	}
	for w := o.lo; w <= o.hi; w++ {
		copy(o.row(o.s.minutes, w), o.end)
	}
}

// lagPrice is what lag costs, apart from the programme: its loops have no time to look that up.
type lagPrice struct{ perMinute, lag, most, violation float64 } // steps a minute; GPU-hours for a minute; s; GPU-hours

func (o *oracle) lagPrice() lagPrice {
	return lagPrice{float64(o.s.m), o.price.Lag, o.c.j.SLO.MaxLag.Seconds(), o.price.Violation}
}

// of is what a minute that ends with a lag of so many steps costs.
func (p lagPrice) of(steps float64) float64 {
	lag := steps / p.perMinute // minutes
	cost := p.lag * lag
	if lag*60 > p.most {
		cost += p.violation
	}
	return cost
}

// after is the cost from the end of a minute on, when the oldest sample is in state whole + rest then, and so many steps old; row is V of that minute and of the
// workers, and oldest the age of its last state in steps.
func (p lagPrice) after(row []float64, oldest float64, whole int, rest, steps float64) float64 {
	cost := p.of(steps)
	if n := len(row); whole >= n-1 {
		return cost + row[n-1] + tooOld*max(steps-oldest, 0)/p.perMinute
	}
	return cost + row[whole]*(1-rest) + row[whole+1]*rest
}

// row is V(t, w, ·).
func (o *oracle) row(t, w int) []float64 { return o.value(t)[(w-o.lo)*o.s.n:][:len(o.s.at[t])] }

// jumps finds, for every age at the end of minute t, the best number of workers to rescale to then, and the cost from there on.
func (o *oracle) jumps(ctx context.Context, t int, jump []float64) {
	s := o.s
	out := o.outage[t]
	n := o.span(out)
	if t+n > s.minutes { // nothing is trained any more before the end
		n = s.minutes - t
		out = 60 * float64(n)
	}
	for i := range jump {
		jump[i] = unreachable
	}
	price := o.lagPrice()
	from, nodes, now := s.at[t], s.at[t+n], float64((t+n)*s.m)
	oldest := now - nodes[0].at
	waiting := make([]float64, len(from)) // the lag of the minutes that end within the outage
	for i := range waiting {
		for k := 1; k < n; k++ {
			waiting[i] += price.of(float64((t+k)*s.m) - from[len(from)-1-i].at)
		}
	}
	all := s.arrived[(t+n)*s.m]
	best := o.best[t*s.n : (t+1)*s.n]
	fixed := o.price.rescale + o.price.downtime*out/60
	last, look := o.hi, 2*o.few
	for w := o.lo; w <= last && ctx.Err() == nil; w++ {
		if w == look {
			last, look = min(last, o.worthAt(t, n, fixed, waiting, jump)), 2*look
		}
		trains := o.c.capacity[w] * (60*float64(n) - out)
		held := float64(w)*o.c.fig.gpus*float64(n)/60 + fixed
		later, k := o.row(t+n, w), len(nodes)-1
		for i, waits := range waiting {
			var whole int
			var rest, steps float64
			whole, rest, steps, k = age(nodes, now, k, min(from[len(from)-1-i].arrived+trains, all))
			if cost := held + waits + price.after(later, oldest, whole, rest, steps); cost < jump[i] {
				jump[i] = cost
				best[i] = uint16(w)
			}
		}
	}
	o.worth = max(o.worth, o.worthAt(t, n, fixed, waiting, jump))
}

// stay fills V(t): for every number of workers and age the cheaper of staying and rescaling.
func (o *oracle) stay(ctx context.Context, t int, jump []float64) {
	s := o.s
	price := o.lagPrice()
	from, nodes, now := s.at[t], s.at[t+1], float64((t+1)*s.m)
	oldest := now - nodes[0].at
	all := s.arrived[(t+1)*s.m]
	for w := o.lo; w <= o.hi && ctx.Err() == nil; w++ {
		trains := o.c.capacity[w] * 60
		held := float64(w) * o.c.fig.gpus / 60
		row, later, k := o.row(t, w), o.row(t+1, w), len(nodes)-1
		bits := o.rescale[(t*(o.hi-o.lo+1)+w-o.lo)*o.words:]
		for i := range row {
			var whole int
			var rest, steps float64
			whole, rest, steps, k = age(nodes, now, k, min(from[len(from)-1-i].arrived+trains, all))
			cost := held + price.after(later, oldest, whole, rest, steps)
			if other := jump[i]; other < cost {
				cost = other
				bits[i>>6] |= 1 << (i & 63)
			}
			row[i] = cost
		}
	}
}

// follow is the decider that carries the schedule out.
type follow struct {
	o     *oracle
	first int
}

func (f follow) decide(r *run) (int, bool) {
	o := f.o
	t := int(r.q.t/60 + 0.5)
	switch {
	case r.q.t == 0:
		return f.first, true
	case t >= o.s.minutes || r.rescale != nil:
		return 0, false
	}
	i := o.s.state(t, r.q.lag())
	w := r.target - o.lo
	if o.rescale[(t*(o.hi-o.lo+1)+w)*o.words+i>>6]&(1<<(i&63)) == 0 {
		return 0, false
	}
	return int(o.best[t*o.s.n+i]), true
}

// fastest is what the workers that train most train, samples/s.
func (c *Comparison) fastest() float64 { return slices.Max(c.capacity[max(c.j.Workers.Min, 1):]) }

// newOracle prepares the programme of one part under one seed.
func (c *Comparison) newOracle(k int, seed uint64, g Grid, price prices) *oracle {
	p := &c.course.Parts[k]
	whole := int(p.Duration().Minutes())
	o := &oracle{
		c: c, part: p, a: c.arrived[k], s: newAges(c.arrived[k], whole, g, c.fastest()), lo: max(c.j.Workers.Min, 1), hi: c.j.Workers.Max, outage: make([]float64, whole), price: price,
	}
	for t := range o.outage {
		o.outage[t] = c.o.World.Outage.draw(chance{seed: seed}, drawOutage, p.Start.Unix()/60+int64(t))
	}
	return o
}

// playOracle solves every part for a seed and carries the schedule out in the same world as every policy. promised is what the programme says that it costs.
func (c *Comparison) playOracle(ctx context.Context, seed uint64, g Grid, trail *Trail) (sum *tally, promised float64) {
	return c.playPriced(ctx, seed, g, prices{Weights: c.fig.weights}, trail)
}

// playPriced is playOracle for other prices than the report's.
func (c *Comparison) playPriced(ctx context.Context, seed uint64, g Grid, price prices, trail *Trail) (sum *tally, promised float64) {
	sum = &tally{}
	j := *c.j
	j.Autoscale.Mode, j.Autoscale.Tick = c.o.World.mode(), 60e9
	for k := range c.course.Parts {
		o := c.newOracle(k, seed, g, price)
		cost, first := o.solve(ctx)
		promised += cost
		c.playPart(ctx, k, &j, follow{o, first}, seed, trail, sum)
	}
	return sum, promised
}
