package forecast

import (
	"math/rand/v2"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"
)

// gramOf is XᵀX, whether or not its columns are whole strips.
func TestGramOf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range []int{1, gramColumns, 2*gramColumns + 33} {
		x, want := mat.NewDense(50, k, nil), mat.NewSymDense(k, nil)
		x.Apply(func(_, _ int, _ float64) float64 { return r.NormFloat64() }, x)
		want.SymOuterK(1, x.T())
		if !mat.EqualApprox(gramOf(x), want, 1e-10) {
			t.Errorf("of %d columns it is another", k)
		}
	}
}

// Learning a map tells its parts in order, all of them.
func TestTrainWindowTellsItsParts(t *testing.T) {
	s := synthetic(1200, time.Second, func(i int) float64 { return cycle(float64(i)/120) + float64(i*7919%61) })
	for _, kind := range windowKinds {
		last, calls, of := 0, 0, 0
		_, err := TrainWindow(s, WindowOptions{Kind: kind, Horizon: 10, Input: 120, Season: 2 * time.Minute, Progress: func(done, total int) {
			if done <= last || done > total {
				t.Errorf("%s: %d of %d after %d", kind, done, total, last)
			}
			last, of = done, total
			calls++
		}})
		if err != nil || last != of || calls < len(windowRidges)+3 {
			t.Errorf("%s: it ends with %d of %d, told %d times: %v", kind, last, of, calls, err)
		}
	}
}
