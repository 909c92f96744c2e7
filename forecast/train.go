package forecast

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/forecast/fedformer"
)

// The kinds of model file that can be trained, by the names that they have in their metadata; those of [TrainWindow] are among them.
const (
	Linear    = "linear"
	FEDformer = "fedformer"
)

// ModelKinds are all of them.
func ModelKinds() []string { return append([]string{Linear, FEDformer}, windowKinds...) }

// LinearOptions say what [TrainLinear] makes, and [TrainWindowModel].
type LinearOptions struct {
	// Horizon is how many bins the model forecasts, 1 or more.
	Horizon int
	// Seasons, at least one, such as a day and a week; each a whole number of bins.
	// Those that the history is too short for are left out.
	Seasons []time.Duration
	// Input bounds how many bins of history the model may ask for; 0 means half of
	// the history. One of TrainWindowModel asks for exactly so many; 0 means as many as
	// its kind usually does.
	Input int
	// TrainedAt goes into the file; zero means the end of the history, so that the same
	// history gives the same file.
	TrainedAt time.Time
	// Source goes into the file: where the history came from.
	Source string
	// Against, where set, is measured on the holdout too, such as the model that is
	// to be replaced. Where it was trained on the holdout's beginning, all are measured
	// on what comes after that, as far as there is enough of it.
	Against Forecaster

	holdout int // origins of the holdout at most, 0: maxHoldoutOrigins. The seasonal forecaster learns anew at each, which tests have no time for
}

// validate checks what can be checked without the history.
func (o LinearOptions) validate() error {
	var errs []error
	if o.Horizon < 1 || o.Horizon > maxModelBins {
		errs = append(errs, fmt.Errorf("the horizon is %d bins; want 1 to %d", o.Horizon, maxModelBins))
	}
	if len(o.Seasons) == 0 {
		errs = append(errs, errors.New("no season was given: name one, such as 24h"))
	}
	if o.Input < 0 || o.Input > maxModelBins {
		errs = append(errs, fmt.Errorf("the input is %d bins; want 1 to %d, or 0 for half of the history", o.Input, maxModelBins))
	}
	return errors.Join(errs...)
}

// TrainReport says what was trained and how good it is. The three Errors are over
// the holdout, the last origins, which what they measure has not seen: of the
// linear models a fifth, and the coefficients in the file are then fitted again to
// everything; of FEDformer a tenth, and it is not.
type TrainReport struct {
	Info     ModelInfo
	Origins  int       // examples learnt from, per horizon
	From     time.Time // the holdout's first origin
	Holdout  int       // its origins
	Model    Errors    // the model; its band and that of Naive are made of the holdout's forecasts before, as far as these are enough
	Naive    Errors    // ŷ(t+h) = y(t+h−season), the shortest season
	Seasonal Errors    // NewSeasonal, seeing at each origin what lies before it
	Against  Errors    // the options' Against, likewise; without one of no bins
	// Unanswered is at how many of the holdout's origins Against gave no forecast, and NoAnswer why at the first of them.
	Unanswered int
	NoAnswer   error
	// The model's leads over Seasonal, Against and Naive.
	OverSeasonal, OverAgainst, OverNaive Lead

	// Of the linear model.
	Lags     []int   // bins
	Windows  []int   // level windows, bins
	Features int     // per horizon
	Ridge    float64 // the strength chosen, on what lies before the holdout

	// Of FEDformer.
	Epochs []fedformer.Progress // at their ends
	Best   int                  // the epoch whose weights it has, from 1
}

// Silent is why Against gave no forecast at any of the holdout's origins, other than for want of history; nil: it gave one, or there is none.
func (r TrainReport) Silent() error {
	if r.Unanswered < r.Holdout || errors.Is(r.NoAnswer, ErrShortHistory) {
		return nil
	}
	return r.NoAnswer
}

