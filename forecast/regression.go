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
	coefficients [][]float64                                    // [probe][opinion − missedOn]
	part         []int                                          // of each trial
	grams        [regressionParts][regressed][regressed]float64 // the upper halves
	rights       [regressionParts][regressed]float64
	rows         [][regressed]float64 // of one probe, by trial: what the opinions are off the mix by,
	off          []float64            // what the outcome is,
	weights      []float64            // and what that counts
}

// fit fits it to what the stack of m has in its room, and writes there what it says.
func (r *regression) fit(m *mixture) {
	room, trials := &m.stack.room, len(m.trials)
	r.part, r.rows = grown(r.part, trials), grown(r.rows, trials)
	r.off, r.weights = grown(r.off, trials), grown(r.weights, trials)
	for j := range trials {
		r.part[j] = j * regressionParts / trials
	}
	r.coefficients = grown(r.coefficients, len(m.probes))
	for i := range m.probes {
		r.coefficients[i] = r.probe(room, i*trials, m.unit)
	}
}

// probe fits the trials that begin at index at of the room.
func (r *regression) probe(room *stackRoom, at int, unit float64) []float64 {
	for j := range r.rows {
		said := room.said[at+j]
		for k := range regressed {
			r.rows[j][k] = room.others[missedOn+k][at+j] - said
		}
		r.off[j], r.weights[j] = room.actual[at+j]-said, 1
	}
	var whole []float64
	for range robustRounds + 1 {
		r.sum()
		whole = r.solve(-1)
		for j := range r.rows {
			r.weights[j] = 1 / max(math.Abs(r.off[j]-r.says(whole, j)), robustFloor*unit)
		}
	}
	var b [regressionParts][]float64 // without each part
	for p := range b {
		b[p] = r.solve(p)
	}
	for j, p := range r.part {
		room.others[together][at+j] = max(0, room.said[at+j]+r.says(b[p], j))
	}
	return whole
}

// says is by how much the opinions at trial j, with these coefficients, are off the mix.
func (r *regression) says(b []float64, j int) (off float64) {
	for k, v := range &r.rows[j] {
		off += b[k] * v
	}
	return off
}

// sum makes the two sides of the normal equations of each part.
func (r *regression) sum() {
	clear(r.grams[:])
	clear(r.rights[:])
	for j := range r.rows {
		x, gram, right := &r.rows[j], &r.grams[r.part[j]], &r.rights[r.part[j]]
		w, off := r.weights[j], r.off[j]
		for k, v := range x {
			wv := w * v
			right[k] += wv * off
			line := &gram[k]
			for l := k; l < regressed; l++ {
				line[l] += wv * x[l]
			}
		}
	}
}

// solve gives the coefficients by all parts but one; zeros where there is nothing to tell them by.
func (r *regression) solve(without int) []float64 {
	gram, right := mat.NewSymDense(regressed, nil), mat.NewVecDense(regressed, nil)
	of, to := gram.RawSymmetric().Data, right.RawVector().Data
	for p := range r.grams {
		if p == without {
			continue
		}
		for k, line := range &r.grams[p] {
			to[k] += r.rights[p][k]
			for l := k; l < regressed; l++ {
				of[k*regressed+l] += line[l]
			}
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
