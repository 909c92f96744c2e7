package trainer

import (
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// record is one record of the stream. A control record is no record: it only moves the end of a chunk.
type record struct {
	offset int64
	// timestampMS is the broker's or producer's time, Unix milliseconds; lag is measured against it.
	timestampMS int64
	value       []byte
}

// chunk is a contiguous span of one partition with the records in it: the unit of queues, forwarding and progress.
type chunk struct {
	// id is this worker's number of the chunk: its key in ledger and shuffle unit.
	id         uint64
	partition  int32
	begin, end int64
	records    []record
	// replay marks records that may have been validated before: they are left out of AUC (rule 22).
	replay bool
	// lost marks a span that was given up: it is pushed without records, and its offsets are counted as lost (rule 16).
	lost bool

	// from is the peer's stream that sent the chunk, nil for one of our own; remote is the peer's number of it.
	from   *inbound
	remote uint64
}

func (c *chunk) span() *rpc.Span {
	return &rpc.Span{Partition: c.partition, Begin: c.begin, End: c.end}
}

// chunker cuts one partition's records into chunks: [end of the one before, last offset + 1), holes included (rule 15), with edges at
// multiples of size, tails excepted (rule 7). It is pure; the caller passes the time.
type chunker struct {
	partition int32
	size      int64
	// next is the first offset that is in no chunk yet; seen is one more than the last offset that was fetched.
	next, seen int64
	pending    []record
	ready      []*chunk
	// since is when the first uncut offset arrived; zero when nothing is uncut.
	since time.Time
}

func newChunker(partition int32, size, position int64) *chunker {
	return &chunker{partition: partition, size: max(size, 1), next: position, seen: position}
}

// edge is the first multiple of size above offset o.
func (k *chunker) edge(o int64) int64 { return (o/k.size + 1) * k.size }

// add takes the next record in order. control says that it is a control record. Offsets below what was seen are duplicates of the
// fetch protocol and are ignored.
func (k *chunker) add(r record, control bool, now time.Time) {
	if r.offset < k.seen {
		return
	}
	if k.edge(k.next) <= r.offset {
		// Everything up to the last edge at or below the record is known now: records that are pending, and holes.
		k.cut(r.offset / k.size * k.size)
	}
	if !control {
		k.pending = append(k.pending, r)
	}
	k.seen = r.offset + 1
	if k.since.IsZero() {
		k.since = now
	}
	if k.seen == k.edge(k.next) {
		k.cut(k.seen)
	}
}

// cut ends the chunk that is being filled at end.
func (k *chunker) cut(end int64) {
	k.ready = append(k.ready, &chunk{partition: k.partition, begin: k.next, end: end, records: k.pending})
	k.next, k.pending, k.since = end, nil, time.Time{}
	k.seen = max(k.seen, end)
}

// cutTail ends the unfinished chunk where the stream has got to, so that low traffic is not delayed.
func (k *chunker) cutTail() {
	if k.seen > k.next {
		k.cut(k.seen)
	}
}

// position is the first offset that has not been taken out of the chunker.
func (k *chunker) position() int64 {
	if len(k.ready) > 0 {
		return k.ready[0].begin
	}
	return k.next
}

// buffered is the number of records that are fetched and not taken out.
func (k *chunker) buffered() int {
	n := len(k.pending)
	for _, c := range k.ready {
		n += len(c.records)
	}
	return n
}
