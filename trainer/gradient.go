package trainer

import (
	"fmt"
	"sort"

	"github.com/kale-sched/kale/trainer/ps"
)

// gradients computes a batch's gradients. Where they are such as no parameter server takes (NaN, or beyond ps.MaxGradient), the records at fault are looked for, in
// the order of the batch: each stops its partition, as one that cannot be decoded does, and leaves the batch with what follows it in its chunk. Afterwards
// the batch holds what its gradients are of, which may be nothing.
//
// Such a record is not set aside like one that cannot be decoded: with weights that have grown too far, which is what is to be feared once values are bounded
// (MaxDense), every record is one.
func (w *worker) gradients(b *batch) (*gradients, error) {
	for {
		g, err := w.engine.compute(b, nil)
		if err != nil || !g.absurd() {
			return g, err
		}
		// The least number of records from the front whose gradient is absurd: the last of them is at fault.
		n := 1 + sort.Search(b.records()-1, func(i int) bool {
			if err != nil {
				return true
			}
			var part *gradients
			if part, err = w.engine.compute(b.front(i+1), nil); err != nil {
				return true
			}
			return part.absurd()
		})
		if err != nil {
			return nil, err
		}
		w.haltGradient(b, b.recs[n-1])
		if b.records() == 0 {
			return nil, nil
		}
	}
}

// absurd says that parameter servers would refuse the gradients.
func (g *gradients) absurd() bool { return ps.Absurd(g.rows) || ps.Absurd(g.dense) }

// haltGradient stops a partition at a record, and takes that and what follows it in its chunk out of the batch.
func (w *worker) haltGradient(b *batch, at trained) {
	for i, c := range b.chunks {
		if !at.within(c.partition, c.begin, c.end) {
			continue
		}
		w.lg.Error("with this record the gradient is not finite or too large: its partition stops", "topic", w.topic, "partition", c.partition, "offset", at.offset, "bound", float64(ps.MaxGradient))
		head := w.haltAt(c, at.offset, entry{gradient: true, why: fmt.Sprintf("topic %q: with the record at offset %d, of the batch's offsets %d to %d, the gradient is not finite or beyond ±%g",
			w.topic, at.offset, c.begin, c.end-1, float64(ps.MaxGradient))})
		b.cut(i, head, at.offset)
		return
	}
}

// front is the batch's first n records alone, for a computation.
func (b *batch) front(n int) *batch {
	all := b.records()
	return &batch{recs: b.recs[:n], label: b.label[:n], dense: b.dense[:n*len(b.dense)/all], slots: b.slots[:n*len(b.slots)/all],
		ids: b.ids, rows: b.rows, params: b.params}
}

// cut replaces chunk i by its head (nil: by nothing), which ends before the record at an offset, and drops the records of the rest.
func (b *batch) cut(i int, head *chunk, at int64) {
	c, all := b.chunks[i], b.records()
	gone := func(r trained) bool { return r.within(c.partition, max(c.begin, at), c.end) }
	kept := &batch{chunks: append([]*chunk{}, b.chunks[:i]...), full: b.full, filled: b.filled, params: b.params}
	if head != nil {
		kept.chunks = append(kept.chunks, head)
	}
	kept.chunks = append(kept.chunks, b.chunks[i+1:]...)
	for _, r := range b.dead {
		if !gone(r) {
			kept.dead = append(kept.dead, r)
		}
	}
	fields, numbers, width := len(b.slots)/all, len(b.dense)/all, 0
	if len(b.ids) > 0 {
		width = len(b.rows) / len(b.ids)
	}
	moved := map[int32]int32{} // where a row is now: those of the dropped records are not touched, as an optimiser with momentum would with a gradient of 0
	for k, r := range b.recs {
		if gone(r) {
			continue
		}
		kept.recs, kept.label = append(kept.recs, r), append(kept.label, b.label[k])
		kept.dense = append(kept.dense, b.dense[k*numbers:(k+1)*numbers]...)
		for _, slot := range b.slots[k*fields : (k+1)*fields] {
			now, ok := moved[slot]
			if !ok {
				now = int32(len(kept.ids))
				moved[slot] = now
				kept.ids = append(kept.ids, b.ids[slot])
				kept.rows = append(kept.rows, b.rows[int(slot)*width:(int(slot)+1)*width]...)
			}
			kept.slots = append(kept.slots, now)
		}
	}
	*b = *kept
}
