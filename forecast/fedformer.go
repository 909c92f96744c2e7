package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/forecast/fedformer"
)

// FEDformerOptions say what [TrainFEDformer] makes.
type FEDformerOptions struct {
	Horizon int             // bins that the model forecasts, 1 or more
	Seasons []time.Duration // at least one, such as a day; each a whole number of bins
	Input   int             // bins of history that it asks for; 0: 96 as published, or the shortest season where that is longer
	Width   int             // channels, a multiple of 8; 0: 64. The published model has 512, and from there on 64 modes and not 32
	Seed    uint64
	Threads int // 0: 1
	Epochs  int // at most; 0: 10, as published
	// TrainedAt and Source go into the file as those of LinearOptions.
	TrainedAt time.Time
	Source    string
	Against   Forecaster // likewise
	Runtime   onnx.Options
	// Progress, where set, is told how far the training is.
	Progress func(fedformer.Progress)
	// Save, where set, is given the training after every epoch: ResumeFEDformer goes on with it. An error of its ends the training.
	Save   func([]byte) error
	resume []byte

	holdout int // as that of LinearOptions
	least   int // windows of an epoch, 0: fedformerEpochLeast. It is for tests too
}

// How FEDformer is trained. Batch and patience are as published.
const (
	fedformerBatch     = 32
	fedformerBatchBins = 20_000 // at most, of the windows of a minibatch together: memory
	fedformerPatience  = 3
	fedformerEpochs    = 10
	fedformerRate      = 1e-3 // published is 1e-4, at eight times the width
	fedformerInput     = 96
	// An epoch is of so many windows at least, however short the history, and of so many bins at most, those of all its windows together: those of a
	// long input overlap, and one more says little that is new.
	fedformerEpochLeast = 100 * fedformerBatch
	fedformerEpochBins  = 2_000_000
	fedformerJudged     = 1000            // validation windows at most
	fedformerLeast      = 10 * minOrigins // windows
)

// fileLevels are the quantiles of the files that are trained, save those of TrainLinear.
var fileLevels = []float64{0.05, lowerQuantile, 0.5, upperQuantile, 0.95}

// TrainFEDformer trains FEDformer-f (package fedformer) on history, and returns it as an ONNX file of the contract in contract.go. Of the windows
// of history it learns from the first four fifths, stops by those of the next tenth, and is measured, beside naive and seasonal, on those of the
// last, whose errors make the band. It is not trained again on these.
//
// The same history, options and number of threads give the same model. It needs ONNX Runtime. Windows of which less than half was measured, or whose
// outcome was not, are left out; a history that is too short gives an error that wraps [ErrShortHistory]. An input shorter than the shortest season is
// refused.
func TrainFEDformer(ctx context.Context, history Series, o FEDformerOptions) ([]byte, TrainReport, error) {
	const who = "train fedformer"
	if err := checkRequest(who, history, o.Horizon); err != nil {
		return nil, TrainReport{}, err
	}
	if len(o.Seasons) == 0 {
		return nil, TrainReport{}, fmt.Errorf("%s: no season was given: name one, such as 24h", who)
	}
	seasons, err := seasonsOf(who, o.Seasons, history.Step)
	if err != nil {
		return nil, TrainReport{}, err
	}
	history = history.mended(seasons[0])
	t := newFEDformerTrainer(history, seasons, o)
	c := t.config
	if err := c.Validate(); err != nil {
		return nil, TrainReport{}, fmt.Errorf("%s: %w", who, err)
	}
	if need := c.Input + 11*c.Horizon + fedformerLeast; len(history.Values) < need {
		return nil, TrainReport{}, shortHistory(who, history, need, fmt.Sprintf("an input of %d bins, eleven horizons of %d, as the tenths that are not learnt lie a horizon apart, and something to learn from",
			c.Input, c.Horizon))
	}
	model, r, err := t.train(ctx)
	if err != nil {
		return nil, r, fmt.Errorf("%s: %w", who, err)
	}
	return model, r, nil
}

