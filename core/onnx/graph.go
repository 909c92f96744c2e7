package onnx

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Graph is an ONNX graph under construction. Its methods append operators in the order of their calls, which is therefore a
// topological order. A Graph belongs to one goroutine.
type Graph struct {
	nodes   []*node
	inputs  []*Tensor
	outputs []*Tensor
	consts  []*Tensor
	names   map[string]bool    // of inputs and outputs, which the caller chooses
	scalars map[uint32]*Tensor // constants used again and again, by their bits
	indices map[string]*Tensor // int64 vectors (shapes, axes), by their text
	errs    []error
	next    int
}

// node is one operator. All the operators used here have one output.
type node struct {
	op    string
	in    []*Tensor
	out   *Tensor
	attrs []attr
	// grad returns the gradient of the loss with respect to in[i], given dy, that with respect to out. It builds it with the
	// graph's own operators, so it can be differentiated again. nil, or a nil result, means a derivative of zero almost everywhere.
	grad func(dy *Tensor, i int) *Tensor
}

// attr is an operator's attribute: one integer, or a list.
type attr struct {
	name string
	ints []int64
	list bool
}

// maxErrors bounds what is kept: after the first few mistakes the rest is noise.
const maxErrors = 10

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	return &Graph{
		names: map[string]bool{}, scalars: map[uint32]*Tensor{}, indices: map[string]*Tensor{},
	}
}

// Err returns the mistakes made so far while building, or nil.
func (g *Graph) Err() error { return errors.Join(g.errs...) }

// fail notes a mistake in operator op and returns the poisoned result.
func (g *Graph) fail(op, format string, args ...any) *Tensor {
	if len(g.errs) < maxErrors {
		g.errs = append(g.errs, fmt.Errorf("onnx: %s: %s", op, fmt.Sprintf(format, args...)))
	}
	return &Tensor{g: g, name: "%bad", dtype: Float32, bad: true}
}

// Input declares an input of the model. Names are the caller's and must differ; dimensions must be positive and at least one
// (the runtime's binding has no rank-0 tensors: use shape [1]).
func (g *Graph) Input(name string, dtype DType, shape ...int) *Tensor {
	if dtype != Float32 && dtype != Int64 {
		return g.fail("Input", "%q: element type %s is not supported; use float32 or int64", name, dtype)
	}
	if len(shape) == 0 {
		return g.fail("Input", "%q: a model's input needs at least one dimension; use [1] for a scalar", name)
	}
	if !sized(shape) {
		return g.fail("Input", "%q: the dimensions of shape %s must be positive and their product at most %d", name, shapeString(shape), maxElements)
	}
	if err := g.claim(name); err != nil {
		return g.fail("Input", "%v", err)
	}
	t := &Tensor{g: g, name: name, dtype: dtype, shape: append([]int{}, shape...)}
	g.inputs = append(g.inputs, t)
	return t
}

// Output makes t an output of the model under that name. A scalar becomes shape [1].
func (g *Graph) Output(name string, t *Tensor) {
	if !g.usable("Output", t) {
		return
	}
	if err := g.claim(name); err != nil {
		g.fail("Output", "%v", err)
		return
	}
	if t.Rank() == 0 {
		t = g.Reshape(t, 1)
	}
	out := g.emit("Identity", t.dtype, t.shape, nil, func(dy *Tensor, _ int) *Tensor { return dy }, t)
	out.name = name
	g.outputs = append(g.outputs, out)
}

// claim reserves a name for an input or output. Names that begin with % are the graph's own.
func (g *Graph) claim(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case strings.HasPrefix(name, "%"):
		return fmt.Errorf("name %q begins with %%, which is kept for the graph's own tensors", name)
	case g.names[name]:
		return fmt.Errorf("name %q is used twice", name)
	}
	g.names[name] = true
	return nil
}

