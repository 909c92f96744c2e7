package replay

import (
	"time"
)

// Grid is that of the oracle's programme: how many steps of age there are in a minute, and how old a backlog it tells apart.
type Grid struct {
	PerMinute int
	Oldest    time.Duration
}

// restartGrid is the grid for rescales that stop training: ages up to the objective, two outages and ten minutes, in steps of 15 s.
// A grid four times as fine changes the cost by less than 1 % (TestOracleGrid).
func restartGrid(maxLag time.Duration, w World) Grid {
	oldest := maxLag + 2*w.Outage.To + 10*time.Minute
	return Grid{PerMinute: 4, Oldest: oldest}
}

// ages is a part of a course as the programme sees it: the state of the backlog is the age of its oldest sample, in steps of which a minute has m. S(k) is the
// number of samples that arrived before step k since the beginning of the part.
type ages struct {
	m       int // steps a minute
	n       int // ages told apart: 0 … n−1
	minutes int
	arrived []float64 // S(k), k = 0 … m·minutes
}

func newAges(a *arrivals, minutes int, g Grid) *ages {
	s := &ages{m: g.PerMinute, n: int(g.Oldest.Minutes()*float64(g.PerMinute)) + 1, minutes: minutes, arrived: make([]float64, minutes*g.PerMinute+1)}
	for k := range s.arrived {
		s.arrived[k] = a.at(float64(k) * 60 / float64(g.PerMinute))
	}
	return s
}

// at is what had been trained when the oldest waiting sample is i steps old at the end of minute t.
func (s *ages) at(t, i int) float64 { return s.arrived[max(t*s.m-i, 0)] }

// end is the step that ends minute t.
func (s *ages) end(t int) int { return min(t*s.m, len(s.arrived)-1) }

// age is that of the oldest sample at step end when so many have been trained, in steps: a whole number and a rest below 1. arrived is S, and k the step in which
// the sample arrived, or a later one; next is that for fewer trained samples: a loop in which they fall begins at end. It takes no ages, and gives k back, since it
// is where a programme spends its time.
func age(arrived []float64, end, k int, trained float64) (whole int, rest float64, next int) {
	at := arrived[k]
	for k > 0 && at > trained {
		k--
		at = arrived[k]
	}
	next = min(k+1, len(arrived)-1)
	// The sample arrived between k and k+1.
	if k >= end {
		return 0, 0, next
	}
	share := 0.0
	if d := arrived[k+1] - at; d > 0 {
		share = min((trained-at)/d, 1)
	} else if trained >= at {
		share = 1
	}
	x := float64(end-k) - share
	whole = int(x)
	return whole, x - float64(whole), next
}
