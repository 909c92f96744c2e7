package forecast

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/mat"
)

// The kinds of linear model that [TrainWindow] makes: the first two after Zeng et al., "Are
// Transformers Effective for Time Series Forecasting?" (AAAI 2023), the third after Lin et al.,
// "SparseTSF: Modeling Long-term Time Series Forecasting with 1k Parameters" (ICML 2024).
const (
	// NLinear is a linear map of the window minus its last bin, added to that bin.
	NLinear = "nlinear"
	// DLinear is a linear map of the window's moving average over 25 bins, one of
	// what remains, and a constant.
	DLinear = "dlinear"
	// SparseTSF is one linear map from a phase of the season, as it was in the window's
	// seasons, to the same phase of those that follow: see sparse.go.
	SparseTSF = "sparsetsf"
)

// windowKinds are all of them.
var windowKinds = []string{NLinear, DLinear, SparseTSF}

const (
	windowLeast = 336     // bins of input at least: that of the published NLinear
	dlinearMean = 25      // bins, as published
	maxRows     = 250_000 // of features, as examples
	lentSeasons = 7       // before that an unknown bin of a window is lent from: a week of days
)

// windowRidges are the strengths tried, relative to the features' mean square.
// They begin lower than ridges: neighbouring bins say nearly the same.
var windowRidges = []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1}

// WindowOptions say what [TrainWindow] makes.
type WindowOptions struct {
	Kind    string        // NLinear, DLinear or SparseTSF
	Input   int           // bins seen; 0: the season and one bin, no fewer than 336; of SparseTSF see sparse.go
	Horizon int           // bins forecast
	Season  time.Duration // an unknown bin is filled with the one a season before; it is SparseTSF's period
	// Progress, where set, is told, by the goroutine of TrainWindow, how many of so many parts of the work are done, which take about as long as each other: to solve large equations takes long.
	Progress func(done, total int)
}

// window is the forecaster that [TrainWindow] describes.
type window struct {
	kind           string
	step           time.Duration
	input, horizon int
	season         int             // bins
	around         int             // SparseTSF: a point is the mean of so many bins on either side of it, and its own
	ridge          float64         // the strength chosen
	did            func(parts int) // tells of parts of the work, while it learns
	coefficients   *mat.Dense      // features × columns
	quantiles      [][]float64     // of its errors out of sample, at spreadLevels: the rows of its file
	outcomes       int             // that these were made of, at every horizon
	calibration    *calibration
}

