package trainer

import (
	"context"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/kafka"
)

// batch is what one step trains: whole chunks, up to the nominal number of records. W floats a row, F sparse and D dense fields.
type batch struct {
	chunks []*chunk
	// recs lists the records in the tensor, in order; dead those that could not be decoded.
	recs, dead []trained
	label      []float32 // [n]
	dense      []float32 // [n,D]
	slots      []int32   // [n,F] index into ids
	ids        []uint64  // unique row ids
	full       bool
	// filled is when the last chunk went in.
	filled time.Time

	rows   []float32 // [len(ids),W] as pulled
	params []float32 // [P] as pulled
}

// trained names one record of a batch.
type trained struct {
	partition   int32
	offset      int64
	timestampMS int64
	hash        uint64
	replay      bool
}

func (b *batch) records() int { return len(b.recs) }

// part says what of the batch lies in one span: the records that are really in the tensor, and those that were set aside (rules 18 and 19).
func (b *batch) part(partition int32, begin, end int64) *rpc.RangePart {
	p := &rpc.RangePart{Span: &rpc.Span{Partition: partition, Begin: begin, End: end}}
	for _, r := range b.recs {
		if r.within(partition, begin, end) {
			p.N++
			p.Hash += r.hash
		}
	}
	for _, r := range b.dead {
		if r.within(partition, begin, end) {
			p.DeadN++
			p.DeadHash += r.hash
		}
	}
	for _, c := range b.chunks {
		if c.lost && c.partition == partition {
			p.LostOffsets += uint64(max(0, min(end, c.end)-max(begin, c.begin)))
		}
	}
	return p
}

func (r trained) within(partition int32, begin, end int64) bool {
	return r.partition == partition && begin <= r.offset && r.offset < end
}

// parts is part for each chunk.
func (b *batch) parts() []*rpc.RangePart {
	out := make([]*rpc.RangePart, 0, len(b.chunks))
	recs, dead := b.recs, b.dead
	for _, c := range b.chunks {
		// The records lie in the order of the chunks: each chunk takes its own from the front.
		own := batch{chunks: []*chunk{c}}
		for own.recs = recs; len(recs) > 0 && recs[0].within(c.partition, c.begin, c.end); {
			recs = recs[1:]
		}
		own.recs = own.recs[:len(own.recs)-len(recs)]
		for own.dead = dead; len(dead) > 0 && dead[0].within(c.partition, c.begin, c.end); {
			dead = dead[1:]
		}
		own.dead = own.dead[:len(own.dead)-len(dead)]
		out = append(out, own.part(c.partition, c.begin, c.end))
	}
	return out
}

// indexesIn lists which records of the tensor lie in the spans.
func (b *batch) indexesIn(spans []*rpc.Span) []int {
	var out []int
	for i, r := range b.recs {
		if slices.ContainsFunc(spans, func(s *rpc.Span) bool { return r.within(s.GetPartition(), s.GetBegin(), s.GetEnd()) }) {
			out = append(out, i)
		}
	}
	return out
}

// feeder makes batches: it takes chunks from the local queue, decodes them, and pulls the rows, while the step before is under way.
type feeder struct {
	w    *worker
	held *chunk // taken, and did not fit into the batch before
	ex   Example
	// index finds a row id's place in a batch's ids.
	index map[uint64]int32
	// absent counts, of one chunk, in how many records each field is absent.
	absent []uint64
	pulls  time.Duration // moving average of one pull
}

// run makes batches until ctx ends, then closes out.
func (f *feeder) run(ctx context.Context, out chan<- *batch) {
	defer close(out)
	for {
		b := f.assemble(ctx)
		if b == nil {
			return
		}
		if b.records() > 0 && f.w.engine != nil {
			// Weights that are pulled late are fresh: the pull is timed to end when the step before does.
			if wait := f.untilPull(); wait > 0 {
				sleep(ctx, wait)
			}
			began := time.Now()
			if !f.w.pull(ctx, b) {
				return
			}
			f.pulls += (time.Since(began) - f.pulls) / 8
		}
		select {
		case out <- b:
		case <-ctx.Done():
			return
		}
	}
}

