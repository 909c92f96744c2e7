package fedformer

import (
	"fmt"
	"math"
	"slices"

	"github.com/kale-sched/kale/core/onnx"
)

// Inference is [Scaled] of one window, c.Batch 1, for a model that is run and not learnt from: the same forecast by fewer and smaller operators, where the
// weights are constants. What depends on them alone the runtime computes once, when it opens the model.
//
//   - Up to the first GELU, and to the first attention, all is linear: embedding, Fourier block and season stay a [sum] until what follows is multiplied in.
//   - A complex number is the matrix [[re, −im], [im, re]]: the weights of a mode are read once, and one product does what four did.
//   - The moving average of what is constant over time is that constant: no season sees a Fourier block's biases, which are the trend's alone, nor
//     the bias of a norm, which takes off the mean over time.
//   - Of the trend three channels are averaged, one for each bin that its convolution sees.
func Inference(g *onnx.Graph, c Config, x, past, ahead *onnx.Tensor, weight func(name string, shape ...int) *onnx.Tensor) *onnx.Tensor {
	return scaled(g, c, x, past, ahead, weight, folded)
}

// folded is [Forward] of one window. Within it, what has bins is a matrix with a row for each.
func folded(g *onnx.Graph, c Config, x, xm, ym *onnx.Tensor, weight func(name string, shape ...int) *onnx.Tensor) *onnx.Tensor {
	n := net{g, c, weight, map[string]*onnx.Tensor{}}
	whole := c.Label + c.Horizon
	me, md := c.modes(c.Input, 1), c.modes(whole, 2)
	x = n.Reshape(x, c.Input, 1)
	e := n.embedding("enc", x, xm)
	for i := range c.Encoders {
		p := fmt.Sprintf("enc%d", i)
		e = n.seasonal(n.fed(p, n.fourier(p, "enc.f", e, me).over(n.season)))
	}
	memory := n.Mul(n.normed(n.value(e)), n.weight("enc.norm.g", c.Width))

	season := n.Concat(0, n.Slice(n.season(x), 0, c.Input-c.Label, c.Input), n.zeros(c.Horizon, 1))
	d := n.embedding("dec", season, ym)
	trend := n.ReduceMean(n.Slice(x, 0, c.Input-c.recent(), c.Input), true, 0)
	for i := range c.Decoders {
		p := fmt.Sprintf("dec%d", i)
		taps := n.Transpose(n.Reshape(n.weight(p+".trend.w", 3*c.Width, 1), 3, c.Width), 1, 0)
		z1 := n.fourier(p, "dec.f", d, md)
		z2 := n.attended(p+".cross", "cross.f", z1.over(n.season), memory, md, me)
		z3 := n.fed(p, z2.over(n.season))
		seen := n.plus(n.times(z1, taps), n.MatMul(n.constants(p, md), taps))
		seen = n.Gemm(z3, taps, n.plus(n.times(z2, taps), seen), false, false)
		// The convolution takes one channel of the bin before, one of the bin, and one of that after it.
		pick := n.Const([]float32{1, 0, 0, 0, 1, 0, 0, 0, 1}, 9, 1)
		trend = n.Add(trend, n.MatMul(n.around(n.Sub(seen, n.season(seen))), pick))
		d = n.seasonal(z3)
	}
	y := n.MatMul(n.Mul(n.normed(n.value(d)), n.weight("dec.norm.g", c.Width)), n.weight("out.w", c.Width, 1))
	y = n.Add(n.Sub(y, n.ReduceMean(y, true, 0)), n.Add(trend, n.weight("out.b", 1)))
	return n.Reshape(n.Slice(y, 0, c.Label, whole), 1, c.Horizon, 1)
}

// sum is a matrix [bins,channels] as the sum of terms, not computed.
type sum []term

// term is the matrix b·s·w: b has a row for each bin, w a column for each channel. s and w are 1 where they are nil; both may be [Modes,·,·], of which the product's rows
// are b's columns.
type term struct{ b, s, w *onnx.Tensor }

// over applies what is linear over time.
func (p sum) over(time func(*onnx.Tensor) *onnx.Tensor) sum {
	p = slices.Clone(p)
	for i := range p {
		p[i].b = time(p[i].b)
	}
	return p
}

