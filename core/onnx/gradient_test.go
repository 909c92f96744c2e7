package onnx_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// opCase applies one operator to inputs of the given shapes.
type opCase struct {
	name   string
	op     string // the Graph method under test; name when empty
	shapes [][]int
	lo, hi float64 // the inputs' range; away from poles and kinks
	apply  func(g *onnx.Graph, in []*onnx.Tensor) *onnx.Tensor
	curved bool // has a second derivative, which is checked too
}

func opCases() []opCase {
	type in = []*onnx.Tensor
	type G = onnx.Graph
	two := func(f func(*G, *onnx.Tensor, *onnx.Tensor) *onnx.Tensor) func(*G, in) *onnx.Tensor {
		return func(g *G, x in) *onnx.Tensor { return f(g, x[0], x[1]) }
	}
	one := func(f func(*G, *onnx.Tensor) *onnx.Tensor) func(*G, in) *onnx.Tensor {
		return func(g *G, x in) *onnx.Tensor { return f(g, x[0]) }
	}
	flat := [][]int{{3, 4}}
	cases := []opCase{
		{name: "Neg", apply: one((*G).Neg)},
		{name: "Exp", apply: one((*G).Exp), curved: true},
		{name: "Log", lo: 0.5, hi: 2, apply: one((*G).Log), curved: true},
		{name: "Sqrt", lo: 0.5, hi: 2, apply: one((*G).Sqrt), curved: true},
		{name: "Abs positive", op: "Abs", lo: 0.2, hi: 1, apply: one((*G).Abs)},
		{name: "Abs negative", op: "Abs", lo: -1, hi: -0.2, apply: one((*G).Abs)},
		{name: "Tanh", apply: one((*G).Tanh), curved: true},
		{name: "Relu positive", op: "Relu", lo: 0.2, hi: 1, apply: one((*G).Relu)},
		{name: "Relu across zero", op: "Relu", shapes: flat, apply: func(g *G, x in) *onnx.Tensor {
			// Shifted by ±1 so that both sides of the kink occur, and no element is near it.
			shift := []float32{2, -2, 2, -2, -2, 2, 2, -2, 2, -2, -2, 2}
			return g.Relu(g.Add(x[0], g.Const(shift, 3, 4)))
		}},
		{name: "Sigmoid", lo: -3, hi: 3, apply: one((*G).Sigmoid), curved: true},
		{name: "Softplus", lo: -3, hi: 3, apply: one((*G).Softplus), curved: true},
		{name: "LogSigmoid", lo: -3, hi: 3, apply: one((*G).LogSigmoid), curved: true},
		{name: "Erf", apply: one((*G).Erf), curved: true},
		{name: "Gelu", lo: -3, hi: 3, apply: one((*G).Gelu), curved: true},
		{name: "Square", apply: one((*G).Square), curved: true},
		{name: "Pow 3", op: "Pow", apply: func(g *G, x in) *onnx.Tensor { return g.Pow(x[0], 3) }, curved: true},
		{name: "Pow -0.5", op: "Pow", lo: 0.5, hi: 2, apply: func(g *G, x in) *onnx.Tensor { return g.Pow(x[0], -0.5) }, curved: true},
		{name: "Softmax", apply: one((*G).Softmax), curved: true},
		{name: "Add to itself", op: "Add", apply: func(g *G, x in) *onnx.Tensor { return g.Add(x[0], x[0]) }},

		{name: "Gemm", shapes: [][]int{{3, 4}, {4, 2}}, curved: true,
			apply: func(g *G, x in) *onnx.Tensor { return g.Gemm(x[0], x[1], nil, false, false) }},
		{name: "Gemm bias", op: "Gemm", shapes: [][]int{{3, 4}, {4, 2}, {2}},
			apply: func(g *G, x in) *onnx.Tensor { return g.Gemm(x[0], x[1], x[2], false, false) }},
		{name: "Gemm transA", op: "Gemm", shapes: [][]int{{4, 3}, {4, 2}}, curved: true,
			apply: func(g *G, x in) *onnx.Tensor { return g.Gemm(x[0], x[1], nil, true, false) }},
		{name: "Gemm transA column bias", op: "Gemm", shapes: [][]int{{4, 3}, {4, 2}, {3, 1}},
			apply: func(g *G, x in) *onnx.Tensor { return g.Gemm(x[0], x[1], x[2], true, false) }},
		{name: "Gemm transB", op: "Gemm", shapes: [][]int{{3, 4}, {2, 4}}, curved: true,
			apply: func(g *G, x in) *onnx.Tensor { return g.Gemm(x[0], x[1], nil, false, true) }},
		{name: "Gemm transAB", op: "Gemm", shapes: [][]int{{4, 3}, {2, 4}}, curved: true,
			apply: func(g *G, x in) *onnx.Tensor { return g.Gemm(x[0], x[1], nil, true, true) }},
		{name: "MatMul", shapes: [][]int{{3, 4}, {4, 2}}, apply: two((*G).MatMul), curved: true},
		{name: "MatMul batch", op: "MatMul", shapes: [][]int{{5, 3, 4}, {5, 4, 2}}, apply: two((*G).MatMul), curved: true},
		{name: "MatMul shared right", op: "MatMul", shapes: [][]int{{5, 3, 4}, {4, 2}}, apply: two((*G).MatMul), curved: true},
		{name: "MatMul shared left", op: "MatMul", shapes: [][]int{{3, 4}, {5, 4, 2}}, apply: two((*G).MatMul), curved: true},
		{name: "MatMul broadcast batches", op: "MatMul", shapes: [][]int{{2, 1, 3, 4}, {5, 4, 2}}, apply: two((*G).MatMul)},

		{name: "Reshape", apply: func(g *G, x in) *onnx.Tensor { return g.Reshape(x[0], 2, 6) }},
		{name: "Reshape to scalar", op: "Reshape", shapes: [][]int{{1, 1}}, apply: func(g *G, x in) *onnx.Tensor { return g.Reshape(x[0]) }},
		{name: "Squeeze", shapes: [][]int{{1, 3, 1, 4}}, apply: func(g *G, x in) *onnx.Tensor { return g.Squeeze(x[0], 0, -2) }},
		{name: "Unsqueeze", apply: func(g *G, x in) *onnx.Tensor { return g.Unsqueeze(x[0], 0, -1) }},
		{name: "Transpose", shapes: [][]int{{2, 3, 4}}, apply: func(g *G, x in) *onnx.Tensor { return g.Transpose(x[0], 2, 0, 1) }},
		{name: "Expand", shapes: [][]int{{3, 1}}, apply: func(g *G, x in) *onnx.Tensor { return g.Expand(x[0], 2, 3, 4) }},
		{name: "Slice", apply: func(g *G, x in) *onnx.Tensor { return g.Slice(x[0], -1, 1, 3) }},
		{name: "Concat", shapes: [][]int{{3, 1}, {3, 4}, {3, 2}}, apply: func(g *G, x in) *onnx.Tensor { return g.Concat(1, x...) }},
		{name: "Concat rows", op: "Concat", shapes: [][]int{{1, 4}, {2, 4}}, apply: func(g *G, x in) *onnx.Tensor { return g.Concat(0, x...) }},

		{name: "ReduceSum all", op: "ReduceSum", apply: func(g *G, x in) *onnx.Tensor { return g.ReduceSum(x[0], false) }},
		{name: "ReduceSum rows", op: "ReduceSum", apply: func(g *G, x in) *onnx.Tensor { return g.ReduceSum(x[0], false, 0) }},
		{name: "ReduceSum kept", op: "ReduceSum", shapes: [][]int{{2, 3, 4}},
			apply: func(g *G, x in) *onnx.Tensor { return g.ReduceSum(x[0], true, 0, -1) }},
		{name: "ReduceMean", apply: func(g *G, x in) *onnx.Tensor { return g.ReduceMean(x[0], false, 1) }},
		{name: "ReduceMean kept", op: "ReduceMean", apply: func(g *G, x in) *onnx.Tensor { return g.ReduceMean(x[0], true) }},
	}
	shapes := [][][]int{{{3, 4}, {3, 4}}, {{3, 4}, {4}}, {{3, 4}, {3, 1}}, {{3, 1}, {1, 4}}, {{1}, {3, 4}}}
	for _, s := range shapes {
		suffix := fmt.Sprint(" ", s[0], s[1])
		cases = append(cases,
			opCase{name: "Add" + suffix, op: "Add", shapes: s, apply: two((*G).Add)},
			opCase{name: "Sub" + suffix, op: "Sub", shapes: s, apply: two((*G).Sub)},
			opCase{name: "Mul" + suffix, op: "Mul", shapes: s, apply: two((*G).Mul), curved: true},
			opCase{name: "Div" + suffix, op: "Div", shapes: s, lo: 0.7, hi: 2, apply: two((*G).Div), curved: true})
	}
	for i := range cases {
		c := &cases[i]
		if c.op == "" {
			c.op = c.name
		}
		if c.shapes == nil {
			c.shapes = flat
		}
		if c.lo == 0 && c.hi == 0 {
			c.lo, c.hi = -1, 1
		}
	}
	return cases
}

