package onnx

import "math"

// Operators that work element by element. Two operands broadcast as in numpy; the gradient of a stretched operand is summed back
// to its shape.

// Add is a + b.
func (g *Graph) Add(a, b *Tensor) *Tensor {
	return g.binary("Add", a, b, func(_, dy *Tensor, _ int) *Tensor { return dy })
}

// Sub is a − b.
func (g *Graph) Sub(a, b *Tensor) *Tensor {
	return g.binary("Sub", a, b, func(_, dy *Tensor, i int) *Tensor {
		if i == 0 {
			return dy
		}
		return g.Neg(dy)
	})
}

// Mul is a · b, element by element.
func (g *Graph) Mul(a, b *Tensor) *Tensor {
	return g.binary("Mul", a, b, func(_, dy *Tensor, i int) *Tensor {
		if i == 0 {
			return g.Mul(dy, b)
		}
		return g.Mul(dy, a)
	})
}

// Div is a / b.
func (g *Graph) Div(a, b *Tensor) *Tensor {
	return g.binary("Div", a, b, func(y, dy *Tensor, i int) *Tensor {
		if i == 0 {
			return g.Div(dy, b)
		}
		return g.Neg(g.Div(g.Mul(dy, y), b))
	})
}

// binary emits a broadcasting operator. grad gets the result y and dy, and may answer in the result's shape.
func (g *Graph) binary(op string, a, b *Tensor, grad func(y, dy *Tensor, i int) *Tensor) *Tensor {
	if !g.usableFloats(op, a, b) {
		return g.poison()
	}
	shape, ok := broadcast(a.shape, b.shape)
	if !ok {
		return g.fail(op, "shapes do not broadcast: %s and %s", a, b)
	}
	in := [2]*Tensor{a, b}
	var y *Tensor
	y = g.emit(op, Float32, shape, nil, func(dy *Tensor, i int) *Tensor {
		return g.sumTo(grad(y, dy, i), in[i].shape)
	}, a, b)
	return y
}

// sumTo undoes broadcasting: it sums t over what was stretched from shape.
func (g *Graph) sumTo(t *Tensor, shape []int) *Tensor {
	lead := len(t.shape) - len(shape)
	var axes []int
	for i, d := range t.shape {
		if i < lead || shape[i-lead] != d {
			axes = append(axes, i)
		}
	}
	if len(axes) > 0 {
		t = g.ReduceSum(t, false, axes...)
	}
	return g.Reshape(t, shape...)
}

// unary emits an operator of one operand, whose derivative grad builds from x, y and dy.
func (g *Graph) unary(op string, x *Tensor, grad func(y, dy *Tensor) *Tensor) *Tensor {
	if !g.usableFloats(op, x) {
		return g.poison()
	}
	var y *Tensor
	y = g.emit(op, Float32, x.shape, nil, func(dy *Tensor, _ int) *Tensor { return grad(y, dy) }, x)
	return y
}

// Neg is −x.
func (g *Graph) Neg(x *Tensor) *Tensor {
	return g.unary("Neg", x, func(_, dy *Tensor) *Tensor { return g.Neg(dy) })
}

// Exp is eˣ.
func (g *Graph) Exp(x *Tensor) *Tensor {
	return g.unary("Exp", x, func(y, dy *Tensor) *Tensor { return g.Mul(dy, y) })
}

// Log is the natural logarithm, for x > 0.
func (g *Graph) Log(x *Tensor) *Tensor {
	return g.unary("Log", x, func(_, dy *Tensor) *Tensor { return g.Div(dy, x) })
}

// Sqrt is the square root, differentiable for x > 0.
func (g *Graph) Sqrt(x *Tensor) *Tensor {
	return g.unary("Sqrt", x, func(y, dy *Tensor) *Tensor { return g.Div(dy, g.Mul(y, g.Scalar(2))) })
}

