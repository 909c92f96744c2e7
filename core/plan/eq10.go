package plan

import (
	"fmt"

	"github.com/kale-sched/kale/estimator"
)

// Limits bound the number of workers of a job.
type Limits struct {
	Min int `json:"min"`
	Max int `json:"max"`
	// Why says, for people, why Max is lower than the job file's; "" when it is not.
	Why string `json:"why,omitempty"`
	// Short tells of a cluster that is full.
	Short Short `json:"short,omitzero"`
}

// String is the limits for people.
func (l Limits) String() string {
	text := fmt.Sprintf("%d to %d", l.Min, l.Max)
	if l.Why != "" {
		text += " (" + l.Why + ")"
	}
	return text
}

// Clamp returns w, moved into the limits.
func (l Limits) Clamp(w int) int { return min(max(w, l.Min), l.Max) }

// problem says why the limits cannot be used, or "".
func (l Limits) problem() string {
	switch {
	case l.Min < 0:
		return fmt.Sprintf("the lower limit is %d workers; it must be 0 or more", l.Min)
	case l.Max < 1 || l.Max > estimator.MaxWorkers:
		return fmt.Sprintf("the upper limit is %d workers; it must be 1 to %d", l.Max, estimator.MaxWorkers)
	case l.Min > l.Max:
		return fmt.Sprintf("the lower limit, %d workers, is above the upper limit, %d", l.Min, l.Max)
	}
	return ""
}

// Eq10 is Eq. 10 of Kale §3.4: for each step of a forecast in samples per
// second, the smallest number of workers w within the limits with F(w) > L(t).
// servers is the number of parameter servers that the workers will run with
// (forms with a fixed ratio ignore it).
//
// Where no w suffices, workers[i] is the peak of F within the limits and
// saturated[i] is true: F is not monotone, and more workers would not help.
// Both results have the forecast's length. A NaN in the forecast counts as more
// than any capacity.
func Eq10(forecast []float64, m estimator.Model, lim Limits, servers int) (workers []int, saturated []bool) {
	return eq10(forecast, curve(m, lim, servers))
}

func curve(m estimator.Model, lim Limits, servers int) estimator.Curve {
	return m.Curve(lim.Min, lim.Max, func(int) int { return servers })
}

func eq10(loads []float64, c estimator.Curve) (workers []int, saturated []bool) {
	workers = make([]int, len(loads))
	saturated = make([]bool, len(loads))
	for i, l := range loads {
		workers[i], saturated[i] = c.Smallest(l)
	}
	return workers, saturated
}
