package chief

import (
	"github.com/kale-sched/kale/core/rpc"
)

// newlyCutOff are the offsets which workers say that they had read before the end of the log was cut off below them, as far as that is not known yet. Where a worker
// looked after some more had been written, an end that was seen lower is nearer to where the cut was.
func (m *machine) newlyCutOff() (out []*rpc.Span) {
	for _, w := range m.sortedMembers() {
		for _, pr := range w.problems {
			p := m.partitions[pr.GetPartition()]
			if p == nil || pr.GetKind() != rpc.PartitionProblem_KIND_TRUNCATED || pr.GetLogStart() < 0 {
				continue
			}
			begin, end := pr.GetLogStart(), pr.GetNeeded()
			if p.end >= 0 {
				begin = min(begin, p.end)
			}
			if begin = max(begin, p.start); begin < end && !p.cutOff.Covers(pr.GetLogStart(), end) {
				out = append(out, &rpc.Span{Partition: p.id, Begin: begin, End: end})
			}
		}
	}
	return out
}

// keepCutOff takes in offsets that were read before the end of the log was cut off below them.
func (m *machine) keepCutOff(sps []*rpc.Span) {
	for _, sp := range sps {
		if p := m.partitions[sp.GetPartition()]; p != nil {
			p.cutOff.Add(sp.GetBegin(), sp.GetEnd())
		}
	}
}

// cutOff are all such offsets, by partition.
func (m *machine) cutOff() (out []*rpc.Span) {
	for _, p := range m.sorted() {
		for _, sp := range p.cutOff.Spans() {
			out = append(out, &rpc.Span{Partition: p.id, Begin: sp.Begin, End: sp.End})
		}
	}
	return out
}

// keepCutOff makes durable that the end of the log was cut off, before it counts: an audit, and later chiefs, cannot learn of it from the log once that has grown again.
// What could not be saved is tried again with the next look.
func (w *watcher) keepCutOff() {
	w.c.mu.Lock()
	found, keep := w.c.m.newlyCutOff(), w.c.m.opt.KeepCutOff
	w.c.mu.Unlock()
	if len(found) == 0 {
		return
	}
	if keep != nil {
		if err := keep(found); err != nil {
			if !w.unkept {
				w.c.lg.Warn("that the end of the log was cut off cannot be written down; trying again", "err", err)
			}
			w.unkept = true
			return
		}
	}
	w.unkept = false
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.m.keepCutOff(found)
	for _, sp := range found {
		w.c.lg.Warn("the end of the log was cut off; what is written there now, up to where it was read before, is not trained", "topic", w.o.Topic, "partition", sp.GetPartition(),
			"log_end", sp.GetBegin(), "read_to", sp.GetEnd())
	}
}
