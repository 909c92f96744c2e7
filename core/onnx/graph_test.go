package onnx_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/onnx"
)

// TestMistakesAreNamed builds wrong graphs. None may panic; each error names the operator and the shapes.
func TestMistakesAreNamed(t *testing.T) {
	type G = onnx.Graph
	type T = onnx.Tensor
	tests := []struct {
		name  string
		build func(g *G, x, y *T) // x is float32[2,3], y float32[4,5]
		want  []string
	}{
		{"broadcast", func(g *G, x, y *T) { g.Add(x, y) }, []string{"Add: shapes do not broadcast", `"x" float32[2,3]`, `"y" float32[4,5]`}},
		{"gemm", func(g *G, x, y *T) { g.Gemm(x, y, nil, false, false) }, []string{"Gemm: shapes do not fit", "[2,3]", "[4,5]"}},
		{"matmul", func(g *G, x, y *T) { g.MatMul(x, y) }, []string{"MatMul: shapes do not fit", "[2,3]", "[4,5]"}},
		{"matmul batch", func(g *G, x, y *T) { g.MatMul(g.Unsqueeze(x, 0), y) }, []string{"MatMul: shapes do not fit", "[1,2,3]"}},
		{"matmul vector", func(g *G, x, y *T) { g.MatMul(x, g.Const([]float32{1, 2, 3}, 3)) }, []string{"MatMul: both operands need two dimensions"}},
		{"gemm transposed", func(g *G, x, y *T) { g.Gemm(x, x, nil, true, true) }, []string{`"x" float32[2,3] transposed`}},
		{"gemm bias", func(g *G, x, y *T) { g.Gemm(x, x, y, false, true) }, []string{"does not broadcast to the product's shape [2,2]"}},
		{"gemm bias that grows", func(g *G, x, y *T) { g.Gemm(x, x, g.Const(make([]float32, 8), 2, 2, 2), false, true) }, []string{"product's shape [2,2]"}},
		{"gemm rank", func(g *G, x, y *T) { g.Gemm(g.Unsqueeze(x, 0), y, nil, false, false) }, []string{"must be matrices"}},
		{"reshape", func(g *G, x, y *T) { g.Reshape(x, 4, 2) }, []string{"Reshape:", "does not fit shape [4,2]"}},
		{"reshape negative", func(g *G, x, y *T) { g.Reshape(x, -2, -3) }, []string{"does not fit shape"}},
		{"squeeze", func(g *G, x, y *T) { g.Squeeze(x, 0) }, []string{"Squeeze: axis 0", "has length 2, not 1"}},
		{"squeeze twice", func(g *G, x, y *T) { g.Squeeze(g.Unsqueeze(x, 0), 0, -3) }, []string{"named twice"}},
		{"unsqueeze", func(g *G, x, y *T) { g.Unsqueeze(x, 5) }, []string{"Unsqueeze: axis 5 is out of range"}},
		{"transpose", func(g *G, x, y *T) { g.Transpose(x, 0, 0) }, []string{"Transpose: [0 0] is not a permutation"}},
		{"transpose short", func(g *G, x, y *T) { g.Transpose(x, 0) }, []string{"not a permutation"}},
		{"expand", func(g *G, x, y *T) { g.Expand(x, 2, 2) }, []string{"Expand:", "does not broadcast to [2,2]"}},
		{"slice", func(g *G, x, y *T) { g.Slice(x, 1, 2, 4) }, []string{"Slice: [2,4) is not inside axis 1"}},
		{"slice empty", func(g *G, x, y *T) { g.Slice(x, 1, 2, 2) }, []string{"[2,2) is not inside"}},
		{"slice axis", func(g *G, x, y *T) { g.Slice(x, -3, 0, 1) }, []string{"axis -3 is out of range"}},
		{"concat", func(g *G, x, y *T) { g.Concat(0, x, y) }, []string{"Concat: operand 1 does not fit along axis 0"}},
		{"concat types", func(g *G, x, y *T) { g.Concat(0, x, g.Cast(x, onnx.Int64)) }, []string{"Concat: operand 1", "int64"}},
		{"concat nothing", func(g *G, x, y *T) { g.Concat(0) }, []string{"nothing to join"}},
		{"reduce", func(g *G, x, y *T) { g.ReduceSum(x, false, 2) }, []string{"ReduceSum: axis 2 is out of range"}},
		{"mean", func(g *G, x, y *T) { g.ReduceMean(x, false, 0, 0) }, []string{"ReduceMean: axis 0", "named twice"}},
		{"softmax scalar", func(g *G, x, y *T) { g.Softmax(g.Scalar(1)) }, []string{"Softmax:", "no axis"}},
		{"integers", func(g *G, x, y *T) { g.Exp(g.Cast(x, onnx.Int64)) }, []string{"Exp: operand 0", "must be float32"}},
		{"cast", func(g *G, x, y *T) { g.Cast(x, 11) }, []string{"Cast:", "double"}},
		{"nil", func(g *G, x, y *T) { g.Add(x, nil) }, []string{"Add: operand 1 is nil"}},
		{"other graph", func(g *G, x, y *T) { g.Add(x, onnx.NewGraph().Scalar(1)) }, []string{"belongs to another graph"}},
		{"const", func(g *G, x, y *T) { g.Const([]float32{1}, 2) }, []string{"Const: 1 values do not fill shape [2]"}},
		{"const int64", func(g *G, x, y *T) { g.ConstInt64(nil, 0) }, []string{"ConstInt64: 0 values"}},
		{"input twice", func(g *G, x, y *T) { g.Input("x", onnx.Float32, 1) }, []string{`name "x" is used twice`}},
		{"input reserved", func(g *G, x, y *T) { g.Input("%1", onnx.Float32, 1) }, []string{"begins with %"}},
		{"input unnamed", func(g *G, x, y *T) { g.Input("", onnx.Float32, 1) }, []string{"the name is empty"}},
		{"input scalar", func(g *G, x, y *T) { g.Input("s", onnx.Float32) }, []string{"at least one dimension"}},
		{"input zero", func(g *G, x, y *T) { g.Input("z", onnx.Float32, 0) }, []string{"must be positive"}},
		{"input huge", func(g *G, x, y *T) { g.Input("z", onnx.Float32, 1<<40, 1<<40) }, []string{"their product at most"}},
		{"input type", func(g *G, x, y *T) { g.Input("z", 9, 1) }, []string{"element type bool"}},
		{"huge result", func(g *G, x, y *T) {
			g.Add(g.Input("a", onnx.Float32, 1<<20, 1), g.Input("b", onnx.Float32, 1<<20))
		}, []string{"Add: the result's shape [1048576,1048576] is too large"}},
		{"output name", func(g *G, x, y *T) { g.Output("x", x) }, []string{"used twice"}},
		{"output nil", func(g *G, x, y *T) { g.Output("o", nil) }, []string{"Output: operand 0 is nil"}},
		{"loss size", func(g *G, x, y *T) { g.Gradients(x, x) }, []string{"Gradients: the loss must have one element"}},
		{"no path", func(g *G, x, y *T) { g.Gradients(g.ReduceSum(x, false), y) }, []string{"does not depend on", `"y"`}},
		{"no path through integers", func(g *G, x, y *T) {
			g.Gradients(g.ReduceSum(g.Cast(g.Cast(x, onnx.Int64), onnx.Float32), false), x)
		}, []string{"only through operators without a gradient"}},
		{"gradient nil", func(g *G, x, y *T) { g.Gradients(g.ReduceSum(x, false), nil) }, []string{"Gradients: operand 1 is nil"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := onnx.NewGraph()
			x, y := g.Input("x", onnx.Float32, 2, 3), g.Input("y", onnx.Float32, 4, 5)
			tt.build(g, x, y)
			err := g.Err()
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			g.Output("fine", g.Add(x, x))
			if _, err := g.Model(nil); err == nil {
				t.Error("Model wrote a graph with a mistake in it")
			}
		})
	}
}

