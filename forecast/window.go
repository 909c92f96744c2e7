package forecast

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"
)

// The kinds of linear model that [TrainWindow] makes, after Zeng et al., "Are
// Transformers Effective for Time Series Forecasting?" (AAAI 2023).
const (
	// NLinear is a linear map of the window minus its last bin, added to that bin.
	NLinear = "nlinear"
	// DLinear is a linear map of the window's moving average over 25 bins, one of
	// what remains, and a constant.
	DLinear = "dlinear"
)

const (
	windowLeast = 336 // bins of input at least: that of the published NLinear
	dlinearMean = 25  // bins, as published
)

// windowRidges are the strengths tried, relative to the features' mean square.
// They begin lower than ridges: neighbouring bins say nearly the same.
var windowRidges = []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1}

// WindowOptions say what [TrainWindow] makes.
type WindowOptions struct {
	Kind    string        // NLinear or DLinear
	Input   int           // bins seen; 0: the season and one bin, no fewer than 336
	Horizon int           // bins forecast
	Season  time.Duration // an unknown bin is filled with the one a season before
}

// window is the forecaster that [TrainWindow] describes.
type window struct {
	kind           string
	step           time.Duration
	input, horizon int
	season         int        // bins
	coefficients   *mat.Dense // features × horizon
	residuals      *residuals // out of sample
	quantiles      [][]float64
	scenarios      [][]float64
}

// TrainWindow fits a linear map from the last bins to those that follow, in
// units of the window's mean, so that a stream that grows is one problem. The fit
// is the closed form of ridge regression and not gradient descent as published.
// Its strength is the one with the least Σ|error| on the last fifth of the
// origins, whose errors make the band; then everything is fitted again.
//
// It is deterministic. Examples with an unknown outcome, or of whose window fewer
// than half were measured, are left out.
func TrainWindow(history Series, o WindowOptions) (Forecaster, error) {
	if o.Kind != NLinear && o.Kind != DLinear {
		return nil, fmt.Errorf("train forecaster %q: want %s or %s", o.Kind, NLinear, DLinear)
	}
	who := "train " + o.Kind
	if err := checkRequest(who, history, o.Horizon); err != nil {
		return nil, err
	}
	season, err := seasonBins(who, o.Season, history.Step)
	if err != nil {
		return nil, err
	}
	w := &window{kind: o.Kind, step: history.Step, input: o.Input, horizon: o.Horizon, season: season}
	if w.input == 0 {
		w.input = max(windowLeast, season+1)
	}
	if need := w.input + w.horizon + minOrigins*4; len(history.Values) < need {
		return nil, shortHistory(who, history, need, fmt.Sprintf("an input of %d bins, the horizon of %d, and something to learn from", w.input, w.horizon))
	}
	if w.input < 2 {
		return nil, fmt.Errorf("%s: an input of %d bins: it needs 2 or more", who, w.input)
	}
	all := origins(history.Values, w.input, w.horizon)
	cut := len(all) * 4 / 5
	held := spreadOver(all[cut:], maxTrainOrigins/4)
	for cut > 0 && all[cut-1]+w.horizon > held[0] { // outcomes are shared with nothing held out
		cut--
	}
	if cut < minOrigins {
		return nil, fmt.Errorf("%s: only %d of %d bins of the history have a window before and outcomes after them that were measured: take a longer history, or one with fewer gaps", who, len(all), len(history.Values))
	}
	y := fillFromSeason(history.Values, season)
	if !w.chooseRidge(y, spreadOver(all[:cut], maxTrainOrigins), held, spreadOver(all, maxTrainOrigins)) {
		return nil, fmt.Errorf("%s: the rates of the history are too large or too far apart to be fitted", who)
	}
	return w, nil
}

// origins are the bins before which a window was half measured and after which
// every outcome is known.
func origins(y []float64, input, horizon int) []int {
	known := make([]int, len(y)+1)
	for i, v := range y {
		known[i+1] = known[i]
		if v == v {
			known[i+1]++
		}
	}
	var out []int
	for t := input; t+horizon <= len(y); t++ {
		if 2*(known[t]-known[t-input]) >= input && known[t+horizon]-known[t] == horizon {
			out = append(out, t)
		}
	}
	return out
}

// spread picks at most limit of first…last, evenly.
func spread(first, last, limit int) []int {
	n := last - first + 1
	if n <= 0 {
		return nil
	}
	out := make([]int, 0, min(n, limit))
	for k := range min(n, limit) {
		if n <= limit {
			out = append(out, first+k)
		} else {
			out = append(out, first+k*(n-1)/(limit-1))
		}
	}
	return out
}

// spreadOver picks at most limit of the elements, evenly.
func spreadOver(of []int, limit int) []int {
	out := spread(0, len(of)-1, limit)
	for k, i := range out {
		out[k] = of[i]
	}
	return out
}

// features is how many the kind has.
func (w *window) features() int {
	if w.kind == NLinear {
		return w.input - 1
	}
	return 2*w.input + 1
}

// fill writes the features of window x, and returns what a forecast of nothing but
// zeros means and the unit of all of it, both in samples/s. A unit of 0 is a silent
// window.
func (w *window) fill(x, features []float64) (base, unit float64) {
	for _, v := range x {
		unit += v / float64(len(x))
	}
	if unit == 0 {
		return 0, 0
	}
	if w.kind == NLinear {
		base = x[len(x)-1]
		for i := range features {
			features[i] = (x[i] - base) / unit
		}
		return base, unit
	}
	// The moving average repeats the first and the last bin beyond the ends.
	const half = dlinearMean / 2
	at := func(i int) float64 { return x[min(max(i, 0), len(x)-1)] }
	sum := 0.0
	for i := -half; i <= half; i++ {
		sum += at(i)
	}
	for i, v := range x {
		trend := sum / dlinearMean
		features[i], features[len(x)+i] = trend/unit, (v-trend)/unit
		sum += at(i+half+1) - at(i-half)
	}
	features[2*len(x)] = 1
	return 0, unit
}

