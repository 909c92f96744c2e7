package trainer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// show renders chunks as "[begin,end)×records".
func show(cs []*chunk) string {
	var out []string
	for _, c := range cs {
		out = append(out, fmt.Sprintf("[%d,%d)×%d", c.begin, c.end, len(c.records)))
	}
	return strings.Join(out, " ")
}

// feed adds records at the offsets; a negative one −o is a control record at o.
func feed(k *chunker, offsets ...int64) {
	for _, o := range offsets {
		k.add(record{offset: max(o, -o)}, o < 0, time.Unix(1, 0))
	}
}

// run lists the offsets from a up to b.
func run(a, b int64) (out []int64) {
	for o := a; o < b; o++ {
		out = append(out, o)
	}
	return out
}

// TestRule7ChunkEdges: edges are multiples of the size, tails excepted, wherever reading began.
func TestRule7ChunkEdges(t *testing.T) {
	k := newChunker(0, 10, 3)
	feed(k, run(3, 27)...)
	if diff := cmp.Diff("[3,10)×7 [10,20)×10", show(k.ready)); diff != "" {
		t.Error(diff)
	}
	k.cutTail()
	feed(k, run(27, 45)...)
	if diff := cmp.Diff("[3,10)×7 [10,20)×10 [20,27)×7 [27,30)×3 [30,40)×10", show(k.ready)); diff != "" {
		t.Error(diff)
	}
	if k.position() != 3 || k.next != 40 || k.buffered() != 42 {
		t.Errorf("position %d, next %d, buffered %d", k.position(), k.next, k.buffered())
	}
	k.cutTail()
	k.cutTail() // nothing is left: no empty span
	if got := show(k.ready[5:]); got != "[40,45)×5" {
		t.Errorf("tail %q", got)
	}
}

// TestRule15Holes: a chunk is [end of the one before, last offset + 1), holes included; control records move progress and are not trained.
func TestRule15Holes(t *testing.T) {
	for _, c := range []struct {
		name    string
		offsets []int64
		want    string
	}{
		{"hole inside a chunk", []int64{0, 1, 7, 9}, "[0,10)×4"},
		{"hole over an edge", []int64{0, 1, 12, 19}, "[0,10)×2 [10,20)×2"},
		{"hole over several edges", []int64{0, 57, 59}, "[0,50)×1 [50,60)×2"},
		{"control record ends a chunk", []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, -9}, "[0,10)×9"},
		{"control records alone", []int64{-9, -19}, "[0,10)×0 [10,20)×0"},
		{"control record after a hole", []int64{3, -25, 29}, "[0,20)×1 [20,30)×1"},
		{"the tail is a control record", []int64{0, 1, -2}, "[0,3)×2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newChunker(0, 10, 0)
			feed(k, c.offsets...)
			k.cutTail()
			if diff := cmp.Diff(c.want, show(k.ready)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestChunksAreSeamless: whatever arrives, chunks are disjoint and leave no gap, hold each record once, and respect the edges.
func TestChunksAreSeamless(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		size, start := 1+rng.Int64N(20), rng.Int64N(50)
		k := newChunker(0, size, start)
		at, want := start, 0
		for range 200 {
			at += rng.Int64N(4) * rng.Int64N(8)
			control := rng.IntN(5) == 0
			k.add(record{offset: at}, control, time.Unix(1, 0))
			k.add(record{offset: at}, control, time.Unix(1, 0)) // delivered twice
			if !control {
				want++
			}
			at++
			if rng.IntN(10) == 0 {
				k.cutTail()
			}
		}
		k.cutTail()
		next, got := start, 0
		for _, c := range k.ready {
			if c.begin != next || c.end <= c.begin {
				t.Fatalf("seed %d: chunk [%d,%d) after %d", seed, c.begin, c.end, next)
			}
			if int64(len(c.records)) > size {
				t.Fatalf("seed %d: a chunk of %d records, the size is %d", seed, len(c.records), size)
			}
			for _, r := range c.records {
				if r.offset < c.begin || r.offset >= c.end {
					t.Fatalf("seed %d: record %d in [%d,%d)", seed, r.offset, c.begin, c.end)
				}
			}
			got += len(c.records)
			next = c.end
		}
		if next != at || got != want {
			t.Fatalf("seed %d: ends at %d with %d records, want %d and %d", seed, next, got, at, want)
		}
	}
}

// TestRepairEndsExactly: a finite span ends where it was asked to, whatever lies beyond.
func TestRepairEndsExactly(t *testing.T) {
	for _, c := range []struct {
		name    string
		offsets []int64
		want    string
	}{
		{"a record at the last offset", run(5, 40), "[5,10)×5 [10,20)×10 [20,23)×3"},
		{"holes up to the end", []int64{5, 6, 31}, "[5,23)×2"},
		{"a control record at the last offset", []int64{5, -22, 23}, "[5,20)×1 [20,23)×0"},
		{"nothing but holes", []int64{99}, "[5,23)×0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newChunker(0, 10, 5)
			for _, o := range c.offsets {
				k.addUpTo(record{offset: max(o, -o)}, o < 0, 23, time.Unix(1, 0))
			}
			if diff := cmp.Diff(c.want, show(k.ready)); diff != "" {
				t.Error(diff)
			}
			if k.next != 23 {
				t.Errorf("next is %d", k.next)
			}
		})
	}
}
