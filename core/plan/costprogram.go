package plan

import (
	"math"
	"sync"
)

// ages are the lags that the program tells apart, as shares of the objective.
// Between them it interpolates.
var ages = [...]float64{0, 0.025, 0.075, 0.15, 0.25, 0.35, 0.5, 0.65, riskFrom, 1, 1.15, 1.5, 2.2, 4}

const (
	lags     = len(ages)
	riskFrom = 0.8 // the share of the objective from which a lag counts as a risk
	perState = classes * lags
)

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

	held  [][lags]float64   // held[j][b]: records not older than age b at step j
	lag   []waits           // [j][worker]: how long these records wait
	value []float64         // [j][worker][class][lag]
	then  []int16           // the candidate to be at from there on; its own: no change
	ev    []float64         // the next step's value, expected over its classes
	evs   []float64         // the same where a change lands
	most  []int16           // the candidate that evs is of, where it is the least of several
	moved [perState]float64 // [class][lag]: of the best change
	to    [perState]int16   // and its candidate
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
	return c.over * min(max((share-riskFrom)/(1-riskFrom), 0), 1)
}

var scratch = sync.Pool{New: func() any { return new(program) }}

func (p *program) steps() int { return len(p.v.mean) }

func (p *program) at(j, w int) []float64 {
	from := (j*len(p.workers) + w) * perState
	return p.value[from : from+perState]
}

// grow makes room without giving up what there was.
func grow[T any](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	return buf[:n]
}

// solve fills in the values of all states.
func (p *program) solve() {
	n, w := p.steps(), len(p.workers)
	p.value = grow(p.value, (n+1)*w*perState)
	p.then = grow(p.then, n*w*perState)
	p.ev, p.evs, p.most = grow(p.ev, w*perState), grow(p.evs, w*perState), grow(p.most, w*perState)
	p.records()
	p.waits()
	p.terminal()
	for j := n - 1; j >= 0; j-- {
		p.step(j)
	}
}

