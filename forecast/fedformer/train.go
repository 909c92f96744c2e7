package fedformer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kale-sched/kale/core/onnx"
)

// Data is what a model learns from: windows of one series.
type Data struct {
	// Window writes the window before bin t, and the bins from t on, into slices of Config.Input and Config.Horizon elements.
	Window func(t int, input, outcome []float32)
	// Marks holds the time features of all bins, Config.Marks each.
	Marks []float32
	// Learn and Validate are the bins t of the windows that are learnt from, and of those that tell when to stop.
	Learn, Validate []int
}

// Options say how to train.
type Options struct {
	Rate     float64 // of Adam, to begin with; it is halved after an epoch that was no better on the validation windows
	Epochs   int     // at most
	Windows  int     // of an epoch; 0: as many as there are to learn from
	Patience int     // so many epochs in a row that are no better end it
	Threads  int     // 0: 1
	Runtime  onnx.Options
	// Progress, where set, is told of every minibatch and of the end of every epoch.
	Progress func(Progress)
	// Save, where set, is given the training after every epoch; Resume is what it was given last by a training that was ended, which is gone on with: the outcome
	// is that of one that was not. An error of Save ends the training.
	Save   func([]byte) error
	Resume []byte
}

// Progress is how far a training is. Losses are mean squared errors beside those of forecasting each window's mean, which is 1.
type Progress struct {
	Epoch, Epochs  int     // from 1
	Batch, Batches int     // minibatches, those done and all of an epoch
	Loss           float64 // mean of those done
	Validation     float64 // NaN before the end of the epoch
}

// Weights are a model's parameters by name.
type Weights map[string][]float32

// Trained is the outcome of a training.
type Trained struct {
	Weights Weights // those that were best on the validation windows
	Best    int     // their epoch, from 1
	Epochs  []Progress
}

func (o Options) validate() error {
	var errs []error
	if !(o.Rate > 0 && o.Rate <= 1) {
		errs = append(errs, fmt.Errorf("the learning rate is %v; want a number above 0, no more than 1", o.Rate))
	}
	if o.Windows < 0 {
		errs = append(errs, fmt.Errorf("an epoch of %d windows: want 1 or more, or 0 for as many as there are", o.Windows))
	}
	if o.Epochs < 1 || o.Patience < 1 {
		errs = append(errs, fmt.Errorf("%d epochs, and patience for %d: want 1 or more of each", o.Epochs, o.Patience))
	}
	return errors.Join(errs...)
}

// Scaled is [Forward] of windows x [Batch,Input] with the time features past [Batch,Input,Marks] and ahead [Batch,Horizon,Marks] to [Batch,Horizon].
// Each window is scaled to mean 0 and deviation 1, and its forecast back.
func Scaled(g *onnx.Graph, c Config, x, past, ahead *onnx.Tensor, weight func(name string, shape ...int) *onnx.Tensor) *onnx.Tensor {
	return scaled(g, c, x, past, ahead, weight, Forward)
}

// scaled scales the windows for forward, and its forecasts back.
func scaled(g *onnx.Graph, c Config, x, past, ahead *onnx.Tensor, weight func(name string, shape ...int) *onnx.Tensor,
	forward func(g *onnx.Graph, c Config, x, xm, ym *onnx.Tensor, weight func(name string, shape ...int) *onnx.Tensor) *onnx.Tensor,
) *onnx.Tensor {
	mean := g.ReduceMean(x, true, 1)
	off := g.Sub(x, mean)
	deviation := g.Sqrt(g.Add(g.ReduceMean(g.Square(off), true, 1), g.Scalar(leastDeviation*leastDeviation)))
	var marks *onnx.Tensor
	if c.Marks > 0 {
		marks = g.Concat(1, g.Slice(past, 1, c.Input-c.Label, c.Input), ahead)
	}
	y := forward(g, c, g.Reshape(g.Div(off, deviation), c.Batch, c.Input, 1), past, marks, weight)
	return g.Add(g.Mul(g.Reshape(y, c.Batch, c.Horizon), deviation), mean)
}

