package fedformer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// forward is Forward or folded.
type forward = func(g *onnx.Graph, c Config, x, xm, ym *onnx.Tensor, weight func(name string, shape ...int) *onnx.Tensor) *onnx.Tensor

// build makes the model by each of the given ways, with weights drawn from the seed: those that Forward asks for, the first.
func build(t testing.TB, c Config, ways ...forward) ([][]byte, map[string][]float32) {
	t.Helper()
	r, values := rand.New(rand.NewPCG(c.Seed, 3)), map[string][]float32{}
	drawn := func(name string, shape ...int) []float32 {
		if values[name] == nil {
			size := 1
			for _, d := range shape {
				size *= d
			}
			v := make([]float32, size)
			for i := range v {
				v[i] = float32((r.Float64()*2 - 1) / math.Sqrt(float64(shape[max(0, len(shape)-2)])))
			}
			if strings.HasPrefix(name, "cross.f.") { // else the division by Width² hides the attention
				for i := range v {
					v[i] *= float32(c.Width*c.Width) / 8
				}
			}
			values[name] = v
		}
		return values[name]
	}
	var models [][]byte
	for _, way := range append([]forward{Forward}, ways...) {
		g, made := onnx.NewGraph(), map[string]*onnx.Tensor{}
		x := g.Input("x", onnx.Float32, c.Batch, c.Input, 1)
		var xm, ym *onnx.Tensor
		if c.Marks > 0 {
			xm = g.Input("xm", onnx.Float32, c.Batch, c.Input, c.Marks)
			ym = g.Input("ym", onnx.Float32, c.Batch, c.Label+c.Horizon, c.Marks)
		}
		g.Output("y", way(g, c, x, xm, ym, func(name string, shape ...int) *onnx.Tensor {
			if made[name] == nil {
				made[name] = g.Const(drawn(name, shape...), shape...)
			}
			return made[name]
		}))
		model, err := g.Model(nil)
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, model)
	}
	return models, values
}

// TestAgreesWithTheFFT compares both graphs with the float64 model by FFT, at the same weights, for both sizes.
func TestAgreesWithTheFFT(t *testing.T) {
	long := Small(700) // its moving averages are by sums, of 17 bins
	long.Input, long.Label, long.Width, long.Hidden, long.Average, long.Marks = averageByMatrix+1, 200, 8, 8, 17, 0
	all := map[string]Config{"width 64": Small(96), "width 512": Paper(96), "long": long}
	for _, k := range []int{1, 2, 24} {
		long.Average = k
		all[fmt.Sprintf("long, average of %d", k)] = long
	}
	deep := long // without mode 0, and with all modes
	deep.Input, deep.Label, deep.Horizon, deep.Width, deep.Marks, deep.Encoders, deep.Decoders = 32, 9, 24, 16, 2, 3, 2
	for _, k := range []int{3, 64} {
		deep.Modes = k
		all[fmt.Sprintf("deep, %d modes", k)] = deep
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			models, weights := build(t, c, folded)
			for i, way := range []string{"as trained", "as run"} {
				t.Run(way, func(t *testing.T) { agrees(t, c, models[i], weights) })
			}
		})
	}
}

func agrees(t *testing.T, c Config, model []byte, weights map[string][]float32) {
	s, r := onnxtest.Session(t, model), rand.New(rand.NewPCG(7, 7))
	fill := func(name string, rows, cols int) matrix {
		if cols == 0 {
			return nil
		}
		to, err := s.Float32(name)
		if err != nil {
			t.Fatal(err)
		}
		m := zeros(rows, cols)
		for i := range to {
			to[i] = float32(r.Float64()*2 - 1)
			m[i/cols][i%cols] = float64(to[i])
		}
		return m
	}
	x, xm, ym := fill("x", c.Input, 1), fill("xm", c.Input, c.Marks), fill("ym", c.Label+c.Horizon, c.Marks)
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	got, err := s.Float32("y")
	if err != nil {
		t.Fatal(err)
	}
	worst, size := 0.0, 0.0
	for i, row := range (reference{c, weights}).forward(x, xm, ym) {
		worst, size = math.Max(worst, math.Abs(row[0]-float64(got[i]))), math.Max(size, math.Abs(row[0]))
	}
	t.Logf("worst difference %.2g of values up to %.2g", worst, size)
	if !(worst <= 1e-4) {
		t.Errorf("the graph differs from the reference by up to %g; want 1e-4 at most", worst)
	}
}

// BenchmarkInference is one forecast on one thread, by the model as it is run and as it is trained.
func BenchmarkInference(b *testing.B) {
	for name, c := range map[string]Config{"width 64": Small(96), "width 512": Paper(96)} {
		models, _ := build(b, c, folded)
		for i, way := range []string{"as trained", "as run"} {
			b.Run(name+", "+way, func(b *testing.B) {
				s := onnxtest.Session(b, models[i])
				var took []float64 // ms
				for b.Loop() {
					from := time.Now()
					if err := s.Run(); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(from).Seconds()*1e3)
				}
				slices.Sort(took)
				b.ReportMetric(took[len(took)/2], "p50-ms")
				b.ReportMetric(took[0], "least-ms")
			})
		}
	}
}

// BenchmarkGradients is the forward and the reverse pass of one minibatch, without the optimiser's update.
func BenchmarkGradients(b *testing.B) {
	short, long := Small(96), Small(120)
	short.Batch = 32
	long.Batch, long.Input, long.Label = 4, 1440, 720
	b.Run("input 96", func(b *testing.B) { benchmarkGradients(b, short) })
	b.Run("input 1440", func(b *testing.B) { benchmarkGradients(b, long) })
}

func benchmarkGradients(b *testing.B, c Config) {
	g, made := onnx.NewGraph(), map[string]*onnx.Tensor{}
	var weights []*onnx.Tensor
	weight := func(name string, shape ...int) *onnx.Tensor {
		if made[name] == nil {
			made[name] = g.Input(name, onnx.Float32, shape...)
			weights = append(weights, made[name])
		}
		return made[name]
	}
	x, xm := g.Input("x", onnx.Float32, c.Batch, c.Input, 1), g.Input("xm", onnx.Float32, c.Batch, c.Input, c.Marks)
	ym := g.Input("ym", onnx.Float32, c.Batch, c.Label+c.Horizon, c.Marks)
	want := g.Input("want", onnx.Float32, c.Batch, c.Horizon, 1)
	loss := g.ReduceMean(g.Square(g.Sub(Forward(g, c, x, xm, ym, weight), want)), false)
	for i, d := range g.Gradients(loss, weights...) {
		g.Output("d "+weights[i].Name(), d)
	}
	model, err := g.Model(nil)
	if err != nil {
		b.Fatal(err)
	}
	s := onnxtest.Session(b, model)
	for b.Loop() {
		if err := s.Run(); err != nil {
			b.Fatal(err)
		}
	}
}