// TestEveryOperatorHasAGradientCase fails when an operator is added to Graph without a finite-difference case.
func TestEveryOperatorHasAGradientCase(t *testing.T) {
	covered := map[string]bool{
		"Input": true, "Const": true, "ConstInt64": true, "Scalar": true, // not operators
		"Cast": true, // between types: no gradient
	}
	for _, c := range opCases() {
		covered[c.op] = true
	}
	graph, tensor := reflect.TypeFor[*onnx.Graph](), reflect.TypeFor[*onnx.Tensor]()
	for i := range graph.NumMethod() {
		m := graph.Method(i)
		if m.Type.NumOut() == 1 && m.Type.Out(0) == tensor && !covered[m.Name] {
			t.Errorf("Graph.%s has no case in opCases", m.Name)
		}
	}
}

// TestGradientsAgainstFiniteDifferences checks every operator's first derivative, and the second of those that are curved, through ONNX
// Runtime: for a fixed random weighting w of the result y, d(Σ w·y)/dx by Gradients against (Σ w·y(x+h) − Σ w·y(x−h))/2h.
func TestGradientsAgainstFiniteDifferences(t *testing.T) {
	onnxtest.Library(t)
	for _, c := range opCases() {
		t.Run(c.name, func(t *testing.T) { checkGradient(t, c, 1) })
		if c.curved {
			t.Run(c.name+" twice", func(t *testing.T) { checkGradient(t, c, 2) })
		}
	}
}