// fedformerTrainer is one training under way.
type fedformerTrainer struct {
	history  Series
	filled   []float64 // its values without gaps
	seasons  []int     // bins, shortest first
	options  FEDformerOptions
	config   fedformer.Config
	features []string
	// The first bins after windows: those learnt from, those that tell when to stop, those measured on. No outcome of one lies among the outcomes of
	// the next.
	learn, validate, held []int
}

func newFEDformerTrainer(history Series, seasons []int, o FEDformerOptions) *fedformerTrainer {
	c := fedformer.Small(o.Horizon)
	c.Season, c.Seed = seasons[0], o.Seed
	c.Input = cmp.Or(o.Input, max(fedformerInput, seasons[0]))
	c.Label, c.Average = max(c.Input/2, 1), min(c.Average, c.Input)
	c.Batch = max(min(fedformerBatch, fedformerBatchBins/windowBins(c)), 1)
	if o.Width != 0 {
		c.Width, c.Hidden = o.Width, 4*o.Width
	}
	if paper := fedformer.Paper(o.Horizon); c.Width >= paper.Width {
		c.Modes = paper.Modes
	}
	return &fedformerTrainer{history: history, seasons: seasons, options: o, config: c, filled: fillFromSeason(history.Values, seasons[0])}
}

// windowBins is how many bins the encoder and the decoder see of one window.
func windowBins(c fedformer.Config) int { return max(c.Input+c.Label+c.Horizon, 1) }

func (t *fedformerTrainer) train(ctx context.Context) ([]byte, TrainReport, error) {
	var r TrainReport
	if err := t.split(); err != nil {
		return nil, r, err
	}
	t.chooseFeatures()
	o, h := t.options, t.history
	windows := min(max(len(t.learn), cmp.Or(o.least, fedformerEpochLeast)), fedformerEpochBins/windowBins(t.config))
	trained, err := fedformer.Train(ctx, t.config, fedformer.Data{
		Window: t.window, Marks: marks(t.features, h.Start, h.Step, len(h.Values)), Learn: t.learn, Validate: spreadOver(t.validate, fedformerJudged),
	}, fedformer.Options{
		Rate: fedformerRate, Epochs: cmp.Or(o.Epochs, fedformerEpochs), Windows: max(windows, t.config.Batch), Patience: fedformerPatience,
		Threads: o.Threads, Runtime: o.Runtime, Progress: o.Progress, Save: t.save(), Resume: o.resume,
	})
	if err != nil {
		return nil, r, err
	}
	r = TrainReport{Origins: len(t.learn), From: h.At(t.held[0]), Epochs: trained.Epochs, Best: trained.Best}
	info := ModelInfo{
		Name: FEDformer, Input: t.config.Input, Horizon: t.config.Horizon, Step: h.Step, SeasonBins: t.seasons, Normalise: NormaliseMean,
		TimeFeatures: t.features, TrainedAt: o.TrainedAt, TrainedUntil: h.End(), TrainedBins: len(h.Values), Source: o.Source,
	}
	if info.TrainedAt.IsZero() {
		info.TrainedAt = h.End()
	}
	unseen, err := t.measure(&r, trained.Weights, info)
	if err != nil {
		return nil, r, err
	}
	band := unseen.quantiles(fileLevels)
	info.Quantiles, info.Outcomes = fileLevels, unseen.outcomes(t.config.Horizon)
	model, err := t.graph(trained.Weights, info, band)
	if err != nil {
		return nil, r, err
	}
	if r.Info, err = ReadModelInfo(model); err != nil {
		return nil, r, fmt.Errorf("read back what was written: %w", err)
	}
	return model, r, nil
}

// chooseFeatures takes the time features that vary, and whose every value the windows learnt from have seen: of one that comes round less than twice
// there, what lies ahead is new.
func (t *fedformerTrainer) chooseFeatures() {
	learnt := time.Duration(t.learn[len(t.learn)-1]) * t.history.Step
	for _, f := range timeFeatures {
		if t.history.Step%f.cycle != 0 && learnt >= 2*f.cycle {
			t.features = append(t.features, f.name)
		}
	}
	t.config.Marks = len(t.features)
}

