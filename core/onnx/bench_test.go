package onnx_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// BenchmarkMLPGradient is one gradient step of an MLP 512-256-128-1 at batch 1024, a yardstick to hold against gonum and
// tensorflow (288k/442k samples/s on one/two threads there, on an idle machine).
func BenchmarkMLPGradient(b *testing.B) {
	const batch = 1024
	widths := []int{512, 256, 128, 1}
	g := onnx.NewGraph()
	x, y := g.Input("x", onnx.Float32, batch, widths[0]), g.Input("y", onnx.Float32, batch, 1)
	h := x
	var params []*onnx.Tensor
	for i, n := range widths[1:] {
		w := g.Input(fmt.Sprint("w", i), onnx.Float32, widths[i], n)
		c := g.Input(fmt.Sprint("c", i), onnx.Float32, n)
		params = append(params, w, c)
		if h = g.Gemm(h, w, c, false, false); i < len(widths)-2 {
			h = g.Relu(h)
		}
	}
	g.Output("pred", g.Sigmoid(h))
	loss := g.ReduceMean(g.Sub(g.Softplus(h), g.Mul(h, y)), false)
	g.Output("loss", loss)
	for i, d := range g.Gradients(loss, params...) {
		g.Output(fmt.Sprint("d", i), d)
	}
	model, err := g.Model(nil)
	if err != nil {
		b.Fatal(err)
	}
	rt := onnxtest.Library(b)
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			s, err := rt.NewSession(model, onnx.SessionOptions{Threads: threads})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			rng := rand.New(rand.NewPCG(1, 2))
			for _, in := range s.Inputs() {
				for i, v := 0, float32s(b, s, in.Name); i < len(v); i++ {
					v[i] = float32(0.05 * rng.NormFloat64())
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				run(b, s)
			}
			b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}
