package plan

import (
	"math"
	"sync"
)

// ages are the lags that the program tells apart, as shares of the objective, where it begins within the objective or not far from it. Between them it
// interpolates.
var ages = [...]float64{0, 0.025, 0.075, 0.15, 0.25, 0.35, 0.5, 0.65, riskFrom, 1, 1.15, 1.5, 2.2, 4}

const (
	lags     = len(ages)
	riskFrom = 0.8 // the share of the objective from which a lag counts as a risk
)

// agesKept are those of ages that remain where it begins late.
var agesKept = [...]float64{0, 0.15, 0.5, riskFrom, 1}

// agesTo are the lags to tell apart where the plan begins with one of so much of the objective: it lies well within them, and those around it are no further
// apart, in proportion, than others. Beyond the last the costs would go on in the line of the last two, which says nothing of what they are there; and between
// two that lie far apart a step more or less seems to change what it does not.
func agesTo(share float64) [lags]float64 {
	const late, beyond = 1.5, 1.5
	if !(share > late) {
		return ages
	}
	out := [lags]float64{}
	n := copy(out[:], agesKept[:])
	far := max(beyond*share, ages[lags-1])
	for k := n; k < lags; k++ {
		out[k] = math.Pow(far, float64(k-n+1)/float64(lags-n))
	}
	return out
}

// costs are those of each class of load and each lag. The innermost loops copy what
// they read often: the race detector watches every access to what others might see,
// and none to a function's own. They do not copy what they have just written, for which
// the processor would have to wait.
type costs [classes][lags]float64

// choice is what a state costs at best, for each class and lag, and the candidate to
// be at for it, of which there are never more than 256 (mostCandidates).
type choice struct {
	cost costs
	to   [classes][lags]uint8
}

// program is the plan over time x workers x load x backlog: the least expected cost
// from each state on, and the choice that has it, found backwards in time.
//
// A state is a step j, the workers in force, the class of the load, and the lag.
// In each, either nothing changes until the next step, or the workers do. What a
// change costs depends on how it is done:
//
//   - with an outage nothing is trained for so long, and the new number holds from
//     the first step after it; nothing else is decided meanwhile;
//   - live, workers leave at once, and come after the lead.
//
// Costs are in GPU-hours.
type program struct {
	v       *view
	workers []int     // candidates, rising
	f       []float64 // their capacity, samples/s
	outage  float64   // s
	lead    float64   // s
	price   float64   // GPU-hours for each change, besides what follows from it
	maxLag  float64   // s
	lagCost costRate

	ages  [lags]float64   // shares of the objective; see [agesTo]
	held  [][lags]float64 // held[j][b]: records not older than age b at step j
	rise  [][lags]float64 // rise[j][b]: 1 / (held[j][b+1] - held[j][b]); 0 for the last
	lag   []waits         // [j][worker]: how long these records wait
	value []choice        // [j][worker]; a change is to another candidate
	ev    []costs         // [worker]: the next step's value, expected over its classes
	evs   []costs         // the same where a change lands
	cool  cooldown        // where a rescale is live
}

// costRate is what lag costs, in GPU-hours per second.
type costRate struct {
	lag  float64 // at a lag as long as the objective
	over float64 // beyond it, besides
}

// at is the cost rate of a lag, as a share of the objective. Between riskFrom and 1
// the cost of a violation rises in a line: a lag so close to the objective is a risk.
func (c costRate) at(share float64) float64 {
	return c.lag*share + c.risk(share)
}

func (c costRate) risk(share float64) float64 {
	switch {
	case share <= riskFrom:
		return 0
	case share >= 1:
		return c.over
	}
	return c.over * ((share - riskFrom) / (1 - riskFrom))
}

var scratch = sync.Pool{New: func() any { return new(program) }}

func (p *program) steps() int { return len(p.v.mean) }

func (p *program) at(j, w int) *choice { return &p.value[j*len(p.workers)+w] }

// grow makes room without giving up what there was.
func grow[T any](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	return buf[:n]
}

// solve fills in the values of all states but those of the first step, at which the
// workers in force and the lag are known ([program.now]).
func (p *program) solve() {
	n, w := p.steps(), len(p.workers)
	p.value = grow(p.value, (n+1)*w)
	p.ev, p.evs = grow(p.ev, w), grow(p.evs, w)
	p.cool.plan(p.v.at, w)
	p.records()
	p.waits()
	p.terminal()
	for j := n - 1; j > 0; j-- {
		p.step(j)
	}
}

