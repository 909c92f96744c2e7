package fedformer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/kale-sched/kale/core/onnx"
)

// modes are the frequencies kept of n bins, in rising order: at random, as the authors', and the same for the same seed.
func (c Config) modes(n int, stream uint64) []int {
	all := rand.New(rand.NewPCG(c.Seed, stream)).Perm(n / 2)
	chosen := all[:min(c.Modes, len(all))]
	slices.Sort(chosen)
	return chosen
}

// net builds one model. weight gives the tensor of a parameter.
type net struct {
	*onnx.Graph
	c      Config
	weight func(name string, shape ...int) *onnx.Tensor
	tables map[string]*onnx.Tensor // constant matrices, which layers share
}

// table is the constant matrix of that name, filled once.
func (n net) table(name string, rows, columns int, fill func(m []float32)) *onnx.Tensor {
	if n.tables[name] == nil {
		m := make([]float32, rows*columns)
		fill(m)
		n.tables[name] = n.Const(m, rows, columns)
	}
	return n.tables[name]
}

// Forward maps x [Batch,Input,1] with marks xm [Batch,Input,Marks] and ym [Batch,Label+Horizon,Marks] to [Batch,Horizon,1]. Without marks both are nil.
// weight gives the tensor of a parameter; one name is one parameter. c is valid.
func Forward(g *onnx.Graph, c Config, x, xm, ym *onnx.Tensor, weight func(name string, shape ...int) *onnx.Tensor) *onnx.Tensor {
	n := net{g, c, weight, map[string]*onnx.Tensor{}}
	whole := c.Label + c.Horizon
	season, trend := n.decompose(x)
	zero := n.Const(make([]float32, c.Batch*c.Horizon), c.Batch, c.Horizon, 1)
	trend = n.Concat(1, n.Slice(trend, 1, c.Input-c.Label, c.Input), n.Add(zero, n.ReduceMean(n.Slice(x, 1, c.Input-c.recent(), c.Input), true, 1)))
	season = n.Concat(1, n.Slice(season, 1, c.Input-c.Label, c.Input), zero)

	me, md := c.modes(c.Input, 1), c.modes(whole, 2)
	h := n.embed("enc", x, xm)
	for i := range c.Encoders {
		p := fmt.Sprintf("enc%d", i)
		h, _ = n.decompose(n.Add(h, n.block(p, "enc.f", h, me)))
		h, _ = n.decompose(n.Add(h, n.feed(p, h)))
	}
	h = n.norm("enc.norm", h)
	d := n.embed("dec", season, ym)
	for i := range c.Decoders {
		p := fmt.Sprintf("dec%d", i)
		var t1, t2, t3 *onnx.Tensor
		d, t1 = n.decompose(n.Add(d, n.block(p, "dec.f", d, md)))
		d, t2 = n.decompose(n.Add(d, n.cross(p+".cross", "cross.f", d, h, md, me)))
		d, t3 = n.decompose(n.Add(d, n.feed(p, d)))
		trend = n.Add(trend, n.conv(p+".trend", n.Add(n.Add(t1, t2), t3), 1))
	}
	d = n.Add(n.linear("out", n.norm("dec.norm", d), 1), n.weight("out.b", 1))
	return n.Slice(n.Add(d, trend), 1, c.Label, whole)
}

func (n net) linear(name string, x *onnx.Tensor, out int) *onnx.Tensor {
	return n.MatMul(x, n.weight(name+".w", x.Shape()[2], out))
}

func (n net) affine(name string, x *onnx.Tensor) *onnx.Tensor {
	return n.Add(n.linear(name, x, n.c.Width), n.weight(name+".b", n.c.Width))
}