// leastDeviation is added to that of a window, whose mean is about 1: so little is float32's noise, and no traffic.
const leastDeviation = 1e-4

// Train learns the weights of a model by Adam on minibatches of c.Batch windows. The same seed, data and threads give the same weights.
func Train(ctx context.Context, c Config, d Data, o Options) (Trained, error) {
	o.Windows = cmp.Or(o.Windows, len(d.Learn))
	c.Batch = min(c.Batch, max(o.Windows, 1))
	if err := errors.Join(c.Validate(), o.validate()); err != nil {
		return Trained{}, err
	}
	if len(d.Learn) == 0 || len(d.Validate) == 0 {
		return Trained{}, fmt.Errorf("%d windows to learn from and %d to tell when to stop: at least one of each is needed", len(d.Learn), len(d.Validate))
	}
	t, err := newTrainer(c, d, o)
	if err != nil {
		return Trained{}, err
	}
	out, err := t.run(ctx)
	return out, errors.Join(err, t.learn.Close(), t.judge.Close())
}

// trainer is a training under way.
type trainer struct {
	c            Config
	d            Data
	o            Options
	shuffle      *rand.Rand
	chance       *rand.PCG         // of shuffle
	sum          [sha256.Size]byte // digest, where it is saved or gone on with
	next         []int             // the windows of d.Learn that come next, as indices
	learn, judge *onnx.Session     // loss and gradients; forecasts alone
	names        []string          // of the parameters, sorted
	first        map[string][]float32
	second       map[string][]float32
	steps        float64
	unit         float64 // of losses: the mean square of outcomes less their window's mean
}

func newTrainer(c Config, d Data, o Options) (*trainer, error) {
	chance := rand.NewPCG(c.Seed, 4)
	t := &trainer{c: c, d: d, o: o, shuffle: rand.New(chance), chance: chance, first: map[string][]float32{}, second: map[string][]float32{}}
	input, outcome := make([]float32, c.Input), make([]float32, c.Horizon)
	squares := 0.0
	for _, at := range d.Learn {
		d.Window(at, input, outcome)
		mean := 0.0
		for _, v := range input {
			mean += float64(v) / float64(c.Input)
		}
		for _, v := range outcome {
			squares += (float64(v) - mean) * (float64(v) - mean) / float64(c.Horizon)
		}
	}
	if t.unit = squares / float64(len(d.Learn)); t.unit == 0 || math.IsNaN(t.unit) || math.IsInf(t.unit, 0) {
		return nil, fmt.Errorf("the outcomes differ from their windows' means by %v on average, from which nothing can be learnt", math.Sqrt(t.unit))
	}
	rt, err := onnx.Open(o.Runtime)
	if err != nil {
		return nil, err
	}
	shapes := map[string][]int{}
	open := func(gradients bool) (*onnx.Session, error) {
		model, err := t.graph(gradients, shapes)
		if err != nil {
			return nil, err
		}
		return rt.NewSession(model, onnx.SessionOptions{Threads: o.Threads, Lean: true})
	}
	if t.learn, err = open(true); err != nil {
		return nil, err
	}
	if t.judge, err = open(false); err != nil {
		return nil, errors.Join(err, t.learn.Close())
	}
	t.names = slices.Sorted(maps.Keys(shapes))
	for _, name := range t.names {
		w := t.bound(t.learn, name)
		begin(w, name, shapes[name], c)
		t.first[name], t.second[name] = make([]float32, len(w)), make([]float32, len(w))
	}
	return t, nil
}

