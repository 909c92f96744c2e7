// Package spans holds sets of offsets of one Kafka partition as sorted, disjoint, half-open intervals.
//
// The sets are what exactly-once training is made of: every tablet keeps one per partition (the records that its parameters have seen),
// and the chief intersects them. They stay small because the records that are fetched and not yet applied are bounded (a window per
// partition): everything below the watermark is one span.
//
// A Set is not safe for concurrent use; its owner locks.
package spans

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
)

// Span is the half-open interval [Begin, End) of one partition's offsets, holes (control records, compaction) included.
type Span struct {
	Begin, End int64
}

// Len is the number of offsets in the span; an inverted span has none.
func (s Span) Len() int64 {
	if s.End <= s.Begin {
		return 0
	}
	return s.End - s.Begin
}

// String writes the span as [begin,end).
func (s Span) String() string { return fmt.Sprintf("[%d,%d)", s.Begin, s.End) }

// MarshalJSON writes [begin,end].
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal([2]int64{s.Begin, s.End}) }

// UnmarshalJSON reads [begin,end].
func (s *Span) UnmarshalJSON(b []byte) error {
	var pair []int64
	if err := json.Unmarshal(b, &pair); err != nil {
		return fmt.Errorf("span: want [begin,end]: %w", err)
	}
	if len(pair) != 2 {
		return fmt.Errorf("span: want [begin,end], have %d numbers", len(pair))
	}
	s.Begin, s.End = pair[0], pair[1]
	return nil
}

// Set is a set of offsets of one partition. The zero value is empty and ready for use. Its spans are sorted, disjoint, never empty and
// never adjacent, so equal sets have equal spans.
type Set struct {
	spans []Span
}

// Of builds a set of the given spans, in any order, overlapping or not; empty and inverted ones add nothing.
func Of(list ...Span) *Set {
	var s Set
	for _, sp := range list {
		s.Add(sp.Begin, sp.End)
	}
	return &s
}

// after is the index of the first span that ends after offset v: the span that holds v, or else the first one above it.
func (s *Set) after(v int64) int {
	// Most questions are about the last span or just above it: look there before searching.
	n := len(s.spans)
	if n == 0 || s.spans[n-1].End <= v {
		return n
	}
	return sort.Search(n, func(i int) bool { return s.spans[i].End > v })
}

// Add puts [b, e) into the set; nothing when e ≤ b.
func (s *Set) Add(b, e int64) {
	if e <= b {
		return
	}
	// The spans from lo up to hi touch or overlap [b, e) and melt into it. One that ends exactly at b touches.
	lo := s.after(b)
	if lo > 0 && s.spans[lo-1].End == b {
		lo--
	}
	hi := lo
	for hi < len(s.spans) && s.spans[hi].Begin <= e {
		hi++
	}
	if lo == hi {
		s.spans = slices.Insert(s.spans, lo, Span{b, e})
		return
	}
	s.spans[lo] = Span{min(b, s.spans[lo].Begin), max(e, s.spans[hi-1].End)}
	s.spans = slices.Delete(s.spans, lo+1, hi)
}

// Covers says whether every offset of [b, e) is in the set; an empty interval is covered.
func (s *Set) Covers(b, e int64) bool {
	if e <= b {
		return true
	}
	i := s.after(b)
	return i < len(s.spans) && s.spans[i].Begin <= b && e <= s.spans[i].End
}

// Overlaps says whether any offset of [b, e) is in the set.
func (s *Set) Overlaps(b, e int64) bool {
	if e <= b {
		return false
	}
	i := s.after(b)
	return i < len(s.spans) && s.spans[i].Begin < e
}

// Missing lists the parts of [b, e) that are not in the set, in order.
func (s *Set) Missing(b, e int64) []Span {
	var out []Span
	for i := s.after(b); b < e; i++ {
		if i == len(s.spans) || s.spans[i].Begin >= e {
			return append(out, Span{b, e})
		}
		if s.spans[i].Begin > b {
			out = append(out, Span{b, s.spans[i].Begin})
		}
		b = s.spans[i].End
	}
	return out
}

// Watermark is the offset below which, from floor on, everything is in the set: floor itself when floor is not in the set.
func (s *Set) Watermark(floor int64) int64 {
	i := s.after(floor)
	if i < len(s.spans) && s.spans[i].Begin <= floor {
		return s.spans[i].End
	}
	return floor
}

// Above lists the spans that begin above the watermark w, in order: with w they say what the set holds from its floor on.
func (s *Set) Above(w int64) []Span {
	i := s.after(w)
	return slices.Clone(s.spans[i:])
}

// End is one more than the highest offset in the set, or floor when the set has none above it.
func (s *Set) End(floor int64) int64 {
	if n := len(s.spans); n > 0 {
		return max(floor, s.spans[n-1].End)
	}
	return floor
}

// Size is the number of offsets in the set.
func (s *Set) Size() int64 {
	var n int64
	for _, sp := range s.spans {
		n += sp.Len()
	}
	return n
}

// Count is the number of disjoint spans: what the set costs in memory.
func (s *Set) Count() int { return len(s.spans) }

// Empty says whether the set holds nothing.
func (s *Set) Empty() bool { return len(s.spans) == 0 }

// Spans lists the set's spans in order. The slice is the caller's own.
func (s *Set) Spans() []Span { return slices.Clone(s.spans) }

// Clone is a copy that shares nothing with s.
func (s *Set) Clone() *Set { return &Set{spans: slices.Clone(s.spans)} }

// Equal says whether both sets hold the same offsets.
func (s *Set) Equal(t *Set) bool { return slices.Equal(s.spans, t.spans) }

// String writes the spans in order.
func (s *Set) String() string { return fmt.Sprint(s.spans) }

// MarshalJSON writes the spans as [[begin,end],…].
func (s *Set) MarshalJSON() ([]byte, error) {
	if len(s.spans) == 0 {
		return []byte("[]"), nil
	}
	return json.Marshal(s.spans)
}

// UnmarshalJSON reads what MarshalJSON writes, and refuses spans that are empty, inverted, out of order or touching: such a set was not
// written by this package.
func (s *Set) UnmarshalJSON(b []byte) error {
	var list []Span
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	for i, sp := range list {
		if sp.End <= sp.Begin {
			return fmt.Errorf("span set: %v is empty", sp)
		}
		if i > 0 && sp.Begin <= list[i-1].End {
			return fmt.Errorf("span set: %v does not lie above %v", sp, list[i-1])
		}
	}
	s.spans = list
	return nil
}
