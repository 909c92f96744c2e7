package fedformer

import (
	"errors"
	"fmt"
)

// Config gives the sizes of a model.
type Config struct {
	Batch   int // windows at once
	Input   int // bins of history
	Label   int // bins at its end that the decoder begins with
	Horizon int // bins forecast
	Season  int // bins after which the traffic repeats; 0: not known to repeat
	Marks   int // time features of a bin; 0: none
	Width   int // channels: d_model
	Heads   int // among which the channels are divided
	Hidden  int // channels inside a feed-forward layer: d_ff
	Average int // bins of the moving average
	Modes   int // frequencies kept, as far as there are so many

	Encoders, Decoders int // layers
	Seed               uint64
}

// Small is quick to train on a CPU.
func Small(horizon int) Config {
	c := Paper(horizon)
	c.Width, c.Hidden, c.Modes = 64, 256, 32
	return c
}

// Paper is the authors' default size.
func Paper(horizon int) Config {
	return Config{
		Batch: 1, Input: 96, Label: 48, Horizon: horizon, Marks: 4,
		Width: 512, Heads: 8, Hidden: 2048, Average: 24, Modes: 64, Encoders: 2, Decoders: 1, Seed: 1,
	}
}

// The largest sizes. A Fourier transform and a moving average are matrices of bins × bins.
const (
	maxBins   = 8192
	maxBatch  = 4096
	maxWidth  = 4096
	maxHidden = 16384
	maxLayers = 16
)

// Validate names everything that is wrong with c. An input shorter than one season is: no forecast from it can tell a low of every day from one of
// this day.
func (c Config) Validate() error {
	var errs []error
	within := func(what string, v, least, most int) {
		if v < least || v > most {
			errs = append(errs, fmt.Errorf("%s is %d; want %d to %d", what, v, least, most))
		}
	}
	within("the batch", c.Batch, 1, maxBatch)
	within("the input, in bins,", c.Input, 2, maxBins)
	within("the horizon, in bins,", c.Horizon, 1, maxBins)
	within("the number of time features", c.Marks, 0, maxWidth)
	within("the width", c.Width, 1, maxWidth)
	within("the width of the feed-forward layers", c.Hidden, 1, maxHidden)
	within("the number of encoder layers", c.Encoders, 1, maxLayers)
	within("the number of decoder layers", c.Decoders, 1, maxLayers)
	within("the number of modes", c.Modes, 1, maxBins)
	if c.Label < 1 || c.Label > c.Input {
		errs = append(errs, fmt.Errorf("the decoder begins with %d bins of the input; want 1 to all of its %d", c.Label, c.Input))
	}
	if c.Average < 1 || c.Average > c.Input {
		errs = append(errs, fmt.Errorf("the moving average is over %d bins; want 1 to the input's %d", c.Average, c.Input))
	}
	if c.Heads < 1 || c.Width%max(c.Heads, 1) != 0 {
		errs = append(errs, fmt.Errorf("a width of %d cannot be divided among %d heads: choose a multiple", c.Width, c.Heads))
	}
	if c.Season > c.Input {
		errs = append(errs, fmt.Errorf("an input of %d bins is shorter than one season of %d, of which the model would see a part only: take an input of a season or more, or longer bins",
			c.Input, c.Season))
	}
	return errors.Join(errs...)
}

// recent is of how many bins before the forecast the mean is that the decoder's trend goes on with: as many as are forecast, where there are so many.
func (c Config) recent() int { return min(c.Input, c.Horizon) }