// records tabulates how many records are as old as each age, at each step, along
// the mean of the forecast and what was measured before it.
func (p *program) records() {
	v := p.v
	p.held, p.rise = grow(p.held, len(v.at)), grow(p.rise, len(v.at))
	for j := range p.held {
		for b, share := range p.ages {
			p.held[j][b] = v.arrived(j, share*p.maxLag)
			if b > 0 && p.held[j][b] <= p.held[j][b-1] { // no arrivals: a table must rise
				p.held[j][b] = p.held[j][b-1] + 1
			}
		}
		for b := range lags - 1 {
			p.rise[j][b] = 1 / (p.held[j][b+1] - p.held[j][b])
		}
	}
}

// waits are the lags of so many records as [program.held] has for each age, where a
// number of workers trains them, and what these cost.
type waits struct {
	share [lags]float64 // of the objective
	rate  [lags]float64 // cost rate
	peak  [lags]float64 // cost rate of that lag and an outage more
}

// waits tabulates the lags. Records that came at the mean rate are as old as
// [program.held] says. Those of a burst came in less time: what is certain of them
// is that none waits for longer than it takes to train them all. Over the time in
// which a backlog is worked off, the age of the oldest record and the time that it
// takes to train all that wait have the same integral and the same maximum, whatever
// the arrivals were (first come, first served); so the smaller of the two is taken.
func (p *program) waits() {
	p.lag = grow(p.lag, len(p.v.at)*len(p.workers))
	more, maxLag := p.outage/p.maxLag, p.maxLag
	mean := waits{share: p.ages}
	for b, share := range p.ages {
		mean.rate[b], mean.peak[b] = p.lagCost.at(share), p.lagCost.at(share+more)
	}
	for j := range p.v.at {
		held := p.held[j]
		for w, f := range p.f {
			l := mean
			for b, n := range held {
				if n < l.share[b]*maxLag*f {
					l.share[b] = n / f / maxLag
					l.rate[b], l.peak[b] = p.lagCost.at(l.share[b]), p.lagCost.at(l.share[b]+more)
				}
			}
			*p.lagAt(j, w) = l
		}
	}
}

func (p *program) lagAt(j, w int) *waits { return &p.lag[j*len(p.workers)+w] }

// arrived is how many records arrived in the last age seconds before step j.
func (v *view) arrived(j int, age float64) float64 {
	sum := 0.0
	for i := j - 1; i >= 0 && age > 0; i-- {
		d := min(v.at[i+1]-v.at[i], age)
		sum, age = sum+v.mean[i]*d, age-d
	}
	for i := len(v.past) - 1; i >= 0 && age > 0; i-- {
		d := min(v.pastStep, age)
		sum, age = sum+v.past[i]*d, age-d
	}
	if age > 0 {
		r := v.mean[0]
		if len(v.past) > 0 {
			r = v.past[0]
		}
		sum += r * age
	}
	return sum
}

// terminal is the value at the end of the view: a backlog has to be worked off, and
// a number that does not fit the last load has to be changed, or is paid for.
func (p *program) terminal() {
	n := p.steps()
	change := p.price + 0.5*p.lagCost.at(p.outage/p.maxLag)*p.outage*5
	for w := range p.workers {
		out, lag := &p.at(n, w).cost, p.lagAt(n, w)
		for c := range out {
			load := p.v.load[n-1][c]
			misfit := change
			if p.f[w] > load {
				need := w
				for need > 0 && p.f[need-1] > load {
					need--
				}
				misfit = min(change, float64(p.workers[w]-p.workers[need]))
			}
			for b, rate := range lag.rate {
				out[c][b] = misfit + 2*rate*lag.share[b]*p.maxLag
			}
		}
	}
}

// expect writes into ev the values of a step, expected over its classes when they
// were left with correlation rho.
func (p *program) expect(ev []costs, values []choice, rho float64) {
	m := *move(rho)
	for w := range ev {
		from := values[w].cost
		for a := range m {
			likely, row := m[a], &ev[w][a]
			for b := range row {
				row[b] = likely[0]*from[0][b] + likely[1]*from[1][b] + likely[2]*from[2][b] + likely[3]*from[3][b] + likely[4]*from[4][b]
			}
		}
	}
}

