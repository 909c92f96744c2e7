package stream

import (
	"slices"
	"sync/atomic"
)

// spread maps users to partitions. Kafka's own choice by hash gives every partition its share; a skewed spread gives the
// hot ones more, as streams keyed by user attributes have them (Kale §3.5).
type spread struct {
	weights []float64 // popularity of each user, sums to 1
	skew    float64   // share of the records that goes to the hot partitions beyond their even share, 0 to 1
	hot     int       // how many partitions are hot; 0 means one in eight, at least one
	table   atomic.Pointer[[][]int32]
}

// shares gives the share of the records that each of n partitions is to have.
func (s *spread) shares(n int) []float64 {
	hot := s.hot
	if hot <= 0 {
		hot = max(1, n/8)
	}
	hot = min(hot, n)
	out := make([]float64, n)
	for p := range out {
		out[p] = (1 - s.skew) / float64(n)
		if p < hot {
			out[p] += s.skew / float64(hot)
		}
	}
	return out
}

// of is the partition of a user among n: the same for the same n, so that a user's records keep their order until
// partitions are added. Users are dealt in order of popularity, each to the partition that is furthest below its share.
func (s *spread) of(user, n int) int32 {
	tables := s.table.Load()
	if tables != nil && n < len(*tables) && (*tables)[n] != nil {
		return (*tables)[n][user]
	}
	var grown [][]int32
	if tables != nil {
		grown = slices.Clone(*tables)
	}
	for len(grown) <= n {
		grown = append(grown, nil)
	}
	grown[n] = s.deal(n)
	s.table.Store(&grown)
	return grown[n][user]
}

func (s *spread) deal(n int) []int32 {
	want := s.shares(n)
	order := make([]int, len(s.weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case s.weights[a] > s.weights[b]:
			return -1
		case s.weights[a] < s.weights[b]:
			return 1
		}
		return 0
	})
	load := make([]float64, n)
	out := make([]int32, len(s.weights))
	for _, u := range order {
		best := 0
		for p := range load {
			if want[p]-load[p] > want[best]-load[best] {
				best = p
			}
		}
		load[best] += s.weights[u]
		out[u] = int32(best)
	}
	return out
}
