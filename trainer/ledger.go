package trainer

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// spanState is where a span that this worker answers for is.
type spanState uint8

const (
	// toRead: granted for repair, or lost by a server, and not fetched yet.
	toRead spanState = iota
	// queued: in the local queue, in a batch, or in a push.
	queued
	// forwarded: with a peer, which answers for it too once it has accepted it.
	forwarded
	// pushed: every server has acknowledged it; the chief has not confirmed it.
	pushed
	// halted: its first record cannot be decoded, and has no place to go to (see halt), or has no gradient that could be pushed (see gradients). It is not touched
	// until it has a place, or by this worker not at all.
	halted
)

// entry is one span that this worker answers for.
type entry struct {
	id         uint64
	partition  int32
	begin, end int64
	state      spanState
	// from is the peer's stream that brought it, and remote the peer's number of it; that peer answers for it too. Nil: our own.
	from   *inbound
	remote uint64
	// trained: the peer that has it says that it has nothing more to do about it.
	trained bool
	// since is when the last work on it was done, by us (pushed) or by a peer (trained): from then on only the chief's word is missing.
	since time.Time
	// why a halted span is, and whether for its gradient.
	why      string
	gradient bool
}

// awaiting says that the span only waits to be confirmed.
func (e *entry) awaiting() bool { return e.state == pushed || e.state == forwarded && e.trained }

// ledger is the list of everything that this worker answers for (EXACTLY_ONCE rules 10 and 12). A span enters when the position moves past it,
// a grant asks for it to be repaired, or a peer's chunk is accepted; it leaves only when the chief's applied set covers it, when it is handed
// back to the chief, or when the session is lost. Guarded by worker.mu.
type ledger struct {
	last    uint64
	entries map[uint64]*entry
	// applied is the newest confirmed progress per partition.
	applied map[int32]*rpc.OffsetSet
}

func newLedger() *ledger {
	return &ledger{entries: map[uint64]*entry{}, applied: map[int32]*rpc.OffsetSet{}}
}

// newID hands out the number of a chunk, which is also that of its entry.
func (l *ledger) newID() uint64 {
	l.last++
	return l.last
}

// add registers a chunk's span.
func (l *ledger) add(c *chunk, state spanState) *entry {
	e := &entry{id: c.id, partition: c.partition, begin: c.begin, end: c.end, state: state, from: c.from, remote: c.remote}
	l.entries[e.id] = e
	return e
}

// want registers a span that is to be read from the topic.
func (l *ledger) want(partition int32, begin, end int64) *entry {
	e := &entry{id: l.newID(), partition: partition, begin: begin, end: end, state: toRead}
	l.entries[e.id] = e
	return e
}

func (l *ledger) state(id uint64) (spanState, bool) {
	e := l.entries[id]
	if e == nil {
		return 0, false
	}
	return e.state, true
}

// place notes that a span is in the local queue, or with a peer, unless it was forgotten.
func (l *ledger) place(id uint64, s spanState) {
	if e := l.entries[id]; e != nil {
		e.state, e.trained = s, false
	}
}

// push notes that every server has acknowledged a span.
func (l *ledger) push(id uint64, now time.Time) {
	if e := l.entries[id]; e != nil {
		e.state, e.since = pushed, now
	}
}

// hear notes that the peer that has a span is done with it. That is a hint (rule 10).
func (l *ledger) hear(id uint64, now time.Time) {
	if e := l.entries[id]; e != nil && e.state == forwarded && !e.trained {
		e.trained, e.since = true, now
	}
}

func (l *ledger) remove(id uint64) { delete(l.entries, id) }

// confirm takes in what is applied everywhere, and returns the entries that are thereby done. Spans to be read are trimmed.
func (l *ledger) confirm(applied []*rpc.OffsetSet) []*entry {
	sets := make(map[int32]*spans.Set, len(applied))
	for _, o := range applied {
		l.applied[o.GetPartition()] = o
		sets[o.GetPartition()] = offsetSet(o)
	}
	var done []*entry
	for _, e := range l.entries {
		s := sets[e.partition]
		if s == nil {
			continue
		}
		if s.Covers(e.begin, e.end) {
			done = append(done, e)
			delete(l.entries, e.id)
		} else if e.state == toRead {
			e.begin = s.Missing(e.begin, e.end)[0].Begin
		}
	}
	slices.SortFunc(done, byID)
	return done
}

