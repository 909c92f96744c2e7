package chief

import (
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// rollback is what a parameter server had forgotten when it came back: offsets that are known to have been applied to its tablets, and are not any more. With
// fallbacks it is one too where nobody knows of such offsets.
type rollback struct {
	server      int
	incarnation uint64
	at          time.Time
	snapshotMS  int64
	done        time.Time // when none was left, or its server was replaced
	left        uint64    // what its server lacked when it reported last; at done it is part of the next one
	lost        map[int32]*spans.Set
	fallbacks   []string // rpc.ServerMetrics
	told        int      // log lines: its beginning, its end
}

// keptRollbacks is how many are remembered.
const keptRollbacks = 16

// recall holds what is known to have been applied before against what every server has now. It is asked whenever either of them changes by more than training:
// a server comes back, or a worker registers with what the chief before had confirmed to it.
//
// Evidence is never too much: within one incarnation a server's set only grows, and a confirmation to a worker was drawn from such sets.
func (m *machine) recall(now time.Time, before map[int32]*spans.Set) {
	for i, s := range m.servers {
		if s != nil {
			m.holdAgainst(now, i, before)
		}
	}
}

// holdAgainst notes what server i lacks of before.
func (m *machine) holdAgainst(now time.Time, i int, before map[int32]*spans.Set) {
	s := m.servers[i]
	r := m.rollbackOf(i)
	for p, had := range before {
		floor := spans.Of()
		if start := m.startOf(p); start > 0 {
			floor.Add(0, start) // what lies below the pinned start is nobody's business
		}
		lacks := spans.Subtract(spans.Subtract(had, floor), orEmpty(s.applied[p]))
		if lacks.Empty() {
			continue
		}
		if r == nil {
			r = m.addRollback(now, i)
		}
		r.lost[p] = spans.Union(orEmpty(r.lost[p]), lacks)
		r.done = time.Time{}
	}
}

// rollbackOf is that of the present process of server i, nil when there is none.
func (m *machine) rollbackOf(i int) *rollback {
	for _, r := range m.rollbacks {
		if r.server == i && r.incarnation == m.servers[i].info.GetIncarnation() {
			return r
		}
	}
	return nil
}

func (m *machine) addRollback(now time.Time, i int) *rollback {
	s := m.servers[i]
	r := &rollback{
		server: i, incarnation: s.info.GetIncarnation(), at: now, snapshotMS: s.metrics.GetRestoredUnixMs(), lost: map[int32]*spans.Set{}, fallbacks: s.metrics.GetFallbacks(),
	}
	m.rollbacks = append(m.rollbacks, r)
	m.rollbacks = m.rollbacks[max(0, len(m.rollbacks)-keptRollbacks):]
	return r
}

// settleRollbacks notes which ones are made good. One whose server was replaced once more is over, and not made good: what it still lacked is part of the next.
func (m *machine) settleRollbacks(now time.Time) {
	for _, r := range m.rollbacks {
		s := m.servers[r.server]
		switch {
		case !r.done.IsZero() || s == nil:
		case s.info.GetIncarnation() > r.incarnation:
			r.done = now
		default:
			if r.left = m.remaining(r); r.left == 0 {
				r.done = now
			}
		}
	}
}

// remaining is how many offsets of a rollback its server still lacks, or lacked when it was replaced; all while it has not reported to this chief.
func (m *machine) remaining(r *rollback) (n uint64) {
	s := m.servers[r.server]
	switch {
	case !r.done.IsZero():
		return r.left
	case s == nil || s.info.GetIncarnation() != r.incarnation:
		return r.offsets()
	}
	for p, lost := range r.lost {
		n += uint64(spans.Subtract(lost, orEmpty(s.applied[p])).Size())
	}
	return n
}

// owed is everything that a server had, or that it was still to get back, when it was replaced.
func (m *machine) owed(i int, s *server) map[int32]*spans.Set {
	out := map[int32]*spans.Set{}
	for p, set := range s.applied {
		out[p] = set
	}
	for _, r := range m.rollbacks {
		if r.server != i || r.incarnation != s.info.GetIncarnation() {
			continue
		}
		for p, lost := range r.lost {
			out[p] = spans.Union(orEmpty(out[p]), lost)
		}
	}
	return out
}

// offsets are how many were lost.
func (r *rollback) offsets() (n uint64) {
	for _, lost := range r.lost {
		n += uint64(lost.Size())
	}
	return n
}

func (m *machine) rollbackStatus() []*rpc.Rollback {
	var out []*rpc.Rollback
	for _, r := range m.rollbacks {
		out = append(out, &rpc.Rollback{
			Server: int32(r.server), Incarnation: r.incarnation, UnixMs: r.at.UnixMilli(), SnapshotUnixMs: r.snapshotMS,
			Offsets: r.offsets(), Remaining: m.remaining(r), DoneUnixMs: unixMS(r.done), Fallbacks: r.fallbacks,
		})
	}
	return out
}

// evidence is what every server is known to have applied, now or before this chief, for the next one: workers may end together with it.
func (m *machine) evidence() []*rpc.OffsetSet {
	var out []*rpc.OffsetSet
	for _, p := range m.sorted() {
		had := spans.Union(orEmpty(m.before[p.id]), p.applied)
		out = append(out, offsetSet(p.id, had.Watermark(p.start), had))
	}
	return out
}

func (m *machine) keptRollbacks() []*rpc.KeptRollback {
	var out []*rpc.KeptRollback
	for i, status := range m.rollbackStatus() {
		k := &rpc.KeptRollback{Rollback: status}
		for _, p := range m.sorted() {
			if lost := m.rollbacks[i].lost[p.id]; lost != nil {
				k.Lost = append(k.Lost, offsetSet(p.id, lost.Watermark(0), lost))
			}
		}
		out = append(out, k)
	}
	return out
}

// rememberRollbacks takes in those that the chief before knew, which have been told of.
func (m *machine) rememberRollbacks(kept []*rpc.KeptRollback) {
	for _, k := range kept {
		b := k.GetRollback()
		if i := int(b.GetServer()); i < 0 || i >= len(m.servers) {
			continue
		}
		r := &rollback{
			server: int(b.GetServer()), incarnation: b.GetIncarnation(), at: time.UnixMilli(b.GetUnixMs()), snapshotMS: b.GetSnapshotUnixMs(),
			left: b.GetRemaining(), lost: confirmed(k.GetLost()), fallbacks: b.GetFallbacks(), told: 1,
		}
		if ms := b.GetDoneUnixMs(); ms > 0 {
			r.done, r.told = time.UnixMilli(ms), 2
		}
		m.rollbacks = append(m.rollbacks, r)
	}
}

// confirmed is what a chief before had confirmed, as sets.
func confirmed(list []*rpc.OffsetSet) map[int32]*spans.Set {
	out := map[int32]*spans.Set{}
	for _, o := range list {
		out[o.GetPartition()] = setOf(o, 0)
	}
	return out
}