// conv is a circular convolution of width 3 over time.
func (n net) conv(name string, x *onnx.Tensor, out int) *onnx.Tensor {
	l := x.Shape()[1]
	before := n.Concat(1, n.Slice(x, 1, l-1, l), n.Slice(x, 1, 0, l-1))
	after := n.Concat(1, n.Slice(x, 1, 1, l), n.Slice(x, 1, 0, 1))
	return n.linear(name, n.Concat(2, before, x, after), out)
}

func (n net) embed(name string, x, marks *onnx.Tensor) *onnx.Tensor {
	value := n.conv(name+".value", x, n.c.Width)
	if n.c.Marks == 0 {
		return value
	}
	return n.Add(value, n.linear(name+".time", marks, n.c.Width))
}

func (n net) feed(name string, x *onnx.Tensor) *onnx.Tensor {
	return n.linear(name+".down", n.Gelu(n.linear(name+".up", x, n.c.Hidden)), n.c.Width)
}

// norm is a layer norm over the channels, less its mean over time.
func (n net) norm(name string, x *onnx.Tensor) *onnx.Tensor {
	e := n.Sub(x, n.ReduceMean(x, true, 2))
	e = n.Div(e, n.Sqrt(n.Add(n.ReduceMean(n.Square(e), true, 2), n.Scalar(1e-5))))
	e = n.Add(n.Mul(e, n.weight(name+".g", n.c.Width)), n.weight(name+".b", n.c.Width))
	return n.Sub(e, n.ReduceMean(e, true, 1))
}

// decompose splits off the moving average over time; beyond the ends the first and the last bin repeat.
func (n net) decompose(x *onnx.Tensor) (season, trend *onnx.Tensor) {
	if l := x.Shape()[x.Rank()-2]; l <= averageByMatrix {
		trend = n.MatMul(n.averages(l), x)
	} else {
		trend = n.Mul(n.windowSums(x), n.Scalar(1/float32(n.c.Average)))
	}
	return n.Sub(x, trend), trend
}

// averageByMatrix is up to how many bins one product with a matrix is faster than the many sums that do the same.
const averageByMatrix = 512

// averages is the matrix of the moving average over l bins.
func (n net) averages(l int) *onnx.Tensor {
	return n.table(fmt.Sprintf("average of %d", l), l, l, func(m []float32) { n.average(m, l, 1) })
}

// average adds the matrix of the moving average over l bins to m, so many times.
func (n net) average(m []float32, l int, times float32) {
	for t := range l {
		for j := range n.c.Average {
			m[t*l+min(max(t-n.c.before()+j, 0), l-1)] += times / float32(n.c.Average)
		}
	}
}

// before is how many bins before its own a moving average begins.
func (c Config) before() int { return c.Average - 1 - (c.Average-1)/2 }

// windowSums are the sums under the moving average: of 1, 2, 4 … neighbours, of which those that make up its length are added.
func (n net) windowSums(x *onnx.Tensor) *onnx.Tensor {
	l, k, before := x.Shape()[x.Rank()-2], n.c.Average, n.c.before()
	first, last := n.Slice(x, -2, 0, 1), n.Slice(x, -2, l-1, l)
	sums := n.Concat(-2, append(append(slices.Repeat([]*onnx.Tensor{first}, before), x), slices.Repeat([]*onnx.Tensor{last}, k-1-before)...)...)
	var total *onnx.Tensor
	for width, from := 1, 0; ; width *= 2 { // sums are of width neighbours
		if k&width != 0 {
			part := n.Slice(sums, -2, from, from+l)
			if from += width; total == nil {
				total = part
			} else {
				total = n.Add(total, part)
			}
		}
		if from == k {
			return total
		}
		m := sums.Shape()[x.Rank()-2]
		sums = n.Add(n.Slice(sums, -2, 0, m-width), n.Slice(sums, -2, width, m))
	}
}