// graph is the model with its parameters as inputs, whose shapes it notes; with gradients the loss and its gradients are outputs too.
func (t *trainer) graph(gradients bool, shapes map[string][]int) ([]byte, error) {
	c, g := t.c, onnx.NewGraph()
	made := map[string]*onnx.Tensor{}
	var weights []*onnx.Tensor
	x := g.Input("x", onnx.Float32, c.Batch, c.Input)
	var past, ahead *onnx.Tensor
	if c.Marks > 0 {
		past, ahead = g.Input("past", onnx.Float32, c.Batch, c.Input, c.Marks), g.Input("ahead", onnx.Float32, c.Batch, c.Horizon, c.Marks)
	}
	y := Scaled(g, c, x, past, ahead, func(name string, shape ...int) *onnx.Tensor {
		if made[name] == nil {
			made[name], shapes[name] = g.Input(name, onnx.Float32, shape...), shape
			weights = append(weights, made[name])
		}
		return made[name]
	})
	if !gradients {
		g.Output("forecast", y)
		return g.Model(nil)
	}
	outcome := g.Input("outcome", onnx.Float32, c.Batch, c.Horizon)
	loss := g.Mul(g.ReduceMean(g.Square(g.Sub(y, outcome)), false), g.Scalar(float32(1/t.unit)))
	g.Output("loss", loss)
	for i, d := range g.Gradients(loss, weights...) {
		g.Output("d "+weights[i].Name(), d)
	}
	return g.Model(nil)
}

// begin draws the first values of a parameter as the published code does, but for biases, which are 0.
func begin(w []float32, name string, shape []int, c Config) {
	stream := uint64(0)
	for _, b := range []byte(name) {
		stream = stream*131 + uint64(b)
	}
	r := rand.New(rand.NewPCG(c.Seed, stream))
	for i := range w {
		switch {
		case strings.HasSuffix(name, ".g"):
			w[i] = 1
		case strings.HasSuffix(name, ".b"):
		case strings.HasSuffix(name, ".re"), strings.HasSuffix(name, ".im"):
			w[i] = float32(r.Float64() / float64(c.Width*c.Width))
		case strings.HasSuffix(name, ".value.w"): // Kaiming He's, for a leaky ReLU
			w[i] = float32(r.NormFloat64() * math.Sqrt(2/1.0001/float64(shape[0])))
		default:
			w[i] = float32((2*r.Float64() - 1) / math.Sqrt(float64(shape[0])))
		}
	}
}

// bound is the slice of a session's tensor, which exists.
func (t *trainer) bound(s *onnx.Session, name string) []float32 {
	v, err := s.Float32(name)
	if err != nil {
		panic("fedformer: " + err.Error())
	}
	return v
}

func (t *trainer) run(ctx context.Context) (Trained, error) {
	if t.o.Save != nil || t.o.Resume != nil {
		t.sum = t.digest()
	}
	s, err := t.resume()
	if err != nil {
		return Trained{}, err
	}
	out := Trained{Weights: s.BestWeights, Best: s.Best, Epochs: s.Epochs}
	for epoch := s.Epoch + 1; epoch <= t.o.Epochs && s.Waited < t.o.Patience; epoch++ {
		p := Progress{Epoch: epoch, Epochs: t.o.Epochs, Batches: t.o.Windows / t.c.Batch, Validation: math.NaN()}
		if err := t.epoch(ctx, &p, s.Rate); err != nil {
			return out, err
		}
		for _, name := range t.names {
			copy(t.bound(t.judge, name), t.bound(t.learn, name))
		}
		var err error
		if p.Validation, err = t.validation(ctx); err != nil {
			return out, err
		}
		out.Epochs = append(out.Epochs, p)
		if t.o.Progress != nil {
			t.o.Progress(p)
		}
		if s.Waited++; p.Validation < s.Least {
			s.Least, s.Waited, out.Best, out.Weights = p.Validation, 0, epoch, Weights{}
			for _, name := range t.names {
				out.Weights[name] = slices.Clone(t.bound(t.learn, name))
			}
		} else {
			s.Rate /= 2
		}
		s.Epoch, s.Best, s.BestWeights, s.Epochs = epoch, out.Best, out.Weights, out.Epochs
		if err := t.save(s); err != nil {
			return out, fmt.Errorf("save the training after epoch %d: %w", epoch, err)
		}
	}
	if out.Best == 0 {
		return out, fmt.Errorf("the loss is %v on the validation windows after %d epochs: take a lower learning rate than %v", out.Epochs[0].Validation, len(out.Epochs), t.o.Rate)
	}
	return out, nil
}