// step fills in the values of step j from those of later ones.
func (p *program) step(j int) {
	p.stays(j, p.within(j, j), p.within(j, j+1))
	if p.outage > 0 {
		p.restart(j)
		return
	}
	for _, end := range p.cool.ends[j] {
		if end == j+1 {
			copy(p.within(end, j), p.within(j, j))
			continue
		}
		p.stays(j, p.within(end, j), p.within(end, j+1))
	}
	p.live(j)
}

// stays fills in what each candidate costs without a change at step j, from the values
// of the step after it.
func (p *program) stays(j int, out, next []choice) {
	p.expect(p.ev, next, p.rho(j))
	for w := range p.workers {
		at, own := &out[w], [lags]uint8{}
		p.stay(j, w, &p.ev[w], &at.cost)
		for b := range own {
			own[b] = uint8(w)
		}
		for c := range at.to {
			at.to[c] = own
		}
	}
}

// rho is the correlation of the classes of step j with those of the next.
func (p *program) rho(j int) float64 {
	if j+1 < p.steps() {
		return p.v.rho[j]
	}
	return 1
}

// stay is the cost of one step without a change, and what follows.
func (p *program) stay(j, w int, after, out *costs) {
	length := p.v.at[j+1] - p.v.at[j]
	var change [classes]float64
	for c, load := range p.v.load[j] {
		change[c] = (load - p.f[w]) * length
	}
	p.keep(j, j+1, w, float64(p.workers[w])*length/3600, &change, after, out)
}

// landing is the first step at which a change with an outage, decided at step j, is
// complete; 0 when that lies beyond the view.
func (p *program) landing(j int) int {
	for m := j + 1; m < len(p.v.at); m++ {
		if p.v.at[m] >= p.v.at[j]+p.outage-1e-6 {
			return m
		}
	}
	return 0
}

// restart offers every state of step j the best change with an outage. It does not
// depend on the workers that were there before.
func (p *program) restart(j int) {
	m := p.landing(j)
	if m == 0 {
		return
	}
	after := p.ev // as they are where nothing changes
	if m > j+1 {
		p.expectAt(j, m)
		after = p.evs
	}
	other := p.least(p.change(j, m, after))
	for w := range p.workers {
		for c := range other {
			p.at(j, w).better(c, &other[c])
		}
	}
}

// least is the best of all candidates, where one costs so much.
func (p *program) least(cost func(w int, out *costs)) *[classes]offer {
	best := [classes]offer{nothing, nothing, nothing, nothing, nothing}
	var of costs
	for w := range p.workers {
		cost(w, &of)
		for c := range of {
			own, out, to := &of[c], &best[c].cost, &best[c].to
			for b := range own {
				if cost := own[b]; cost < out[b] {
					out[b], to[b] = cost, uint8(w)
				}
			}
		}
	}
	return &best
}

// expectAt prepares evs for a change that is decided at j and lands at m.
func (p *program) expectAt(j, m int) {
	rho := p.rho(j)
	for i := j + 1; i < m && i < len(p.v.rho); i++ {
		rho *= p.v.rho[i]
	}
	p.expect(p.evs, p.within(p.cool.until[j], m), rho)
}

// live offers every state of step j to let workers go at once, or to add some that
// come after the lead.
func (p *program) live(j int) {
	if p.lead <= (p.v.at[j+1]-p.v.at[j])/2 { // they are there for most of this step
		p.liveWithin(j)
		return
	}
	p.liveLater(j, p.joined(j))
}

// liveWithin lets workers go at once and has others come within the step. What they
// would have trained before waits, as it does where they are added in a short step:
// else the plan would put off what it needs until the steps are long.
func (p *program) liveWithin(j int) {
	changed := p.within(p.cool.until[j], j)
	for w := range changed {
		p.evs[w] = changed[w].cost // without a change
	}
	p.fewer(j)
	held, rise := p.held[j], p.rise[j]
	for c, load := range p.v.load[j] {
		best, more := nothing.cost, offer{} // of those above candidate w; and with what waits until they have come
		var waiting, each [lags]float64     // for them: records that wait by then, and GPU-hours for each record more
		for w := len(p.workers) - 2; w >= 0; w-- {
			stay, short := p.evs[w+1][c], (load-p.f[w+1])*p.lead
			for b, cost := range stay {
				if cost < best[b] {
					k := min(b, lags-2)
					best[b], more.to[b] = cost, uint8(w+1)
					waiting[b], each[b] = max(held[b]+short, 0), (stay[k+1]-stay[k])*rise[k]
				}
			}
			short = (load - p.f[w]) * p.lead
			for b := range lags {
				missing := max(held[b]+short, 0) - waiting[b]
				more.cost[b] = best[b] + p.price + max(missing, 0)*each[b]
			}
			p.offerMore(j, w, c, &more)
		}
	}
}

