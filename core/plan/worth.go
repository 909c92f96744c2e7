package plan

import (
	"math"
	"slices"
	"time"
)

// worthReach is for how long a worker's worth is reckoned, or for as long as the objective or the lead where these are longer. It is the same for all jobs. Over
// minutes a job that falls behind loses hardly more than one that has a worker too many, however far the first would be behind soon; and over many hours a
// number that stays is no plan: with six, a pool of 300 GPUs where 511 are needed lost 14 % more than with one (a fluid model of 60 jobs).
const worthReach = time.Hour

// Worth is what each worker is worth to a job, for a pool that has to choose between jobs: Worth(o, n)[w-1] is the lag and the violations that a w-th
// worker prevents in the next hour, in GPUs (GPU-hours for each hour), without what the GPU itself costs. It is the same for every policy, and in the prices
// of the policy "cost" (its defaults), so that jobs can be compared.
//
// For each class of load (the five of that policy, likely as there) the backlog is followed through the steps of the view with F(w) constant, first come, first
// served; the age of its oldest record, by when that arrived, costs what a lag costs. It is the age that counts and not how many records wait: those of a night
// are as old as those of a peak, and much sooner trained. Beyond a forecast the load is that of its last step. Without one it is the largest rate of the
// last τ. An observation that cannot be decided on makes all workers worth nothing.
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
	waiting []arrived // the backlog, the oldest records first
	maxLag  float64   // s
	price   costRate  // GPUs
}

// arrived is records that came at an even rate from a time on, in s from now.
type arrived struct{ from, length, records float64 }

func (s *sheet) losses() losses {
	o := s.o
	l := losses{maxLag: o.MaxLag.Seconds(), price: costRate{lag: costDefault("lag"), over: costDefault("over")}}
	reach := max(worthReach, o.MaxLag, o.lead()).Seconds()
	if _, _, why := s.foreseen(); why == "" {
		v := s.look(0)
		l.at, l.load = v.at, v.load
		l.waiting = s.waiting(v)
		l.lasts(reach)
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
	v := &view{mean: []float64{min(max(rate, 0), mostRate)}}
	v.pastRates(o.Rates, o.Now)
	l.waiting = s.waiting(v)
	l.lasts(reach)
	return l
}

// waiting is when the records of the backlog arrived: by the rates that were measured, and those that are older than these by the measured lag.
func (s *sheet) waiting(v *view) (out []arrived) {
	left, age := float64(max(s.o.BacklogRecords, 0)), 0.0
	rate := v.mean[0]
	for i := len(v.past) - 1; i >= 0 && left > 0; i-- {
		rate = v.past[i]
		n := min(rate*v.pastStep, left)
		length := v.pastStep
		if n < rate*v.pastStep {
			length = n / rate
		}
		left, age = left-n, age+length
		out = append(out, arrived{-age, length, n})
	}
	if left > 0 {
		length := left / max(rate, 1)
		if lag := s.o.Lag.Seconds(); s.o.lagKnown() && lag > age {
			length = lag - age
		}
		out = append(out, arrived{-age - length, length, left})
	}
	slices.Reverse(out)
	return out
}

// lasts makes the steps end so many seconds from now: what is later is left out, and where they end before, the last load goes on, in steps that are longer the
// later they are.
func (l *losses) lasts(until float64) {
	const longer = 0.1 // of the time until then
	for n := len(l.load); n > 1 && l.at[n-1] >= until; n-- {
		l.at, l.load = l.at[:n], l.load[:n-1]
	}
	n := len(l.load)
	l.at[n] = min(l.at[n], until)
	last := l.load[n-1]
	for end := l.at[n]; end < until; {
		end = min(max(end*(1+longer), end+1), until)
		l.at, l.load = append(l.at, end), append(l.load, last)
	}
}

// of is the loss with capacity f, in GPUs.
func (l losses) of(f float64) float64 {
	sum, last := 0.0, l.at[len(l.at)-1]
	for c, likely := range classShare {
		h := head{l: &l, class: c}
		before := l.price.at(h.age(0))
		for j := range l.load {
			length := l.at[j+1] - l.at[j]
			h.train(j, f*length)
			after := l.price.at(h.age(l.at[j+1]))
			sum += likely * 0.5 * (before + after) * length / last
			before = after
		}
	}
	return sum
}

// head is the oldest record that waits, in one class of load.
type head struct {
	l     *losses
	class int
	i     int     // of l.waiting, and then of the steps: what it arrived in
	taken float64 // records of that which were trained
}

// came is what the head arrived in.
func (h *head) came() arrived {
	l := h.l
	if h.i < len(l.waiting) {
		return l.waiting[h.i]
	}
	j := h.i - len(l.waiting)
	length := l.at[j+1] - l.at[j]
	return arrived{l.at[j], length, l.load[j][h.class] * length}
}

// train takes so many records, the oldest first, of those that arrived until the end of step j.
func (h *head) train(j int, records float64) {
	for end := len(h.l.waiting) + j; h.i <= end; h.i, h.taken = h.i+1, 0 {
		rest := h.came().records - h.taken
		if records < rest {
			h.taken += records
			return
		}
		records -= rest
	}
}

// age is the age of the head at a time, s from now, as a share of the objective; 0 where nothing waits.
func (h *head) age(at float64) float64 {
	const most = 1e6
	if h.i >= len(h.l.waiting)+len(h.l.load) {
		return 0
	}
	of := h.came()
	if of.from >= at { // all that has arrived is trained
		return 0
	}
	return min((at-of.from-of.length*min(h.taken/max(of.records, math.SmallestNonzeroFloat64), 1))/h.l.maxLag, most)
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
