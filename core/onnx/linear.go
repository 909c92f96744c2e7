package onnx

// Products of matrices.

// MatMul is the matrix product over the last two dimensions; those before broadcast. Both operands have at least two.
func (g *Graph) MatMul(a, b *Tensor) *Tensor {
	if !g.usableFloats("MatMul", a, b) {
		return g.poison()
	}
	na, nb := a.Rank(), b.Rank()
	if na < 2 || nb < 2 {
		return g.fail("MatMul", "both operands need two dimensions or more, got %s and %s", a, b)
	}
	lead, ok := broadcast(a.shape[:na-2], b.shape[:nb-2])
	if !ok || a.shape[na-1] != b.shape[nb-2] {
		return g.fail("MatMul", "shapes do not fit: %s and %s", a, b)
	}
	if na == 2 && nb == 2 {
		return g.Gemm(a, b, nil, false, false)
	}
	shape := append(lead, a.shape[na-2], b.shape[nb-1])
	return g.emit("MatMul", Float32, shape, nil, func(dy *Tensor, i int) *Tensor {
		if i == 0 {
			return g.sumTo(g.MatMul(dy, g.swapLast(b)), a.shape)
		}
		if nb == 2 { // one matrix under a batch: fold the batch into the contraction instead of summing afterwards
			rows := g.Reshape(a, a.Size()/b.shape[0], b.shape[0])
			return g.Gemm(rows, g.Reshape(dy, dy.Size()/b.shape[1], b.shape[1]), nil, true, false)
		}
		return g.sumTo(g.MatMul(g.swapLast(a), dy), b.shape)
	}, a, b)
}

// Gemm is a′·b′ + c for matrices, where a′ is a, or its transpose if transA is set, and b′ likewise. c broadcasts to the
// result's shape (a row of biases, say); nil leaves it out.
func (g *Graph) Gemm(a, b, c *Tensor, transA, transB bool) *Tensor {
	in := []*Tensor{a, b}
	if c != nil {
		in = append(in, c)
	}
	if !g.usableFloats("Gemm", in...) {
		return g.poison()
	}
	if a.Rank() != 2 || b.Rank() != 2 {
		return g.fail("Gemm", "both operands must be matrices, got %s and %s", a, b)
	}
	m, ka := a.shape[0], a.shape[1]
	if transA {
		m, ka = ka, m
	}
	kb, n := b.shape[0], b.shape[1]
	if transB {
		kb, n = n, kb
	}
	if ka != kb {
		return g.fail("Gemm", "shapes do not fit: %s%s and %s%s", a, transposed(transA), b, transposed(transB))
	}
	shape := []int{m, n}
	if c != nil {
		if s, ok := broadcast(shape, c.shape); !ok || !equal(s, shape) {
			return g.fail("Gemm", "%s does not broadcast to the product's shape %s", c, shapeString(shape))
		}
	}
	return g.emit("Gemm", Float32, shape, []attr{flag("transA", transA), flag("transB", transB)}, func(dy *Tensor, i int) *Tensor {
		switch {
		case i == 0 && transA:
			return g.Gemm(b, dy, nil, transB, true)
		case i == 0:
			return g.Gemm(dy, b, nil, false, !transB)
		case i == 1 && transB:
			return g.Gemm(dy, a, nil, true, transA)
		case i == 1:
			return g.Gemm(a, dy, nil, !transA, false)
		}
		return g.sumTo(dy, c.shape)
	}, in...)
}

func transposed(t bool) string {
	if t {
		return " transposed"
	}
	return ""
}

func flag(name string, on bool) attr {
	a := attr{name: name, ints: []int64{0}}
	if on {
		a.ints[0] = 1
	}
	return a
}
