package forecast

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// How all opinions are joined; see [regression].
const (
	regressed       = opinions - missedOn // regressors
	regressionRidge = 0.003               // relative to their mean square
	regressionParts = 5                   // stretches of time that are left out in turn
)

// regression joins all opinions of a [stack]: at each probe it is the b with the least Σ |actual − mix − Σ b·(opinion − mix)| at the past origins,
// by ridge regression, reweighted as [solve] does. One opinion after the other cannot say "half of what the last bin was off by, less a part of
// what the last hour was". What it says at an origin for the stack to judge is by the b of the stretches of time that the origin is not in.
type regression struct {
	coefficients [][]float64 // [probe][opinion − missedOn]
	part         []int       // of each trial
	grams        [regressionParts]*mat.SymDense
	rights       [regressionParts]*mat.VecDense
	weights      []float64
}

// fit fits it to what the stack of m has in its room, and writes there what it says.
func (r *regression) fit(m *mixture) {
	room, trials := &m.stack.room, len(m.trials)
	r.part, r.weights = grown(r.part, trials), grown(r.weights, trials)
	for j := range trials {
		r.part[j] = j * regressionParts / trials
	}
	r.coefficients = grown(r.coefficients, len(m.probes))
	for i := range m.probes {
		r.coefficients[i] = r.probe(room, i*trials, trials, m.unit)
	}
}

// probe fits the trials that begin at index at of the room.
func (r *regression) probe(room *stackRoom, at, trials int, unit float64) []float64 {
	var x [regressed]float64
	row := func(j int) float64 {
		said := room.said[at+j]
		for k := range x {
			x[k] = room.others[missedOn+k][at+j] - said
		}
		return room.actual[at+j] - said
	}
	for j := range trials {
		r.weights[j] = 1
	}
	var b [regressionParts][]float64 // without each part
	whole := make([]float64, regressed)
	for range robustRounds + 1 {
		for p := range r.grams {
			if r.grams[p] == nil {
				r.grams[p], r.rights[p] = mat.NewSymDense(regressed, nil), mat.NewVecDense(regressed, nil)
			}
			r.grams[p].Zero()
			r.rights[p].Zero()
		}
		for j := range trials {
			off, w := row(j), r.weights[j]
			gram, right := r.grams[r.part[j]].RawSymmetric().Data, r.rights[r.part[j]].RawVector().Data
			for k, v := range x {
				wv := w * v
				right[k] += wv * off
				line := gram[k*regressed : (k+1)*regressed]
				for l := k; l < regressed; l++ {
					line[l] += wv * x[l]
				}
			}
		}
		whole = r.solve(-1)
		for j := range trials {
			off := row(j)
			for k, v := range x {
				off -= whole[k] * v
			}
			r.weights[j] = 1 / max(math.Abs(off), robustFloor*unit)
		}
	}
	for p := range b {
		b[p] = r.solve(p)
	}
	for j := range trials {
		row(j)
		say := room.said[at+j]
		for k, v := range x {
			say += b[r.part[j]][k] * v
		}
		room.others[together][at+j] = max(0, say)
	}
	return whole
}

// solve gives the coefficients by all parts but one; zeros where there is nothing to tell them by.
func (r *regression) solve(without int) []float64 {
	gram, right := mat.NewSymDense(regressed, nil), mat.NewVecDense(regressed, nil)
	for p := range r.grams {
		if p != without {
			gram.AddSym(gram, r.grams[p])
			right.AddVec(right, r.rights[p])
		}
	}
	b := mat.NewVecDense(regressed, nil)
	shrink := regressionRidge * mat.Trace(gram) / regressed
	for k := range regressed {
		gram.SetSym(k, k, gram.At(k, k)+shrink)
	}
	var chol mat.Cholesky
	if !chol.Factorize(gram) || chol.SolveVecTo(b, right) != nil {
		b.Zero()
	}
	return b.RawVector().Data
}
