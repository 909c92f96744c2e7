package ps

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Stored state depends on which tablet a row is in. If this test fails, restored models are scrambled. (Row 0 is in tablet 56 of 64: SplitMix64's
// first output for seed 0 is 0xe220a8397b1dcdaf, and 0xe2 is 56·4 + 2.)
func TestTabletOfRowIsForEver(t *testing.T) {
	l, err := NewLayout(64, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, id := range []uint64{0, 1, 2, 3, 1000, 1 << 40, math.MaxUint64} {
		got = append(got, l.TabletOfRow(id))
	}
	if diff := cmp.Diff([]int{56, 36, 37, 7, 15, 7, 57}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLayoutSharesOutEverythingOnce(t *testing.T) {
	for _, c := range []struct{ tablets, servers, dense int }{{1, 1, 0}, {4, 1, 3}, {64, 2, 1000}, {64, 5, 999}, {7, 7, 100}, {65536, 3, 12}} {
		l, err := NewLayout(c.tablets, c.servers, c.dense)
		if err != nil {
			t.Fatal(err)
		}
		full := make([]float32, c.dense)
		for i := range full {
			full[i] = float32(i + 1)
		}
		back := make([]float32, c.dense)
		tablet, at := 0, 0
		for server := range c.servers {
			lo, hi := l.TabletsOfServer(server)
			if lo != tablet || hi <= lo {
				t.Fatalf("%v: server %d has tablets [%d,%d), want them from %d on", c, server, lo, hi, tablet)
			}
			begin, end := l.DensePart(server)
			if begin != at {
				t.Fatalf("%v: server %d's dense part begins at %d, want %d", c, server, begin, at)
			}
			for _, b := range l.DenseBlocks(server) {
				if b.Tablet != tablet || b.Begin != at || l.ServerOfTablet(tablet) != server {
					t.Fatalf("%v: block %v, want tablet %d from %d on, at server %d (not %d)", c, b, tablet, at, server, l.ServerOfTablet(tablet))
				}
				if want := c.dense / c.tablets; b.Len() < want || b.Len() > want+1 {
					t.Fatalf("%v: block %v has %d weights, want %d or one more", c, b, b.Len(), want)
				}
				tablet, at = tablet+1, b.End
			}
			part := make([]float32, end-begin)
			l.Gather(server, full, part)
			l.Scatter(server, part, back)
		}
		if tablet != c.tablets || at != c.dense || !cmp.Equal(full, back) {
			t.Errorf("%v: %d tablets and %d weights are shared out", c, tablet, at)
		}
	}
}

// Rows spread evenly, consecutive ids too: no tablet has more than 1.2 times its share of 64,000.
func TestRowsSpreadEvenly(t *testing.T) {
	l, err := NewLayout(64, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var n [64]int
	for id := range uint64(64000) {
		n[l.TabletOfRow(id)]++
	}
	for tablet, n := range n {
		if n < 800 || n > 1200 {
			t.Errorf("tablet %d has %d rows of 64,000", tablet, n)
		}
	}
}

func TestImpossibleLayouts(t *testing.T) {
	for _, c := range [][3]int{{0, 1, 0}, {4, 0, 0}, {4, 5, 0}, {4, -1, 0}, {1 << 17, 1, 0}, {4, 1, -1}} {
		if _, err := NewLayout(c[0], c[1], c[2]); err == nil {
			t.Errorf("layout %v was made", c)
		}
	}
}