// measure fills the report's errors over the origins of the holdout. filled is the
// history without gaps, and predict the model's forecast. It is an error that against was closed meanwhile: nobody waits for the report then.
func (r *TrainReport) measure(history Series, filled []float64, seasons, holdout []int, against Forecaster, predict func(origin int) []float64) error {
	holdout = unseen(history, holdout, against)
	r.From = history.At(holdout[0])
	var model, naive, seasonal, other tally
	var ours, repeats tried
	var overSeasonal, overOther, overNaive duel
	rival := NewSeasonal(durations(seasons, history.Step))
	steps := 0
	for _, o := range holdout {
		said := predict(o)
		steps = len(said)
		past := history.Until(history.At(o))
		fc, err := rival.Forecast(past, len(said))
		var theirs Forecast
		failed := errors.New("none")
		if against != nil {
			if theirs, failed = against.Forecast(past, len(said)); errors.Is(failed, ErrClosed) {
				return fmt.Errorf("measure %s beside it: %w", against.Name(), failed)
			} else if failed != nil {
				r.Unanswered++
				r.NoAnswer = cmp.Or(r.NoAnswer, failed)
			}
		}
		again := make([]float64, len(said))
		for h := range again {
			again[h] = filled[o+h-(h/seasons[0]+1)*seasons[0]]
		}
		mine, naives := ours.band(past, said), repeats.band(past, again)
		overSeasonal.begin()
		overOther.begin()
		overNaive.begin()
		for h := range said {
			a := history.Values[o+h]
			model.add(a, mine(h))
			naive.add(a, naives(h))
			overNaive.add(a, said[h], again[h])
			if err == nil {
				seasonal.add(a, fc.bin(h))
				overSeasonal.add(a, said[h], fc.Mean[h])
			}
			if failed == nil {
				other.add(a, theirs.bin(h))
				overOther.add(a, said[h], theirs.Mean[h])
			}
		}
	}
	r.Holdout = len(holdout)
	overlap := overlapping(holdout, steps)
	r.OverSeasonal, r.OverAgainst, r.OverNaive = overSeasonal.lead(overlap), overOther.lead(overlap), overNaive.lead(overlap)
	r.Model, r.Naive, r.Seasonal, r.Against = model.errors(math.NaN()), naive.errors(math.NaN()), seasonal.errors(math.NaN()), other.errors(math.NaN())
	return nil
}

// overlapping is how many origins after one are within its steps bins, at most.
func overlapping(origins []int, steps int) (most int) {
	to := 0
	for i, o := range origins {
		for to < len(origins) && origins[to] < o+steps {
			to++
		}
		most = max(most, to-i-1)
	}
	return most
}

// tried are forecasts at past origins, in order of time.
type tried struct {
	origins []int
	said    [][]float64
}

// band takes in what is forecast at the end of past, and gives it the band that what came of the forecasts before makes: bin by bin, without one as long as
// that is too little.
func (t *tried) band(past Series, mean []float64) (bin func(h int) said) {
	y := past.Values
	res := newResiduals(len(mean), scaleFloor*max(meanKnown(y), math.SmallestNonzeroFloat64), len(t.origins)+1)
	for k, o := range t.origins {
		res.begin()
		for h := range min(len(mean), len(y)-o) {
			res.add(h, y[o+h], t.said[k][h])
		}
	}
	t.origins, t.said = append(t.origins, len(y)), append(t.said, mean)
	if res.outcomes(len(mean)) < CalibratedOutcomes {
		return func(h int) said { return unsure(mean[h]) }
	}
	f := Forecast{Mean: mean}
	res.adapt()
	res.spread(&f)
	return f.bin
}

// leastUnseen is how many origins a comparison needs.
const leastUnseen = 12

// unseen are those of the origins that lie after what a forecaster was trained on, or all where too few do.
func unseen(history Series, origins []int, f Forecaster) []int {
	trained, ok := f.(interface{ TrainedUntil() time.Time })
	if !ok {
		return origins
	}
	later := slices.DeleteFunc(slices.Clone(origins), func(o int) bool { return history.At(o).Before(trained.TrainedUntil()) })
	if len(later) < leastUnseen {
		return origins
	}
	return later
}

// seasonsOf are seasons in bins, shortest first, each once.
func seasonsOf(who string, seasons []time.Duration, step time.Duration) ([]int, error) {
	var bins []int
	for _, s := range seasons {
		b, err := seasonBins(who, s, step)
		if err != nil {
			return nil, err
		}
		bins = append(bins, b)
	}
	slices.Sort(bins)
	return slices.Compact(bins), nil
}

// maxTrainOrigins bounds the examples per horizon: beyond some thousands of
// neighbouring origins, more say nothing new and cost time.
const maxTrainOrigins = 4000

// maxHoldoutOrigins bounds the origins at which the holdout is scored.
const maxHoldoutOrigins = 120

// ridges are the strengths tried, relative to the features' mean square.
var ridges = []float64{1e-4, 1e-3, 1e-2, 1e-1, 1, 10}

