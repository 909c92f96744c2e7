package replay

import (
	"math"
	"slices"
	"sort"
	"time"
)

// Grid is that of the oracle's programme: how many steps of age there are in a minute; up to which age every step is told apart; and how many states there are, of a
// backlog that no number of workers keeps younger than that, for what these train in a minute.
type Grid struct {
	PerMinute int
	Oldest    time.Duration
	Behind    int
}

// restartGrid is the grid for rescales that stop training: ages up to the objective, two outages and ten minutes, in steps of 15 s.
// A grid four times as fine changes the cost by less than 1 % (TestOracleGrid).
func restartGrid(maxLag time.Duration, w World) Grid {
	oldest := maxLag + 2*w.Outage.To + 10*time.Minute
	return Grid{PerMinute: 4, Oldest: oldest, Behind: 1}
}

// node is a moment of arrival that the programme tells apart from others.
type node struct {
	at      float64 // steps since the beginning of the part
	arrived float64 // samples that arrived before, since then
}

// ages is a part of a course as the programme sees it. The state of the backlog is the moment at which its oldest sample arrived, one of the nodes of the minute;
// where these are a step apart, state i is an age of i steps. S(k) is the number of samples that arrived before step k since the beginning of the part.
//
// Nodes are a step apart where some schedule has what arrives there trained before it is older than the grid's oldest age, and that is everywhere unless the load
// is beyond all workers. What waits for longer under any schedule lies between the nodes that the workers that train most come to at the ends of minutes: from one of
// these they go to the next, and V needs no interpolation for them. On a grid of other nodes the schedule changes workers only to come to a node.
//
// The states of a minute are those between what the workers that train most leave, from the beginning on, and the oldest age of the grid beyond what they leave
// who use half of what these have to spare. Less backlog than the first no schedule has; more than the last none has that is worth its lag. Those older than the
// grid's oldest age are no closer than a minute of training or coarsest of arrival.
type ages struct {
	m       int // steps a minute
	minutes int
	arrived []float64 // S(k), k = 0 … m·minutes
	nodes   []node
	kept    []node // of the nodes, those for old states
	// By minute, 0 … minutes.
	at     [][]node // the nodes of its states, the oldest first: state i is the last but i
	behind []bool   // a minute's load may still wait at its end
	n      int      // the most states of a minute
}

// coarsest is how far apart old states lie at most, in minutes of arrival.
const coarsest = 5

// deepest is how many states lie beyond the backlog that is left with half of what is to spare: minutes in which nothing is trained.
const deepest = 240

// newAges lays the nodes; fastest is what the workers that train most train, samples/s.
func newAges(a *arrivals, minutes int, g Grid, fastest float64) *ages {
	s := &ages{m: g.PerMinute, minutes: minutes, arrived: make([]float64, minutes*g.PerMinute+1)}
	for k := range s.arrived {
		s.arrived[k] = a.at(float64(k) * 60 / float64(g.PerMinute))
	}
	most, least := s.trained(fastest)
	oldest := math.Floor(g.Oldest.Minutes() * float64(g.PerMinute))
	s.lay(s.service(most, fastest), oldest, float64(s.m)/float64(g.Behind))
	s.keep(60 * fastest / float64(g.Behind))
	s.states(most, least, oldest)
	return s
}

// trained is how many samples have been trained at most by the end of each minute, 0 … minutes, and how many with half of what is to spare.
func (s *ages) trained(fastest float64) (most, least []float64) {
	most, least = make([]float64, s.minutes+1), make([]float64, s.minutes+1)
	for t := range s.minutes {
		all := s.arrived[(t+1)*s.m]
		can, load := fastest*60, all-s.arrived[t*s.m]
		most[t+1] = min(most[t]+can, all)
		if load < can {
			can = (can + load) / 2
		}
		least[t+1] = min(least[t]+can, all)
	}
	return most, least
}

// service is when, in steps, the samples before each step have been trained, if most have been by the end of each minute; it goes on at fastest beyond.
func (s *ages) service(most []float64, fastest float64) []float64 {
	out := make([]float64, len(s.arrived))
	t := 0
	for k, arrived := range s.arrived {
		for t < s.minutes && most[t] < arrived {
			t++
		}
		switch {
		case most[t] < arrived:
			out[k] = float64(s.m) * (float64(t) + (arrived-most[t])/max(60*fastest, 1e-9))
		case t == 0:
			out[k] = 0
		default:
			out[k] = float64(s.m) * (float64(t-1) + (arrived-most[t-1])/max(most[t]-most[t-1], 1e-9))
		}
		out[k] = max(out[k], float64(k))
	}
	return out
}