// Abs is |x|; its derivative at 0 is taken as 0.
func (g *Graph) Abs(x *Tensor) *Tensor {
	return g.unary("Abs", x, func(_, dy *Tensor) *Tensor { return g.Mul(dy, g.sign(x)) })
}

// Tanh is the hyperbolic tangent.
func (g *Graph) Tanh(x *Tensor) *Tensor {
	return g.unary("Tanh", x, func(y, dy *Tensor) *Tensor { return g.Mul(dy, g.Sub(g.Scalar(1), g.Mul(y, y))) })
}

// Relu is max(x, 0); its derivative at 0 is taken as 0.
func (g *Graph) Relu(x *Tensor) *Tensor {
	return g.unary("Relu", x, func(y, dy *Tensor) *Tensor { return g.Mul(dy, g.sign(y)) })
}

// sign is −1, 0 or 1, with a derivative of zero.
func (g *Graph) sign(x *Tensor) *Tensor {
	return g.unary("Sign", x, func(_, _ *Tensor) *Tensor { return nil })
}

// Sigmoid is 1/(1+e⁻ˣ).
func (g *Graph) Sigmoid(x *Tensor) *Tensor {
	return g.unary("Sigmoid", x, func(y, dy *Tensor) *Tensor { return g.Mul(dy, g.Mul(y, g.Sub(g.Scalar(1), y))) })
}

// Softplus is log(1+eˣ), computed without overflow. Its derivative is the sigmoid.
func (g *Graph) Softplus(x *Tensor) *Tensor {
	return g.unary("Softplus", x, func(_, dy *Tensor) *Tensor { return g.Mul(dy, g.Sigmoid(x)) })
}

// LogSigmoid is log(sigmoid(x)) = −softplus(−x), finite where the sigmoid itself rounds to zero.
func (g *Graph) LogSigmoid(x *Tensor) *Tensor { return g.Neg(g.Softplus(g.Neg(x))) }

// Erf is the error function 2/√π ∫₀ˣ e^(−t²) dt.
func (g *Graph) Erf(x *Tensor) *Tensor {
	return g.unary("Erf", x, func(_, dy *Tensor) *Tensor {
		return g.Mul(dy, g.Mul(g.Exp(g.Neg(g.Square(x))), g.Scalar(2/math.SqrtPi)))
	})
}

// Gelu is x·Φ(x), where Φ is the normal distribution function, by [Graph.Erf] and not by its tanh approximation.
func (g *Graph) Gelu(x *Tensor) *Tensor {
	phi := g.Add(g.Erf(g.Mul(x, g.Scalar(1/math.Sqrt2))), g.Scalar(1))
	return g.Mul(g.Mul(x, g.Scalar(0.5)), phi)
}

// Square is x².
func (g *Graph) Square(x *Tensor) *Tensor { return g.Mul(x, x) }

// Pow is xᵖ for a constant p. Where p is not an integer, x must be positive.
func (g *Graph) Pow(x *Tensor, p float32) *Tensor {
	if !g.usableFloats("Pow", x) {
		return g.poison()
	}
	return g.emit("Pow", Float32, x.shape, nil, func(dy *Tensor, i int) *Tensor {
		if i == 1 || p == 0 {
			return nil
		}
		return g.Mul(dy, g.Mul(g.Pow(x, p-1), g.Scalar(p)))
	}, x, g.Scalar(p))
}

// Cast converts the elements to another type. It has a gradient only from float32 to float32, where it is x itself.
func (g *Graph) Cast(x *Tensor, to DType) *Tensor {
	if !g.usable("Cast", x) {
		return g.poison()
	}
	if to != Float32 && to != Int64 {
		return g.fail("Cast", "%s to %s: only float32 and int64 are supported", x, to)
	}
	if x.dtype == to {
		return x
	}
	return g.emit("Cast", to, x.shape, []attr{{name: "to", ints: []int64{int64(to)}}}, nil, x)
}
