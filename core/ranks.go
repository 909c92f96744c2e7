package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// candidate is a wanted worker, as far as it matters for who has to leave when fewer are wanted.
type candidate struct {
	rank int
	// standing is how much it would be missed.
	standing standing
	// queued is since when it waits in the cluster's queue, which gives up its place there when it leaves; zero: it does not, or that is not known.
	queued time.Time
	// deadline is when the cluster ends it anyhow; zero: never.
	deadline time.Time
	// slow: its steps take much longer than those of others.
	slow bool
}

// standing orders workers by how much they would be missed.
type standing int

const (
	notPlaced standing = iota // it has no allocation that runs
	joining                   // its process runs, and it does not train yet, or that is not known
	trains
)

// slowFactor is how many times the median step a straggler's step takes.
const slowFactor = 1.5

// victims are the n workers that leave, by the order in which they are best done without: those that are not placed, the last in the cluster's queue before the
// first, those that do not train yet, those whose time is up first, stragglers, and then the highest ranks.
func victims(n int, cs []candidate) []int {
	cs = slices.Clone(cs)
	slices.SortFunc(cs, func(a, b candidate) int {
		if c := cmp.Compare(a.standing, b.standing); c != 0 {
			return c
		}
		switch {
		case a.queued.IsZero() != b.queued.IsZero():
			if a.queued.IsZero() {
				return -1
			}
			return 1
		case !a.queued.Equal(b.queued):
			return b.queued.Compare(a.queued)
		case a.deadline.IsZero() != b.deadline.IsZero():
			if a.deadline.IsZero() {
				return 1
			}
			return -1
		case !a.deadline.Equal(b.deadline):
			return a.deadline.Compare(b.deadline)
		case a.slow != b.slow:
			if a.slow {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.rank, a.rank)
	})
	out := make([]int, 0, n)
	for _, c := range cs[:min(n, len(cs))] {
		out = append(out, c.rank)
	}
	return out
}

// candidates are the wanted workers as they were seen last.
func (s *Scheduler) candidates() []candidate {
	var out []candidate
	steps := map[int]float64{}
	for _, rank := range s.want.Ranks {
		id := workerID(rank, s.want.Workers[rank])
		c := candidate{rank: rank, standing: joining}
		if s.seen != nil {
			st, found := s.seen.allocation(id)
			c.deadline = st.Deadline
			m := s.seen.member(rank, id.Generation)
			switch {
			case m.GetState() == rpc.MemberState_MEMBER_STATE_READY:
				c.standing = trains
				if step := m.GetMetrics().GetStepSeconds(); step > 0 {
					steps[rank] = step
				}
			case s.seen.listErr == nil && s.seen.complete && (!found || st.State == backend.StatePending || !st.State.Live()):
				c.standing = notPlaced
				if st.State == backend.StatePending {
					c.queued = st.Submitted
				}
			}
		}
		out = append(out, c)
	}
	if len(steps) > 2 {
		middle := medianOf(steps)
		for i := range out {
			out[i].slow = steps[out[i].rank] > slowFactor*middle
		}
	}
	return out
}

func medianOf(m map[int]float64) float64 {
	values := make([]float64, 0, len(m))
	for _, v := range m {
		values = append(values, v)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func workerID(rank int, generation uint64) backend.ID {
	return backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: generation}
}

// prefix is the ranks 0 to n−1.
func prefix(n int) []int {
	var out []int
	for rank := range n {
		out = append(out, rank)
	}
	return out
}