// spectrum is the real parts, then the imaginary ones, of the modes of x, by head: [2M,Heads,Batch,Width/Heads].
func (n net) spectrum(x *onnx.Tensor, modes []int) *onnx.Tensor {
	l, m := x.Shape()[1], len(modes)
	there := n.table(fmt.Sprintf("to modes %v of %d", modes, l), 2*m, l, func(f []float32) {
		for k, w := range modes {
			for t := range l {
				s, c := math.Sincos(2 * math.Pi * float64(w*t%l) / float64(l))
				f[k*l+t], f[(m+k)*l+t] = float32(c), float32(-s)
			}
		}
	})
	y := n.MatMul(there, x)
	return n.Transpose(n.Reshape(y, n.c.Batch, 2*m, n.c.Heads, n.c.Width/n.c.Heads), 1, 2, 0, 3)
}

// mix multiplies each mode of each head by its complex matrix and goes back to l bins of time, [Batch,l,Width].
func (n net) mix(name string, re, im *onnx.Tensor, modes []int, l int) *onnx.Tensor {
	m, e := len(modes), n.c.Width/n.c.Heads
	wr, wi := n.weight(name+".re", m, n.c.Heads, e, e), n.weight(name+".im", m, n.c.Heads, e, e)
	re, im = n.Sub(n.MatMul(re, wr), n.MatMul(im, wi)), n.Add(n.MatMul(re, wi), n.MatMul(im, wr))
	back := n.table(fmt.Sprintf("from modes %v to %d", modes, l), l, 2*m, func(f []float32) {
		for k, w := range modes {
			scale := 2 / float64(l)
			if w == 0 {
				scale /= 2
			}
			for t := range l {
				s, c := math.Sincos(2 * math.Pi * float64(w*t%l) / float64(l))
				f[t*2*m+k], f[t*2*m+m+k] = float32(scale*c), float32(-scale*s)
			}
		}
	})
	y := n.Reshape(n.Transpose(n.Concat(0, re, im), 2, 0, 1, 3), n.c.Batch, 2*m, n.c.Width)
	return n.MatMul(back, y)
}

// block is the Fourier-enhanced block; the layers of a kind share the weights named shared.
func (n net) block(name, shared string, x *onnx.Tensor, modes []int) *onnx.Tensor {
	s, m := n.spectrum(n.affine(name+".q", x), modes), len(modes)
	return n.affine(name+".o", n.mix(shared, n.Slice(s, 0, 0, m), n.Slice(s, 0, m, 2*m), modes, x.Shape()[1]))
}

// cross is the frequency-enhanced attention of x to memory, whose keys are its values; the layers share the weights named shared.
func (n net) cross(name, shared string, x, memory *onnx.Tensor, mq, mk []int) *onnx.Tensor {
	part := func(s *onnx.Tensor, from, to int) *onnx.Tensor { // [Batch,Heads,M,E]
		return n.Transpose(n.Slice(s, 0, from, to), 2, 1, 0, 3)
	}
	q, k := n.spectrum(n.affine(name+".q", x), mq), n.spectrum(n.affine(name+".k", memory), mk)
	qr, qi := part(q, 0, len(mq)), part(q, len(mq), 2*len(mq))
	kr, ki := part(k, 0, len(mk)), part(k, len(mk), 2*len(mk))
	krt, kit := n.Transpose(kr, 0, 1, 3, 2), n.Transpose(ki, 0, 1, 3, 2)
	ar := n.Tanh(n.Sub(n.MatMul(qr, krt), n.MatMul(qi, kit)))
	ai := n.Tanh(n.Add(n.MatMul(qr, kit), n.MatMul(qi, krt)))
	vr := n.Transpose(n.Sub(n.MatMul(ar, kr), n.MatMul(ai, ki)), 2, 1, 0, 3)
	vi := n.Transpose(n.Add(n.MatMul(ar, ki), n.MatMul(ai, kr)), 2, 1, 0, 3)
	y := n.mix(shared, vr, vi, mq, x.Shape()[1])
	return n.affine(name+".o", n.Mul(y, n.Scalar(1/float32(n.c.Width*n.c.Width))))
}