// TrainWindow fits a linear map from the last bins to those that follow, in
// units of the window's mean, so that a stream that grows is one problem. The fit
// is the closed form of ridge regression and not gradient descent as published.
// Its strength is the one with the least Σ|error| on the last fifth of the
// origins, whose errors make the first band; then everything is fitted again. Later the band follows what
// comes of its forecasts: see calibrate.go.
//
// An unknown bin of a window is the one that was measured last at the same phase of the seven seasons before it, and a straight line
// where none was. It is deterministic. Examples with an unknown outcome, or half of whose window is such lines, are left out.
func TrainWindow(history Series, o WindowOptions) (Forecaster, error) {
	w, err := trainWindow(history, o)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func trainWindow(history Series, o WindowOptions) (*window, error) {
	if !slices.Contains(windowKinds, o.Kind) {
		return nil, fmt.Errorf("train forecaster %q: want %s", o.Kind, strings.Join(windowKinds, ", "))
	}
	who := "train " + o.Kind
	if err := checkRequest(who, history, o.Horizon); err != nil {
		return nil, err
	}
	season, err := seasonBins(who, o.Season, history.Step)
	if err != nil {
		return nil, err
	}
	history = history.mended(season)
	w := &window{kind: o.Kind, step: history.Step, input: o.Input, horizon: o.Horizon, season: season}
	w.calibration = &calibration{season: season, lends: lentSeasons * season, trained: history.End(), replays: replaysMost}
	if w.input == 0 {
		w.input = w.usualInput(len(history.Values))
	}
	if err := w.checkInput(who); err != nil {
		return nil, err
	}
	w.calibration.input = w.input
	reach := w.rows() * w.columns()
	if need := w.input + reach + minOrigins*4; len(history.Values) < need {
		return nil, shortHistory(who, history, need, fmt.Sprintf("an input of %d bins, the horizon of %d, and something to learn from", w.input, w.horizon))
	}
	all := origins(history.Values, lent(history.Values, season), w.input, reach)
	cut := len(all) * 4 / 5
	held := spreadOver(all[cut:], w.limit(maxTrainOrigins/4))
	for cut > 0 && all[cut-1]+reach > held[0] { // outcomes are shared with nothing held out
		cut--
	}
	if cut < minOrigins {
		return nil, fmt.Errorf("%s: only %d of %d bins of the history have a window before and outcomes after them that were measured: take a longer history, or one with fewer gaps", who, len(all), len(history.Values))
	}
	y := lent(history.Values, season)
	fillGaps(y)
	w.begin(o.Progress)
	if !w.learn(y, spreadOver(all[:cut], w.limit(maxTrainOrigins)), held, spreadOver(all, w.limit(maxTrainOrigins))) {
		return nil, fmt.Errorf("%s: the rates of the history are too large or too far apart to be fitted", who)
	}
	return w, nil
}

// usualInput is how many bins the kind sees of so many unless it is said.
func (w *window) usualInput(bins int) int {
	if w.kind == SparseTSF {
		return min(max(bins/2/w.season, sparseLeast), sparseSeasons) * w.season
	}
	return max(windowLeast, w.season+1)
}

func (w *window) checkInput(who string) error {
	switch {
	case w.input < 2:
		return fmt.Errorf("%s: an input of %d bins: it needs 2 or more", who, w.input)
	case w.kind == SparseTSF && w.input%w.season != 0:
		return fmt.Errorf("%s: an input of %d bins is not whole seasons of %d", who, w.input, w.season)
	}
	return nil
}

// lent is y with each unknown bin the one that was measured last at the same phase of the seasons before it, of lentSeasons at most; else it stays unknown.
func lent(y []float64, season int) []float64 {
	out := slices.Clone(y)
	for i := range out {
		for j := i - season; out[i] != out[i] && j >= max(0, i-lentSeasons*season); j -= season {
			out[i] = y[j]
		}
	}
	return out
}

// lentWindow is the input of a window at the end of y. At least half of it must be known or lent, and half of its very last bins known.
func lentWindow(y []float64, input, season int) ([]float64, error) {
	if err := seesLevel(y[len(y)-input:]); err != nil {
		return nil, err
	}
	seen := lent(y[max(0, len(y)-input-lentSeasons*season):], season)
	if known := (Series{Values: seen[len(seen)-input:]}).Known(); 2*known < input {
		return nil, fmt.Errorf("only %d of the last %d bins of the history were measured then or at the same phase of %d seasons before; it needs half of them", known, input, lentSeasons)
	}
	fillGaps(seen)
	return seen[len(seen)-input:], nil
}

// knownBefore is how many of the bins before each are known, and of all.
func knownBefore(y []float64) []int {
	known := make([]int, len(y)+1)
	for i, v := range y {
		known[i+1] = known[i]
		if v == v {
			known[i+1]++
		}
	}
	return known
}

// origins are the bins before which half of a window is known, as it is seen, and after which every outcome is.
func origins(y, seen []float64, input, horizon int) []int {
	known, before := knownBefore(y), knownBefore(seen)
	var out []int
	for t := input; t+horizon <= len(y); t++ {
		if 2*(before[t]-before[t-input]) >= input && known[t+horizon]-known[t] == horizon {
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

// A window is one row of features, or one of each phase of the season. The forecast of bin h is of row h modulo rows and of column h/rows.

// rows is how many rows of features a window has.
func (w *window) rows() int {
	if w.kind == SparseTSF {
		return min(w.season, w.horizon)
	}
	return 1
}

// columns is how many bins are forecast from a row.
func (w *window) columns() int { return (w.horizon + w.rows() - 1) / w.rows() }

// features is how many a row has.
func (w *window) features() int {
	switch w.kind {
	case NLinear:
		return w.input - 1
	case SparseTSF:
		return w.input / w.season
	}
	return 2*w.input + 1
}

// limit is how many origins are taken where most would be: many rows of each are as many examples.
func (w *window) limit(most int) int { return min(most, max(minOrigins, maxRows/w.rows())) }

// fill writes the rows of features of window x, and returns what a forecast of nothing but
// zeros means and the unit of all of it, both in samples/s. A unit of 0 is a silent
// window.
func (w *window) fill(x, features []float64) (base, unit float64) {
	for _, v := range x {
		unit += v / float64(len(x))
	}
	switch {
	case unit == 0:
		return 0, 0
	case w.kind == SparseTSF:
		w.fillPhases(x, features, unit)
		return unit, unit
	case w.kind == NLinear:
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

// examples are the features and outcomes of origins, a row of each for every row of a window, and the units of the windows.
func (w *window) examples(y []float64, origins []int) (x, outcomes *mat.Dense, units []float64) {
	rows, columns, k := w.rows(), w.columns(), w.features()
	x, outcomes = mat.NewDense(len(origins)*rows, k, nil), mat.NewDense(len(origins)*rows, columns, nil)
	for i, o := range origins {
		base, unit := w.fill(y[o-w.input:o], x.RawMatrix().Data[i*rows*k:(i+1)*rows*k])
		units = append(units, unit)
		if unit == 0 {
			continue // nothing to learn: all zeros
		}
		for h, v := range y[o : o+rows*columns] {
			outcomes.Set(i*rows+h%rows, h/rows, (v-base)/unit)
		}
	}
	return x, outcomes, units
}

// setting is how a window is fitted, and what that came to on the origins held out.
type setting struct {
	loss   float64 // Σ|error|, in samples/s
	around int
	ridge  float64
	said   mat.Dense // as the outcomes of examples
}

// learn fits to the origins of train with every setting, keeps the one that
// is best on those held, with its errors there, and fits that to all. It reports
// false where none can be solved.
func (w *window) learn(y []float64, train, held, all []int) bool {
	best := setting{loss: math.Inf(1)}
	for _, w.around = range w.surroundings() {
		w.chooseRidge(y, train, held, &best)
	}
	if math.IsInf(best.loss, 1) {
		return false
	}
	w.around, w.ridge = best.around, best.ridge
	_, truth, units := w.examples(y, held)
	rows := w.rows()
	errors := newResiduals(w.horizon, scaleFloor*max(meanKnown(y), math.SmallestNonzeroFloat64), len(held))
	for i, o := range held {
		errors.begin()
		for h := range w.horizon {
			row, column := i*rows+h%rows, h/rows
			mean := y[o+h] + units[i]*(best.said.At(row, column)-truth.At(row, column))
			errors.add(h, y[o+h], max(mean, 0))
		}
	}
	w.quantiles, w.outcomes = errors.quantiles(spreadLevels), errors.outcomes(w.horizon)
	for _, k := range spread(0, len(held)-1, maxFollowed) {
		w.calibration.before = append(w.calibration.before, errors.paths[k])
	}
	x, outcomes, _ := w.examples(y, all)
	gram, rhs := normal(x, outcomes)
	w.did(normalParts)
	w.coefficients = ridgeSolve(gram, rhs, best.ridge)
	w.did(1)
	return w.coefficients != nil
}

// normalParts is for how many solutions of them the normal equations take as long to be made: (n examples)·k² beside k³/3, of about as many examples as three times the bins that are seen.
const normalParts = 9

// begin has tell told of each part of the work as it is done.
func (w *window) begin(tell func(done, total int)) {
	if tell == nil {
		w.did = func(int) {}
		return
	}
	done, total := 0, len(w.surroundings())*(normalParts+len(windowRidges))+normalParts+1
	w.did = func(parts int) {
		done += parts
		tell(done, total)
	}
}

// chooseRidge puts the strength that is best on the origins held into best, where it is better than that.
func (w *window) chooseRidge(y []float64, train, held []int, best *setting) {
	x, outcomes, _ := w.examples(y, train)
	gram, rhs := normal(x, outcomes)
	w.did(normalParts)
	unseen, truth, units := w.examples(y, held)
	rows := w.rows()
	var said mat.Dense
	for _, ridge := range windowRidges {
		b := ridgeSolve(gram, rhs, ridge)
		w.did(1)
		if b == nil {
			continue
		}
		said.Mul(unseen, b)
		loss := 0.0
		for i, unit := range units {
			for h := range w.horizon {
				row, column := i*rows+h%rows, h/rows
				loss += unit * math.Abs(truth.At(row, column)-said.At(row, column))
			}
		}
		if loss < best.loss {
			best.loss, best.around, best.ridge = loss, w.around, ridge
			best.said.CloneFrom(&said)
		}
	}
}

// normal is the two sides of the normal equations, XᵀX and XᵀY.
func normal(x, y *mat.Dense) (*mat.SymDense, *mat.Dense) {
	rhs := new(mat.Dense)
	rhs.Mul(x.T(), y)
	return gramOf(x), rhs
}

// gramColumns is for how many columns at a time a Gram matrix is made.
const gramColumns = 128

// gramOf is XᵀX, of which the upper half is made, a strip at a time: gonum multiplies dense matrices in blocks that fit a processor's cache, and on all processors, and SymOuterK
// does neither. Of 3,000 rows of 1,441 bins that takes less than half the time.
func gramOf(x *mat.Dense) *mat.SymDense {
	n, k := x.Dims()
	out := mat.NewSymDense(k, nil)
	for from := 0; from < k; from += gramColumns {
		to := min(from+gramColumns, k)
		var strip mat.Dense
		strip.Mul(x.Slice(0, n, from, to).T(), x.Slice(0, n, from, k))
		for i := range to - from {
			for j := i; j < k-from; j++ {
				out.SetSym(from+i, from+j, strip.At(i, j))
			}
		}
	}
	return out
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

// TrainedUntil is the end of the history that it has seen.
func (w *window) TrainedUntil() time.Time { return w.calibration.trained }

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
	history = history.mended(w.season)
	x, err := lentWindow(history.Values, w.input, w.season)
	if err != nil {
		return Forecast{}, fmt.Errorf("%s: %w", w.kind, err)
	}
	f := Forecast{At: history.End(), Step: history.Step, Mean: w.mean(x, steps), Source: w.kind}
	err = w.calibration.spread(&f, history, shape{mean: f.Mean}, nil, func(past Series) (shape, error) {
		x, err := lentWindow(past.Values, w.input, w.season)
		if err != nil {
			return shape{}, err
		}
		return shape{mean: w.mean(x, steps)}, nil
	})
	return f, err
}

// mean is what follows the window x.
func (w *window) mean(x []float64, steps int) []float64 {
	rows, k := w.rows(), w.features()
	features := make([]float64, rows*k)
	base, unit := w.fill(x, features)
	out := make([]float64, steps)
	used := w.coefficients.Slice(0, k, 0, (steps+rows-1)/rows).T()
	for row := range min(rows, steps) {
		var said mat.VecDense
		said.MulVec(used, mat.NewVecDense(k, features[row*k:(row+1)*k]))
		for h := row; h < steps; h += rows {
			out[h] = max(0, base+unit*said.AtVec(h/rows))
		}
	}
	return out
}
