package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Keys order as their numbers do, and each gives its number back.
func TestKeysOrderAsTheirNumbers(t *testing.T) {
	values := []float64{math.Inf(-1), -math.MaxFloat64, -4, -1, -math.SmallestNonzeroFloat64, 0, math.SmallestNonzeroFloat64, 1, 4, math.MaxFloat64, math.Inf(1)}
	for i, v := range values {
		if valueOf(keyOf(v)) != v {
			t.Errorf("%v comes back as %v", v, valueOf(keyOf(v)))
		}
		if i > 0 && keyOf(values[i-1]) >= keyOf(v) {
			t.Errorf("%v is not above %v", v, values[i-1])
		}
	}
}

// What is selected is what would be there if all were sorted, also where many are the same, in order already, or in the other order; and nothing is lost.
func TestSelectRanks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		keys := make([]uint64, 1+rng.IntN(400))
		different := 1 + rng.IntN(1000)
		for i := range keys {
			keys[i] = keyOf(float64(rng.IntN(different)-different/2) / 100)
		}
		switch rng.IntN(4) {
		case 0:
			slices.Sort(keys)
		case 1:
			slices.Sort(keys)
			slices.Reverse(keys)
		}
		sorted := slices.Sorted(slices.Values(keys))
		ranks := conformalRanks(len(keys), spreadLevels)
		selectRanks(keys, 0, ranks)
		for _, r := range ranks {
			if keys[r] != sorted[r] {
				t.Fatalf("of %d keys, %d different: at rank %d there is %v, want %v", len(keys), different, r, valueOf(keys[r]), valueOf(sorted[r]))
			}
		}
		if slices.Sort(keys); !slices.Equal(keys, sorted) {
			t.Fatal("not all keys are there any more")
		}
	}
}

// The quantiles of residuals are those of all of them sorted.
func TestQuantilesAreThoseOfSorted(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{minOrigins, 100, 101, 256} {
		r := newResiduals(3, 1, n)
		for range n {
			r.begin()
			for h := range 3 {
				r.note(h, rng.NormFloat64())
			}
		}
		rows := r.quantiles(spreadLevels)
		for h := range 3 {
			sorted := slices.Sorted(slices.Values(r.at[h]))
			for i, q := range spreadLevels {
				if got, want := rows[i][h], conformal(sorted, q); got != want {
					t.Errorf("%d outcomes: at level %v %v, want %v", n, q, got, want)
				}
			}
		}
	}
}

func BenchmarkQuantiles(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	r := newResiduals(120, 1, maxFollowed)
	for range maxFollowed {
		r.begin()
		for h := range 120 {
			r.note(h, rng.NormFloat64())
		}
	}
	for b.Loop() {
		r.quantiles(spreadLevels)
	}
}
