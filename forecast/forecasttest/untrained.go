package forecasttest

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/forecast/fedformer"
)

// Untrained is a model file of the contract with a FEDformer in it of so many channels, that sees input bins and forecasts horizon ones, of the given length, and has learnt nothing: what
// it says is worth as little as it costs much. Its weights are drawn with a seed.
func Untrained(width, input, horizon int, step time.Duration, seed uint64) ([]byte, error) {
	c := fedformer.Paper(horizon)
	c.Width, c.Hidden, c.Marks, c.Season = width, 4*width, 0, 0
	c.Input, c.Label, c.Average = input, input/2, min(c.Average, input)
	g, made := onnx.NewGraph(), map[string]*onnx.Tensor{}
	point := g.Relu(fedformer.Scaled(g, c, g.Input("history", onnx.Float32, 1, input), nil, nil, func(name string, shape ...int) *onnx.Tensor {
		if made[name] == nil {
			made[name] = g.Const(drawn(name, seed, shape), shape...)
		}
		return made[name]
	}))
	g.Output("forecast", point)
	return g.Model(contract(input, horizon, step))
}

// Saying is a model file of the contract that says the same of every bin, in units of what is usual: of no use where that is NaN, or more than can be.
func Saying(what float32, input, horizon int, step time.Duration) ([]byte, error) {
	g := onnx.NewGraph()
	x := g.Input("history", onnx.Float32, 1, input)
	said := make([]float32, horizon)
	for i := range said {
		said[i] = what
	}
	g.Output("forecast", g.Add(g.Mul(g.ReduceMean(x, true, 1), g.Scalar(0)), g.Const(said, 1, horizon)))
	return g.Model(contract(input, horizon, step))
}

// contract is what such a file says of itself.
func contract(input, horizon int, step time.Duration) map[string]string {
	return map[string]string{
		"kale.forecast.version": "1", "kale.forecast.name": "untrained", "kale.forecast.input": strconv.Itoa(input), "kale.forecast.horizon": strconv.Itoa(horizon),
		"kale.forecast.step_seconds": strconv.FormatFloat(step.Seconds(), 'g', -1, 64), "kale.forecast.normalise": "mean",
		"kale.forecast.trained_at": "2026-01-01T00:00:00Z", "kale.forecast.trained_bins": "1",
	}
}

// drawn are the values of a parameter, small enough for the signal to stay in bounds.
func drawn(name string, seed uint64, shape []int) []float32 {
	n := 1
	for _, d := range shape {
		n *= d
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it takes everything
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	scale := 1 / math.Sqrt(float64(shape[0]))
	if strings.HasSuffix(name, ".re") || strings.HasSuffix(name, ".im") {
		scale = 1 / float64(shape[0]*shape[0])
	}
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(scale * (2*r.Float64() - 1))
	}
	return w
}
