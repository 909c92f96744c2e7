package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/kale-sched/kale/core/onnx"
)

// TrainWindowModel is [TrainWindow] of a kind (NLinear, DLinear or SparseTSF), as an ONNX file of the contract in contract.go. It has the quantiles 0.05, 0.1,
// 0.5, 0.9 and 0.95, by the errors that TrainWindow makes its band from.
//
// The report is over the last fifth of the origins, as that of [TrainLinear]: of a model that was trained on what lies before them. The file's is trained on
// everything. A history that is too short for that gives an error that wraps [ErrShortHistory]. It is deterministic and needs no ONNX Runtime.
func TrainWindowModel(history Series, kind string, o LinearOptions) ([]byte, TrainReport, error) {
	who := "train " + kind
	seasons, err := o.seasons(who, history)
	if err != nil {
		return nil, TrainReport{}, err
	}
	if err := teaches(who, history); err != nil {
		return nil, TrainReport{}, err
	}
	n := len(history.Values)
	w := WindowOptions{Kind: kind, Input: o.Input, Horizon: o.Horizon, Season: time.Duration(seasons[0]) * history.Step}
	if w.Input == 0 {
		w.Input = (&window{kind: kind, season: seasons[0]}).usualInput(n)
	}
	model, err := trainWindow(history, w)
	if err != nil {
		return nil, TrainReport{}, err
	}
	r := TrainReport{Origins: len(spreadOver(origins(history.Values, lent(history.Values, seasons[0]), w.Input, o.Horizon), model.limit(maxTrainOrigins))), Features: model.features(), Ridge: model.ridge}
	if err := r.measureWindow(history, seasons, w, o); err != nil {
		return nil, r, err
	}
	info := ModelInfo{
		Name: kind, Input: w.Input, Horizon: o.Horizon, Step: history.Step, SeasonBins: seasons, Normalise: NormaliseMean, Quantiles: fileLevels,
		TrainedAt: o.TrainedAt, TrainedUntil: history.End(), TrainedBins: n, Outcomes: model.outcomes, Source: o.Source,
	}
	if info.TrainedAt.IsZero() {
		info.TrainedAt = history.End()
	}
	file, err := model.graph(info)
	if err != nil {
		return nil, r, fmt.Errorf("%s: %w", who, err)
	}
	if r.Info, err = ReadModelInfo(file); err != nil {
		return nil, r, fmt.Errorf("%s: read back what was written: %w", who, err)
	}
	return file, r, nil
}

// measureWindow fills in the errors over the last fifth of the origins, of a model that has seen nothing of them.
func (r *TrainReport) measureWindow(history Series, seasons []int, w WindowOptions, o LinearOptions) error {
	first, last := w.Input, len(history.Values)-w.Horizon
	cut := first + (last-first)*4/5
	before, err := trainWindow(history.Until(history.At(cut)), w)
	if err != nil {
		return fmt.Errorf("measure it on the last fifth of the history, of which it has learnt nothing: %w", err)
	}
	said := map[int][]float64{}
	var held []int
	for _, at := range spread(cut, last, cmp.Or(o.holdout, maxHoldoutOrigins)) {
		if f, err := before.Forecast(history.Until(history.At(at)), w.Horizon); err == nil { // else a gap just before: as live, it has no answer there
			said[at], held = f.Mean, append(held, at)
		}
	}
	if len(held) == 0 {
		return fmt.Errorf("train %s: it has no answer at any moment of the last fifth of the history: too little was measured there", w.Kind)
	}
	return r.measure(history, fillFromSeason(history.Values, seasons[0]), seasons, held, o.Against, func(at int) []float64 { return said[at] })
}

// graph writes the model as an ONNX graph of the contract, with a row for each of fileLevels.
func (w *window) graph(info ModelInfo) ([]byte, error) {
	g := onnx.NewGraph()
	x := g.Input(inputHistory, onnx.Float32, 1, w.input)
	var point *onnx.Tensor
	switch w.kind {
	case SparseTSF:
		point = w.phases(g, x)
	case NLinear:
		point = g.MatMul(x, g.Const(w.nlinear(), w.input, w.horizon))
	default:
		m, constant := w.dlinear()
		point = g.Add(g.MatMul(x, g.Const(m, w.input, w.horizon)), g.Mul(g.ReduceMean(x, true, 1), g.Const(constant, 1, w.horizon)))
	}
	point = g.Relu(point)
	g.Output(outputForecast, g.Concat(0, levelRows(g, x, point, func(level float64) []float64 { return w.quantiles[slices.Index(spreadLevels, level)] })...))
	return g.Model(info.metadata())
}

