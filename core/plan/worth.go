package plan

import (
	"math"
	"time"
)

// worthReach is for how long at least a worker's worth is reckoned. It is the same for all jobs: over minutes a job that falls behind loses hardly more
// than one that has a worker too many, however far the first would be behind soon.
const worthReach = time.Hour

// Worth is what each worker is worth to a job, for a pool that has to choose between jobs: Worth(o, n)[w-1] is the lag and the violations that a w-th
// worker prevents in an hour, or over what the forecast reaches where that is longer, in GPUs (GPU-hours for each hour), without what the GPU itself
// costs. It is the same for every policy, and in the prices of the policy "cost" (its defaults), so that jobs can be compared.
//
// For each class of load (the five of that policy, likely as there) the backlog is followed through the steps of the view with F(w) constant; its age,
// backlog over load, costs what a lag costs. Beyond a forecast the load is that of its last step. Without one it is the largest rate of the last τ. An
// observation that cannot be decided on makes all workers worth nothing.
func Worth(o Observation, n int) []float64 {
	out := make([]float64, max(n, 0))
	if o.problem() != "" || len(out) == 0 {
		return out
	}
	s := &sheet{o: &o, current: max(o.current(), 0), curve: curve(o.Model, o.Limits, o.Servers)}
	l := s.losses()
	before := l.of(0)
	for w := range out {
		after := min(before, l.of(s.capacity(w+1)))
		out[w] = min(before-after, mostRate)
		before = after
	}
	return out
}

// losses is what a loss is reckoned from.
type losses struct {
	at      []float64 // when each step begins, s from now; one more than there are steps
	load    [][classes]float64
	backlog float64
	maxLag  float64
	price   costRate // GPUs
}

func (s *sheet) losses() losses {
	o := s.o
	l := losses{backlog: float64(max(o.BacklogRecords, 0)), maxLag: o.MaxLag.Seconds(), price: costRate{lag: costDefault("lag"), over: costDefault("over")}}
	if _, _, why := s.foreseen(); why == "" {
		v := s.look(0)
		l.at, l.load = v.at, v.load
		l.lasts(worthReach.Seconds())
		return l
	}
	rate, ok := s.recentRate(max(o.Tau, o.Interval))
	if !ok {
		rate, _ = s.lastRate()
	}
	var load [classes]float64
	for c := range load {
		load[c] = min(s.withHeadroom(rate), mostRate)
	}
	l.at, l.load = []float64{0, max(o.Interval, time.Second).Seconds()}, [][classes]float64{load}
	l.lasts(max(worthReach, o.MaxLag, o.lead()).Seconds())
	return l
}

// lasts goes on with the last load until so many seconds from now, where that is later than the last step, in steps that are longer the later they are.
func (l *losses) lasts(until float64) {
	const longer = 0.1 // of the time until then
	last := l.load[len(l.load)-1]
	for end := l.at[len(l.at)-1]; end < until; {
		end = min(max(end*(1+longer), end+1), until)
		l.at, l.load = append(l.at, end), append(l.load, last)
	}
}

// of is the loss with capacity f, in GPUs.
func (l losses) of(f float64) float64 {
	sum, last := 0.0, l.at[len(l.at)-1]
	for c, likely := range classShare {
		backlog, before := l.backlog, l.age(l.backlog, l.load[0][c], f)
		for j := range l.load {
			load, length := l.load[j][c], l.at[j+1]-l.at[j]
			backlog = max(backlog+(load-f)*length, 0)
			after := l.age(backlog, load, f)
			sum += likely * 0.5 * (l.price.at(before) + l.price.at(after)) * length / last
			before = after
		}
	}
	return sum
}

// age is the lag of a backlog as a share of the objective: how long its records took to arrive or, where none arrive, take to be trained.
func (l losses) age(backlog, load, f float64) float64 {
	const most = 1e6
	if backlog <= 0 {
		return 0
	}
	return min(backlog/max(load, f, math.SmallestNonzeroFloat64)/l.maxLag, most)
}

// costDefault is the default of a parameter of the policy "cost".
func costDefault(name string) float64 {
	for _, p := range registry[find("cost")].Params {
		if p.Name == name {
			return p.Default
		}
	}
	panic("plan: the policy \"cost\" has no parameter " + name)
}

// Kept is how many of the workers that the decision wants it holds for want of a forecast alone, and would do without by what it measured: what a job gives up to a pool first.
func (d Decision) Kept() int {
	kept, ok := d.Term("kept")
	if !ok || d.Source != "reactive" || d.Wants() != d.Current {
		return 0
	}
	if late, ok := d.Term("needed for lag"); ok {
		return max(min(int(kept.Value), d.Current-int(late.Value)), 0)
	}
	return int(kept.Value)
}

// Wants is how many workers the decision's policy wants, and at least how many it holds: what a job asks a pool for. A decision that could not be made
// asks for what there is.
func (d Decision) Wants() int {
	if d.Source == "manual" {
		return d.Target
	}
	if t, ok := d.Term("wanted"); ok && !math.IsNaN(float64(t.Value)) {
		return max(int(t.Value), d.Target)
	}
	return d.Target
}
