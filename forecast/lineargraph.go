package forecast

import (
	"github.com/kale-sched/kale/core/onnx"
)

// linearBand is the relative residual quantiles of the linear model per horizon,
// as [bound] takes them.
type linearBand struct{ lower, upper []float64 }

// linearGraph writes the model as an ONNX graph of the contract, with the output
// rows 0.1, 0.5 and 0.9. coefficients[h] are those of linearData.predict.
func linearGraph(p linearPlan, coefficients [][]float64, band linearBand, info ModelInfo) ([]byte, error) {
	g := onnx.NewGraph()
	x := g.Input(inputHistory, onnx.Float32, 1, p.input) // 1 on average, by the normalisation
	l, horizon := p.input, p.horizon
	mean := func(t, w int) *onnx.Tensor { // M(t,w), t counted from the window's start
		return g.ReduceMean(g.Slice(x, 1, t-w, t), true, 1)
	}
	floor := g.Mul(g.ReduceMean(x, true, 1), g.Scalar(linearFloor))
	level := g.Add(mean(l, p.recent), floor)

	ratio := func(t, lag, w int) *onnx.Tensor {
		return g.Div(g.Add(mean(t, w), floor), g.Add(mean(t-lag, w), floor))
	}
	last := g.Slice(x, 1, l-p.check, l)

	var rows, smoothed []*onnx.Tensor // candidates from y and from S, each [1,H]
	var seasons []*onnx.Tensor        // S at the level that it had
	var weights []*onnx.Tensor        // of the candidates in their mixes, each [1,1]
	average := smoother(g, horizon, p.smooth)
	for _, lag := range p.lags {
		season := g.Slice(x, 1, l-lag, l-lag+horizon)
		smooth := g.MatMul(g.Slice(x, 1, l-lag-p.smooth, l-lag+horizon+p.smooth), average)
		before := g.Slice(x, 1, l-p.check-lag, l-lag)
		seasons = append(seasons, g.Div(smooth, level))
		for _, w := range p.windows {
			r := g.Div(ratio(l, lag, w), level)
			rows, smoothed = append(rows, g.Mul(season, r)), append(smoothed, g.Mul(smooth, r))
			miss := g.Abs(g.Sub(last, g.Mul(before, ratio(l-p.check, lag, w))))
			e := g.Add(g.ReduceMean(miss, true, 1), g.Mul(floor, g.Scalar(mixtureFloor)))
			weights = append(weights, g.Div(g.Scalar(1), g.Square(e)))
		}
	}
	mix := g.Concat(0, weights...)
	mix = g.Div(mix, g.ReduceSum(mix, true, 0))
	rows = append(rows,
		g.ReduceSum(g.Mul(mix, g.Concat(0, rows...)), true, 0),
		g.ReduceSum(g.Mul(mix, g.Concat(0, smoothed...)), true, 0))
	rows = append(rows, seasons...)
	ones := g.Const(repeat(1, horizon), 1, horizon)
	for _, w := range p.short {
		rows = append(rows, g.Mul(ones, g.Div(mean(l, w), level)))
	}
	rows = append(rows, ones)

	table := make([]float32, 0, len(rows)*horizon)
	for i := range rows {
		for h := range horizon {
			table = append(table, float32(coefficients[h][i]))
		}
	}
	features := g.Concat(0, rows...)
	sum := g.ReduceSum(g.Mul(features, g.Const(table, len(rows), horizon)), true, 0)
	point := g.Relu(g.Mul(sum, level))

	g.Output(outputForecast, g.Concat(0, bound(g, x, point, band.lower), point, bound(g, x, point, band.upper)))
	return g.Model(info.metadata())
}

// bound is a quantile of the forecast point [1,H] of window x [1,L], of the relative errors q per horizon:
// point + q · max(point, scaleFloor · mean of the window), and no less than 0.
func bound(g *onnx.Graph, x, point *onnx.Tensor, q []float64) *onnx.Tensor {
	least := g.Mul(g.ReduceMean(x, true, 1), g.Scalar(scaleFloor))
	scale := g.Add(g.Relu(g.Sub(point, least)), least)
	c := make([]float32, len(q))
	for h := range c {
		c[h] = float32(q[h])
	}
	return g.Relu(g.Add(point, g.Mul(scale, g.Const(c, 1, len(c)))))
}

// smoother is the [H+2r,H] matrix that averages each 2r+1 consecutive elements.
func smoother(g *onnx.Graph, horizon, r int) *onnx.Tensor {
	n := horizon + 2*r
	m := make([]float32, n*horizon)
	for h := range horizon {
		for j := h; j <= h+2*r; j++ {
			m[j*horizon+h] = 1 / float32(2*r+1)
		}
	}
	return g.Const(m, n, horizon)
}

func repeat(v float32, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = v
	}
	return out
}
