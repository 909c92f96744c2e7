package fedformer

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// build makes the inference model with weights drawn from the seed.
func build(t testing.TB, c Config) []byte {
	t.Helper()
	g, r := onnx.NewGraph(), rand.New(rand.NewPCG(c.Seed, 3))
	made := map[string]*onnx.Tensor{}
	weight := func(name string, shape ...int) *onnx.Tensor {
		if made[name] == nil {
			size := 1
			for _, d := range shape {
				size *= d
			}
			v := make([]float32, size)
			for i := range v {
				v[i] = float32((r.Float64()*2 - 1) / math.Sqrt(float64(shape[max(0, len(shape)-2)])))
			}
			made[name] = g.Const(v, shape...)
		}
		return made[name]
	}
	x := g.Input("x", onnx.Float32, c.Batch, c.Input, 1)
	xm := g.Input("xm", onnx.Float32, c.Batch, c.Input, c.Marks)
	ym := g.Input("ym", onnx.Float32, c.Batch, c.Label+c.Horizon, c.Marks)
	g.Output("y", Forward(g, c, x, xm, ym, weight))
	model, err := g.Model(nil)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func TestTheGraphRuns(t *testing.T) {
	s := onnxtest.Session(t, build(t, Small(24)))
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkInference(b *testing.B) {
	for name, c := range map[string]Config{"width 64": Small(96), "width 512": Paper(96)} {
		b.Run(name, func(b *testing.B) {
			s := onnxtest.Session(b, build(b, c))
			for b.Loop() {
				if err := s.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
