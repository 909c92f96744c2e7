package trainer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kale-sched/kale/core/rpc"
)

// halt stops a partition at a record that can neither be decoded nor set aside. What precedes it in its chunk is trained; the rest stays in the
// ledger and is not touched, so that its offsets are not applied. It returns the chunk's head, nil without one. A worker that leaves hands the
// rest back to the chief, as it does with what is to be read again.
//
// What other workers have already of the partition they train; beyond that the window holds them back.
func (w *worker) halt(c *chunk, r record, reason error) *chunk {
	w.lg.Error("record can neither be decoded nor set aside: its partition stops", "topic", w.topic, "partition", c.partition, "offset", r.offset,
		"bytes", len(r.value), "reason", reason, "dead_letter", w.dead.topic)
	return w.haltAt(c, r.offset, entry{why: fmt.Sprintf("topic %q: the record at offset %d cannot be decoded (%v)", w.topic, r.offset, reason)})
}

// haltAt stops a chunk's partition at an offset, for what is given, and returns the chunk's head.
func (w *worker) haltAt(c *chunk, offset int64, given entry) *chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := max(c.begin, offset)
	var head *chunk
	if at > c.begin {
		cut := *c
		cut.end, head = at, &cut
	}
	e := w.ledger.entries[c.id]
	if e == nil { // applied meanwhile, or of a session that was lost
		return head
	}
	rest := *e
	if head != nil {
		e.end = at
		rest.id, rest.from, rest.remote = w.ledger.newID(), nil, 0
	}
	rest.begin = at
	w.setAside(&rest, given)
	return head
}

// pastHalt sets a chunk aside that lies behind where its partition stands still, and says whether it does.
func (w *worker) pastHalt(c *chunk) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.halts {
		return false
	}
	at, e := w.ledger.haltedAt(c.partition), w.ledger.entries[c.id]
	if at == nil || e == nil || c.lost || c.begin < at.begin {
		return false
	}
	rest := *e
	w.setAside(&rest, *at)
	return true
}

// setAside makes a halted entry of e, for what is given, and stops its partition's lease. Caller holds mu.
func (w *worker) setAside(e *entry, given entry) {
	if e.from != nil { // nothing more is done about it here: should we go, its origin reads it again
		e.from.tellTrained(e.remote)
	}
	switch {
	case w.draining:
		w.ledger.remove(e.id)
	case !given.gradient && !w.dead.shut(): // there is a place since the record was decoded
		e.state, e.from, e.remote = toRead, nil, 0
		w.ledger.entries[e.id] = e
		w.repairWake.set()
		return
	default:
		e.state, e.why, e.gradient, e.from, e.remote = halted, given.why, given.gradient, nil, 0
		w.ledger.entries[e.id], w.halts = e, true
	}
	if l := w.leases[e.partition]; l != nil && !l.released && !l.stopped {
		l.stopped, l.halted = true, true
	}
	w.sourceWake.wake()
	w.beatNow.set()
}

// skipPolicy is what goes on without a record that cannot be trained.
const skipPolicy = "skip"

// takePolicy takes in what becomes of records that cannot be decoded; what stands still at one is read again when they are skipped. Caller holds mu.
func (w *worker) takePolicy(onUndecodable string) {
	skips := onUndecodable == skipPolicy
	if onUndecodable == "" || skips == w.skips {
		return
	}
	w.skips = skips
	w.lg.Info("records that cannot be decoded and have no dead-letter topic", "on_undecodable", onUndecodable)
	if skips {
		w.release()
	}
}

// release has all read again that stands still at a record which cannot be decoded. Caller holds mu.
func (w *worker) release() {
	for _, e := range w.ledger.inState(halted) {
		if !e.gradient {
			e.state, e.why = toRead, ""
			w.repairWake.set()
		}
	}
	w.unhalt()
}

// unhalt lets partitions go on of which nothing stands still any more. Caller holds mu.
func (w *worker) unhalt() {
	for p, l := range w.leases {
		if l.halted && w.ledger.haltedAt(p) == nil {
			l.stopped, l.halted = false, false
		}
	}
}

// haltProblems tells of each partition that stands still at a record. Caller holds mu.
func (w *worker) haltProblems() []*rpc.PartitionProblem {
	if !w.halts {
		return nil
	}
	first := map[int32]*entry{}
	for _, e := range w.ledger.inState(halted) {
		if f := first[e.partition]; f == nil || e.begin < f.begin {
			first[e.partition] = e
		}
	}
	var out []*rpc.PartitionProblem
	for _, p := range slices.Sorted(maps.Keys(first)) {
		problem := &rpc.PartitionProblem{Partition: p, Kind: rpc.PartitionProblem_KIND_UNDECODABLE, Needed: first[p].begin, LogStart: -1, Detail: first[p].why}
		switch {
		case first[p].gradient:
			problem.Kind = rpc.PartitionProblem_KIND_GRADIENT
		case w.dead.topic != "":
			problem.Kind, problem.Detail = rpc.PartitionProblem_KIND_DEAD_LETTER, first[p].why+", and "+w.dead.trouble
		}
		out = append(out, problem)
	}
	return out
}

// cutLast replaces the batch's last chunk by its head; nil: by nothing.
func (b *batch) cutLast(head *chunk) {
	last := len(b.chunks) - 1
	if head == nil {
		b.chunks = b.chunks[:last]
	} else {
		b.chunks[last] = head
	}
}
