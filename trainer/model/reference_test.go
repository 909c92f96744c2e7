package model

import "math"

// reference is the simplest statement of the models, in float64 and record by record: what the graphs are compared with. It reads the same
// buffers as a step.
type reference struct {
	spec                              Spec
	emb, dense, label, weight, params []float64
}

func referenceOf(s Spec, st *Step) reference {
	wide := func(v []float32) []float64 {
		out := make([]float64, len(v))
		for i, x := range v {
			out[i] = float64(x)
		}
		return out
	}
	return reference{s, wide(st.Emb), wide(st.Dense), wide(st.Label), wide(st.Weight), wide(st.Params)}
}

// logit of record i.
func (r reference) logit(i int) float64 {
	s := r.spec
	width := s.RowWidth()
	row := func(field int) []float64 {
		at := (i*s.SparseFields + field) * width
		return r.emb[at : at+width]
	}
	dense := r.dense[i*s.DenseFields : (i+1)*s.DenseFields]
	params := r.params
	take := func(n int) []float64 { p := params[:n]; params = params[n:]; return p }

	z := take(1)[0]
	if s.DenseFields > 0 {
		for j, w := range take(s.DenseFields) {
			z += w * dense[j]
		}
	}
	for f := range s.SparseFields {
		z += row(f)[0]
	}
	if s.Kind == LR {
		return z
	}
	var hidden []float64
	for f := range s.SparseFields {
		hidden = append(hidden, row(f)[1:]...)
		for e := range f {
			for k := 1; k < width; k++ {
				z += row(e)[k] * row(f)[k]
			}
		}
	}
	hidden = append(hidden, dense...)
	for _, n := range s.Hidden {
		weights, bias := take(len(hidden)*n), take(n)
		next := make([]float64, n)
		for j := range next {
			next[j] = bias[j]
			for k, h := range hidden {
				next[j] += h * weights[k*n+j]
			}
			next[j] = math.Max(0, next[j])
		}
		hidden = next
	}
	for j, w := range take(len(hidden)) {
		z += w * hidden[j]
	}
	return z
}

// loss is Σ weight·logloss; objective adds the penalty.
func (r reference) loss() float64 {
	total := 0.0
	for i, w := range r.weight {
		p := 1 / (1 + math.Exp(-r.logit(i)))
		total -= w * (r.label[i]*math.Log(p) + (1-r.label[i])*math.Log(1-p))
	}
	return total
}

func (r reference) objective() float64 {
	squares, share := 0.0, 0.0
	for _, v := range r.params {
		squares += v * v
	}
	for _, w := range r.weight {
		share += w
	}
	return r.loss() + float64(r.spec.L2)/2*squares*share
}

// slope is the central difference of the objective in *x.
func (r reference) slope(x *float64) float64 {
	const h = 1e-5
	at := *x
	*x = at + h
	up := r.objective()
	*x = at - h
	down := r.objective()
	*x = at
	return (up - down) / (2 * h)
}
