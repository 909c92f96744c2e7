package chief

import (
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// server is what one parameter server has reported last.
type server struct {
	info    *rpc.ServerInfo
	seen    time.Time
	seq     uint64
	applied map[int32]*spans.Set
	touched map[int32]int64 // highest touched end
	durable map[int32]int64
	metrics *rpc.ServerMetrics
	snap    uint64
}

// progressKnown says whether every server has reported to this chief: before that nothing is confirmed and nothing is granted.
func (m *machine) progressKnown() bool {
	for _, s := range m.servers {
		if s == nil {
			return false
		}
	}
	return len(m.servers) > 0
}

// serverBeat takes in a server's progress. A report of an older incarnation than the known one is fenced.
func (m *machine) serverBeat(now time.Time, req *rpc.ServerBeatRequest) (*rpc.ServerDirective, error) {
	i := int(req.GetIndex())
	if i < 0 || i >= len(m.servers) {
		return nil, fmt.Errorf("server beat: index %d, the job has servers 0 to %d", i, len(m.servers)-1)
	}
	inc := req.GetFence().GetServer()
	s := m.servers[i]
	if s != nil && inc < s.info.GetIncarnation() {
		return &rpc.ServerDirective{Fence: m.fence(), Fenced: true}, nil
	}
	before := map[int32]*spans.Set(nil)
	fresh := false
	if s == nil || inc > s.info.GetIncarnation() {
		before = m.before
		if s != nil {
			before = m.owed(i, s)
		}
		for _, p := range m.partitions { // what was applied everywhere may not be any more
			m.before[p.id] = spans.Union(orEmpty(m.before[p.id]), p.applied)
		}
		s, fresh = &server{}, true
		m.servers[i] = s
	}
	if req.GetSeq() >= s.seq {
		s.seq, s.seen = req.GetSeq(), now
		s.info = &rpc.ServerInfo{Index: req.GetIndex(), Address: req.GetAddress(), Incarnation: inc, Up: true}
		s.metrics, s.snap = req.GetMetrics(), req.GetSnapshotDone()
		s.applied = map[int32]*spans.Set{}
		for _, o := range req.GetApplied() {
			s.applied[o.GetPartition()] = setOf(o, m.startOf(o.GetPartition()))
		}
		s.touched = map[int32]int64{}
		for _, o := range req.GetTouched() {
			end := o.GetWatermark()
			for _, sp := range o.GetAbove() {
				end = max(end, sp.GetEnd())
			}
			s.touched[o.GetPartition()] = end
		}
		s.durable = map[int32]int64{}
		for _, o := range req.GetDurable() {
			s.durable[o.GetPartition()] = o.GetWatermark()
		}
		if fresh && len(s.metrics.GetFallbacks()) > 0 && m.rollbackOf(i) == nil {
			m.addRollback(now, i)
		}
		m.holdAgainst(now, i, before)
		m.settleRollbacks(now)
		m.updateProgress(now)
	}
	d := &rpc.ServerDirective{Fence: m.fence(), SnapshotRequest: m.snapshotReq, NextBeatMs: m.opt.Beat.Milliseconds() / 2}
	for _, p := range m.sorted() {
		d.Starts = append(d.Starts, &rpc.OffsetSet{Partition: p.id, Watermark: p.start})
	}
	return d, nil
}

func (m *machine) startOf(p int32) int64 {
	if q := m.partitions[p]; q != nil {
		return q.start
	}
	return 0
}

// updateProgress recomputes each partition's applied set as the intersection over servers and logs what advanced.
func (m *machine) updateProgress(now time.Time) {
	if !m.progressKnown() {
		return
	}
	for _, p := range m.sorted() {
		applied := orEmpty(m.servers[0].applied[p.id]).Clone()
		durable, frontier := int64(-1), p.start
		for i, s := range m.servers {
			if i > 0 {
				applied = spans.Intersect(applied, orEmpty(s.applied[p.id]))
			}
			d, ok := s.durable[p.id]
			if !ok {
				d = p.start
			}
			if durable < 0 || d < durable {
				durable = d
			}
			frontier = max(frontier, s.touched[p.id])
		}
		offsets := applied.Size()
		if offsets != p.offsets {
			p.advanced = now
		}
		p.applied, p.watermark = applied, applied.Watermark(p.start)
		p.durable, p.frontier = durable, frontier
		p.position = max(p.position, frontier)
		if offsets > p.offsets {
			m.log.add(&rpc.Advance{UnixMs: now.UnixMilli(), Partition: p.id, Watermark: p.watermark, AppliedOffsets: offsets, End: p.end})
		}
		p.offsets = offsets
	}
}

func (m *machine) serverInfos() []*rpc.ServerInfo {
	out := make([]*rpc.ServerInfo, 0, len(m.servers))
	for i, s := range m.servers {
		if s == nil {
			out = append(out, &rpc.ServerInfo{Index: int32(i)})
			continue
		}
		out = append(out, &rpc.ServerInfo{Index: s.info.Index, Address: s.info.Address, Incarnation: s.info.Incarnation, Up: s.info.Up})
	}
	return out
}

func bySpans(in []*rpc.Span) map[int32]*spans.Set {
	out := map[int32]*spans.Set{}
	for _, sp := range in {
		if sp.GetEnd() <= sp.GetBegin() {
			continue
		}
		s := out[sp.GetPartition()]
		if s == nil {
			s = spans.Of()
			out[sp.GetPartition()] = s
		}
		s.Add(sp.GetBegin(), sp.GetEnd())
	}
	return out
}

// setOf turns a wire set into a span set with its floor: [start, watermark) and the spans above.
func setOf(o *rpc.OffsetSet, start int64) *spans.Set {
	s := spans.Of()
	if o.GetWatermark() > start {
		s.Add(start, o.GetWatermark())
	}
	for _, sp := range o.GetAbove() {
		if sp.GetEnd() > sp.GetBegin() {
			s.Add(sp.GetBegin(), sp.GetEnd())
		}
	}
	return s
}

func orEmpty(s *spans.Set) *spans.Set {
	if s == nil {
		return spans.Of()
	}
	return s
}
