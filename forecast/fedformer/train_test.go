package fedformer

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// days is a series with a cycle of 24 bins whose height differs from day to day, and time features that say the hour.
func days() (Config, Data) {
	r := rand.New(rand.NewPCG(5, 5))
	var values []float64
	var d Data
	for i := range 600 {
		hour := float64(i % 24)
		values = append(values, 1+0.3*math.Sin(2*math.Pi*hour/24)+0.2*math.Cos(2*math.Pi*hour/12)+0.02*r.NormFloat64())
		d.Marks = append(d.Marks, float32(hour/23-0.5))
	}
	d.Window = func(t int, input, outcome []float32) {
		for i := range input {
			input[i] = float32(values[t-len(input)+i])
		}
		for i := range outcome {
			outcome[i] = float32(values[t+i])
		}
	}
	c := Small(12)
	c.Batch, c.Input, c.Label, c.Season, c.Marks, c.Width, c.Hidden, c.Modes = 16, 48, 24, 24, 1, 16, 32, 16
	for t := c.Input; t+c.Horizon <= len(values); t++ {
		if t < 480 {
			d.Learn = append(d.Learn, t)
		} else {
			d.Validate = append(d.Validate, t)
		}
	}
	return c, d
}

// The loss, 1 for forecasting each window's mean, falls to nearly what the noise leaves, 0.0004 of a variance of 0.065.
func TestTrainLearnsTheCycle(t *testing.T) {
	onnxtest.Library(t)
	c, d := days()
	told := 0
	o := Options{Rate: 0.003, Epochs: 12, Patience: 12, Progress: func(Progress) { told++ }}
	got, err := Train(t.Context(), c, d, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range got.Epochs {
		t.Logf("epoch %d: loss %.4f, on the validation windows %.4f", p.Epoch, p.Loss, p.Validation)
	}
	first, best, last := got.Epochs[0], got.Epochs[got.Best-1], got.Epochs[len(got.Epochs)-1]
	if !(best.Validation < 0.02) || !(last.Loss < 0.02) || !(last.Loss < first.Loss/3) {
		t.Errorf("the loss went from %.4f to %.4f, and is %.4f on the validation windows; want less than 0.02", first.Loss, last.Loss, best.Validation)
	}
	if want := len(got.Epochs) * first.Batches; told != want || first.Batches != len(d.Learn)/c.Batch {
		t.Errorf("it told of %d minibatches; want %d", told, want)
	}
}

// The next half hour after a day, in bins of ten minutes: a forecast goes on from the bins before it, and not from the mean of the day, which so short a training
// does not learn to leave (its loss was 0.36 then; the noise leaves 0.001).
func TestTrainGoesOnFromTheBinsBefore(t *testing.T) {
	onnxtest.Library(t)
	const day = 144
	r := rand.New(rand.NewPCG(5, 5))
	var values []float64
	var d Data
	for i := range 14 * day {
		x := 2 * math.Pi * float64(i) / day
		values = append(values, 1+0.6*math.Sin(x)+0.2*math.Sin(2*x+1)+0.02*r.NormFloat64())
		d.Marks = append(d.Marks, float32(i%day)/(day-1)-0.5)
	}
	d.Window = func(t int, input, outcome []float32) {
		for i := range input {
			input[i] = float32(values[t-len(input)+i])
		}
		for i := range outcome {
			outcome[i] = float32(values[t+i])
		}
	}
	c := Small(3)
	c.Batch, c.Input, c.Label, c.Season, c.Marks, c.Width, c.Hidden, c.Modes = 16, day, day/2, day, 1, 16, 32, 16
	for t := c.Input; t+c.Horizon <= len(values); t++ {
		if t < 12*day {
			d.Learn = append(d.Learn, t)
		} else {
			d.Validate = append(d.Validate, t)
		}
	}
	got, err := Train(t.Context(), c, d, Options{Rate: 1e-3, Epochs: 1, Patience: 1, Windows: 50 * c.Batch})
	if err != nil {
		t.Fatal(err)
	}
	if loss := got.Epochs[0].Validation; !(loss < 0.1) {
		t.Errorf("after 50 minibatches the loss is %.3f on the validation windows; want less than 0.1", loss)
	}
}

// The same seed gives the same weights and another seed others; an epoch may be of fewer windows than there are, or more.
func TestTrainIsReproducible(t *testing.T) {
	onnxtest.Library(t)
	c, d := days()
	once := func(seed uint64) Trained {
		t.Helper()
		c.Seed = seed
		got, err := Train(t.Context(), c, d, Options{Rate: 0.003, Epochs: 2, Patience: 1, Windows: 64})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a := once(1)
	if b := once(1); !reflect.DeepEqual(a.Weights, b.Weights) {
		t.Error("two trainings from one seed gave two models")
	}
	if b := once(2); reflect.DeepEqual(a.Weights["out.w"], b.Weights["out.w"]) {
		t.Error("two seeds gave one model")
	}
	c.Seed = 1
	if more, err := Train(t.Context(), c, d, Options{Rate: 0.003, Epochs: 1, Patience: 1, Windows: 1000}); err != nil || more.Epochs[0].Batch != 62 {
		t.Errorf("an epoch of 1000 windows: %+v, %v", more.Epochs, err)
	}
	if a.Epochs[0].Batches != 4 {
		t.Errorf("an epoch of 64 windows has %d minibatches of 16", a.Epochs[0].Batches)
	}
}

// A training that gets no better ends, and gives the weights that were best.
func TestTrainStopsEarly(t *testing.T) {
	onnxtest.Library(t)
	c, d := days()
	learn := d.Window
	d.Window = func(at int, input, outcome []float32) {
		learn(at, input, outcome)
		for i := range outcome {
			if at >= 480 { // what comes after is the reverse of what was learnt
				outcome[i] = 2 - outcome[i]
			}
		}
	}
	got, err := Train(t.Context(), c, d, Options{Rate: 0.003, Epochs: 50, Patience: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Epochs) != got.Best+3 {
		t.Errorf("the best of %d epochs is the %d., with patience for 3", len(got.Epochs), got.Best)
	}
	for _, p := range got.Epochs {
		if p.Validation < got.Epochs[got.Best-1].Validation {
			t.Errorf("epoch %d was better than the best", p.Epoch)
		}
	}
}

func TestTrainErrors(t *testing.T) {
	onnxtest.Library(t)
	c, d := days()
	good := Options{Rate: 0.003, Epochs: 2, Patience: 1}
	for want, change := range map[string]func(c *Config, d *Data, o *Options){
		"the learning rate is NaN":                     func(_ *Config, _ *Data, o *Options) { o.Rate = math.NaN() },
		"0 epochs, and patience for 1":                 func(_ *Config, _ *Data, o *Options) { o.Epochs = 0 },
		"an epoch of -1 windows":                       func(_ *Config, _ *Data, o *Options) { o.Windows = -1 },
		"an input of 48 bins is shorter than one seas": func(c *Config, _ *Data, _ *Options) { c.Season = 49 },
		"0 windows to learn from and":                  func(_ *Config, d *Data, _ *Options) { d.Learn = nil },
		"from which nothing can be learnt": func(_ *Config, d *Data, _ *Options) {
			d.Window = func(int, []float32, []float32) {}
		},
		"take a lower learning rate than 1": func(_ *Config, d *Data, o *Options) {
			learn := d.Window
			d.Window = func(at int, input, outcome []float32) {
				learn(at, input, outcome)
				if at >= 480 {
					input[0] = float32(math.Inf(1)) // nothing that is said of it is a number
				}
			}
			o.Rate = 1
		},
	} {
		c, d, o := c, d, good
		change(&c, &d, &o)
		if _, err := Train(t.Context(), c, d, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want it to say %q", err, want)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	good.Progress = func(Progress) { stop() }
	if got, err := Train(ctx, c, d, good); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped after a minibatch: %d epochs, %v", len(got.Epochs), err)
	}
}
