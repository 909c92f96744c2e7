package onnx_test

import (
	"fmt"

	"github.com/kale-sched/kale/core/onnx"
)

// A model that computes the squared error of a linear function and its gradient, built, written and read back. With a runtime (Open) a
// session of it would run.
func ExampleGraph() {
	g := onnx.NewGraph()
	x, y := g.Input("x", onnx.Float32, 32, 4), g.Input("y", onnx.Float32, 32, 1)
	w := g.Input("w", onnx.Float32, 4, 1)
	loss := g.ReduceMean(g.Square(g.Sub(g.MatMul(x, w), y)), false)
	g.Output("loss", loss)
	g.Output("grad_w", g.Gradients(loss, w)[0])
	file, err := g.Model(map[string]string{"author": "me"})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := onnx.Load(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("in: ", m.Inputs)
	fmt.Println("out:", m.Outputs, m.Metadata)
	// Output:
	// in:  [x float32[32,4] y float32[32,1] w float32[4,1]]
	// out: [loss float32[1] grad_w float32[4,1]] map[author:me]
}

// A wrong operator is reported when the graph is written, with what it was applied to.
func ExampleGraph_Err() {
	g := onnx.NewGraph()
	x, w := g.Input("x", onnx.Float32, 32, 4), g.Input("w", onnx.Float32, 5, 1)
	g.Output("y", g.Relu(g.MatMul(x, w)))
	fmt.Println(g.Err())
	// Output:
	// onnx: MatMul: shapes do not fit: "x" float32[32,4] and "w" float32[5,1]
}