func checkGradient(t *testing.T, c opCase, order int) {
	rng := rand.New(rand.NewPCG(7, uint64(len(c.name))))
	g := onnx.NewGraph()
	var in []*onnx.Tensor
	for i, s := range c.shapes {
		in = append(in, g.Input(fmt.Sprint("x", i), onnx.Float32, s...))
	}
	value := c.apply(g, in)
	if order == 2 { // the function under test becomes the weighted sum of all first derivatives
		loss, _ := weigh(g, rng, value)
		var parts []*onnx.Tensor
		for _, d := range g.Gradients(loss, in...) {
			parts = append(parts, g.Reshape(d, d.Size()))
		}
		value = g.Concat(0, parts...)
	}
	loss, w := weigh(g, rng, value)
	g.Output("value", value)
	for i, d := range g.Gradients(loss, in...) {
		g.Output(fmt.Sprint("d", i), d)
	}
	model, err := g.Model(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := onnxtest.Session(t, model)
	fill(t, s, rng, c)
	compareDifferences(t, s, len(in), w)
}

// weigh is Σ w·y for random w, so that no two elements' gradients can be mixed up unseen.
func weigh(g *onnx.Graph, rng *rand.Rand, y *onnx.Tensor) (*onnx.Tensor, []float32) {
	w := make([]float32, y.Size())
	for i := range w {
		w[i] = float32(0.5 + rng.Float64())
		if i%2 == 1 {
			w[i] = -w[i]
		}
	}
	return g.ReduceSum(g.Mul(y, g.Const(w, y.Shape()...)), false), w
}

func fill(t *testing.T, s *onnx.Session, rng *rand.Rand, c opCase) {
	t.Helper()
	for i := range c.shapes {
		x := float32s(t, s, fmt.Sprint("x", i))
		for j := range x {
			x[j] = float32(c.lo + rng.Float64()*(c.hi-c.lo))
		}
	}
}

func compareDifferences(t *testing.T, s *onnx.Session, inputs int, w []float32) {
	t.Helper()
	const h = 1.0 / 128 // error about h²/6·f''' + 6e-8·|y|/h, both near 1e-5
	value := float32s(t, s, "value")
	sum := func() float64 {
		run(t, s)
		total := 0.0
		for i, v := range value {
			total += float64(v) * float64(w[i])
		}
		return total
	}
	nonzero := false
	for i := range inputs {
		x, d := float32s(t, s, fmt.Sprint("x", i)), float32s(t, s, fmt.Sprint("d", i))
		if len(x) != len(d) {
			t.Fatalf("the gradient of x%d has %d elements, x%d has %d", i, len(d), i, len(x))
		}
		run(t, s)
		got := append([]float32{}, d...)
		for j := range x {
			at := x[j]
			x[j] = at + h
			up := sum()
			x[j] = at - h
			down := sum()
			x[j] = at
			want := (up - down) / (2 * h)
			if diff := math.Abs(want - float64(got[j])); !(diff <= 2e-3*(1+math.Abs(want))) {
				t.Errorf("d/dx%d[%d] at %v: got %v, finite difference %v", i, j, at, got[j], want)
			}
			nonzero = nonzero || math.Abs(want) > 1e-2
		}
	}
	if !nonzero {
		t.Error("all finite differences are zero: the case checks nothing")
	}
}

func float32s(t testing.TB, s *onnx.Session, name string) []float32 {
	t.Helper()
	v, err := s.Float32(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func run(t testing.TB, s *onnx.Session) {
	t.Helper()
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
}
