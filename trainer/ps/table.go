package ps

import (
	"math/bits"
	"slices"
)

// slabRows is the number of rows that lie together in one allocation, and that one push copies when it touches any of them while a
// snapshot is being written.
const slabRows = 1 << slabShift
const slabShift = 7

// number is what a table can hold: weights, or the counting model's counters.
type number interface{ ~float32 | ~int64 }

// table maps row ids to rows of stride numbers. Rows are appended and never removed; they lie in slabs, so that a table of millions of rows
// is thousands of allocations, and so that a snapshot can share all slabs with the live table and copy only those that are written
// meanwhile (see tablet.cut). Its owner locks.
type table[T number] struct {
	stride int
	index  map[uint64]uint32 // id → row number
	ids    []uint64          // row number → id
	slabs  []*slab[T]
}

// slab is a run of rows. A slab whose epoch is below that of a snapshot under way is shared with it, and must be copied before it is written.
type slab[T number] struct {
	epoch uint64
	v     []T
}

func newTable[T number](stride int) table[T] {
	return table[T]{stride: stride, index: map[uint64]uint32{}}
}

// read is the row of that id, not to be written; nil when there is none.
func (t *table[T]) read(id uint64) []T {
	at, ok := t.index[id]
	if !ok {
		return nil
	}
	return t.row(t.slabs[at>>slabShift], at)
}

func (t *table[T]) row(s *slab[T], at uint32) []T {
	i := int(at&(slabRows-1)) * t.stride
	return s.v[i : i+t.stride : i+t.stride]
}

// write is the row of that id, to be written, in a slab that no snapshot of an epoch below frozen shares. created says that the row is
// new, and zero.
func (t *table[T]) write(id uint64, epoch, frozen uint64) (row []T, created bool) {
	at, ok := t.index[id]
	if !ok {
		at = uint32(len(t.ids))
		t.ids = append(t.ids, id)
		t.index[id] = at
		if at&(slabRows-1) == 0 {
			t.slabs = append(t.slabs, &slab[T]{epoch: epoch, v: make([]T, slabRows*t.stride)})
		}
	}
	s := &t.slabs[at>>slabShift]
	*s = (*s).own(epoch, frozen)
	return t.row(*s, at), !ok
}

// own is the slab itself, or a copy of it when a snapshot shares it.
func (s *slab[T]) own(epoch, frozen uint64) *slab[T] {
	if s.epoch >= frozen {
		return s
	}
	return &slab[T]{epoch: epoch, v: slices.Clone(s.v)}
}

// view is the table as it is now, for a snapshot: it stays so as long as writers respect frozen. It copies one pointer per slab.
func (t *table[T]) view() tableView[T] {
	return tableView[T]{stride: t.stride, ids: t.ids[:len(t.ids):len(t.ids)], slabs: slices.Clone(t.slabs)}
}

// tableView is a table that does not change.
type tableView[T number] struct {
	stride int
	ids    []uint64
	slabs  []*slab[T]
}

// used is the part of slab i that holds rows.
func (v *tableView[T]) used(i int) []T {
	rows := min(slabRows, len(v.ids)-i*slabRows)
	return v.slabs[i].v[:rows*v.stride]
}

// bytes estimates the table's memory: slabs, ids and the index (8+4 bytes per entry at a load of 7/16 to 7/8).
func (t *table[T]) bytes() uint64 {
	if len(t.ids) == 0 {
		return 0
	}
	var x T
	size := uint64(8)
	if _, is := any(x).(float32); is {
		size = 4
	}
	entries := uint64(1) << bits.Len(uint(len(t.ids)*8/7))
	return uint64(len(t.slabs))*slabRows*uint64(t.stride)*size + uint64(cap(t.ids))*8 + entries*17
}
