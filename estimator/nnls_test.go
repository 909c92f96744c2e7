package estimator

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// bruteForce solves the same problem by trying every set of free variables:
// the best feasible unconstrained solution over any subset is the optimum.
func bruteForce(a *mat.Dense, b []float64) (best []float64, cost float64) {
	m, n := a.Dims()
	cost = math.Inf(1)
	for set := range 1 << n {
		x := make([]float64, n)
		var cols []int
		for j := range n {
			if set>>j&1 == 1 {
				cols = append(cols, j)
			}
		}
		if len(cols) > m {
			continue
		}
		if len(cols) > 0 {
			sub := mat.NewDense(m, len(cols), nil)
			for k, j := range cols {
				sub.SetCol(k, mat.Col(nil, j, a))
			}
			var sol mat.VecDense
			if err := sol.SolveVec(sub, mat.NewVecDense(m, b)); err != nil {
				continue // dependent columns: a smaller set has the same optimum
			}
			feasible := true
			for k, j := range cols {
				x[j] = sol.AtVec(k)
				feasible = feasible && x[j] >= 0
			}
			if !feasible {
				continue
			}
		}
		if c := residualNorm(a, x, b); c < cost {
			best, cost = x, c
		}
	}
	return best, cost
}

func residualNorm(a mat.Matrix, x, b []float64) float64 {
	s := 0.0
	for i, v := range b {
		for j, w := range x {
			v -= a.At(i, j) * w
		}
		s += v * v
	}
	return math.Sqrt(s)
}

// checkKKT verifies the Kuhn–Tucker conditions, which are necessary and
// sufficient here: x ≥ 0, the gradient Aᵀ(b − Ax) ≤ 0, and their product 0.
func checkKKT(t *testing.T, a mat.Matrix, x, b []float64) {
	t.Helper()
	m, n := a.Dims()
	bn := math.Max(residualNorm(a, make([]float64, n), b), 1e-300)
	for j := range n {
		if x[j] < 0 || math.IsNaN(x[j]) {
			t.Errorf("x[%d] = %v, want ≥ 0", j, x[j])
		}
		g, an := 0.0, 0.0
		for i := range m {
			r := b[i]
			for k := range n {
				r -= a.At(i, k) * x[k]
			}
			g += a.At(i, j) * r
			an += a.At(i, j) * a.At(i, j)
		}
		if an == 0 {
			continue
		}
		g /= math.Sqrt(an) * bn
		if g > 1e-9 || (x[j] > 0 && math.Abs(g) > 1e-9) {
			t.Errorf("gradient[%d] = %g at x = %g: the conditions do not hold", j, g, x[j])
		}
	}
}

func TestNNLSAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pinned := 0
	for trial := range 400 {
		n := 1 + rng.IntN(7)
		m := n + rng.IntN(6)
		a := mat.NewDense(m, n, nil)
		b := make([]float64, m)
		for i := range m {
			for j := range n {
				a.Set(i, j, rng.NormFloat64()*math.Pow(10, float64(j-2)))
			}
			b[i] = rng.NormFloat64()
		}
		x, err := NNLS(a, b)
		if err != nil {
			t.Fatalf("trial %d: %v", trial, err)
		}
		checkKKT(t, a, x, b)
		want, cost := bruteForce(a, b)
		if got := residualNorm(a, x, b); got > cost*(1+1e-9)+1e-12 {
			t.Errorf("trial %d (%d×%d): residual %g at %v, brute force finds %g at %v", trial, m, n, got, x, cost, want)
		}
		for _, v := range x {
			if v == 0 {
				pinned++
			}
		}
	}
	if pinned == 0 {
		t.Error("no constraint was ever active; the trials prove nothing")
	}
}

// Dependent, repeated, zero and badly scaled columns, and fewer rows than
// columns: the minimiser is not unique, but the conditions still hold.
func TestNNLSDegenerate(t *testing.T) {
	for name, c := range map[string]struct {
		a *mat.Dense
		b []float64
	}{
		"repeated column":  {mat.NewDense(3, 2, []float64{1, 1, 2, 2, 3, 3}), []float64{1, 2, 3.5}},
		"zero column":      {mat.NewDense(3, 2, []float64{1, 0, 2, 0, 3, 0}), []float64{1, 2, 3}},
		"dependent":        {mat.NewDense(3, 3, []float64{1, 2, 3, 4, 5, 9, 7, 8, 15}), []float64{1, 1, 1}},
		"wide":             {mat.NewDense(2, 4, []float64{1, 2, 3, 4, 2, 1, 1, 0}), []float64{3, 1}},
		"all negative":     {mat.NewDense(2, 2, []float64{1, 2, 3, 4}), []float64{-1, -2}},
		"zero b":           {mat.NewDense(2, 2, []float64{1, 2, 3, 4}), []float64{0, 0}},
		"scales":           {mat.NewDense(3, 2, []float64{1e-200, 1e150, 2e-200, 3e150, 5e-200, 1e150}), []float64{1, 2, 3}},
		"huge":             {mat.NewDense(2, 1, []float64{1e308, 1e308}), []float64{1, 1}},
		"nearly dependent": {mat.NewDense(3, 2, []float64{1, 1, 2, 2, 3, 3 + 1e-14}), []float64{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := NNLS(c.a, c.b)
			if err != nil {
				if name == "huge" {
					return // its length overflows; an error is the answer
				}
				t.Fatal(err)
			}
			if name == "scales" {
				for _, v := range x {
					if v < 0 || math.IsNaN(v) {
						t.Errorf("x = %v", x)
					}
				}
				return // checkKKT itself would overflow
			}
			checkKKT(t, c.a, x, c.b)
		})
	}
}

func TestNNLSRejects(t *testing.T) {
	a := mat.NewDense(2, 2, []float64{1, 2, 3, 4})
	bad := mat.NewDense(2, 2, []float64{1, math.NaN(), 3, 4})
	for name, c := range map[string]struct {
		a mat.Matrix
		b []float64
	}{
		"length": {a, []float64{1}}, "NaN in A": {bad, []float64{1, 2}}, "NaN in b": {a, []float64{1, math.NaN()}}, "Inf in b": {a, []float64{1, math.Inf(-1)}},
	} {
		if x, err := NNLS(c.a, c.b); err == nil {
			t.Errorf("%s: got %v, want an error", name, x)
		}
	}
}

func BenchmarkNNLS(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	a := mat.NewDense(96, 4, nil)
	rhs := make([]float64, 96)
	for i := range 96 {
		linear(FormSync).basis(a.RawRowView(i), place{w: float64(i%32 + 1), p: 1})
		rhs[i] = 1 + 0.02*rng.NormFloat64()
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NNLS(a, rhs); err != nil {
			b.Fatal(err)
		}
	}
}
