package plan

import (
	"math"
	"slices"
	"time"
)

// The steps of a plan: the first few one interval between decisions each, then five,
// and once they lie so far ahead that this is less than stepShare of the time until
// then, that share: what is far away is known and decided less finely. mostSteps
// bounds them; they become longer where the view reaches further.
const (
	nearSteps = 5
	midStep   = 5
	stepShare = 0.1
	mostSteps = 48
)

// view is the future as the cost policy sees it: a grid of time, and for each step
// how large the load may be.
type view struct {
	at   []float64 // when each step begins, s from now; one more than there are steps
	mean []float64 // samples/s
	// load[j][c] is the mean load of step j in class c, rising with c.
	load [][classes]float64
	// rho[j] is how the errors of step j are correlated with those of step j+1.
	rho []float64
	// rows[j][k] is the mean load of step j in scenario k.
	rows [][]float64
	// likely is how likely each class of the first step is, given the rate that was
	// measured last.
	likely [classes]float64
	// past is the arrivals before now, newest last, and pastStep the length of its bins.
	past     []float64
	pastStep float64
}

// look makes the view of a forecast that can be used. modelError is the relative
// standard deviation of F, which widens the classes: too little capacity and too
// much load come to the same. It counts where the observation does not know the model to
// be less sure.
func (s *sheet) look(modelError float64) *view {
	f := &s.o.Forecast
	v := &view{at: s.grid()}
	n := len(v.at) - 1
	v.mean, v.load, v.rho, v.rows = make([]float64, n), make([][classes]float64, n), make([]float64, n), make([][]float64, n)
	near := newCourses(*f, s.o.Now)
	far := near
	if b := f.Beyond; b != nil && b.Step > 0 && len(b.Mean) > 0 && fits(b.Mean, len(b.Mean)) {
		far = newCourses(*b, s.o.Now)
	}
	split := 0 // the first step that lies beyond the forecast
	for j := range n {
		c := near
		if v.at[j] >= near.end-1e-9 {
			c = far
		} else {
			split = j + 1
		}
		v.mean[j] = max(c.mean.between(v.at[j], v.at[j+1]), 0)
		v.rows[j] = slices.Clone(c.between(v.at[j], v.at[j+1]))
	}
	v.pastRates(s.o.Rates, s.o.Now)
	switch unit := s.o.Interval.Seconds(); {
	case s.refuted(v, near):
		v.heed(near, split, unit, math.Inf(1))
	case s.o.outage() == 0:
		v.heed(near, split, nearSteps*unit, 0)
	}
	v.correlate(split)
	for j := range n {
		v.load[j] = classLoads(slices.Clone(v.rows[j]), v.mean[j], max(modelError, s.errorAt(v.mean[j])))
	}
	v.likely = classShare
	if rate, ok := s.lastRate(); ok {
		v.likely = move(v.rho[0])[v.class(0, rate)]
	}
	return v
}

// heed corrects the scenarios of the forecast by what was measured in the last
// block of so many seconds. How much of an error that was there just now is left at
// a later step is read off the scenarios themselves, by regression on their first
// block. A forecaster that has heeded the last measurements leaves little to do.
//
// With it, as much is known of the first step as will be known of later ones when
// they come; if it were less, waiting would always seem to pay.
//
// What the forecast would have said of the last block is not known, and is drawn back
// from its first two. That is wrong where these hold the last rate and return from
// it, as under noise: so no error counts for more than the largest of the scenarios',
// or up to beyond where that is more, as far as it is one against the first of the two
// too. And the correction is left out where a rescale stops training: a live one is
// decided anew within minutes; one with an outage has to pay for hours, of which five
// minutes tell nothing that the forecaster has not seen. Neither holds after an
// interval that has refuted the forecast: its error counts whole.
func (v *view) heed(c *courses, split int, block, beyond float64) {
	first, second := c.mean.between(0, block), c.mean.between(block, 2*block)
	before := max(2*first-second, 0.2*first) // the block that has passed, by the forecast's own trend
	measured, ok := v.measured(block)
	if !ok || !(before > 0) || !(first > 0) || !(second > 0) {
		return
	}
	soon := relative(slices.Clone(c.between(0, block)), first)
	was := max(measured/before-1, slices.Min(soon))
	if most := slices.Max(soon); was > most {
		was = max(min(measured/max(before, first)-1, beyond), most)
	}
	kept := correlation(soon, relative(c.between(block, 2*block), second))
	narrow := 1 - math.Sqrt(1-kept*kept)
	for j := range split {
		m := v.mean[j]
		if !(m > 0) {
			continue
		}
		row := relative(slices.Clone(v.rows[j]), m)
		slope := regression(soon, row)
		shift := kept * slope * was
		for k := range row {
			v.rows[j][k] = max(m*(1+row[k]+shift-narrow*slope*soon[k]), 0)
		}
		v.mean[j] = max(m*(1+shift), 0)
	}
}