// times multiplies the channels by w.
func (n net) times(p sum, w *onnx.Tensor) sum {
	p = slices.Clone(p)
	for i := range p {
		if p[i].w == nil {
			p[i].w = w
		} else {
			p[i].w = n.MatMul(p[i].w, w)
		}
	}
	return p
}

func (n net) value(p sum) *onnx.Tensor { return n.plus(p, nil) }

// plus computes p, and adds y unless that is nil.
func (n net) plus(p sum, y *onnx.Tensor) *onnx.Tensor {
	for _, t := range p {
		right := t.s
		switch {
		case t.s == nil:
			right = t.w
		case t.w != nil:
			right = n.inner(t)
		}
		switch {
		case right != nil:
			y = n.Gemm(t.b, right, y, false, false)
		case y != nil:
			y = n.Add(t.b, y)
		default:
			y = t.b
		}
	}
	return y
}

// inner is t's product s·w.
func (n net) inner(t term) *onnx.Tensor {
	y := n.byMode(t.s, t.w)
	return n.Reshape(y, t.b.Shape()[1], y.Size()/t.b.Shape()[1])
}

// settled is p computed, unless a product with its terms is cheaper than with that.
func (n net) settled(p sum) sum {
	terms := 0
	for _, t := range p {
		if terms += t.b.Size(); t.s != nil {
			terms += t.s.Size()
		}
	}
	if terms < p[0].b.Shape()[0]*n.c.Width {
		return p
	}
	return sum{{b: n.value(p)}}
}

// byMode is the product m·w. Of each mode m has few rows, and one by one is quicker: for one row the runtime reads w where it is, else it copies it first.
func (n net) byMode(m, w *onnx.Tensor) *onnx.Tensor {
	last := m.Rank() - 1
	if w.Rank() < 3 {
		return n.MatMul(m, w)
	}
	return n.Squeeze(n.MatMul(n.Unsqueeze(m, last), n.Unsqueeze(w, last-1)), last)
}

// embedding is of x and the marks of its bins.
func (n net) embedding(name string, x, marks *onnx.Tensor) sum {
	f, w := n.around(x), n.weight(name+".value.w", 3, n.c.Width)
	if marks != nil {
		f = n.Concat(1, f, n.Reshape(marks, x.Shape()[0], n.c.Marks))
		w = n.Concat(0, w, n.weight(name+".time.w", n.c.Marks, n.c.Width))
	}
	return sum{{b: f, w: w}}
}

// around has, in a row, the channels of the bin before, of the bin and of that after it, in a circle.
func (n net) around(x *onnx.Tensor) *onnx.Tensor {
	l := x.Shape()[0]
	ring := n.Concat(0, n.Slice(x, 0, l-1, l), x, n.Slice(x, 0, 0, 1))
	return n.Concat(1, n.Slice(ring, 0, 0, l), x, n.Slice(ring, 0, 2, l+2))
}

// season is x less its moving average.
func (n net) season(x *onnx.Tensor) *onnx.Tensor { return n.value(n.seasonal(x)) }

func (n net) seasonal(x *onnx.Tensor) sum {
	l := x.Shape()[0]
	if l > averageByMatrix {
		s, _ := n.decompose(x)
		return sum{{b: s}}
	}
	return sum{{s: x, b: n.table(fmt.Sprintf("season of %d", l), l, l, func(m []float32) {
		n.average(m, l, -1)
		for t := range l {
			m[t*l+t]++
		}
	})}}
}

// waves takes bins to modes: [2·Modes,bins], of each mode the real and the imaginary part.
func (n net) waves(modes []int, l int) *onnx.Tensor {
	return n.table(fmt.Sprintf("waves %v of %d", modes, l), 2*len(modes), l, func(m []float32) {
		for k, w := range modes {
			for t := range l {
				s, c := math.Sincos(2 * math.Pi * float64(w*t%l) / float64(l))
				m[2*k*l+t], m[(2*k+1)*l+t] = float32(c), float32(-s)
			}
		}
	})
}

