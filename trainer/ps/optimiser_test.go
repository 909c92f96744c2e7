package ps

import (
	"math"
	"testing"
)

// The formulas of the sources, in float64 and one weight at a time.
type reference struct{ w, m, v, acc float64 }

func (r *reference) step(o Optimiser, t int, g, share float64) {
	g += share * float64(o.L2) * r.w
	lr := float64(o.LearningRate)
	switch o.Kind {
	case "sgd":
		r.w -= lr * g
	case "adagrad": // Duchi, Hazan and Singer, 2011, §1.1, diagonal
		r.acc += g * g
		r.w -= lr * g / (math.Sqrt(r.acc) + 1e-10)
	case "adam": // Kingma and Ba, 2015, algorithm 1
		r.m = 0.9*r.m + 0.1*g
		r.v = 0.999*r.v + 0.001*g*g
		mHat := r.m / (1 - math.Pow(0.9, float64(t)))
		vHat := r.v / (1 - math.Pow(0.999, float64(t)))
		r.w -= lr * mHat / (math.Sqrt(vHat) + 1e-8)
	}
}

func TestOptimisersFollowTheirFormulas(t *testing.T) {
	grads := []float32{0.3, -0.1, 0.002, 0, 5, -5, 0.3, 1e-6}
	for _, kind := range []string{"sgd", "adagrad", "adam"} {
		for _, l2 := range []float32{0, 0.01} {
			o := Optimiser{Kind: kind, LearningRate: 0.05, L2: l2}
			const n = 3
			v := make([]float32, n*(1+o.slots()))
			refs := make([]reference, n)
			for i := range n {
				v[i] = float32(i) - 1
				refs[i].w = float64(v[i])
			}
			for step := 1; step <= 40; step++ {
				var b []byte
				for i := range n {
					g := grads[(step+3*i)%len(grads)]
					b = appendFloats(b, []float32{g})
					if kind != "adagrad" || g != 0 || refs[i].acc != 0 {
						refs[i].step(o, step, float64(g), 0.5)
					}
				}
				o.update(int64(step), 0.5).apply(v, n, b)
			}
			for i := range n {
				if got, want := float64(v[i]), refs[i].w; math.Abs(got-want) > 1e-5+1e-4*math.Abs(want) {
					t.Errorf("%s, l2 %v: weight %d is %v, want %v", kind, l2, i, got, want)
				}
			}
		}
	}
}

// A weight that never had a gradient stays, also where the formula would divide zero by zero.
func TestZeroGradientMovesNothing(t *testing.T) {
	for _, kind := range []string{"sgd", "adagrad", "adam"} {
		o := Optimiser{Kind: kind, LearningRate: 1}
		v := make([]float32, 1+o.slots())
		v[0] = 3
		o.update(1, 1).apply(v, 1, make([]byte, 4))
		if v[0] != 3 {
			t.Errorf("%s: 3 became %v", kind, v[0])
		}
	}
}

func TestImpossibleOptimisers(t *testing.T) {
	nan := float32(math.NaN())
	for _, o := range []Optimiser{{}, {Kind: "adamw", LearningRate: 1}, {Kind: "sgd"}, {Kind: "sgd", LearningRate: -1}, {Kind: "sgd", LearningRate: nan},
		{Kind: "adam", LearningRate: float32(math.Inf(1))}, {Kind: "adam", LearningRate: 1, L2: -1}, {Kind: "adam", LearningRate: 1, L2: nan}} {
		if o.Validate() == nil {
			t.Errorf("%+v is valid", o)
		}
	}
}
