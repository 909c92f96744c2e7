package onnx

import "slices"

// Operators that move elements and change none. They take float32 and int64.

// Reshape gives x another shape of the same size.
func (g *Graph) Reshape(x *Tensor, shape ...int) *Tensor {
	if !g.usable("Reshape", x) {
		return g.poison()
	}
	if !sized(shape) || product(shape) != x.Size() {
		return g.fail("Reshape", "%s does not fit shape %s", x, shapeString(append([]int{}, shape...)))
	}
	if equal(x.shape, shape) {
		return x
	}
	to := g.scalarShape()
	if len(shape) > 0 {
		to = g.index(shape...)
	}
	return g.emit("Reshape", x.dtype, shape, nil, func(dy *Tensor, i int) *Tensor {
		if i == 1 {
			return nil
		}
		return g.Reshape(dy, x.shape...)
	}, x, to)
}

// scalarShape is the shape of a scalar as an operand: an empty vector.
func (g *Graph) scalarShape() *Tensor {
	const key = "scalar"
	if g.indices[key] == nil {
		t := &Tensor{g: g, name: g.fresh(), dtype: Int64, shape: []int{0}, ints: []int64{}}
		g.consts = append(g.consts, t)
		g.indices[key] = t
	}
	return g.indices[key]
}

// Squeeze removes axes of length 1 (a negative axis counts from the end).
func (g *Graph) Squeeze(x *Tensor, axes ...int) *Tensor {
	if !g.usable("Squeeze", x) {
		return g.poison()
	}
	drop, ok := g.axes("Squeeze", x, len(x.shape), axes)
	if !ok {
		return g.poison()
	}
	shape := []int{}
	for i, d := range x.shape {
		if !drop[i] {
			shape = append(shape, d)
		} else if d != 1 {
			return g.fail("Squeeze", "axis %d of %s has length %d, not 1", i, x, d)
		}
	}
	return g.Reshape(x, shape...)
}

// Unsqueeze inserts axes of length 1; axes are positions in the result (negative from its end).
func (g *Graph) Unsqueeze(x *Tensor, axes ...int) *Tensor {
	if !g.usable("Unsqueeze", x) {
		return g.poison()
	}
	rank := len(x.shape) + len(axes)
	add, ok := g.axes("Unsqueeze", x, rank, axes)
	if !ok {
		return g.poison()
	}
	shape, rest := make([]int, rank), x.shape
	for i := range shape {
		if add[i] {
			shape[i] = 1
		} else {
			shape[i], rest = rest[0], rest[1:]
		}
	}
	return g.Reshape(x, shape...)
}

// Transpose permutes the axes: the result's axis i is x's axis perm[i].
func (g *Graph) Transpose(x *Tensor, perm ...int) *Tensor {
	if !g.usable("Transpose", x) {
		return g.poison()
	}
	seen := make([]bool, len(x.shape))
	ok := len(perm) == len(x.shape)
	for _, p := range perm {
		ok = ok && p >= 0 && p < len(seen) && !seen[p]
		if !ok {
			return g.fail("Transpose", "%v is not a permutation of the axes of %s", perm, x)
		}
		seen[p] = true
	}
	if !ok {
		return g.fail("Transpose", "%v is not a permutation of the axes of %s", perm, x)
	}
	shape, back := make([]int, len(perm)), make([]int, len(perm))
	for i, p := range perm {
		shape[i], back[p] = x.shape[p], i
	}
	return g.emit("Transpose", x.dtype, shape, []attr{{name: "perm", ints: int64s(perm), list: true}},
		func(dy *Tensor, _ int) *Tensor { return g.Transpose(dy, back...) }, x)
}

// swapLast exchanges the last two axes.
func (g *Graph) swapLast(x *Tensor) *Tensor {
	perm := make([]int, x.Rank())
	for i := range perm {
		perm[i] = i
	}
	n := len(perm)
	perm[n-1], perm[n-2] = n-2, n-1
	return g.Transpose(x, perm...)
}