// relative turns rates into shares of mean, above or below it.
func relative(rows []float64, mean float64) []float64 {
	for k := range rows {
		rows[k] = rows[k]/mean - 1
	}
	return rows
}

// regression is the slope of b on a, made smaller by what chance alone gives with so
// few scenarios; not negative.
func regression(a, b []float64) float64 {
	r := correlation(a, b)
	n := float64(len(a))
	sa, sb := spread(a), spread(b)
	if !(sa > 0) || !(n*r*r > 1) {
		return 0
	}
	return r * sb / sa * (1 - 1/(n*r*r))
}

// spread is the standard deviation.
func spread(v []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return math.Sqrt(sum / float64(len(v)))
}

// measured is the mean rate of the last block of so many seconds.
func (v *view) measured(block float64) (rate float64, ok bool) {
	n := len(v.past)
	if n == 0 || !(v.pastStep > 0) {
		return 0, false
	}
	k := min(max(int(math.Round(block/v.pastStep)), 1), n)
	for _, x := range v.past[n-k:] {
		rate += x / float64(k)
	}
	return rate, true
}

// correlate measures how the scenarios of each step are correlated with those of the
// next: the mean over the steps up to there, which no single pair is enough for. The
// first step beyond the forecast has other scenarios; it is taken to be as close to
// the last as the ones before.
func (v *view) correlate(split int) {
	sum, pairs := 0.0, 0.0
	for j := range len(v.rows) - 1 {
		if j+1 == nearSteps || j+1 == split+1 {
			sum, pairs = 0, 0
		}
		if j+1 != split {
			sum, pairs = sum+correlation(v.rows[j], v.rows[j+1]), pairs+1
		}
		v.rho[j] = sum / max(pairs, 1)
	}
}

// class is the one of step j to which a load is nearest.
func (v *view) class(j int, load float64) int {
	c := 0
	for c+1 < classes && load > (v.load[j][c]+v.load[j][c+1])/2 {
		c++
	}
	return c
}

// grid is when the steps begin. A step ends where the forecast does.
func (s *sheet) grid() []float64 {
	o, f := s.o, &s.o.Forecast
	unit := o.Interval.Seconds()
	end := max(f.At.Add(lasts(len(f.Mean), f.Step)).Sub(o.Now).Seconds(), unit)
	last := end
	if b := f.Beyond; b != nil && b.Step > 0 {
		last = max(end, b.At.Add(lasts(len(b.Mean), b.Step)).Sub(o.Now).Seconds())
	}
	for stretch := 1.0; ; stretch *= 1.3 {
		at := []float64{0}
		for t := 0.0; t < last-unit/2 && len(at) <= mostSteps; {
			step := unit
			if len(at) > nearSteps {
				step = stretch * max(midStep*unit, stepShare*t)
			}
			for _, edge := range []float64{end, last} {
				if t < edge-unit/2 && t+1.4*step > edge {
					step = edge - t
				}
			}
			t += step
			at = append(at, t)
		}
		if at[len(at)-1] >= last-unit/2 {
			return at
		}
	}
}

