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

// walk finds ages for a number of trained samples that falls from call to call. It belongs to one loop.
type walk struct {
	s *ages
	k int // the step in which the sample arrived, or a later one
}

// from begins a walk at the end of minute t.
func (s *ages) from(t int) walk { return walk{s, min(t*s.m, len(s.arrived)-1)} }

// age is that of the oldest sample at the end of minute t when so many have been trained, in steps: a whole number and a rest below 1.
func (w *walk) age(t int, trained float64) (whole int, rest float64) {
	a := w.s.arrived
	k := w.k
	for k > 0 && a[k] > trained {
		k--
	}
	w.k = k + 1
	if w.k > len(a)-1 {
		w.k = len(a) - 1
	}
	// The sample arrived between k and k+1.
	end := t * w.s.m
	if k >= end {
		return 0, 0
	}
	share := 0.0
	if d := a[k+1] - a[k]; d > 0 {
		share = min((trained-a[k])/d, 1)
	} else if trained >= a[k] {
		share = 1
	}
	x := float64(end-k) - share
	whole = int(x)
	return whole, x - float64(whole)
}
