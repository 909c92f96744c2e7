package plan

import (
	"fmt"
	"math"
)

// mostPutOff is how many decisions in a row may put a scale-in off to the next one. [ours]
const mostPutOff = 5

// notPutOff is the candidate to take where to stay costs least, though the plan lets workers go with the next decision, and so did each of the last few: of fewer workers those that
// cost least, where that is less than a change more. A plan takes each later step knowing how the load of that step turns out, and how good F is; that is worth something where
// it matters, at a load that just fills some number of workers, and would be worth as much at each decision, so that the workers would never go. why says so; -1: none is to be taken.
func (p *program) notPutOff(s *sheet, costs []float64, at int) (best int, why string) {
	best = -1
	m := s.remember("cost")
	if p.outage > 0 || p.steps() < 2 {
		m.PutOff = 0
		return best, ""
	}
	next := p.steer(s, at)[1]
	if next >= s.current {
		m.PutOff = 0
		return best, ""
	}
	if m.PutOff++; m.PutOff <= mostPutOff {
		return best, ""
	}
	for w := range at {
		if p.mayBe(s, w) && costs[w] < costs[at]+p.price && (best < 0 || costs[w] < costs[best]) {
			best = w
		}
	}
	if best < 0 || math.IsInf(costs[best], 0) {
		return -1, ""
	}
	m.PutOff = 0
	return best, fmt.Sprintf("the plan would go to %s with the next decision, as it would have with each of the last %d, so that it is done now; of fewer %s least", workers(next), mostPutOff,
		costing(fmt.Sprint(p.workers[best]), p.workers[best]))
}
