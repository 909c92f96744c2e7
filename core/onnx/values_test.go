package onnx_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// TestOperatorValues checks what operators compute, and the shapes that the graph infers for them, against values worked out by hand.
func TestOperatorValues(t *testing.T) {
	inf := float32(math.Inf(1))
	type G = onnx.Graph
	type T = onnx.Tensor
	tests := []struct {
		name  string
		shape []int // of the one input x
		x     []float32
		apply func(g *G, x *T) *T
		shp   []int // of the result, as the graph infers it
		want  []float32
	}{
		{"Add row", []int{2, 2}, []float32{1, 2, 3, 4}, func(g *G, x *T) *T { return g.Add(x, g.Const([]float32{10, 20}, 2)) }, []int{2, 2}, []float32{11, 22, 13, 24}},
		{"Sub column", []int{2, 2}, []float32{1, 2, 3, 4}, func(g *G, x *T) *T { return g.Sub(x, g.Const([]float32{1, 3}, 2, 1)) }, []int{2, 2}, []float32{0, 1, 0, 1}},
		{"Mul outer", []int{2, 1}, []float32{2, 3}, func(g *G, x *T) *T { return g.Mul(x, g.Const([]float32{1, 10}, 1, 2)) }, []int{2, 2}, []float32{2, 20, 3, 30}},
		{"Div scalar", []int{2}, []float32{1, 3}, func(g *G, x *T) *T { return g.Div(x, g.Scalar(2)) }, []int{2}, []float32{0.5, 1.5}},
		{"Neg", []int{2}, []float32{1, -3}, (*G).Neg, []int{2}, []float32{-1, 3}},
		{"Abs", []int{2}, []float32{1, -3}, (*G).Abs, []int{2}, []float32{1, 3}},
		{"Relu", []int{3}, []float32{-1, 0, 2}, (*G).Relu, []int{3}, []float32{0, 0, 2}},
		{"Exp", []int{2}, []float32{0, 1}, (*G).Exp, []int{2}, []float32{1, math.E}},
		{"Log", []int{2}, []float32{1, math.E}, (*G).Log, []int{2}, []float32{0, 1}},
		{"Sqrt", []int{2}, []float32{4, 2}, (*G).Sqrt, []int{2}, []float32{2, math.Sqrt2}},
		{"Erf", []int{3}, []float32{-0.5, 0, 1}, (*G).Erf, []int{3}, []float32{-0.5204999, 0, 0.8427008}}, // Abramowitz and Stegun, table 7.1
		{"Gelu", []int{3}, []float32{-1, 0, 1}, (*G).Gelu, []int{3}, []float32{-0.15865526, 0, 0.8413447}},
		{"Square", []int{2}, []float32{-3, 2}, (*G).Square, []int{2}, []float32{9, 4}},
		{"Pow", []int{2}, []float32{4, 9}, func(g *G, x *T) *T { return g.Pow(x, 1.5) }, []int{2}, []float32{8, 27}},
		{"Tanh", []int{2}, []float32{0, 0.5}, (*G).Tanh, []int{2}, []float32{0, 0.46211717}},
		{"Sigmoid", []int{3}, []float32{-200, 0, 200}, (*G).Sigmoid, []int{3}, []float32{0, 0.5, 1}},
		{"Softplus", []int{4}, []float32{-200, 0, 1, 200}, (*G).Softplus, []int{4}, []float32{0, math.Ln2, 1.3132616, 200}},
		{"LogSigmoid", []int{3}, []float32{-200, 0, 200}, (*G).LogSigmoid, []int{3}, []float32{-200, -math.Ln2, 0}},
		{"Softmax", []int{2, 2}, []float32{0, 0, 500, 0}, (*G).Softmax, []int{2, 2}, []float32{0.5, 0.5, 1, 0}},
		{"Log of zero", []int{1}, []float32{0}, (*G).Log, []int{1}, []float32{-inf}},

		{"MatMul", []int{2, 2}, []float32{1, 2, 3, 4}, func(g *G, x *T) *T { return g.MatMul(x, g.Const([]float32{5, 6}, 2, 1)) }, []int{2, 1}, []float32{17, 39}},
		{"MatMul batch", []int{2, 1, 2}, []float32{1, 2, 3, 4}, func(g *G, x *T) *T { return g.MatMul(x, g.Const([]float32{5, 6}, 2, 1)) }, []int{2, 1, 1}, []float32{17, 39}},
		{"Gemm", []int{2, 1}, []float32{5, 6}, func(g *G, x *T) *T {
			return g.Gemm(x, g.Const([]float32{1, 2, 3, 4}, 2, 2), g.Const([]float32{100, 200}, 2), true, true)
		}, []int{1, 2}, []float32{117, 239}},
		{"Transpose", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}, func(g *G, x *T) *T { return g.Transpose(x, 1, 0) }, []int{3, 2}, []float32{1, 4, 2, 5, 3, 6}},
		{"Reshape", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}, func(g *G, x *T) *T { return g.Reshape(x, 3, 2) }, []int{3, 2}, []float32{1, 2, 3, 4, 5, 6}},
		{"Squeeze", []int{1, 2, 1}, []float32{1, 2}, func(g *G, x *T) *T { return g.Squeeze(x, -1) }, []int{1, 2}, []float32{1, 2}},
		{"Unsqueeze", []int{2}, []float32{1, 2}, func(g *G, x *T) *T { return g.Unsqueeze(x, 0, 2) }, []int{1, 2, 1}, []float32{1, 2}},
		{"Expand", []int{2, 1}, []float32{1, 2}, func(g *G, x *T) *T { return g.Expand(x, 2, 3) }, []int{2, 3}, []float32{1, 1, 1, 2, 2, 2}},
		{"Slice", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}, func(g *G, x *T) *T { return g.Slice(x, 1, 1, 3) }, []int{2, 2}, []float32{2, 3, 5, 6}},
		{"Concat", []int{2, 1}, []float32{1, 2}, func(g *G, x *T) *T { return g.Concat(-1, x, x, g.Const([]float32{8, 9}, 2, 1)) }, []int{2, 3}, []float32{1, 1, 8, 2, 2, 9}},
		{"ReduceSum", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}, func(g *G, x *T) *T { return g.ReduceSum(x, true, 1) }, []int{2, 1}, []float32{6, 15}},
		{"ReduceSum all", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}, func(g *G, x *T) *T { return g.ReduceSum(x, false) }, []int{}, []float32{21}},
		{"ReduceMean", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}, func(g *G, x *T) *T { return g.ReduceMean(x, false, 0) }, []int{3}, []float32{2.5, 3.5, 4.5}},
		{"Cast there and back", []int{3}, []float32{1.9, -1.9, 3}, func(g *G, x *T) *T { return g.Cast(g.Cast(x, onnx.Int64), onnx.Float32) }, []int{3}, []float32{1, -1, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := onnx.NewGraph()
			y := tt.apply(g, g.Input("x", onnx.Float32, tt.shape...))
			if diff := cmp.Diff(tt.shp, y.Shape()); diff != "" {
				t.Errorf("inferred shape (-want +got):\n%s", diff)
			}
			g.Output("y", y)
			model, err := g.Model(nil)
			if err != nil {
				t.Fatal(err)
			}
			s := onnxtest.Session(t, model)
			copy(float32s(t, s, "x"), tt.x)
			run(t, s)
			if diff := cmp.Diff(tt.want, float32s(t, s, "y"), cmpopts.EquateApprox(1e-6, 1e-6)); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInt64Tensors(t *testing.T) {
	g := onnx.NewGraph()
	i := g.Input("i", onnx.Int64, 3)
	g.Output("joined", g.Concat(0, i, g.ConstInt64([]int64{1 << 40}, 1)))
	g.Output("floats", g.Cast(i, onnx.Float32))
	model, err := g.Model(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := onnxtest.Session(t, model)
	in, err := s.Int64("i")
	if err != nil {
		t.Fatal(err)
	}
	copy(in, []int64{-5, 0, 7})
	run(t, s)
	joined, err := s.Int64("joined")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{-5, 0, 7, 1 << 40}, joined); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]float32{-5, 0, 7}, float32s(t, s, "floats")); diff != "" {
		t.Error(diff)
	}
}

// TestGradientsOfPieces asks for the gradients of values inside the graph, and of one that is used several times.
func TestGradientsOfPieces(t *testing.T) {
	g := onnx.NewGraph()
	x := g.Input("x", onnx.Float32, 4)
	left, right := g.Slice(x, 0, 0, 2), g.Slice(x, 0, 2, 4)
	product := g.Mul(left, right)
	loss := g.ReduceSum(g.Add(g.Add(product, left), left), false) // Σ left·right + 2·left
	for i, d := range g.Gradients(loss, left, right, x, product) {
		g.Output([]string{"left", "right", "x'", "product"}[i], d)
	}
	model, err := g.Model(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := onnxtest.Session(t, model)
	copy(float32s(t, s, "x"), []float32{1, 2, 3, 4})
	run(t, s)
	for name, want := range map[string][]float32{"left": {5, 6}, "right": {1, 2}, "x'": {5, 6, 1, 2}, "product": {1, 1}} {
		if diff := cmp.Diff(want, float32s(t, s, name)); diff != "" {
			t.Errorf("gradient %s (-want +got):\n%s", name, diff)
		}
	}
}