// offsetSet turns what the chief says into a set. Everything below the watermark counts as applied: what lies below the pinned start is
// nobody's business.
func offsetSet(o *rpc.OffsetSet) *spans.Set {
	var s spans.Set
	s.Add(0, o.GetWatermark())
	for _, a := range o.GetAbove() {
		s.Add(a.GetBegin(), a.GetEnd())
	}
	return &s
}

// covered says whether the newest confirmed progress holds the whole span.
func (l *ledger) covered(partition int32, begin, end int64) bool {
	o := l.applied[partition]
	return o != nil && offsetSet(o).Covers(begin, end)
}

// watermark is the confirmed watermark of a partition, or floor before the first confirmation.
func (l *ledger) watermark(partition int32, floor int64) int64 {
	if o := l.applied[partition]; o != nil {
		return o.GetWatermark()
	}
	return floor
}

// outstanding lists, coalesced and sorted, every span that this worker answers for.
func (l *ledger) outstanding() []*rpc.Span {
	sets := map[int32]*spans.Set{}
	for _, e := range l.entries {
		s := sets[e.partition]
		if s == nil {
			s = &spans.Set{}
			sets[e.partition] = s
		}
		s.Add(e.begin, e.end)
	}
	var out []*rpc.Span
	for p, s := range sets {
		for _, sp := range s.Spans() {
			out = append(out, &rpc.Span{Partition: p, Begin: sp.Begin, End: sp.End})
		}
	}
	slices.SortFunc(out, func(a, b *rpc.Span) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Begin, b.Begin))
	})
	return out
}

// partitions lists the partitions of all entries, sorted: those whose progress is of interest.
func (l *ledger) partitions() []int32 {
	var out []int32
	for _, e := range l.entries {
		out = append(out, e.partition)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// inState lists the entries in one of the states, oldest first.
func (l *ledger) inState(states ...spanState) []*entry {
	var out []*entry
	for _, e := range l.entries {
		if slices.Contains(states, e.state) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, byID)
	return out
}

// readAgain turns spans that only wait for the chief's word, and for which doubt says so, into spans to read, coalesced with those that wait to be
// read anyway. It returns the entries that are gone for it.
func (l *ledger) readAgain(doubt func(*entry) bool) []*entry {
	var gone []*entry
	sets := map[int32]*spans.Set{}
	for _, e := range l.entries {
		if !e.awaiting() || !doubt(e) {
			continue
		}
		gone = append(gone, e)
		delete(l.entries, e.id)
		if sets[e.partition] == nil {
			sets[e.partition] = &spans.Set{}
		}
		sets[e.partition].Add(e.begin, e.end)
	}
	for _, e := range l.inState(toRead) {
		if s := sets[e.partition]; s != nil {
			s.Add(e.begin, e.end)
			delete(l.entries, e.id)
		}
	}
	for p, s := range sets {
		for _, sp := range s.Spans() {
			l.want(p, sp.Begin, sp.End)
		}
	}
	slices.SortFunc(gone, byID)
	return gone
}

// reads lists the lowest span of each partition that waits to be read, by partition, skipping partitions for which skip is true.
func (l *ledger) reads(skip func(partition int32) bool) []entry {
	lowest := map[int32]*entry{}
	for _, e := range l.entries {
		if e.state != toRead || skip(e.partition) {
			continue
		}
		if old := lowest[e.partition]; old == nil || e.begin < old.begin {
			lowest[e.partition] = e
		}
	}
	out := make([]entry, 0, len(lowest))
	for _, p := range slices.Sorted(maps.Keys(lowest)) {
		out = append(out, *lowest[p])
	}
	return out
}

// haltedAt is the lowest halted span of a partition, nil without one.
func (l *ledger) haltedAt(partition int32) *entry {
	var first *entry
	for _, e := range l.entries {
		if e.state == halted && e.partition == partition && (first == nil || e.begin < first.begin) {
			first = e
		}
	}
	return first
}

func (l *ledger) len() int { return len(l.entries) }

func byID(a, b *entry) int { return cmp.Compare(a.id, b.id) }
