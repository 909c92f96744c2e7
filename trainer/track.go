package trainer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// readThrough is how many offsets that are not wanted are read over, to the next span that is, before it is cheaper to ask for that one: about what one fetch
// brings anyway, while asking takes a round trip or two, and after a server was rolled back there may be hundreds of short spans.
const readThrough = 4096

// track reads one partition again: its spans to read, the lowest first, each in chunks of its own. It is pure; whoever fetches hands it the records, in order and
// without gaps from where it was told to begin.
type track struct {
	partition int32
	entry     uint64 // whose span is read, 0: none
	end       int64  // of the span
	chunk     *chunker
	rest      []fetched     // what was fetched and is in no chunk, in order
	from      int64         // all that was fetched at or above it is in rest
	at        int64         // all below it was fetched, as far as it was asked for
	quiet     time.Duration // for how long polls have brought nothing; while nobody polls, because there is no room, nothing can arrive
	failed    error         // why nothing more will come
}

// fetched is a record as it came.
type fetched struct {
	record
	control bool
}

// aim makes the track read a span, and says whether its client must begin to fetch at the span's begin for that, instead of going on.
func (t *track) aim(e entry, chunkSize int64) (seek bool) {
	if t.entry == e.id {
		return false
	}
	seek = t.chunk == nil || e.begin < t.from || e.begin > t.at+readThrough
	t.entry, t.end, t.chunk, t.quiet = e.id, e.end, newChunker(e.partition, chunkSize, e.begin), 0
	if seek {
		t.rest, t.from, t.at = nil, e.begin, e.begin
	}
	return seek
}

// take keeps what arrived.
func (t *track) take(rs []fetched) {
	for _, r := range rs {
		if r.offset >= t.at {
			t.rest, t.at, t.quiet = append(t.rest, r), r.offset+1, 0
		}
	}
}

// cut makes chunks of what is there of the span. What lies behind it stays for the next one.
func (t *track) cut(now time.Time) {
	for len(t.rest) > 0 && t.chunk.next < t.end {
		r := t.rest[0]
		t.chunk.addUpTo(r.record, r.control, t.end, now)
		if r.offset >= t.end {
			return
		}
		t.rest, t.from = t.rest[1:], r.offset+1
	}
}

// fail gives up the rest of the span. What was read before it counts.
func (t *track) fail(why error) {
	t.failed = why
	t.chunk.cutTail()
}

// wait counts for how long a poll has lasted, and fails the tracks to which none has brought anything for long. While no broker answers at all that says nothing of a
// partition, and is told by itself.
func (ts *tracks) wait(lasted time.Duration, silent bool) {
	for _, t := range ts.by {
		if t.quiet += lasted; silent {
			t.quiet = 0
		}
		if t.failed == nil && t.quiet > 3*repairAgain {
			t.fail(fmt.Errorf("no record at or above offset %d arrives, though the span to repair ends at %d", t.needed(), t.end))
		}
	}
}

// needed is the first offset that has yet to arrive.
func (t *track) needed() int64 { return max(t.at, t.chunk.seen) }

// age orders tracks by what they have ready: whose first record is the oldest goes first, since that is what everybody waits for. Holes have no age, and take no room.
func (t *track) age() int64 {
	if rs := t.chunk.ready[0].records; len(rs) > 0 {
		return rs[0].timestampMS
	}
	return 0
}

// addUpTo is add for a finite span: it ends the last chunk at end exactly.
func (k *chunker) addUpTo(r record, control bool, end int64, now time.Time) {
	if k.next >= end {
		return
	}
	if r.offset < end {
		k.add(r, control, now)
	}
	if (r.offset >= end || k.seen >= end) && k.next < end {
		k.cut(end) // holes may reach up to it, over an edge or two
	}
}

// tracks are the partitions that are read again, all at once: none waits until another one is done.
type tracks struct {
	chunkSize int64
	by        map[int32]*track
}

// aim makes them read the lowest wanted span of each partition. It returns where to begin to fetch, and what not to fetch any more.
func (ts *tracks) aim(wanted []entry) (seek map[int32]int64, drop []int32) {
	seek = map[int32]int64{}
	keep := map[int32]bool{}
	for _, e := range wanted {
		keep[e.partition] = true
		t := ts.by[e.partition]
		if t == nil {
			t = &track{partition: e.partition}
			ts.by[e.partition] = t
		}
		if t.failed == nil && t.aim(e, ts.chunkSize) {
			seek[e.partition] = e.begin
		}
	}
	for _, p := range slices.Sorted(maps.Keys(ts.by)) {
		if !keep[p] {
			drop = append(drop, p)
			delete(ts.by, p)
		}
	}
	return seek, drop
}

// ready is the track whose next chunk is to be placed first, nil when none has one.
func (ts *tracks) ready() *track {
	var first *track
	for _, t := range ts.by {
		if len(t.chunk.ready) > 0 && (first == nil || cmp.Or(cmp.Compare(t.age(), first.age()), cmp.Compare(t.partition, first.partition)) < 0) {
			first = t
		}
	}
	return first
}