// back takes modes to bins: [bins,2·Modes].
func (n net) back(modes []int, l int) *onnx.Tensor {
	share := n.table(fmt.Sprintf("shares %v of %d", modes, l), 2*len(modes), 1, func(m []float32) {
		for i := range m {
			if m[i] = 2 / float32(l); modes[i/2] == 0 {
				m[i] /= 2
			}
		}
	})
	return n.Transpose(n.Mul(n.waves(modes, l), share), 1, 0)
}

// matrices makes of each mode of z [2·Modes,channels] the rows [re, −im] and [im, re]: [Modes,2,2·channels].
func (n net) matrices(z *onnx.Tensor) *onnx.Tensor {
	m, w := z.Shape()[0]/2, z.Shape()[1]
	table := n.table("matrices", 4, 2, func(t []float32) { copy(t, []float32{1, 0, 0, -1, 0, 1, 1, 0}) })
	return n.Reshape(n.MatMul(table, n.Reshape(z, m, 2, w)), m, 2, 2*w)
}

// heads divides the channels of m [Modes,rows,2·Width] among the heads: its axes mode, row, column, head and channel in the order of perm.
func (n net) heads(m *onnx.Tensor, perm ...int) *onnx.Tensor {
	h := n.c.Heads
	return n.Transpose(n.Reshape(m, m.Shape()[0], m.Shape()[1], 2, h, n.c.Width/h), perm...)
}

// largest is up to how many elements a product of a mode's weights with those beside it is kept: so much is read faster than three products are computed,
// measured at d_model 64.
const largest = 1 << 20 // 4 MiB

func (n net) folds(rows int, modes []int) bool { return len(modes)*2*rows*n.c.Width <= largest }

// mixed multiplies each mode of m [Modes,2,2·rows] by in [rows,Width], which is 1 where it is nil, by the mode's complex matrices, those named shared, and by out
// [Width,Width], and goes back to l bins.
func (n net) mixed(shared string, m, in, out *onnx.Tensor, modes []int, l int) term {
	w, h, e := n.c.Width, n.c.Heads, n.c.Width/n.c.Heads
	weights := n.Concat(2, n.weight(shared+".re", len(modes), h, e, e), n.weight(shared+".im", len(modes), h, e, e))
	times := func(m *onnx.Tensor) *onnx.Tensor { // [Modes,rows,2·Width], or one for all modes, to [Modes,rows,Width]
		rows := m.Shape()[1]
		y := n.byMode(n.Reshape(n.heads(m, 0, 3, 1, 2, 4), m.Shape()[0], h, rows, 2*e), weights)
		return n.Reshape(n.Transpose(y, 0, 2, 1, 3), len(modes), rows, w)
	}
	if in == nil && !n.folds(w, modes) {
		return term{n.back(modes, l), times(m), out}
	}
	if in == nil {
		in = n.table("one", w, w, func(m []float32) {
			for i := range w {
				m[i*w+i] = 1
			}
		})
	}
	none := n.Mul(in, n.Scalar(0))
	both := n.Concat(0, n.Concat(1, in, none), n.Concat(1, none, in))
	return term{n.back(modes, l), m, n.MatMul(times(n.Reshape(both, 1, 2*in.Shape()[0], 2*w)), out)}
}

// fourier is p and its Fourier-enhanced block, without the block's biases.
func (n net) fourier(name, shared string, p sum, modes []int) sum {
	w, l := n.c.Width, p[0].b.Shape()[0]
	in, x := n.weight(name+".q.w", w, w), slices.Clone(p)
	if p[0].s == nil && p[0].w != nil { // an embedding: by its few channels
		in, x[0].w = n.MatMul(p[0].w, in), nil
	}
	z := n.value(x.over(func(t *onnx.Tensor) *onnx.Tensor { return n.MatMul(n.waves(modes, l), t) }))
	if !n.folds(in.Shape()[0], modes) {
		z, in = n.MatMul(z, in), nil
	}
	return append(slices.Clone(p), n.mixed(shared, n.matrices(z), in, n.weight(name+".o.w", w, w), modes, l))
}