// liveLater lets workers go at once and has others come by step m, as [program.liveNow] has: those that come before it train until then. Where the lead were rounded to
// whole steps, workers that are added with the next decision would be there sooner than those that are added now, and so never be.
func (p *program) liveLater(j, m int) {
	p.expectAt(j, m)
	p.fewer(j)
	come, span := p.v.arrivals(j, m), p.v.at[m]-p.v.at[j]
	alone, paid := min(p.lead, span), max(p.lead, span)
	var best [classes]offer // of those above candidate w, with what they cost while they come
	for c := range best {
		best[c] = nothing
	}
	for w := len(p.workers) - 2; w >= 0; w-- {
		gpu := float64(p.workers[w+1]) * paid / 3600
		if span > alone {
			p.train(&p.evs[w+1], m, p.f[w+1]*(span-alone))
		}
		var after, out costs
		for c := range best {
			for b, cost := range p.evs[w+1][c] {
				if cost += gpu; cost < best[c].cost[b] {
					best[c].cost[b], best[c].to[b] = cost, uint8(w+1)
				}
			}
			after[c] = best[c].cost
		}
		p.wait(j, m, w, alone, paid, come, &after, &out)
		for c := range out {
			more := offer{cost: out[c], to: best[c].to}
			for b := range more.cost {
				more.cost[b] += p.price
			}
			p.offerMore(j, w, c, &more)
		}
	}
}

// train makes of values at step m those of records before so many of them are trained.
func (p *program) train(values *costs, m int, records float64) {
	held, rise := p.held[m], p.rise[m]
	for c := range values {
		row, k := values[c], 0
		for b := range held {
			left := max(held[b]-records, 0)
			for k < lags-2 && left > held[k+1] {
				k++
			}
			values[c][b] = row[k] + (left-held[k])*rise[k]*(row[k+1]-row[k])
		}
	}
}

// wait is the cost of candidate w from step j to m, while so many records of each class come and w trains for so many seconds, and from there on with
// others, which are paid for so many from j on.
func (p *program) wait(j, m, w int, alone, paid float64, come [classes]float64, after, out *costs) {
	for c := range come {
		come[c] -= p.f[w] * alone
	}
	gpu := float64(p.workers[w]) * (p.v.at[m] - p.v.at[j] - paid) / 3600
	p.keep(j, m, w, gpu, &come, after, out)
}

// fewer offers every state of step j fewer workers, which go at once. Within a cooldown
// there are none.
func (p *program) fewer(j int) {
	free, changed := p.within(j, j), p.within(p.cool.until[j], j)
	for c := range classes {
		best := nothing // of those below candidate w, with the price
		for w := range p.workers {
			stay := changed[w].cost[c]
			free[w].better(c, &best)
			for b, cost := range stay {
				if cost += p.price; cost < best.cost[b] {
					best.cost[b], best.to[b] = cost, uint8(w)
				}
			}
		}
	}
}

// offerMore offers class c of candidate w more workers at step j, within a cooldown and
// without.
func (p *program) offerMore(j, w, c int, more *offer) {
	p.at(j, w).better(c, more)
	for k := range p.cool.states[j] {
		p.cool.value[p.cool.first[j]+k*len(p.workers)+w].better(c, more)
	}
}

// offer is a class of a choice.
type offer struct {
	cost [lags]float64
	to   [lags]uint8
}

// nothing is no choice at all: any other is better.
var nothing = func() (out offer) {
	for b := range out.cost {
		out.cost[b] = math.Inf(1)
	}
	return out
}()

// better takes another choice for class c where that is better.
func (of *choice) better(c int, other *offer) {
	out, to := &of.cost[c], &of.to[c]
	for b := range out {
		if cost := other.cost[b]; cost < out[b] {
			out[b], to[b] = cost, other.to[b]
		}
	}
}