// untilPull is how long the accelerator will be busy yet, less what a pull takes and some slack for its jitter: a tenth of a step, which
// keeps the accelerator from waiting on a busy machine (measured: 5 ms of waiting per step of 80 ms without it, at a load of 6 per core).
func (f *feeder) untilPull() time.Duration {
	left, step := f.w.metrics.stepLeft(time.Now())
	return left - step/10 - 2*f.pulls - 2*time.Millisecond
}

// assemble fills one batch; it returns nil when ctx has ended. A batch that is not full waits for more until the linger is over, and for as
// long as the accelerator is busy anyway; in a worker that drains it waits for nothing.
func (f *feeder) assemble(ctx context.Context) *batch {
	b := &batch{}
	clear(f.index)
	var first time.Time // when the batch got its first chunk
	for {
		if c := f.next(); c != nil {
			if !f.fits(b, c) {
				f.held, b.full = c, len(b.recs) > 0 && len(b.recs)+len(c.records) > f.w.batchSize
				return b
			}
			if err := f.add(ctx, b, c); err != nil {
				return nil // only because ctx ended
			}
			b.filled = time.Now()
			if first.IsZero() && len(b.chunks) > 0 {
				first = b.filled
			}
			if b.full = len(b.recs) >= f.w.batchSize; b.full {
				return b
			}
			continue
		}
		wait := time.Hour
		if !first.IsZero() {
			if wait = max(f.w.linger/2-time.Since(first), f.untilPull()); wait <= 0 || f.w.drains() {
				return b
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		case <-f.w.feedWake:
			t.Stop()
		}
	}
}

// fits says whether a chunk may join the batch: it has room, and holds none of the chunk's offsets, which a span that was read again, or
// came from a peer, may bring twice.
func (f *feeder) fits(b *batch, c *chunk) bool {
	if len(b.recs) > 0 && len(b.recs)+len(c.records) > f.w.batchSize {
		return false
	}
	return !slices.ContainsFunc(b.chunks, func(o *chunk) bool {
		return o.partition == c.partition && o.begin < c.end && c.begin < o.end
	})
}

// next takes the next chunk that is still wanted.
func (f *feeder) next() *chunk {
	if c := f.held; c != nil {
		f.held = nil
		return c
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	for {
		q, ok := f.w.unit.Take()
		if !ok {
			return nil
		}
		f.w.roomMade()
		if _, wanted := f.w.ledger.state(q.ID); wanted {
			return q.Body
		}
	}
}

// add decodes a chunk into the batch. Records that cannot be decoded are in the dead-letter topic when it returns (rule 18); where there is no such
// topic, or it does not take them, the chunk is cut before the first of them, unless the job says to skip them.
func (f *feeder) add(ctx context.Context, b *batch, c *chunk) error {
	if f.w.pastHalt(c) {
		return nil
	}
	b.chunks = append(b.chunks, c)
	clear(f.absent)
	decoded := 0
	for _, r := range c.records {
		t := trained{partition: c.partition, offset: r.offset, timestampMS: r.timestampMS, replay: c.replay,
			hash: kafka.RecordHash(f.w.topic, c.partition, r.offset)}
		if f.w.decoder != nil {
			if err := f.w.decoder.Decode(r.value, &f.ex); err != nil {
				if f.w.dead.put(ctx, c, r, err) != nil {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					b.cutLast(f.w.halt(c, r, err))
					break
				}
				b.dead = append(b.dead, t)
				continue
			}
			f.take(b)
			decoded++
		}
		b.recs = append(b.recs, t)
	}
	f.w.metrics.decoded(decoded, f.absent)
	return nil
}

// take appends the decoded example to the batch's tensors.
func (f *feeder) take(b *batch) {
	b.label = append(b.label, f.ex.Label)
	b.dense = append(b.dense, f.ex.Dense...)
	if len(f.absent) != len(f.ex.Seen) {
		f.absent = make([]uint64, len(f.ex.Seen))
	}
	for i, seen := range f.ex.Seen {
		if !seen {
			f.absent[i]++
		}
	}
	for _, id := range f.ex.Sparse {
		i, ok := f.index[id]
		if !ok {
			i = int32(len(b.ids))
			f.index[id] = i
			b.ids = append(b.ids, id)
		}
		b.slots = append(b.slots, i)
	}
}
