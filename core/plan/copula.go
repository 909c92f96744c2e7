package plan

import "math"

// classes is how many classes of load a step has, from unusually low to unusually
// high, and classShare how likely each is.
const classes = 5

var classShare = [classes]float64{0.08, 0.22, 0.40, 0.22, 0.08}

// classZ is the mean of the standard normal variable within each class.
var classZ = func() (z [classes]float64) {
	density := func(p float64) float64 {
		if p <= 0 || p >= 1 {
			return 0
		}
		x := probit(p)
		return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi)
	}
	from := 0.0
	for k, share := range classShare {
		z[k] = (density(from) - density(from+share)) / share
		from += share
	}
	return z
}()

// moves[k][a][b] is the probability that the load is in class b of one step where
// it was in class a of the step before, when the two are correlated by k/moveSteps:
// a Gaussian copula. At 1 the class never changes.
const moveSteps = 20

type moveMatrix [classes][classes]float64

var moves = func() (m [moveSteps + 1]moveMatrix) {
	for k := range m {
		m[k] = moveAt(float64(k) / moveSteps)
	}
	return m
}()

// moveAt integrates over the first variable by 64 points of equal probability a
// class; the second is normal around rho times the first.
func moveAt(rho float64) (m moveMatrix) {
	if rho >= 1 {
		for a := range m {
			m[a][a] = 1
		}
		return m
	}
	const points = 64
	sd := math.Sqrt(1 - rho*rho)
	from := 0.0
	for a, share := range classShare {
		for i := range points {
			x := probit(from + share*(float64(i)+0.5)/points)
			below, edge := 0.0, 0.0
			for b, s := range classShare {
				edge += s
				upTo := 1.0
				if b < classes-1 {
					upTo = 0.5 * math.Erfc(-(probit(edge)-rho*x)/sd/math.Sqrt2)
				}
				m[a][b] += (upTo - below) / points
				below = upTo
			}
		}
		from += share
	}
	return m
}

// move is the matrix for a correlation, cut to 0 … 1.
func move(rho float64) *moveMatrix {
	k := int(math.Round(min(max(rho, 0), 1) * moveSteps))
	return &moves[k]
}
