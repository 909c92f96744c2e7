package estimator

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// polluxGamma is the place of γ in θ.
const polluxGamma = 4

// pollux is the formula of Pollux (OSDI '21, §3.2): computing and communicating
// overlap more, the larger γ is. It is not linear in θ.
type pollux struct{}

// parts are the times for the gradient and for the network.
func (pollux) parts(theta []float64, at place) (grad, net float64) {
	grad = theta[0] + theta[1]*at.batch/at.w
	if at.w >= 2 {
		net = theta[2] + theta[3]*(at.w-2)
	}
	return grad, net
}

func (f pollux) seconds(theta []float64, at place) float64 {
	a, b := f.parts(theta, at)
	return norm(a, b, theta[polluxGamma])
}

// norm is (a^g + b^g)^(1/g) for a, b ≥ 0, without overflow.
func norm(a, b, g float64) float64 {
	if a < b {
		a, b = b, a
	}
	if b == 0 {
		return a
	}
	return a * math.Exp(math.Log1p(math.Pow(b/a, g))/g)
}

func (f pollux) slopes(dst, theta []float64, at place) {
	a, b := f.parts(theta, at)
	g := theta[polluxGamma]
	t := norm(a, b, g)
	clear(dst[:polluxGamma+1])
	if t <= 0 {
		return
	}
	byA, byB := math.Pow(a/t, g-1), math.Pow(b/t, g-1)
	dst[0], dst[1] = byA, byA*at.batch/at.w
	if at.w >= 2 {
		dst[2], dst[3] = byB, byB*(at.w-2)
	}
	if a > 0 && b > 0 { // with u = (a/t)^g and v = (b/t)^g, u + v = 1: d ln t/dg = (u ln u + v ln v)/g²
		u, v := math.Pow(a/t, g), math.Pow(b/t, g)
		dst[polluxGamma] = t * (xlnx(u) + xlnx(v)) / (g * g)
	}
}

func xlnx(x float64) float64 {
	if x <= 0 {
		return 0
	}
	return x * math.Log(x)
}

// polluxGammas are where the search for γ begins; it ends polluxGolden golden
// sections later, which narrow a gap between two of them to a thousandth.
var polluxGammas = []float64{1, 1.25, 1.6, 2, 2.6, 3.5, 5, 7, 10}

const polluxGolden = 15

// fit minimises the squared error of the logarithm, as Pollux does: over γ by scan
// and golden section, over the four times at each γ by Gauss–Newton steps, each of
// which is one [NNLS]. A part that no observation shows stays 0, which is Pollux's
// prior too: no cost of communication is assumed before it was seen.
func (f pollux) fit(obs []observation) ([]float64, error) {
	var starts [][]float64
	best := math.Inf(1)
	var theta []float64
	try := func(g float64) float64 {
		least := math.Inf(1)
		for _, s := range starts {
			got, c, err := f.descend(append(slices.Clone(s[:polluxGamma]), g), obs)
			if err == nil && c < least {
				least = c
				if c < best {
					best, theta = c, got
				}
			}
		}
		return least
	}
	one, err := f.oneAfterTheOther(obs)
	if err != nil {
		return nil, err
	}
	// Where all time seems to be that of the gradient, larger γ would never see the
	// network's: another start gives it half.
	half := slices.Clone(one)
	for _, o := range obs {
		if o.w >= 2 {
			half[2] = max(half[2], o.seconds/2)
		}
	}
	starts = [][]float64{one, half}
	at, least := 0, math.Inf(1)
	for i, g := range polluxGammas {
		if c := try(g); c < least {
			at, least = i, c
		}
	}
	lo, hi := polluxGammas[max(at-1, 0)], polluxGammas[min(at+1, len(polluxGammas)-1)]
	const ratio = 0.6180339887498949 // golden section
	x, y := hi-ratio*(hi-lo), lo+ratio*(hi-lo)
	fx, fy := try(x), try(y)
	for range polluxGolden {
		if fx <= fy {
			hi, y, fy = y, x, fx
			x = hi - ratio*(hi-lo)
			fx = try(x)
		} else {
			lo, x, fx = x, y, fy
			y = lo + ratio*(hi-lo)
			fy = try(y)
		}
	}
	if theta == nil {
		return nil, fmt.Errorf("no γ from 1 to 10 explains %d observations", len(obs))
	}
	return theta, nil
}

// oneAfterTheOther is the best θ for γ = 1, which is linear.
func (f pollux) oneAfterTheOther(obs []observation) ([]float64, error) {
	a := mat.NewDense(len(obs), polluxGamma, nil)
	b := make([]float64, len(obs))
	var row [polluxGamma + 1]float64
	for i, o := range obs {
		f.slopes(row[:], []float64{1, 1, 1, 1, 1}, o.place)
		s := math.Sqrt(o.weight)
		for j := range polluxGamma {
			a.Set(i, j, s*row[j]/o.seconds)
		}
		b[i] = s
	}
	x, err := NNLS(a, b)
	return append(x, 1), err
}

// descend improves θ at its γ until it gets no better, and returns it with its
// squared error.
func (f pollux) descend(theta []float64, obs []observation) ([]float64, float64, error) {
	cost := f.cost(theta, obs)
	for range 40 {
		to, err := f.towards(theta, obs)
		if err != nil {
			return theta, cost, err
		}
		next, c := slices.Clone(theta), cost
		for share := 1.0; share > 1e-4; share /= 2 {
			for j := range polluxGamma {
				next[j] = theta[j] + share*(to[j]-theta[j])
			}
			if c = f.cost(next, obs); c < cost {
				break
			}
		}
		if !(c < cost) {
			break
		}
		done := cost-c <= 1e-10*cost
		if theta, cost = next, c; done {
			break
		}
	}
	return theta, cost, nil
}

// towards solves the problem linearised at θ.
func (f pollux) towards(theta []float64, obs []observation) ([]float64, error) {
	a := mat.NewDense(len(obs), polluxGamma, nil)
	b := make([]float64, len(obs))
	var row [polluxGamma + 1]float64
	for i, o := range obs {
		f.slopes(row[:], theta, o.place)
		t, s := f.seconds(theta, o.place), math.Sqrt(o.weight)
		b[i] = s * math.Log(o.seconds/t)
		for j := range polluxGamma {
			v := s * row[j] / t
			a.Set(i, j, v)
			b[i] += v * theta[j]
		}
	}
	return NNLS(a, b)
}

func (f pollux) cost(theta []float64, obs []observation) float64 {
	sum := 0.0
	for _, o := range obs {
		e := math.Log(f.seconds(theta, o.place) / o.seconds)
		sum += o.weight * e * e
	}
	if math.IsNaN(sum) {
		return math.Inf(1)
	}
	return sum
}