// pastRates takes the measured rates, with gaps filled by the last that is known.
func (v *view) pastRates(r Series, now time.Time) {
	v.pastStep = r.Step.Seconds()
	if r.Step <= 0 {
		return
	}
	last := v.mean[0]
	for i := len(r.Values) - 1; i >= 0; i-- {
		if r.Start.Add(lasts(i+1, r.Step)).After(now.Add(r.Step)) {
			continue
		}
		if x := r.Values[i]; finite(x) && x >= 0 {
			last = min(x, mostRate)
		}
		v.past = append(v.past, last)
	}
	slices.Reverse(v.past)
}

// courses are the mean and the scenarios of a forecast, ready to be averaged over
// any time from now on.
type courses struct {
	mean sums
	rows []sums
	end  float64 // s from now
	buf  []float64
}

func newCourses(f Forecast, now time.Time) *courses {
	first, step := f.At.Sub(now).Seconds(), f.Step.Seconds()
	c := &courses{mean: newSums(f.Mean, first, step), end: first + float64(len(f.Mean))*step}
	for _, row := range f.scenarios() {
		c.rows = append(c.rows, newSums(row, first, step))
	}
	c.buf = make([]float64, len(c.rows))
	return c
}

// between is each scenario's mean rate from one time to another. The result is
// overwritten by the next call.
func (c *courses) between(from, to float64) []float64 {
	for k := range c.rows {
		c.buf[k] = max(c.rows[k].between(from, to), 0)
	}
	return c.buf
}

// sums are running sums of a course in steps.
type sums struct {
	first, step float64
	upTo        []float64 // samples before each step; one more than there are steps
}

// mostRate, in samples/s, keeps sums finite whatever a forecast says.
const mostRate = 1e15

func newSums(v Values, first, step float64) sums {
	s := sums{first: first, step: step, upTo: make([]float64, len(v)+1)}
	last := 0.0
	for i, x := range v {
		if finite(x) { // only steps that have passed may be unknown
			last = min(max(x, 0), mostRate)
		}
		s.upTo[i+1] = s.upTo[i] + last*step
	}
	return s
}

// between is the mean rate from one time to another; outside its steps the course
// is that of the nearest one.
func (s sums) between(from, to float64) float64 {
	if !(to > from) {
		to = from + s.step
	}
	return (s.at(to) - s.at(from)) / (to - from)
}

func (s sums) at(t float64) float64 {
	n := len(s.upTo) - 1
	x := (t - s.first) / s.step
	switch {
	case x <= 0:
		return x * s.upTo[1]
	case x >= float64(n):
		return s.upTo[n] + (x-float64(n))*(s.upTo[n]-s.upTo[n-1])
	}
	i := int(x)
	return s.upTo[i] + (x-float64(i))*(s.upTo[i+1]-s.upTo[i])
}

// correlation of two rows of scenarios, 0 to 1. Rows without spread are certain:
// their class does not matter, and stays; one such row says nothing of the other.
func correlation(a, b []float64) float64 {
	if len(a) != len(b) || len(a) == 0 {
		return 1
	}
	ma, mb := 0.0, 0.0
	for i := range a {
		ma, mb = ma+a[i]/float64(len(a)), mb+b[i]/float64(len(a))
	}
	ab, aa, bb := 0.0, 0.0, 0.0
	for i := range a {
		x, y := a[i]-ma, b[i]-mb
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 && bb == 0 {
		return 1
	}
	if r := ab / math.Sqrt(aa*bb); r <= 1 {
		return max(r, 0)
	}
	return 0
}

// classLoads sorts rows and gives the mean of each class: the lowest 8 % of the
// scenarios, the next 22 %, and so on, a scenario counting in parts where a class
// ends within it.
func classLoads(rows []float64, mean, modelError float64) (load [classes]float64) {
	slices.Sort(rows)
	n := float64(len(rows))
	from := 0.0
	for c, share := range classShare {
		to, sum := from+share*n, 0.0
		for i := int(from); i < len(rows) && float64(i) < to; i++ {
			sum += rows[i] * (min(to, float64(i+1)) - max(from, float64(i)))
		}
		load[c] = sum / (share * n)
		from = to
	}
	if modelError > 0 {
		for c := range load {
			d, e := load[c]-mean, classZ[c]*modelError*mean
			load[c] = max(mean+math.Copysign(math.Hypot(d, e), d+e), 0)
		}
		slices.Sort(load[:])
	}
	return load
}
