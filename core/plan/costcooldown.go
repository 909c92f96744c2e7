package plan

import (
	"math"
	"slices"
)

// cooldown is what the program knows of [Observation.CooldownIn]: after a change no
// workers are let go for so long. A change is worth less by what it forbids, and one
// that is not made keeps the way free.
//
// States during a cooldown are told apart by the step with which it ends. Ends are
// rounded to half a cooldown, so that there are few of them at any step.
type cooldown struct {
	length float64  // s; 0: none
	left   float64  // s, of the one that has begun before now
	until  []int    // until[j]: the step with which the cooldown of a change at step j ends
	ends   [][]int  // ends[j]: the steps after j with which a cooldown may end that holds at step j, or begins there
	states []int    // states[j]: how many of these, the first, may have begun before
	first  []int    // first[j]: where the values of step j begin in value
	value  []choice // [j][end][worker]
	own    []costs  // [worker]: the next step's value, expected, after a change at the first step
}

// plan sets the ends of all cooldowns on a grid of time.
func (c *cooldown) plan(at []float64, workers int) {
	n := len(at) - 1
	c.until, c.ends, c.states, c.first = grow(c.until, n), grow(c.ends, n+1), grow(c.states, n+1), grow(c.first, n+1)
	half := c.length / 2
	for j := range n {
		c.until[j] = j + 1
		if half > 0 {
			c.until[j] = c.step(at, j+1, half*math.Round((at[j]+c.length)/half))
		}
	}
	total := 0
	for j := range n + 1 {
		c.ends[j], c.states[j], c.first[j] = c.ends[j][:0], 0, total
		if j < n && c.length > 0 {
			c.hold(j, c.now(at))
		}
		total += len(c.ends[j]) * workers
	}
	c.value, c.own = grow(c.value, total), grow(c.own, workers)
}

// hold finds the ends of the cooldowns that may hold at step j; now is that of the one that has begun before now.
func (c *cooldown) hold(j, now int) {
	ends := c.ends[j]
	add := func(end int) {
		if end > j && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	add(now)
	for _, end := range c.until[:j] {
		add(end)
	}
	c.states[j] = len(ends)
	if own := c.until[j]; own > j+1 { // else it forbids nothing
		add(own)
	}
	c.ends[j] = ends
}

// step is the first step from j on that begins at a time, or nearer to it than the one before.
func (c *cooldown) step(at []float64, j int, time float64) int {
	for j < len(at)-1 && at[j] < time-(at[j]-at[j-1])/2 {
		j++
	}
	return j
}

// now is the step with which the cooldown ends that has begun before now; 0: none has.
func (c *cooldown) now(at []float64) int {
	if c.length == 0 || c.left <= 0 {
		return 0
	}
	return c.step(at, 1, c.left)
}

// within is the values of step j in a cooldown that ends with a step.
func (p *program) within(end, j int) []choice {
	w := len(p.workers)
	if k := slices.Index(p.cool.ends[min(j, p.steps())], end); end > j && k >= 0 {
		from := p.cool.first[j] + k*w
		return p.cool.value[from : from+w]
	}
	return p.value[j*w : (j+1)*w]
}