// split divides the windows.
func (t *fedformerTrainer) split() error {
	all := slices.DeleteFunc(origins(t.history.Values, t.history.Values, t.config.Input, t.config.Horizon), func(o int) bool { return t.unit(o) == 0 }) // of a silent window 0 is forecast
	n := len(all)
	before := func(part, next []int) []int {
		for len(part) > 0 && part[len(part)-1]+t.config.Horizon > next[0] {
			part = part[:len(part)-1]
		}
		return part
	}
	if n >= fedformerLeast {
		t.held = all[n*9/10:]
		if t.validate = before(all[n*8/10:n*9/10], t.held); len(t.validate) > 0 {
			t.learn = before(all[:n*8/10], t.validate)
		}
	}
	if len(t.learn) < minOrigins {
		return fmt.Errorf("only %d of %d bins of the history have a window before and outcomes after them that were measured, and traffic: take a longer history, one with fewer gaps, or a shorter horizon than %d bins",
			n, len(t.history.Values), t.config.Horizon)
	}
	return nil
}

// unit is what the window before bin o is divided by, in samples/s.
func (t *fedformerTrainer) unit(o int) float64 {
	return meanKnown(t.history.Values[o-t.config.Input : o])
}

// window is fedformer.Data.Window.
func (t *fedformerTrainer) window(o int, input, outcome []float32) {
	unit := t.unit(o)
	for i, v := range t.filled[o-len(input) : o] {
		input[i] = float32(v / unit)
	}
	for i, v := range t.filled[o : o+len(outcome)] {
		outcome[i] = float32(v / unit)
	}
}

// measure runs the model as it will be run over the windows held out, fills the report's errors, and gives the relative ones.
func (t *fedformerTrainer) measure(r *TrainReport, w fedformer.Weights, info ModelInfo) (unseen *residuals, err error) {
	file, err := t.graph(w, info, nil)
	if err != nil {
		return nil, err
	}
	m, err := NewONNX("in memory", file, ONNXOptions{Runtime: t.options.Runtime, Threads: t.options.Threads})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	held := spreadOver(t.held, cmp.Or(t.options.holdout, maxHoldoutOrigins))
	res := newResiduals(t.config.Horizon, scaleFloor*max(meanKnown(t.history.Values), math.SmallestNonzeroFloat64), len(held))
	said := map[int][]float64{}
	for _, at := range held {
		rows, err := m.run(t.history.Until(t.history.At(at)), t.config.Horizon)
		if err != nil {
			continue // a gap just before: as live, it has no answer there
		}
		said[at] = rows[0]
		res.begin()
		for h, v := range rows[0] {
			res.add(h, t.history.Values[at+h], v)
		}
	}
	held = slices.DeleteFunc(held, func(at int) bool { return said[at] == nil })
	if len(held) == 0 {
		return nil, errors.New("the model has no answer at any moment of the last tenth of the history: too little was measured there")
	}
	err = r.measure(t.history, t.filled, t.seasons, held, t.options.Against, func(at int) []float64 { return said[at] })
	return res, err
}

// graph writes the model; without a band it has the point forecast alone.
func (t *fedformerTrainer) graph(w fedformer.Weights, info ModelInfo, band [][]float64) ([]byte, error) {
	c, g, made := t.config, onnx.NewGraph(), map[string]*onnx.Tensor{}
	c.Batch = 1
	x := g.Input(inputHistory, onnx.Float32, 1, c.Input)
	var past, ahead *onnx.Tensor
	if c.Marks > 0 {
		past, ahead = g.Input(inputHistoryTime, onnx.Float32, 1, c.Input, c.Marks), g.Input(inputForecastTime, onnx.Float32, 1, c.Horizon, c.Marks)
	}
	point := g.Relu(fedformer.Inference(g, c, x, past, ahead, func(name string, shape ...int) *onnx.Tensor {
		if made[name] == nil {
			made[name] = g.Const(w[name], shape...)
		}
		return made[name]
	}))
	if band == nil {
		g.Output(outputForecast, point)
		return g.Model(info.metadata())
	}
	g.Output(outputForecast, g.Concat(0, levelRows(g, x, point, func(level float64) []float64 { return band[slices.Index(fileLevels, level)] })...))
	return g.Model(info.metadata())
}