// constants are what the Fourier block and the attention of that name add to every bin: [1,Width].
func (n net) constants(name string, modes []int) *onnx.Tensor {
	h, e, w := n.c.Heads, n.c.Width/n.c.Heads, n.c.Width
	all := n.Reshape(n.Add(n.weight(name+".o.b", w), n.weight(name+".cross.o.b", w)), 1, w)
	if modes[0] > 0 {
		return all
	}
	q := n.MatMul(n.Reshape(n.weight(name+".q.b", w), 1, h, 1, e), n.Slice(n.weight("dec.f.re", len(modes), h, e, e), 0, 0, 1))
	return n.Gemm(n.Reshape(q, 1, w), n.weight(name+".o.w", w, w), all, false, false)
}

// attended is p and its frequency-enhanced attention to memory, without the last bias.
func (n net) attended(name, shared string, p sum, memory *onnx.Tensor, mq, mk []int) sum {
	h, e, w, l := n.c.Heads, n.c.Width/n.c.Heads, n.c.Width, p[0].b.Shape()[0]
	project := func(name string, p sum, modes []int, waves *onnx.Tensor) *onnx.Tensor {
		p = n.settled(p.over(func(t *onnx.Tensor) *onnx.Tensor { return n.MatMul(waves, t) }))
		ofOne := n.ReduceSum(n.waves(modes, waves.Shape()[1]), true, 1)
		return n.matrices(n.plus(n.times(p, n.weight(name+".w", w, w)), n.MatMul(ofOne, n.Reshape(n.weight(name+".b", w), 1, w))))
	}
	still := n.waves(mk, n.c.Input)
	still = n.Sub(still, n.ReduceMean(still, true, 1)) // the norm takes off the mean over time
	p = n.settled(p)
	q, k := project(name+".q", p, mq, n.waves(mq, l)), project(name+".k", sum{{b: memory}}, mk, still)
	keys := n.Transpose(n.Reshape(n.heads(k, 3, 0, 2, 1, 4), h, 2*len(mk), 2*e), 0, 2, 1)
	a := n.Tanh(n.MatMul(n.Reshape(n.heads(q, 3, 0, 1, 2, 4), h, 2*len(mq), 2*e), keys))
	v := n.MatMul(a, n.Reshape(n.heads(k, 3, 0, 1, 2, 4), h, 2*len(mk), 2*e))
	v = n.Reshape(n.Transpose(n.Reshape(v, h, 2*len(mq), 2, e), 1, 2, 0, 3), len(mq), 2, 2*w)
	out := n.Mul(n.weight(name+".o.w", w, w), n.Scalar(1/float32(w*w)))
	y := n.mixed(shared, v, nil, out, mq, l)
	return append(slices.Clone(p), term{b: y.b, s: n.inner(y)})
}

// sameSet is a row's length, 4 KiB, from which and from whose multiples rows fall on the same few lines of a cache. Some more channels, which are 0, prevent
// that: a forecast at d_model 512 took 5 % less time.
const sameSet = 1024

func (n net) zeros(rows, columns int) *onnx.Tensor {
	return n.table(fmt.Sprintf("zeros %d %d", rows, columns), rows, columns, func([]float32) {})
}

// fed is p and the feed-forward layer of it.
func (n net) fed(name string, p sum) *onnx.Tensor {
	p = n.settled(p)
	up, down := n.weight(name+".up.w", n.c.Width, n.c.Hidden), n.weight(name+".down.w", n.c.Hidden, n.c.Width)
	if n.c.Hidden%sameSet == 0 {
		up, down = n.Concat(1, up, n.zeros(n.c.Width, 16)), n.Concat(0, down, n.zeros(16, n.c.Width))
	}
	x := n.value(n.times(p, up))
	// In these words the runtime knows a GELU and makes it one operator.
	x = n.Mul(n.Mul(x, n.Add(n.Erf(n.Div(x, n.Scalar(math.Sqrt2))), n.Scalar(1))), n.Scalar(0.5))
	return n.Gemm(x, down, n.value(p), false, false)
}

// normed is x with the channels of each bin scaled to mean 0 and variance 1.
func (n net) normed(x *onnx.Tensor) *onnx.Tensor {
	mean := n.table("mean of channels", n.c.Width, 1, func(m []float32) {
		for i := range m {
			m[i] = 1 / float32(n.c.Width)
		}
	})
	e := n.Sub(x, n.MatMul(x, mean))
	return n.Div(e, n.Sqrt(n.Add(n.MatMul(n.Square(e), mean), n.Scalar(1e-5))))
}
