package spans

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bitmap is the deliberately simple second implementation: offset → there or not.
type bitmap [64]bool

func (m *bitmap) add(b, e int64) {
	for i := b; i < e; i++ {
		m[i] = true
	}
}

// runs lists the maximal runs of offsets for which keep is true.
func runs(b, e int64, keep func(int64) bool) []Span {
	var out []Span
	for i := b; i < e; i++ {
		if !keep(i) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].End == i {
			out[n-1].End++
		} else {
			out = append(out, Span{i, i + 1})
		}
	}
	return out
}

func (m *bitmap) spans() []Span { return runs(0, 64, func(i int64) bool { return m[i] }) }

// FuzzSetAgainstBitmap reads its input as instructions: two sets are built of intervals in [0,64), and every question is asked of both.
func FuzzSetAgainstBitmap(f *testing.F) {
	f.Add([]byte{0, 10, 20, 30, 10, 20, 129, 4, 5, 9})
	f.Add([]byte{5, 5, 9, 3, 63, 64})
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 128, 2, 130, 6, 0, 64})
	f.Fuzz(func(t *testing.T, in []byte) {
		var s, u Set
		var m, w bitmap
		for ; len(in) >= 2; in = in[2:] {
			b, e := int64(in[0]&63), int64(in[1]&127)%65
			set, bits := &s, &m
			if in[0] >= 128 {
				set, bits = &u, &w
			}
			check(t, set, bits, b, e)
			set.Add(b, e)
			bits.add(b, e)
			check(t, set, bits, b, e)
		}
		for name, c := range map[string]struct {
			have *Set
			want func(int64) bool
		}{
			"union":     {Union(&s, &u), func(i int64) bool { return m[i] || w[i] }},
			"intersect": {Intersect(&s, &u), func(i int64) bool { return m[i] && w[i] }},
			"subtract":  {Subtract(&s, &u), func(i int64) bool { return m[i] && !w[i] }},
		} {
			if want := runs(0, 64, c.want); !slices.Equal(c.have.spans, want) {
				t.Fatalf("%s of %v and %v: %v, want %v", name, &s, &u, c.have, want)
			}
		}
		text, err := json.Marshal(&s)
		if err != nil {
			t.Fatal(err)
		}
		var back Set
		if err := json.Unmarshal(text, &back); err != nil || !back.Equal(&s) {
			t.Fatalf("%v became %v by way of %s: %v", &s, &back, text, err)
		}
	})
}

func check(t *testing.T, s *Set, m *bitmap, b, e int64) {
	t.Helper()
	all, some := true, false
	for i := b; i < e; i++ {
		all, some = all && m[i], some || m[i]
	}
	if s.Covers(b, e) != all || s.Overlaps(b, e) != some {
		t.Fatalf("%v, [%d,%d): covers %v, overlaps %v; want %v, %v", s, b, e, s.Covers(b, e), s.Overlaps(b, e), all, some)
	}
	if want := runs(b, e, func(i int64) bool { return !m[i] }); !slices.Equal(s.Missing(b, e), want) {
		t.Fatalf("%v: of [%d,%d) is missing %v, want %v", s, b, e, s.Missing(b, e), want)
	}
	if !slices.Equal(s.Spans(), m.spans()) {
		t.Fatalf("have %v, want %v", s, m.spans())
	}
	mark := b
	for mark < 64 && m[mark] {
		mark++
	}
	if s.Watermark(b) != mark {
		t.Fatalf("%v: watermark from %d is %d, want %d", s, b, s.Watermark(b), mark)
	}
	if want := runs(mark, 64, func(i int64) bool { return m[i] }); !slices.Equal(s.Above(mark), want) {
		t.Fatalf("%v: above %d lies %v, want %v", s, mark, s.Above(mark), want)
	}
	var size int64
	for _, in := range m {
		if in {
			size++
		}
	}
	if s.Size() != size || s.Count() != len(m.spans()) || s.Empty() != (size == 0) {
		t.Fatalf("%v: size %d, count %d, want %d, %d", s, s.Size(), s.Count(), size, len(m.spans()))
	}
}

// A watermark that a chunk in the middle holds back moves over all that lies above when the chunk comes, and the set is one span again.
func TestLateChunkClosesTheGap(t *testing.T) {
	s := Of(Span{100, 200}, Span{300, 400}, Span{400, 500})
	if got := s.Watermark(100); got != 200 {
		t.Errorf("watermark %d, want 200", got)
	}
	if diff := cmp.Diff([]Span{{300, 500}}, s.Above(200)); diff != "" {
		t.Error(diff)
	}
	if got := s.End(0); got != 500 {
		t.Errorf("end %d, want 500", got)
	}
	s.Add(200, 300)
	if got := s.Watermark(100); got != 500 || s.Count() != 1 {
		t.Errorf("watermark %d in %d spans, want 500 in 1", got, s.Count())
	}
	// Nothing below the floor counts, and a floor that is not covered is the watermark.
	if got := s.Watermark(50); got != 50 {
		t.Errorf("watermark %d, want the floor 50", got)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	s := Of(Span{0, 10}, Span{20, 30})
	c := s.Clone()
	list := s.Spans()
	s.Add(10, 15)
	list[1].End = 99
	if !c.Equal(Of(Span{0, 10}, Span{20, 30})) || !s.Equal(Of(Span{0, 15}, Span{20, 30})) {
		t.Errorf("clone %v, set %v", c, s)
	}
}

func TestDamagedJSONIsRefused(t *testing.T) {
	for _, text := range []string{`[[5,5]]`, `[[5,1]]`, `[[0,5],[5,9]]`, `[[7,9],[0,5]]`, `[[1]]`, `[[1,2,3]]`, `{"a":1}`, `[["x","y"]]`, `[null]`} {
		s := Of(Span{1, 2})
		if err := json.Unmarshal([]byte(text), s); err == nil {
			t.Errorf("%s was read as %v", text, s)
		}
		if !s.Equal(Of(Span{1, 2})) {
			t.Errorf("%s changed the set to %v", text, s)
		}
	}
}

func TestInvertedIntervalsAreEmpty(t *testing.T) {
	s := Of(Span{9, 3})
	if !s.Empty() || !s.Covers(9, 3) || s.Overlaps(9, 3) || s.Missing(9, 3) != nil || (Span{9, 3}).Len() != 0 {
		t.Errorf("an inverted interval counts: %v", s)
	}
}

// BenchmarkClaim is what a push costs a tablet per span: a look and an addition at the end of the set.
func BenchmarkClaim(b *testing.B) {
	var s Set
	for i := int64(0); b.Loop(); i++ {
		if s.Overlaps(i*32, i*32+32) {
			b.Fatal("overlap")
		}
		s.Add(i*32, i*32+32)
	}
}