// lay makes the nodes; service is when what arrived before each step is trained, in steps; where that is late, every so many steps of it make a node.
func (s *ages) lay(service []float64, oldest, every float64) {
	s.nodes = append(s.nodes, node{})
	for k := 1; k < len(service); k++ {
		from, to := service[k-1], service[k]
		old := to-float64(k) > oldest
		if old || to-from > float64(s.m) {
			for x := (math.Floor(from/every) + 1) * every; x < to || old && x == to; x += every {
				share := (x - from) / (to - from)
				s.nodes = append(s.nodes, node{float64(k-1) + share, s.arrived[k-1] + (s.arrived[k]-s.arrived[k-1])*share})
			}
		}
		if !old {
			s.nodes = append(s.nodes, node{float64(k), s.arrived[k]})
		}
	}
}

// keep chooses the nodes for old states: no more than so many samples, or coarsest, apart, unless all are.
func (s *ages) keep(samples float64) {
	for k, n := range s.nodes {
		if k > 0 && k < len(s.nodes)-1 {
			last, next := s.kept[len(s.kept)-1], s.nodes[k+1]
			if next.arrived-last.arrived <= samples && next.at-last.at <= coarsest*float64(s.m) {
				continue
			}
		}
		s.kept = append(s.kept, n)
	}
}

// states finds the states of every minute, given what has been trained by its end at most and at least, and the oldest age of the grid in steps.
func (s *ages) states(most, least []float64, oldest float64) {
	n := s.minutes + 1
	s.at, s.behind = make([][]node, n), make([]bool, n)
	for t := range n {
		now := float64(t * s.m)
		young := now
		if wait := s.waits(now, most[t]); wait > 0 {
			young = now - wait + 1
		}
		wait := s.waits(now, least[t])
		s.behind[t] = wait > float64(s.m)
		top := min(last(s.nodes, young)+1, last(s.nodes, now)) + 1
		old := now - oldest - 1.25*wait
		if wait == 0 {
			s.at[t] = s.nodes[last(s.nodes, old):top]
		} else {
			fine := s.nodes[min(last(s.nodes, now-oldest), top-1):top]
			coarse := s.kept[max(last(s.kept, old), last(s.kept, now-wait)-deepest):]
			k := sort.Search(len(coarse), func(k int) bool { return coarse[k].at >= fine[0].at })
			s.at[t] = slices.Concat(coarse[:k], fine)
		}
		s.n = max(s.n, len(s.at[t]))
	}
}

// last is the last node at a moment or before it; the first where there is none.
func last(nodes []node, at float64) int {
	return max(sort.Search(len(nodes), func(k int) bool { return nodes[k].at > at })-1, 0)
}

// waits is how old the oldest sample is at a moment when so many have been trained, in steps.
func (s *ages) waits(now, trained float64) float64 {
	end := len(s.arrived) - 1
	k := min(sort.Search(end+1, func(k int) bool { return s.arrived[k] > trained })-1, int(now))
	if k >= int(now) {
		return 0
	}
	return now - float64(k) - (trained-s.arrived[k])/max(s.arrived[k+1]-s.arrived[k], 1e-9)
}

// state is the nearest one to a lag in s at the end of minute t.
func (s *ages) state(t int, lag float64) int {
	nodes := s.at[t]
	at := float64(s.m) * (float64(t) - lag/60)
	k := last(nodes, at)
	if k+1 < len(nodes) && nodes[k+1].at-at <= at-nodes[k].at {
		k++
	}
	return len(nodes) - 1 - k
}

// age is that of the oldest sample at the moment now, of which nodes are those, if so many have been trained: as a state, a whole number and a rest below 1, and
// in steps. k is the last node before the sample arrived, or a later one; next is that for fewer trained samples: a loop in which they fall begins at the last.
// It takes no ages, and gives k back, since it is where a programme spends its time.
func age(nodes []node, now float64, k int, trained float64) (whole int, rest, steps float64, next int) {
	at := &nodes[k]
	for k > 0 && at.arrived > trained {
		k--
		at = &nodes[k]
	}
	end := len(nodes) - 1
	next = min(k+1, end)
	// The sample arrived between k and k+1, or before the first.
	if k >= end {
		return 0, 0, now - at.at, next
	}
	after := &nodes[k+1]
	share := 0.0
	if d := after.arrived - at.arrived; d > 0 {
		share = min((trained-at.arrived)/d, 1)
	} else if trained >= at.arrived {
		share = 1
	}
	x := float64(end-k) - share
	whole = int(x)
	return whole, x - float64(whole), now - at.at - share*(after.at-at.at), next
}