// Expand broadcasts x to shape.
func (g *Graph) Expand(x *Tensor, shape ...int) *Tensor {
	if !g.usable("Expand", x) {
		return g.poison()
	}
	if s, ok := broadcast(x.shape, shape); !ok || !equal(s, shape) || !sized(shape) {
		return g.fail("Expand", "%s does not broadcast to %s", x, shapeString(append([]int{}, shape...)))
	}
	if equal(x.shape, shape) {
		return x
	}
	return g.emit("Expand", x.dtype, shape, nil, func(dy *Tensor, i int) *Tensor {
		if i == 1 {
			return nil
		}
		return g.sumTo(dy, x.shape)
	}, x, g.index(shape...))
}

// Slice takes [from, to) along one axis (negative from the end).
func (g *Graph) Slice(x *Tensor, axis, from, to int) *Tensor {
	if !g.usable("Slice", x) {
		return g.poison()
	}
	ax, ok := g.axis("Slice", x, len(x.shape), axis)
	if !ok {
		return g.poison()
	}
	if from < 0 || to > x.shape[ax] || from >= to {
		return g.fail("Slice", "[%d,%d) is not inside axis %d of %s", from, to, ax, x)
	}
	if from == 0 && to == x.shape[ax] {
		return x
	}
	shape := x.Shape()
	shape[ax] = to - from
	return g.emit("Slice", x.dtype, shape, nil, func(dy *Tensor, i int) *Tensor {
		if i > 0 {
			return nil
		}
		return g.pad(dy, ax, from, x.shape[ax]-to)
	}, x, g.index(from), g.index(to), g.index(ax))
}

// pad surrounds x with zeros along one axis: the reverse of Slice.
func (g *Graph) pad(x *Tensor, axis, before, after int) *Tensor {
	n := x.Rank()
	pads, shape := make([]int, 2*n), x.Shape()
	pads[axis], pads[axis+n] = before, after
	shape[axis] += before + after
	return g.emit("Pad", x.dtype, shape, nil, func(dy *Tensor, i int) *Tensor {
		if i > 0 {
			return nil
		}
		return g.Slice(dy, axis, before, before+x.shape[axis])
	}, x, g.index(pads...))
}

// Concat joins tensors that are alike in all dimensions but axis (negative from the end).
func (g *Graph) Concat(axis int, ts ...*Tensor) *Tensor {
	if len(ts) == 0 {
		return g.fail("Concat", "nothing to join")
	}
	if !g.usable("Concat", ts...) {
		return g.poison()
	}
	ax, ok := g.axis("Concat", ts[0], len(ts[0].shape), axis)
	if !ok {
		return g.poison()
	}
	if len(ts) == 1 {
		return ts[0]
	}
	shape, starts := ts[0].Shape(), make([]int, len(ts))
	for i, t := range ts[1:] {
		same := t.dtype == ts[0].dtype && len(t.shape) == len(shape)
		for d := 0; same && d < len(shape); d++ {
			same = d == ax || t.shape[d] == shape[d]
		}
		if !same {
			return g.fail("Concat", "operand %d does not fit along axis %d: %s after %s", i+1, ax, t, ts[0])
		}
		starts[i+1] = shape[ax]
		shape[ax] += t.shape[ax]
	}
	ts = slices.Clone(ts)
	return g.emit("Concat", ts[0].dtype, shape, []attr{{name: "axis", ints: []int64{int64(ax)}}}, func(dy *Tensor, i int) *Tensor {
		return g.Slice(dy, ax, starts[i], starts[i]+ts[i].shape[ax])
	}, ts...)
}

// axis resolves one axis of x counted in rank dimensions.
func (g *Graph) axis(op string, x *Tensor, rank, axis int) (int, bool) {
	a := axis
	if a < 0 {
		a += rank
	}
	if a < 0 || a >= rank {
		g.fail(op, "axis %d is out of range for %s", axis, x)
		return 0, false
	}
	return a, true
}

// axes resolves several into a set; the same one twice is a mistake.
func (g *Graph) axes(op string, x *Tensor, rank int, axes []int) ([]bool, bool) {
	set := make([]bool, rank)
	for _, axis := range axes {
		a, ok := g.axis(op, x, rank, axis)
		if !ok {
			return nil, false
		}
		if set[a] {
			g.fail(op, "axis %d of %s is named twice", a, x)
			return nil, false
		}
		set[a] = true
	}
	return set, true
}

func equal(a, b []int) bool { return slices.Equal(a, b) }