// levelRows are the rows of fileLevels around the forecast point of window x: the median is the point, and the others lie relative errors from it.
func levelRows(g *onnx.Graph, x, point *onnx.Tensor, errors func(level float64) []float64) []*onnx.Tensor {
	rows := make([]*onnx.Tensor, len(fileLevels))
	for i, level := range fileLevels {
		rows[i] = point
		if level != 0.5 {
			rows[i] = bound(g, x, point, errors(level))
		}
	}
	return rows
}

// nlinear is the map of a window, input × horizon: what is said of the differences from the last bin, and that bin.
func (w *window) nlinear() []float32 {
	out := make([]float32, w.input*w.horizon)
	last := out[(w.input-1)*w.horizon:]
	for h := range last {
		sum := 1.0
		for i := range w.input - 1 {
			v := w.coefficients.At(i, h)
			out[i*w.horizon+h] = float32(v)
			sum -= v
		}
		last[h] = float32(sum)
	}
	return out
}

// dlinear is the map of a window, input × horizon, with the moving average in it, and the constant in units of the window's mean.
func (w *window) dlinear() (m, constant []float32) {
	n := w.input
	sum := mat.NewDense(n, w.horizon, nil)
	for i := range n {
		for h := range w.horizon {
			trend, rest := w.coefficients.At(i, h), w.coefficients.At(n+i, h)
			sum.Set(i, h, sum.At(i, h)+rest)
			for d := -dlinearMean / 2; d <= dlinearMean/2; d++ { // the average repeats the first and the last bin
				j := min(max(i+d, 0), n-1)
				sum.Set(j, h, sum.At(j, h)+(trend-rest)/dlinearMean)
			}
		}
	}
	for _, v := range sum.RawMatrix().Data {
		m = append(m, float32(v))
	}
	for h := range w.horizon {
		constant = append(constant, float32(w.coefficients.At(2*n, h)))
	}
	return m, constant
}

// phases is the forecast of SparseTSF: see sparse.go.
func (w *window) phases(g *onnx.Graph, x *onnx.Tensor) *onnx.Tensor {
	mean := g.ReduceMean(x, true, 1)
	rows, columns, n := w.rows(), w.columns(), w.features()
	less := g.Sub(x, mean)
	averages := map[[2]int]*onnx.Tensor{} // by the first bin that they see, counted from the first point, and how many they see
	points := make([]*onnx.Tensor, n)
	for j := range points {
		at := j * w.season
		from, to := max(at-w.around, 0), min(at+rows+w.around, w.input)
		seen := g.Slice(less, 1, from, to)
		if w.around > 0 {
			key := [2]int{from - at, to - from}
			if averages[key] == nil {
				averages[key] = g.Const(averager(from-at, to-from, rows, w.around), to-from, rows)
			}
			seen = g.MatMul(seen, averages[key])
		}
		points[j] = seen
	}
	b := make([]float32, columns*n)
	for c := range columns {
		for j := range n {
			b[c*n+j] = float32(w.coefficients.At(j, c))
		}
	}
	said := g.MatMul(g.Const(b, columns, n), g.Concat(0, points...)) // columns × rows: a season's phases after those of the one before
	return g.Add(mean, g.Slice(g.Reshape(said, 1, columns*rows), 1, 0, w.horizon))
}

// averager is the matrix, seen × rows, that makes of bins first, first+1, … the means of those up to k on either side of the bins 0 … rows−1, as far as they are seen.
func averager(first, seen, rows, k int) []float32 {
	m := make([]float32, seen*rows)
	for row := range rows {
		from, to := max(row-k-first, 0), min(row+k+1-first, seen)
		for i := from; i < to; i++ {
			m[i*rows+row] = 1 / float32(to-from)
		}
	}
	return m
}