// TestMistakeIsReportedOnce: what is built on a failed operator adds no errors of its own, whichever operator it is.
func TestMistakeIsReportedOnce(t *testing.T) {
	g := onnx.NewGraph()
	x := g.Input("x", onnx.Float32, 2, 3)
	bad := g.Reshape(x, 7)
	for _, y := range []*onnx.Tensor{
		g.Add(x, bad), g.Neg(bad), g.Pow(bad, 2), g.Cast(bad, onnx.Int64), g.MatMul(bad, bad), g.Gemm(bad, x, nil, false, false),
		g.Reshape(bad, 1), g.Squeeze(bad, 0), g.Unsqueeze(bad, 9), g.Transpose(bad, 1), g.Expand(bad, 2), g.Slice(bad, 0, 0, 1), g.Concat(0, x, bad),
		g.ReduceSum(bad, false, 4), g.ReduceMean(bad, false, 4), g.Softmax(bad), g.Gradients(bad, x)[0],
	} {
		g.Output("o", y)
	}
	if n := strings.Count(g.Err().Error(), "\n"); n != 0 {
		t.Errorf("%d more errors than the one mistake:\n%v", n, g.Err())
	}
}

func TestModelNeedsOutputs(t *testing.T) {
	g := onnx.NewGraph()
	g.Input("x", onnx.Float32, 1)
	if _, err := g.Model(nil); err == nil || !strings.Contains(err.Error(), "no outputs") {
		t.Errorf("got %v, want an error about outputs", err)
	}
}

// TestModelIsDeterministicAndPruned writes the same graph twice, and leaves out what no output needs.
func TestModelIsDeterministicAndPruned(t *testing.T) {
	build := func(extra bool) []byte {
		g := onnx.NewGraph()
		x := g.Input("x", onnx.Float32, 2)
		y := g.Exp(x)
		if extra {
			g.Log(g.Add(x, g.Input("unused", onnx.Float32, 2)))
		}
		g.Output("y", y)
		model, err := g.Model(map[string]string{"b": "2", "a": "1", "c": "3"})
		if err != nil {
			t.Fatal(err)
		}
		return model
	}
	if !bytes.Equal(build(false), build(false)) {
		t.Error("the same graph gave different bytes")
	}
	if model := build(true); bytes.Contains(model, []byte("unused")) || bytes.Contains(model, []byte("Log")) {
		t.Error("the model holds an input or an operator that no output needs")
	}
}