// records tabulates how many records are as old as each age, at each step, along
// the mean of the forecast and what was measured before it.
func (p *program) records() {
	v := p.v
	if cap(p.held) < len(v.at) {
		p.held = make([][lags]float64, len(v.at))
	}
	p.held = p.held[:len(v.at)]
	for j := range p.held {
		for b, share := range ages {
			p.held[j][b] = v.arrived(j, share*p.maxLag)
			if b > 0 && p.held[j][b] <= p.held[j][b-1] { // no arrivals: a table must rise
				p.held[j][b] = p.held[j][b-1] + 1
			}
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
	more := p.outage / p.maxLag
	for j := range p.v.at {
		for w, f := range p.f {
			l := p.lagAt(j, w)
			for b, n := range p.held[j] {
				l.share[b] = ages[b]
				if n < ages[b]*p.maxLag*f {
					l.share[b] = n / f / p.maxLag
				}
				l.rate[b], l.peak[b] = p.lagCost.at(l.share[b]), p.lagCost.at(l.share[b]+more)
			}
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
		out, lag := p.at(n, w), p.lagAt(n, w)
		for c := range classes {
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
				out[c*lags+b] = misfit + 2*rate*lag.share[b]*p.maxLag
			}
		}
	}
}

// expect writes into ev the value at step j, expected over its classes when they
// were left with correlation rho.
func (p *program) expect(ev []float64, j int, rho float64) {
	m := move(rho)
	for w := range p.workers {
		from, to := p.at(j, w), ev[w*perState:(w+1)*perState]
		clear(to)
		for a := range classes {
			row := (*[lags]float64)(to[a*lags:])
			for c := range classes {
				share, next := m[a][c], (*[lags]float64)(from[c*lags:])
				if share == 0 {
					continue
				}
				for b := range row {
					row[b] += share * next[b]
				}
			}
		}
	}
}

// step fills in the values of step j from those of later ones.
func (p *program) step(j int) {
	rho := 1.0
	if j+1 < p.steps() {
		rho = p.v.rho[j]
	}
	p.expect(p.ev, j+1, rho)
	for w := range p.workers {
		p.stay(j, w, p.at(j, w))
		then := p.thenAt(j, w)
		for i := range then {
			then[i] = int16(w)
		}
	}
	if p.outage > 0 {
		p.restart(j)
		return
	}
	p.live(j)
}

// stay is the cost of one step without a change, and what follows.
func (p *program) stay(j, w int, out []float64) {
	length := p.v.at[j+1] - p.v.at[j]
	gpu := float64(p.workers[w]) * length / 3600
	now, next := &p.held[j], &p.held[j+1]
	rate, then := &p.lagAt(j, w).rate, &p.lagAt(j+1, w).rate
	for c := range classes {
		ev := (*[lags]float64)(p.ev[w*perState+c*lags:])
		change := (p.v.load[j][c] - p.f[w]) * length
		k := 0
		for b := range lags {
			left := now[b] + change
			if left <= 0 {
				cost := 0.0
				if b > 0 {
					cost = 0.5 * rate[b] * length * now[b] / (now[b] - left)
				}
				out[c*lags+b] = gpu + cost + ev[0]
				continue
			}
			for k < lags-2 && left > next[k+1] {
				k++
			}
			share := (left - next[k]) / (next[k+1] - next[k])
			end := then[k] + share*(then[k+1]-then[k])
			out[c*lags+b] = gpu + 0.5*(rate[b]+end)*length + ev[k] + share*(ev[k+1]-ev[k])
		}
	}
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
	p.expectAt(j, m)
	p.noneMoved()
	var cost [perState]float64
	for w := range p.workers {
		p.change(j, m, w, &cost)
		for i, c := range cost {
			if c < p.moved[i] {
				p.moved[i], p.to[i] = c, int16(w)
			}
		}
	}
	p.offer(j, 0)
}

// offer gives every state of step j the change in moved, where that is better.
func (p *program) offer(j int, price float64) {
	for w := range p.workers {
		out, then := (*[perState]float64)(p.at(j, w)), p.thenAt(j, w)
		for i, c := range p.moved {
			if c+price < out[i] {
				out[i], then[i] = c+price, p.to[i]
			}
		}
	}
}

// thenAt is the choice in each state of candidate w at step j.
func (p *program) thenAt(j, w int) *[perState]int16 {
	return (*[perState]int16)(p.then[(j*len(p.workers)+w)*perState:])
}

func (p *program) noneMoved() {
	for i := range p.moved {
		p.moved[i] = math.Inf(1)
	}
}

// expectAt prepares evs for a change that is decided at j and lands at m.
func (p *program) expectAt(j, m int) {
	rho := 1.0
	for i := j; i < m && i < len(p.v.rho); i++ {
		rho *= p.v.rho[i]
	}
	if m == j+1 {
		copy(p.evs, p.ev)
		return
	}
	p.expect(p.evs, m, rho)
}

// arrivals is how many records arrive from step j to step m in class c.
func (v *view) arrivals(j, m, c int) (sum float64) {
	for i := j; i < m; i++ {
		sum += v.load[i][c] * (v.at[i+1] - v.at[i])
	}
	return sum
}

// change is the cost from step j on of a change to worker candidate w with an
// outage, that lands at m, for each class and lag.
func (p *program) change(j, m, w int, out *[perState]float64) {
	v := p.v
	span := v.at[m] - v.at[j]
	trains := max(span-p.outage, 0)
	gpu := float64(p.workers[w])*span/3600 + p.price
	now, next := &p.held[j], &p.held[m]
	lag, then := p.lagAt(j, w), &p.lagAt(m, w).rate
	for c := range classes {
		ev := (*[lags]float64)(p.evs[w*perState+c*lags:])
		come := v.arrivals(j, m, c)
		done := p.f[w] * trains
		k := 0
		for b := range lags {
			cost := gpu + 0.5*(lag.rate[b]+lag.peak[b])*p.outage
			left := now[b] + come - done
			if left <= 0 {
				cost += 0.5*lag.peak[b]*trains*(now[b]+come)/max(done, 1) + ev[0]
			} else {
				for k < lags-2 && left > next[k+1] {
					k++
				}
				share := (left - next[k]) / (next[k+1] - next[k])
				end := then[k] + share*(then[k+1]-then[k])
				cost += 0.5*(lag.peak[b]+end)*trains + ev[k] + share*(ev[k+1]-ev[k])
			}
			out[c*lags+b] = cost
		}
	}
}

// live offers every state of step j to let workers go at once, or to add some that
// come after the lead.
func (p *program) live(j int) {
	m, length := j+1, p.v.at[j+1]-p.v.at[j]
	if p.lead <= length/2 {
		m = j // they are there for most of this step
	} else {
		for m < p.steps() && p.v.at[m+1]-p.v.at[j] <= p.lead+1e-6 {
			m++
		}
	}
	if m == j {
		p.liveAtOnce(j)
		return
	}
	p.liveLater(j, m)
}

// liveAtOnce takes the least over all candidates.
func (p *program) liveAtOnce(j int) {
	p.noneMoved()
	for w := range p.workers {
		for i, cost := range p.at(j, w) {
			if cost < p.moved[i] {
				p.moved[i], p.to[i] = cost, int16(w)
			}
		}
	}
	p.offer(j, p.price)
}

// liveLater lets workers go at once and has others come at step m.
func (p *program) liveLater(j, m int) {
	// The least that fewer workers cost from this step on.
	p.noneMoved()
	lead := p.lead / 3600
	p.expectAt(j, m)
	// evs of w becomes the least over w and more workers, what they cost while they
	// come included, and most the candidate that has it.
	for w := len(p.workers) - 1; w >= 0; w-- {
		for i := w * perState; i < (w+1)*perState; i++ {
			p.evs[i] += float64(p.workers[w]) * lead
			p.most[i] = int16(w)
			if above := i + perState; w+1 < len(p.workers) && p.evs[above] <= p.evs[i] {
				p.evs[i], p.most[i] = p.evs[above], p.most[above]
			}
		}
	}
	var more [perState]float64
	for w := range p.workers {
		for i := range more {
			more[i] = math.Inf(1)
		}
		if w+1 < len(p.workers) {
			p.wait(j, m, w, &more)
		}
		out, then := p.at(j, w), p.thenAt(j, w)
		for i, stay := range out {
			if c := p.moved[i] + p.price; c < out[i] {
				out[i], then[i] = c, p.to[i]
			}
			if c := more[i] + p.price; c < out[i] {
				out[i], then[i] = c, p.most[(w+1)*perState+i]
			}
			if stay < p.moved[i] {
				p.moved[i], p.to[i] = stay, int16(w)
			}
		}
	}
}

// wait is the cost of candidate w from step j to m, and from there on with the best
// of more workers.
func (p *program) wait(j, m, w int, out *[perState]float64) {
	v := p.v
	span := v.at[m] - v.at[j]
	gpu := float64(p.workers[w])*span/3600 - float64(p.workers[w])*p.lead/3600
	now, next := &p.held[j], &p.held[m]
	rate, then := &p.lagAt(j, w).rate, &p.lagAt(m, w).rate
	for c := range classes {
		ev := (*[lags]float64)(p.evs[(w+1)*perState+c*lags:])
		come := v.arrivals(j, m, c) - p.f[w]*span
		k := 0
		for b := range lags {
			left := now[b] + come
			if left <= 0 {
				cost := 0.0
				if b > 0 {
					cost = 0.5 * rate[b] * span * now[b] / (now[b] - left)
				}
				out[c*lags+b] = gpu + cost + ev[0]
				continue
			}
			for k < lags-2 && left > next[k+1] {
				k++
			}
			share := (left - next[k]) / (next[k+1] - next[k])
			end := then[k] + share*(then[k+1]-then[k])
			out[c*lags+b] = gpu + 0.5*(rate[b]+end)*span + ev[k] + share*(ev[k+1]-ev[k])
		}
	}
}