// Const is a constant of the given shape (an initialiser of the model); it copies values.
func (g *Graph) Const(values []float32, shape ...int) *Tensor {
	if !sized(shape) || len(values) != product(shape) {
		return g.fail("Const", "%d values do not fill shape %s", len(values), shapeString(shape))
	}
	t := &Tensor{g: g, name: g.fresh(), dtype: Float32, shape: append([]int{}, shape...), floats: slices.Clone(values)}
	g.consts = append(g.consts, t)
	return t
}

// ConstInt64 is a constant of int64 elements; it copies values.
func (g *Graph) ConstInt64(values []int64, shape ...int) *Tensor {
	if !sized(shape) || len(values) != product(shape) {
		return g.fail("ConstInt64", "%d values do not fill shape %s", len(values), shapeString(shape))
	}
	t := &Tensor{g: g, name: g.fresh(), dtype: Int64, shape: append([]int{}, shape...), ints: slices.Clone(values)}
	g.consts = append(g.consts, t)
	return t
}

// Scalar is a rank-0 constant, which broadcasts against anything.
func (g *Graph) Scalar(v float32) *Tensor {
	key := math.Float32bits(v)
	if g.scalars[key] == nil {
		g.scalars[key] = g.Const([]float32{v})
	}
	return g.scalars[key]
}

// index is an int64 vector that an operator takes as an input: a shape, axes, bounds.
func (g *Graph) index(values ...int) *Tensor {
	key := fmt.Sprint(values)
	if g.indices[key] == nil {
		g.indices[key] = g.ConstInt64(int64s(values), len(values))
	}
	return g.indices[key]
}

// usable reports whether op may be applied to ts. A tensor that is nil or of another graph is a mistake, noted here; one that
// an earlier mistake made is skipped in silence.
func (g *Graph) usable(op string, ts ...*Tensor) bool {
	ok := true
	for i, t := range ts {
		switch {
		case t == nil:
			g.fail(op, "operand %d is nil", i)
			ok = false
		case t.g != g:
			g.fail(op, "operand %d (%s) belongs to another graph", i, t)
			ok = false
		case t.bad:
			ok = false
		}
	}
	return ok
}

// usableFloats is usable for arithmetic, which is on float32 only.
func (g *Graph) usableFloats(op string, ts ...*Tensor) bool {
	if !g.usable(op, ts...) {
		return false
	}
	for i, t := range ts {
		if t.dtype != Float32 {
			g.fail(op, "operand %d is %s; it must be float32", i, t)
			return false
		}
	}
	return true
}

// poison is the silent result of an operator whose operands are unusable; the graph already holds the reason.
func (g *Graph) poison() *Tensor { return &Tensor{g: g, name: "%bad", dtype: Float32, bad: true} }

// emit appends an operator whose operands have been checked.
func (g *Graph) emit(op string, dtype DType, shape []int, attrs []attr, grad func(dy *Tensor, i int) *Tensor, in ...*Tensor) *Tensor {
	if !sized(shape) {
		return g.fail(op, "the result's shape %s is too large (more than %d elements)", shapeString(append([]int{}, shape...)), maxElements)
	}
	t := &Tensor{g: g, name: g.fresh(), dtype: dtype, shape: append([]int{}, shape...)}
	t.from = &node{op: op, in: in, out: t, attrs: attrs, grad: grad}
	g.nodes = append(g.nodes, t.from)
	return t
}

func (g *Graph) fresh() string {
	g.next++
	return fmt.Sprintf("%%%d", g.next)
}

// maxElements bounds a tensor: 2³¹−1 elements, 8 GiB of float32. It keeps a wrong shape from becoming a wrong allocation.
const maxElements = 1<<31 - 1

// sized reports whether all dimensions are positive and the size is within maxElements. A scalar (no dimensions) is.
func sized(shape []int) bool {
	n := 1
	for _, d := range shape {
		if d <= 0 || d > maxElements/n {
			return false
		}
		n *= d
	}
	return true
}

func int64s(v []int) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return out
}
