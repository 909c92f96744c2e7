package ps

import (
	"cmp"
	"slices"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// Progress is what this server's tablets have trained, per partition whose pinned start is known, in partition order:
//
//   - applied: what every tablet has (intersection);
//   - touched: what any tablet has (union): the frontier;
//   - durable: the lowest watermark of the oldest retained, verified snapshot generation of each tablet (EXACTLY_ONCE rule 11). A
//     tablet without a snapshot holds it at the pinned start.
func (s *Server) Progress() (applied, touched, durable []*rpc.OffsetSet) {
	starts := *s.starts.Load()
	partitions := make([]int32, 0, len(starts))
	for p := range starts {
		partitions = append(partitions, p)
	}
	slices.Sort(partitions)
	all := make([]*spans.Set, len(partitions))
	some := make([]*spans.Set, len(partitions))
	safe := make([]int64, len(partitions))
	var none spans.Set
	for i, t := range s.tablets {
		t.mu.RLock()
		for k, p := range partitions {
			have := &none
			if int(p) < len(t.ledgers) {
				have = &t.ledgers[p].applied
			}
			if i == 0 {
				all[k], some[k], safe[k] = have.Clone(), have.Clone(), t.durable(p, starts[p])
				continue
			}
			if !all[k].Equal(have) {
				all[k] = spans.Intersect(all[k], have)
			}
			if !some[k].Equal(have) {
				some[k] = spans.Union(some[k], have)
			}
			safe[k] = min(safe[k], t.durable(p, starts[p]))
		}
		t.mu.RUnlock()
	}
	for k, p := range partitions {
		applied = append(applied, offsetSet(p, starts[p], all[k]))
		touched = append(touched, offsetSet(p, starts[p], some[k]))
		durable = append(durable, &rpc.OffsetSet{Partition: p, Watermark: safe[k]})
	}
	return applied, touched, durable
}

// durable is the watermark of the oldest retained snapshot. The caller holds mu.
func (t *tablet) durable(partition int32, start int64) int64 {
	if len(t.retained) == 0 {
		return start
	}
	return t.retained[len(t.retained)-1].watermark(partition, start)
}

// offsetSet is a set as the chief is told it.
func offsetSet(partition int32, start int64, set *spans.Set) *rpc.OffsetSet {
	out := &rpc.OffsetSet{Partition: partition, Watermark: set.Watermark(start)}
	for _, sp := range set.Above(out.Watermark) {
		out.Above = append(out.Above, &rpc.Span{Partition: partition, Begin: sp.Begin, End: sp.End})
	}
	return out
}

// Sums lists what each tablet has counted (rule 19), in tablet order. Each tablet's sums are of one moment; different tablets' are not.
func (s *Server) Sums() []*rpc.TabletSums {
	starts := *s.starts.Load()
	out := make([]*rpc.TabletSums, 0, len(s.tablets))
	for _, t := range s.tablets {
		t.mu.RLock()
		out = append(out, tabletSums(t.id, s.opt.Incarnation, t.steps, t.ledgers, starts))
		t.mu.RUnlock()
	}
	return out
}

// tabletSums writes ledgers as a message; partitions of which nothing was applied are left out.
func tabletSums(tablet int, inc uint64, steps int64, ledgers []ledger, starts map[int32]int64) *rpc.TabletSums {
	out := &rpc.TabletSums{Tablet: int32(tablet), Incarnation: inc, OptimiserSteps: steps}
	for p := range ledgers {
		l := &ledgers[p]
		if l.applied.Empty() {
			continue
		}
		out.Partitions = append(out.Partitions, &rpc.PartitionSum{
			Partition: int32(p), N: l.N, Hash: l.Hash, DeadN: l.DeadN, DeadHash: l.DeadHash, LostOffsets: l.Lost,
			Applied: offsetSet(int32(p), starts[int32(p)], &l.applied),
		})
	}
	slices.SortFunc(out.Partitions, func(a, b *rpc.PartitionSum) int { return cmp.Compare(a.Partition, b.Partition) })
	return out
}

// Metrics are the server's counters since its process started, and its sizes now. What it has trained is what each of its tablets has: the least of them.
func (s *Server) Metrics() *rpc.ServerMetrics {
	m := &rpc.ServerMetrics{
		Pushes: s.pushes.Load(), Pulls: s.pulls.Load(),
		DuplicateTabletPushes: s.duplicates.Load(), PartialTabletPushes: s.partials.Load(),
	}
	m.RestoredUnixMs, m.Fallbacks = s.restored, s.fallbacks
	if last := s.last.Load(); last != nil {
		m.LastSnapshotUnixMs, m.SnapshotSeconds, m.SnapshotError = last.doneUnixMs, last.seconds, last.err
	}
	for i, t := range s.tablets {
		var trained, dead, lost uint64
		t.mu.RLock()
		m.Rows += uint64(len(t.rows.ids))
		m.MemoryBytes += t.rows.bytes() + t.counts.bytes() + 4*uint64(len(t.dense.v))
		for _, l := range t.ledgers {
			trained, dead, lost = trained+l.N, dead+l.DeadN, lost+l.Lost
		}
		t.mu.RUnlock()
		if i == 0 || trained+dead < m.TrainedRecords+m.DeadRecords { // one restored from an older snapshot lacks what the others have
			m.TrainedRecords, m.DeadRecords, m.LostOffsets = trained, dead, lost
		}
	}
	return m
}
