package replay

import "math"

// left is what it takes to train what still waits at the end of a part, or of a stretch of it between gaps: it was not trained, so that whoever leaves it has not paid
// for it yet. Every policy and the oracle are charged for it alike, as if nothing arrived any more and the number of workers that trains most were there at once: so
// many worker-seconds, and the lag at the end of each minute until nothing waits. Nobody can train it sooner, and it is not cheaper to leave records than to train
// them.
type left struct {
	held float64 // worker-seconds
	lag  float64 // minutes of lag, at the ends of minutes
	over float64 // minutes
}

// leftAt is that of the records that arrived by the moment end, s, and are not among the first trained ones. maxLag is the objective, s.
func leftAt(a *arrivals, trained, end float64, workers int, capacity, maxLag float64) (l left) {
	all := a.at(end)
	if all-trained <= slack || capacity <= 0 {
		return l
	}
	l.held = float64(workers) * (all - trained) / capacity
	for k, bin := 1., 0; ; k++ {
		done := trained + capacity*60*k
		if all-done <= slack {
			return l
		}
		for bin < len(a.rate)-1 && a.cum[bin+1] <= done {
			bin++
		}
		lag := end + 60*k - a.when(done, bin)
		if l.lag += lag / 60; lag > maxLag {
			l.over++
		}
	}
}

// cost is what it costs in GPU-hours, of workers with so many GPUs.
func (l left) cost(w Weights, gpus float64) float64 {
	return l.held*gpus/3600 + w.Lag*l.lag + w.Violation*l.over
}

// plus is both.
func (l left) plus(o left) left { return left{l.held + o.held, l.lag + o.lag, l.over + o.over} }

// trainsMost is the least number of workers of those that train most.
func trainsMost(capacity []float64, lo, hi int) int {
	return sufficient(capacity, math.Inf(1), lo, hi)
}
