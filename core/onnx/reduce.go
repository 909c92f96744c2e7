package onnx

// ReduceSum sums over axes (negative from the end; none means all). With keep the summed axes stay, with length 1.
func (g *Graph) ReduceSum(x *Tensor, keep bool, axes ...int) *Tensor {
	if !g.usableFloats("ReduceSum", x) {
		return g.poison()
	}
	kept, out, over, ok := g.reduction("ReduceSum", x, keep, axes)
	if !ok {
		return g.poison()
	}
	if len(over) == 0 {
		return x
	}
	return g.emit("ReduceSum", Float32, out, []attr{flag("keepdims", keep)}, func(dy *Tensor, i int) *Tensor {
		if i > 0 {
			return nil
		}
		return g.Expand(g.Reshape(dy, kept...), x.shape...)
	}, x, g.index(over...))
}

// ReduceMean is the mean over axes (none means all); keep as in ReduceSum.
func (g *Graph) ReduceMean(x *Tensor, keep bool, axes ...int) *Tensor {
	if !g.usableFloats("ReduceMean", x) {
		return g.poison()
	}
	_, _, over, ok := g.reduction("ReduceMean", x, keep, axes)
	if !ok {
		return g.poison()
	}
	n := 1
	for _, a := range over {
		n *= x.shape[a]
	}
	return g.Mul(g.ReduceSum(x, keep, over...), g.Scalar(1/float32(n)))
}

// Softmax over the last axis, computed without overflow.
func (g *Graph) Softmax(x *Tensor) *Tensor {
	if !g.usableFloats("Softmax", x) {
		return g.poison()
	}
	if x.Rank() == 0 {
		return g.fail("Softmax", "%s has no axis to normalise over", x)
	}
	var y *Tensor
	y = g.emit("Softmax", Float32, x.shape, []attr{{name: "axis", ints: []int64{-1}}}, func(dy *Tensor, _ int) *Tensor {
		weighted := g.Mul(dy, y)
		return g.Sub(weighted, g.Mul(y, g.ReduceSum(weighted, true, -1)))
	}, x)
	return y
}

// reduction works out the axes to reduce over, the result's shape, and the shape with those axes kept.
func (g *Graph) reduction(op string, x *Tensor, keep bool, axes []int) (kept, out, over []int, ok bool) {
	set, ok := g.axes(op, x, x.Rank(), axes)
	if !ok {
		return nil, nil, nil, false
	}
	kept = x.Shape()
	for i, d := range x.shape {
		switch {
		case set[i] || len(axes) == 0:
			over, kept[i] = append(over, i), 1
			if keep {
				out = append(out, 1)
			}
		default:
			out = append(out, d)
		}
	}
	return kept, out, over, true
}