// examples are the features and outcomes of origins, and their units.
func (w *window) examples(y []float64, origins []int) (x, outcomes *mat.Dense, units []float64) {
	x, outcomes = mat.NewDense(len(origins), w.features(), nil), mat.NewDense(len(origins), w.horizon, nil)
	for i, o := range origins {
		base, unit := w.fill(y[o-w.input:o], x.RawRowView(i))
		units = append(units, unit)
		if unit == 0 {
			continue // nothing to learn: all zeros
		}
		for h, v := range y[o : o+w.horizon] {
			outcomes.Set(i, h, (v-base)/unit)
		}
	}
	return x, outcomes, units
}

// chooseRidge fits to the origins of train at every strength, keeps the one that
// is best on those held, with its errors there, and fits that to all. It reports
// false where none can be solved.
func (w *window) chooseRidge(y []float64, train, held, all []int) bool {
	x, outcomes, _ := w.examples(y, train)
	gram, rhs := normal(x, outcomes)
	unseen, truth, units := w.examples(y, held)
	best, strength := math.Inf(1), windowRidges[len(windowRidges)-1]
	var said, kept mat.Dense
	for _, ridge := range windowRidges {
		b := ridgeSolve(gram, rhs, ridge)
		if b == nil {
			continue
		}
		said.Mul(unseen, b)
		loss := 0.0
		for i, unit := range units {
			for h, v := range truth.RawRowView(i) {
				loss += unit * math.Abs(v-said.At(i, h))
			}
		}
		if loss < best {
			best, strength = loss, ridge
			kept.CloneFrom(&said)
		}
	}
	if math.IsInf(best, 1) {
		return false
	}
	w.residuals = newResiduals(w.horizon, scaleFloor*max(meanKnown(y), math.SmallestNonzeroFloat64), len(held))
	for i, o := range held {
		w.residuals.begin()
		for h, v := range truth.RawRowView(i) {
			mean := y[o+h] + units[i]*(kept.At(i, h)-v)
			w.residuals.add(h, y[o+h], max(mean, 0))
		}
	}
	w.quantiles = w.residuals.quantiles(spreadLevels)
	w.scenarios = w.residuals.scenarios(w.quantiles[slices.Index(spreadLevels, 0.5)])
	w.residuals.at, w.residuals.paths = nil, nil
	x, outcomes, _ = w.examples(y, all)
	gram, rhs = normal(x, outcomes)
	w.coefficients = ridgeSolve(gram, rhs, strength)
	return w.coefficients != nil
}

// normal is the two sides of the normal equations, XᵀX and XᵀY.
func normal(x, y *mat.Dense) (*mat.SymDense, *mat.Dense) {
	_, k := x.Dims()
	gram, rhs := mat.NewSymDense(k, nil), new(mat.Dense)
	gram.SymOuterK(1, x.T())
	rhs.Mul(x.T(), y)
	return gram, rhs
}

// ridgeSolve is (XᵀX + s·ridge·I)⁻¹·XᵀY with s = trace(XᵀX)/k; nil where that is
// singular, and zeros where there is nothing but zeros.
func ridgeSolve(gram *mat.SymDense, rhs *mat.Dense, ridge float64) *mat.Dense {
	k := gram.SymmetricDim()
	_, horizon := rhs.Dims()
	out := mat.NewDense(k, horizon, nil)
	shrink := ridge * mat.Trace(gram) / float64(k)
	if shrink == 0 {
		return out
	}
	g := mat.NewSymDense(k, nil)
	g.CopySym(gram)
	for i := range k {
		g.SetSym(i, i, g.At(i, i)+shrink)
	}
	var chol mat.Cholesky
	if !chol.Factorize(g) || chol.SolveTo(out, rhs) != nil {
		return nil
	}
	return out
}

func (w *window) Name() string { return w.kind }

// Forecast implements [Forecaster]. Besides what that says it is an error to ask
// for more steps than it was trained for, and to bring a history of another step.
func (w *window) Forecast(history Series, steps int) (Forecast, error) {
	if err := checkRequest(w.kind, history, steps); err != nil {
		return Forecast{}, err
	}
	switch {
	case history.Step != w.step:
		return Forecast{}, fmt.Errorf("%s: it was trained on bins of %v, and the history has bins of %v", w.kind, length(w.step), length(history.Step))
	case steps > w.horizon:
		return Forecast{}, fmt.Errorf("%s: it was trained to forecast %d bins, and %d were asked for", w.kind, w.horizon, steps)
	case len(history.Values) < w.input:
		return Forecast{}, shortHistory(w.kind, history, w.input, "the model's input")
	}
	x, _, err := inputWindow(history.Values, w.input, w.season)
	if err != nil {
		return Forecast{}, fmt.Errorf("%s: %w", w.kind, err)
	}
	features := make([]float64, w.features())
	base, unit := w.fill(x, features)
	var said mat.VecDense
	said.MulVec(w.coefficients.Slice(0, len(features), 0, steps).T(), mat.NewVecDense(len(features), features))
	f := Forecast{At: history.End(), Step: history.Step, Mean: make([]float64, steps), Source: w.kind}
	for h := range f.Mean {
		f.Mean[h] = max(0, base+unit*said.AtVec(h))
	}
	w.residuals.put(&f, w.quantiles, w.scenarios)
	return f, nil
}
