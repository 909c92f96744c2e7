package fedformer

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/floats"
)

// reference is the same model for one window in float64, by FFT and plain loops. A matrix has a row per bin.
type reference struct {
	c Config
	w map[string][]float32
}

type matrix [][]float64

func zeros(rows, cols int) matrix {
	m := make(matrix, rows)
	for i := range m {
		m[i] = make([]float64, cols)
	}
	return m
}

func add(ms ...matrix) matrix {
	s := zeros(len(ms[0]), len(ms[0][0]))
	for _, m := range ms {
		for i := range m {
			for j := range m[i] {
				s[i][j] += m[i][j]
			}
		}
	}
	return s
}

func (r reference) linear(name string, x matrix, bias bool) matrix {
	w := double(r.w[name+".w"])
	out := len(w) / len(x[0])
	y := zeros(len(x), out)
	for i, row := range y {
		for k, v := range x[i] { // by gonum: a loop here is most of the test's time under the race detector
			floats.AddScaled(row, v, w[k*out:(k+1)*out])
		}
		if bias {
			floats.Add(row, double(r.w[name+".b"]))
		}
	}
	return y
}

func double(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

func (r reference) conv(name string, x matrix) matrix {
	l := len(x)
	y := make(matrix, l)
	for t := range l {
		y[t] = append(append(append([]float64{}, x[(t+l-1)%l]...), x[t]...), x[(t+1)%l]...)
	}
	return r.linear(name, y, false)
}

func (r reference) decompose(x matrix) (season, trend matrix) {
	l, k := len(x), r.c.Average
	season, trend = zeros(l, len(x[0])), zeros(l, len(x[0]))
	for t := range x {
		for j := range x[t] {
			for i := t - k/2; i < t-k/2+k; i++ {
				trend[t][j] += x[min(max(i, 0), l-1)][j] / float64(k)
			}
			season[t][j] = x[t][j] - trend[t][j]
		}
	}
	return season, trend
}

func (r reference) feed(name string, x matrix) matrix {
	h := r.linear(name+".up", x, false)
	for _, row := range h {
		for j, v := range row {
			row[j] = v * (1 + math.Erf(v/math.Sqrt2)) / 2
		}
	}
	return r.linear(name+".down", h, false)
}

func (r reference) norm(name string, x matrix) matrix {
	y, n := zeros(len(x), len(x[0])), float64(len(x[0]))
	mean := make([]float64, len(x[0]))
	for t, row := range x {
		var m, v float64
		for _, e := range row {
			m += e / n
		}
		for _, e := range row {
			v += (e - m) * (e - m) / n
		}
		for j, e := range row {
			y[t][j] = (e-m)/math.Sqrt(v+1e-5)*float64(r.w[name+".g"][j]) + float64(r.w[name+".b"][j])
			mean[j] += y[t][j] / float64(len(x))
		}
	}
	for _, row := range y {
		for j := range row {
			row[j] -= mean[j]
		}
	}
	return y
}

// spectrum has a row per channel: the chosen coefficients of its real FFT.
func spectrum(x matrix, modes []int) [][]complex128 {
	s, col := make([][]complex128, len(x[0])), make([]float64, len(x))
	for j := range s {
		for t := range x {
			col[t] = x[t][j]
		}
		all := fourier.NewFFT(len(x)).Coefficients(nil, col)
		for _, m := range modes {
			s[j] = append(s[j], all[m])
		}
	}
	return s
}

func (r reference) mix(name string, s [][]complex128, modes []int, l int) matrix {
	y, e, fft := zeros(l, len(s)), r.c.Width/r.c.Heads, fourier.NewFFT(l)
	for j := range s {
		h, all := j/e, make([]complex128, l/2+1)
		for k, m := range modes {
			for i := range e {
				at := ((k*r.c.Heads+h)*e+i)*e + j%e
				all[m] += s[h*e+i][k] * complex(float64(r.w[name+".re"][at]), float64(r.w[name+".im"][at]))
			}
		}
		for t, v := range fft.Sequence(nil, all) {
			y[t][j] = v / float64(l)
		}
	}
	return y
}

func (r reference) block(name, shared string, x matrix, modes []int) matrix {
	return r.linear(name+".o", r.mix(shared, spectrum(r.linear(name+".q", x, true), modes), modes, len(x)), true)
}

func (r reference) cross(name, shared string, x, memory matrix, mq, mk []int) matrix {
	q, k := spectrum(r.linear(name+".q", x, true), mq), spectrum(r.linear(name+".k", memory, true), mk)
	e := r.c.Width / r.c.Heads
	v := make([][]complex128, len(q))
	for j := range v {
		v[j] = make([]complex128, len(mq))
	}
	for h := range r.c.Heads {
		for a := range mq {
			for b := range mk {
				var p complex128
				for i := h * e; i < (h+1)*e; i++ {
					p += q[i][a] * k[i][b]
				}
				p = complex(math.Tanh(real(p)), math.Tanh(imag(p)))
				for i := h * e; i < (h+1)*e; i++ {
					v[i][a] += p * k[i][b]
				}
			}
		}
	}
	y := r.mix(shared, v, mq, len(x))
	for _, row := range y {
		for j := range row {
			row[j] /= float64(r.c.Width * r.c.Width)
		}
	}
	return r.linear(name+".o", y, true)
}

func (r reference) forward(x, xm, ym matrix) matrix {
	c := r.c
	whole := c.Label + c.Horizon
	s, tr := r.decompose(x)
	season, trend := zeros(whole, 1), zeros(whole, 1)
	var mean float64
	recent := x[len(x)-min(len(x), c.Horizon):]
	for _, v := range recent {
		mean += v[0] / float64(len(recent))
	}
	for t := range whole {
		if trend[t][0] = mean; t < c.Label {
			season[t][0], trend[t][0] = s[c.Input-c.Label+t][0], tr[c.Input-c.Label+t][0]
		}
	}
	me, md := c.modes(c.Input, 1), c.modes(whole, 2)
	embed := func(name string, v, marks matrix) matrix {
		if marks == nil {
			return r.conv(name+".value", v)
		}
		return add(r.conv(name+".value", v), r.linear(name+".time", marks, false))
	}
	h := embed("enc", x, xm)
	for i := range c.Encoders {
		p := fmt.Sprintf("enc%d", i)
		h, _ = r.decompose(add(h, r.block(p, "enc.f", h, me)))
		h, _ = r.decompose(add(h, r.feed(p, h)))
	}
	h = r.norm("enc.norm", h)
	d := embed("dec", season, ym)
	for i := range c.Decoders {
		p := fmt.Sprintf("dec%d", i)
		var t1, t2, t3 matrix
		d, t1 = r.decompose(add(d, r.block(p, "dec.f", d, md)))
		d, t2 = r.decompose(add(d, r.cross(p+".cross", "cross.f", d, h, md, me)))
		d, t3 = r.decompose(add(d, r.feed(p, d)))
		trend = add(trend, r.conv(p+".trend", add(t1, t2, t3)))
	}
	return add(r.linear("out", r.norm("dec.norm", d), true), trend)[c.Label:]
}