// epoch goes over so many windows, in random order: over all of them before one comes again.
func (t *trainer) epoch(ctx context.Context, p *Progress, rate float64) error {
	sum := 0.0
	outcome, loss := t.bound(t.learn, "outcome"), t.bound(t.learn, "loss")
	at := make([]int, t.c.Batch)
	for p.Batch < p.Batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range at {
			if len(t.next) == 0 {
				t.next = t.shuffle.Perm(len(t.d.Learn))
			}
			at[i], t.next = t.d.Learn[t.next[0]], t.next[1:]
		}
		t.fill(t.learn, at, outcome)
		if err := t.learn.Run(); err != nil {
			return err
		}
		t.step(rate)
		p.Batch++
		sum += float64(loss[0])
		p.Loss = sum / float64(p.Batch)
		if t.o.Progress != nil && p.Batch < p.Batches {
			t.o.Progress(*p)
		}
	}
	return nil
}

// fill puts the windows before the bins at into a session's inputs and what followed into outcome.
func (t *trainer) fill(s *onnx.Session, at []int, outcome []float32) {
	c, x := t.c, t.bound(s, "x")
	for i, b := range at {
		t.d.Window(b, x[i*c.Input:(i+1)*c.Input], outcome[i*c.Horizon:(i+1)*c.Horizon])
	}
	if c.Marks == 0 {
		return
	}
	past, ahead := t.bound(s, "past"), t.bound(s, "ahead")
	for i, b := range at {
		copy(past[i*c.Input*c.Marks:], t.d.Marks[(b-c.Input)*c.Marks:b*c.Marks])
		copy(ahead[i*c.Horizon*c.Marks:], t.d.Marks[b*c.Marks:(b+c.Horizon)*c.Marks])
	}
}

// Constants of Adam: Kingma and Ba, 2015, §2.
const (
	beta1   = 0.9
	beta2   = 0.999
	epsilon = 1e-8
)

// step is one step of Adam.
func (t *trainer) step(rate float64) {
	t.steps++
	c2 := math.Sqrt(1 - math.Pow(beta2, t.steps))
	r, eps := float32(rate*c2/(1-math.Pow(beta1, t.steps))), float32(epsilon*c2)
	for _, name := range t.names {
		w, d := t.bound(t.learn, name), t.bound(t.learn, "d "+name)
		m, s := t.first[name], t.second[name]
		for i, g := range d {
			m[i] = beta1*m[i] + (1-beta1)*g
			s[i] = beta2*s[i] + (1-beta2)*g*g
			w[i] -= r * m[i] / (float32(math.Sqrt(float64(s[i]))) + eps)
		}
	}
}

// validation is the loss on the validation windows.
func (t *trainer) validation(ctx context.Context) (float64, error) {
	y, outcome := t.bound(t.judge, "forecast"), make([]float32, t.c.Batch*t.c.Horizon)
	at, sum := make([]int, t.c.Batch), 0.0
	for done := 0; done < len(t.d.Validate); done += t.c.Batch {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n := min(t.c.Batch, len(t.d.Validate)-done)
		for i := range at { // the last minibatch repeats its last window
			at[i] = t.d.Validate[done+min(i, n-1)]
		}
		t.fill(t.judge, at, outcome)
		if err := t.judge.Run(); err != nil {
			return 0, err
		}
		for i := range n * t.c.Horizon {
			e := float64(y[i]) - float64(outcome[i])
			sum += e * e
		}
	}
	return sum / float64(len(t.d.Validate)*t.c.Horizon) / t.unit, nil
}
