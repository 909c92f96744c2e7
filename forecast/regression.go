package forecast

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// How all opinions are joined; see [regression].
const (
	regressed       = hedged - missedOn // regressors
	regressionRidge = 0.003             // relative to their mean square
	regressionParts = 5                 // stretches of time that are left out in turn
)

// regression joins all opinions of a [stack]: at each probe it is the b with the least Σ |actual − mix − Σ b·(opinion − mix)| at the past origins,
// by ridge regression, reweighted as [solve] does. One opinion after the other cannot say "half of what the last bin was off by, less a part of
// what the last hour was". What it says at an origin for the stack to judge is by the b of the stretches of time that the origin is not in.
type regression struct {
	coefficients [][]float64                                    // [probe][opinion − missedOn]
	grams        [regressionParts][regressed][regressed]float64 // the upper halves
	rights       [regressionParts][regressed]float64
	columns      [regressed][]float64 // of one probe, by trial: what each opinion is off the mix by,
	off          []float64            // what the outcome is,
	weights      []float64            // what that counts,
	said         []float64            // and what all opinions together say of it
	weighted     []float64            // a column, in the part that is summed
}

// fit fits it to what the stack of m has in its room, and writes there what it says.
func (r *regression) fit(m *mixture) {
	room, trials := &m.stack.room, len(m.trials)
	for k := range r.columns {
		r.columns[k] = grown(r.columns[k], trials)
	}
	r.off, r.weights, r.said, r.weighted = grown(r.off, trials), grown(r.weights, trials), grown(r.said, trials), grown(r.weighted, trials)
	r.coefficients = grown(r.coefficients, len(m.probes))
	for i := range m.probes {
		r.coefficients[i] = r.probe(room, i*trials, m.unit)
	}
}

// probe fits the trials that begin at index at of the room.
func (r *regression) probe(room *stackRoom, at int, unit float64) []float64 {
	trials := len(r.off)
	said := room.said[at : at+trials]
	floats.SubTo(r.off, room.actual[at:at+trials], said)
	for k, column := range r.columns {
		floats.SubTo(column, room.others[missedOn+k][at:at+trials], said)
	}
	for j := range r.weights {
		r.weights[j] = 1
	}
	r.sum()
	whole := r.solve(-1)
	for range robustRounds {
		r.says(whole, 0, trials)
		for j, off := range r.off {
			r.weights[j] = 1 / max(math.Abs(off-r.said[j]), robustFloor*unit)
		}
		r.sum()
		whole = r.solve(-1)
	}
	for p := range regressionParts {
		from, to := r.part(p)
		r.says(r.solve(p), from, to)
	}
	for j, off := range r.said {
		room.others[together][at+j] = max(0, said[j]+off)
	}
	return whole
}

// part is where the trials of a part begin and end.
func (r *regression) part(p int) (from, to int) {
	first := func(p int) int { return (p*len(r.off) + regressionParts - 1) / regressionParts }
	return first(p), first(p + 1)
}

// says leaves in said by how much the opinions at the trials from … to − 1, with these coefficients, are off the mix.
func (r *regression) says(b []float64, from, to int) {
	said := r.said[from:to]
	clear(said)
	for k, column := range r.columns {
		floats.AddScaled(said, b[k], column[from:to])
	}
}

// sum makes the two sides of the normal equations of each part.
func (r *regression) sum() {
	for p := range regressionParts {
		from, to := r.part(p)
		weighted := r.weighted[from:to]
		for k, column := range r.columns {
			floats.MulTo(weighted, column[from:to], r.weights[from:to])
			r.rights[p][k] = floats.Dot(weighted, r.off[from:to])
			for l := k; l < regressed; l++ {
				r.grams[p][k][l] = floats.Dot(weighted, r.columns[l][from:to])
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