// TrainLinear makes a small linear forecast model from history and returns it as
// an ONNX file of the contract in contract.go. Its features are level-corrected
// seasonal lags and recent means (see linearPlan); its coefficients are the closed
// form of a ridge regression per horizon, pulled towards the plain mean of the
// seasonal candidates, so that little history gives seasonal naive and much gives
// better. Large errors count by their size and not by their square: the regression
// is repeated with the weights 1/|error|. The output has the quantiles 0.1, 0.5
// and 0.9, from errors that were made out of sample.
//
// It is deterministic and needs no ONNX Runtime. Gaps in the history are allowed:
// an example whose outcome is unknown is left out. A history that is too short
// gives an error that wraps [ErrShortHistory].
func TrainLinear(history Series, o LinearOptions) ([]byte, TrainReport, error) {
	const who = "train linear forecast model"
	seasons, err := o.seasons(who, history)
	if err != nil {
		return nil, TrainReport{}, err
	}
	history = history.mended(seasons[0])
	plan, err := planLinear(who, history, seasons, o)
	if err != nil {
		return nil, TrainReport{}, err
	}
	if err := teaches(who, history); err != nil {
		return nil, TrainReport{}, err
	}
	t := &linearTrainer{plan: plan, actual: history.Values, data: newLinearData(plan, fillFromSeason(history.Values, seasons[0]))}
	return t.train(history, seasons, o)
}

// seasons are those to train with, in bins; an error where options or history are none to train with.
func (o LinearOptions) seasons(who string, history Series) ([]int, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", who, err)
	}
	if err := checkRequest(who, history, o.Horizon); err != nil {
		return nil, err
	}
	return seasonsOf(who, o.Seasons, history.Step)
}

// taughtBy is of how many bins one must have been measured, at the least, for something to be learnt: of weekdays alone with weeks between, as of a loop detector, they are half.
const taughtBy = 4

// teaches says, as an error, why nothing can be learnt from a history, however long it is.
func teaches(who string, history Series) error {
	if known := history.Known(); taughtBy*known < len(history.Values) {
		from, bins := history.longestGap()
		return fmt.Errorf("%s: only %d of %d bins of the history were measured; a quarter of them is needed. The longest gap is of %s, from %s to %s: "+
			"if a time there is wrong, take it out; else learn from what is on one side of it, as with -history",
			who, known, len(history.Values), length(time.Duration(bins)*history.Step), history.At(from).UTC().Format(time.RFC3339), history.At(from+bins).UTC().Format(time.RFC3339))
	}
	if !slices.ContainsFunc(history.Values, func(v float64) bool { return v > 0 }) {
		return fmt.Errorf("%s: every measured rate is 0, from which nothing can be learnt: take a history with traffic in it", who)
	}
	return nil
}

// linearTrainer is one training under way.
type linearTrainer struct {
	plan   linearPlan
	actual []float64 // the history, with its gaps
	data   *linearData
}

func (t *linearTrainer) train(history Series, seasons []int, o LinearOptions) ([]byte, TrainReport, error) {
	first, last := t.plan.input, len(t.actual)-t.plan.horizon // origins, last included
	cut := first + (last-first)*4/5                           // the holdout begins
	ridge := t.chooseRidge(first, cut-t.plan.horizon)
	r := TrainReport{
		Lags: t.plan.lags, Windows: t.plan.windows, Features: t.plan.features(), Ridge: ridge,
		From: history.At(cut),
	}
	// The holdout is measured with coefficients that end a horizon before it.
	before := t.fit(spread(first, cut-t.plan.horizon, maxTrainOrigins), cut, ridge)
	if err := r.measure(history, t.data.y, seasons, spread(cut, last, cmp.Or(o.holdout, maxHoldoutOrigins)), o.Against, func(o int) []float64 { return t.data.predict(o, before) }); err != nil {
		return nil, r, fmt.Errorf("train linear forecast model: %w", err)
	}

	origins := spread(first, last, maxTrainOrigins)
	r.Origins = len(origins)
	coefficients := t.fit(origins, len(t.actual), ridge)
	r.Info = ModelInfo{
		Name: Linear, Input: t.plan.input, Horizon: t.plan.horizon, Step: history.Step, SeasonBins: seasons,
		Normalise: NormaliseMean, Quantiles: []float64{lowerQuantile, 0.5, upperQuantile},
		TrainedAt: o.TrainedAt, TrainedUntil: history.End(), TrainedBins: len(history.Values), Source: o.Source,
	}
	if r.Info.TrainedAt.IsZero() {
		r.Info.TrainedAt = history.End()
	}
	unseen := t.crossResiduals(first, last, ridge)
	band := unseen.quantiles([]float64{lowerQuantile, upperQuantile})
	r.Info.Outcomes = unseen.outcomes(t.plan.horizon)
	lower, upper := band[0], band[1]
	model, err := linearGraph(t.plan, coefficients, linearBand{lower, upper}, r.Info)
	if err != nil {
		return nil, r, fmt.Errorf("train linear forecast model: %w", err)
	}
	if r.Info, err = ReadModelInfo(model); err != nil {
		return nil, r, fmt.Errorf("train linear forecast model: read back what was written: %w", err)
	}
	return model, r, nil
}
