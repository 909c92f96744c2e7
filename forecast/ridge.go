package forecast

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

const (
	robustRounds  = 3    // of reweighting by 1/|error|
	robustFloor   = 0.01 // errors below this share of the level weigh alike
	ridgeHorizons = 6    // horizons on which the strength is chosen
	ridgeOrigins  = 1500 // and examples
	ridgeSlack    = 0.02 // a strength may be so much worse and still be preferred
	trainParts    = 4    // parts of the history that are left out in turn
)

// examples is the regression of one horizon: rows of features, outcomes, and the
// level of each in samples/s, which is what an error of 1 in the outcome costs.
type examples struct {
	x       []float64 // row-major, one row per example
	outcome []float64
	level   []float64
}

// prepare computes what the features of each origin share, once for all horizons.
func (t *linearTrainer) prepare(origins []int) []linearOrigin {
	out := make([]linearOrigin, len(origins))
	for i, o := range origins {
		out[i] = t.data.origin(o)
	}
	return out
}

// examples gathers horizon h over the origins whose outcome was measured and lies
// no later than bin end.
func (t *linearTrainer) examples(origins []linearOrigin, h, end int) examples {
	k := t.plan.features()
	e := examples{x: make([]float64, 0, len(origins)*k)}
	for _, o := range origins {
		if o.t+h >= end || math.IsNaN(t.actual[o.t+h]) || o.level == 0 {
			continue
		}
		n := len(e.x)
		e.x = e.x[:n+k]
		t.data.fill(o, h, e.x[n:])
		e.outcome = append(e.outcome, t.actual[o.t+h]/o.level)
		e.level = append(e.level, o.level)
	}
	return e
}

// fit gives the coefficients of every horizon, learnt from the origins. Outcomes
// at or after bin end are not looked at.
func (t *linearTrainer) fit(origins []int, end int, ridge float64) [][]float64 {
	prepared := t.prepare(origins)
	out := make([][]float64, t.plan.horizon)
	for h := range out {
		out[h] = solve(t.examples(prepared, h, end), t.plan.prior(), ridge)
	}
	return out
}

// crossResiduals are the errors of the model on every part of the history in turn,
// fitted to the others: out of sample, and from all of it.
func (t *linearTrainer) crossResiduals(first, last int, ridge float64) *residuals {
	all := spread(first, last, ridgeOrigins)
	res := newResiduals(t.plan.horizon, scaleFloor*max(meanKnown(t.actual), math.SmallestNonzeroFloat64), len(all))
	for k := range trainParts {
		in, out := t.leaveOut(all, first, last, k)
		coefficients := t.fit(in, len(t.actual), ridge)
		for _, o := range out {
			res.begin()
			for h, m := range t.data.predict(o, coefficients) {
				res.add(h, t.actual[o+h], m)
			}
		}
	}
	return res
}

// chooseRidge tries the strengths by leaving out parts of the origins first…last
// in turn, and returns the strongest whose Σ|error| in samples/s is within
// ridgeSlack of the least: what little history cannot show to be better is not.
func (t *linearTrainer) chooseRidge(first, last int) float64 {
	all := spread(first, last, ridgeOrigins)
	loss := make([]float64, len(ridges))
	for k := range trainParts {
		in, out := t.leaveOut(all, first, last, k)
		train, check := t.prepare(in), t.prepare(out)
		for _, h := range spread(0, t.plan.horizon-1, ridgeHorizons) {
			seen, unseen := t.examples(train, h, last+t.plan.horizon), t.examples(check, h, last+t.plan.horizon)
			for i, ridge := range ridges {
				b := solve(seen, t.plan.prior(), ridge)
				for j, level := range unseen.level {
					loss[i] += level * math.Abs(unseen.outcome[j]-dot(unseen.row(j, len(b)), b))
				}
			}
		}
	}
	least := slices.Min(loss)
	for i := len(ridges) - 1; i > 0; i-- {
		if loss[i] <= (1+ridgeSlack)*least {
			return ridges[i]
		}
	}
	return ridges[0]
}

// leaveOut splits origins into those of part k of first…last and those that are a
// horizon or more away from it, so that no outcome is shared.
func (t *linearTrainer) leaveOut(origins []int, first, last, k int) (in, out []int) {
	from, to := first+k*(last-first+1)/trainParts, first+(k+1)*(last-first+1)/trainParts
	for _, o := range origins {
		switch {
		case from <= o && o < to:
			out = append(out, o)
		case o+t.plan.horizon <= from || o >= to+t.plan.horizon:
			in = append(in, o)
		}
	}
	return in, out
}

func (e examples) row(i, k int) []float64 { return e.x[i*k : (i+1)*k] }

// solve minimises Σ level·|outcome − x·b| + ridge·‖b−prior‖², the first part by
// weighted least squares, reweighted robustRounds times. Without examples the
// answer is the prior.
//
//	(Xᵀ W X + s·ridge·I)·(b−prior) = Xᵀ W (outcome − X·prior),  s = trace(Xᵀ W X)/k
func solve(e examples, prior []float64, ridge float64) []float64 {
	k, n := len(prior), len(e.outcome)
	b := slices.Clone(prior)
	if n == 0 {
		return b
	}
	weights := slices.Clone(e.level)
	gram, rhs := mat.NewSymDense(k, nil), mat.NewVecDense(k, nil)
	x, target := mat.NewDense(n, k, nil), mat.NewVecDense(n, nil)
	for range robustRounds + 1 {
		weigh(e, prior, weights, x, target)
		gram.SymOuterK(1, x.T())
		rhs.MulVec(x.T(), target)
		shrink := ridge * mat.Trace(gram) / float64(k)
		for i := range k {
			gram.SetSym(i, i, gram.At(i, i)+shrink)
		}
		var chol mat.Cholesky
		var delta mat.VecDense
		if !chol.Factorize(gram) || chol.SolveVecTo(&delta, rhs) != nil {
			return b // Singular in spite of the ridge: keep what the last round gave.
		}
		for i := range b {
			b[i] = prior[i] + delta.AtVec(i)
		}
		for i := range n {
			weights[i] = e.level[i] / max(math.Abs(e.outcome[i]-dot(e.row(i, k), b)), robustFloor)
		}
	}
	return b
}

// weigh writes √W·X into x and √W·(outcome − X·prior) into target.
func weigh(e examples, prior, weights []float64, x *mat.Dense, target *mat.VecDense) {
	k := len(prior)
	for i, outcome := range e.outcome {
		w := math.Sqrt(weights[i])
		row, scaled := e.row(i, k), x.RawRowView(i)
		for j, v := range row {
			scaled[j] = w * v
		}
		target.SetVec(i, w*(outcome-dot(row, prior)))
	}
}

func dot(a, b []float64) float64 {
	s := 0.0
	for i, v := range a {
		s += v * b[i]
	}
	return s
}
