package estimator

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// errNoConvergence is returned when the active-set method exceeds its bound on
// iterations, which Lawson and Hanson's proof rules out in exact arithmetic.
var errNoConvergence = errors.New("active-set iteration did not converge")

// NNLS solves min ‖A·x − b‖₂ subject to x ≥ 0 by the active-set method of
// Lawson and Hanson ("Solving Least Squares Problems", 1974, ch. 23). A is m×n
// and b has length m; m may be smaller than n, and columns may depend on each
// other, in which case one of the minimisers is returned. A and b are not
// changed. The result is deterministic.
//
// Columns are scaled to unit length first, since the bases of Kale §3.3 differ
// by many orders of magnitude (1/w² beside w).
func NNLS(A mat.Matrix, b []float64) ([]float64, error) {
	m, n := A.Dims()
	if m != len(b) {
		return nil, fmt.Errorf("non-negative least squares: A has %d rows and b %d values; they must agree", m, len(b))
	}
	p, err := newProblem(A, b)
	if err != nil {
		return nil, fmt.Errorf("non-negative least squares (%d×%d): %w", m, n, err)
	}
	if err := p.solve(); err != nil {
		return nil, fmt.Errorf("non-negative least squares (%d×%d): %w", m, n, err)
	}
	for j := range p.x {
		p.x[j] *= p.bnorm / p.scale[j]
	}
	return p.x, nil
}

// problem is one NNLS run in scaled units: unit columns, unit b.
type problem struct {
	a       *mat.Dense
	b       []float64
	scale   []float64 // column norms; 1 for a zero column
	bnorm   float64   // norm of b; 1 when b is zero
	x       []float64
	passive []bool // x[j] free (true) or held at 0
	tol     float64
}

func newProblem(A mat.Matrix, b []float64) (*problem, error) {
	m, n := A.Dims()
	p := &problem{
		a: mat.NewDense(m, n, nil), b: make([]float64, m), scale: make([]float64, n),
		x: make([]float64, n), passive: make([]bool, n),
		tol: 10 * float64(max(m, n)) * 0x1p-52,
	}
	col := make([]float64, m)
	for j := range n {
		for i := range m {
			col[i] = A.At(i, j)
		}
		norm, ok := norm2(col)
		if !ok {
			return nil, fmt.Errorf("column %d of A holds a value that is not finite", j)
		}
		p.scale[j] = norm
		for i := range m {
			p.a.Set(i, j, col[i]/norm)
		}
	}
	norm, ok := norm2(b)
	if !ok {
		return nil, errors.New("b holds a value that is not finite")
	}
	p.bnorm = norm
	for i := range b {
		p.b[i] = b[i] / norm
	}
	return p, nil
}

// norm2 returns the Euclidean length of v without overflow, 1 for a zero
// vector, and false if v or its length is not finite.
func norm2(v []float64) (float64, bool) {
	big := 0.0
	for _, x := range v {
		if math.IsNaN(x) {
			return 0, false
		}
		big = max(big, math.Abs(x))
	}
	if big == 0 {
		return 1, true
	}
	s := 0.0
	for _, x := range v {
		s += (x / big) * (x / big)
	}
	s = big * math.Sqrt(s)
	return s, !math.IsInf(s, 0) && !math.IsNaN(s) // Inf/Inf is NaN
}

// solve runs the two nested loops of the method: the outer one frees the
// variable with the steepest descent, the inner one steps to the unconstrained
// solution over the free variables and pins those that it would turn negative.
func (p *problem) solve() error {
	n := len(p.x)
	refused := make([]bool, n) // dependent columns, until x moves again
	for range 30*n + 30 {
		j := p.steepest(refused)
		if j < 0 {
			return nil
		}
		p.passive[j] = true
		z, err := p.leastSquares()
		// A column that is dependent on the free ones, or that rounding alone
		// brought in, must not enter (Lawson and Hanson's test on z_j).
		if err != nil || z[j] <= 0 {
			p.passive[j] = false
			refused[j] = true
			continue
		}
		if err := p.descend(z); err != nil {
			return err
		}
		clear(refused)
	}
	return errNoConvergence
}

// descend moves x towards z, the solution over the free variables, pinning at 0
// what turns negative on the way, until z is feasible; then x = z.
func (p *problem) descend(z []float64) error {
	for range len(p.x) + 1 {
		alpha, worst := 1.0, -1
		for j, free := range p.passive {
			if free && z[j] <= 0 {
				if t := p.x[j] / (p.x[j] - z[j]); worst < 0 || t < alpha {
					alpha, worst = t, j
				}
			}
		}
		if worst < 0 {
			copy(p.x, z)
			return nil
		}
		for j := range p.x {
			p.x[j] += alpha * (z[j] - p.x[j])
			if p.passive[j] && (j == worst || p.x[j] <= p.tol && z[j] <= 0) {
				p.x[j], p.passive[j] = 0, false
			}
		}
		var err error
		if z, err = p.leastSquares(); err != nil {
			return err
		}
	}
	return errNoConvergence
}

// steepest returns the pinned variable whose release lowers the residual most,
// or -1 when the Kuhn–Tucker conditions hold.
func (p *problem) steepest(refused []bool) int {
	r := p.residual()
	best, at := p.tol, -1
	for j := range p.x {
		if p.passive[j] || refused[j] {
			continue
		}
		g := 0.0
		for i, v := range r {
			g += p.a.At(i, j) * v
		}
		if g > best {
			best, at = g, j
		}
	}
	return at
}

// residual is b − A·x.
func (p *problem) residual() []float64 {
	r := make([]float64, len(p.b))
	for i := range r {
		r[i] = p.b[i]
		for j, x := range p.x {
			r[i] -= p.a.At(i, j) * x
		}
	}
	return r
}

// leastSquares solves the unconstrained problem over the free variables by QR,
// with zeros elsewhere. It fails when those columns are dependent.
func (p *problem) leastSquares() ([]float64, error) {
	m, n := p.a.Dims()
	free := make([]int, 0, n)
	for j, f := range p.passive {
		if f {
			free = append(free, j)
		}
	}
	z := make([]float64, n)
	if len(free) == 0 {
		return z, nil
	}
	if len(free) > m {
		return nil, errors.New("more free variables than rows")
	}
	sub := mat.NewDense(m, len(free), nil)
	for k, j := range free {
		for i := range m {
			sub.Set(i, k, p.a.At(i, j))
		}
	}
	var qr mat.QR
	qr.Factorize(sub)
	if qr.Cond() > 1e12 {
		return nil, errors.New("dependent columns")
	}
	var sol mat.VecDense
	if err := qr.SolveVecTo(&sol, false, mat.NewVecDense(m, p.b)); err != nil {
		return nil, err
	}
	for k, j := range free {
		z[j] = sol.AtVec(k)
	}
	return z, nil
}
