package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/forecast/fedformer"
)

// fedformerFlags say how FEDformer is trained.
type fedformerFlags struct {
	seed                   uint64
	threads, width, epochs int
}

func (f *fedformerFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.Uint64Var(&f.seed, "seed", 1, "`NUMBER` that FEDformer's chance begins with: the same gives the same model")
	fl.IntVar(&f.threads, "threads", 1, "`NUMBER` of threads that train FEDformer")
	fl.IntVar(&f.width, "width", 64, "`CHANNELS` of FEDformer, a multiple of 8; the paper's has 512")
	fl.IntVar(&f.epochs, "epochs", 10, "`NUMBER` of epochs that train FEDformer, at most: it stops when three in a row are no better")
}

// check is about flags that make no sense: those of FEDformer where it is not trained, for which the other flag has to be given, are among them.
func (f fedformerFlags) check(c *cobra.Command, trained bool, other string) error {
	for _, name := range []string{"seed", "threads", "width", "epochs"} {
		if c.Flags().Changed(name) && !trained {
			return usagef("-%s is of FEDformer: give %s too", name, other)
		}
	}
	if f.threads < 1 || f.width < 1 || f.epochs < 1 {
		return usagef("-threads %d, -width %d, -epochs %d: want 1 or more of each", f.threads, f.width, f.epochs)
	}
	return nil
}

// trainFEDformer trains on a series, and tells how far it is.
func (a *app) trainFEDformer(ctx context.Context, s forecast.Series, o forecast.FEDformerOptions, f fedformerFlags) ([]byte, forecast.TrainReport, error) {
	bar := a.progress()
	defer bar.done()
	o.Seed, o.Threads, o.Width, o.Epochs = f.seed, f.threads, f.width, f.epochs
	o.Progress = func(p fedformer.Progress) {
		if math.IsNaN(p.Validation) {
			bar.show("epoch %d of %d: minibatch %d of %d, loss %.3f", p.Epoch, p.Epochs, p.Batch, p.Batches, p.Loss)
			return
		}
		bar.done()
		fmt.Fprintf(a.err, "epoch %d of %d: loss %.3f, and %.3f on the windows that say when to stop\n", p.Epoch, p.Epochs, p.Loss, p.Validation)
	}
	return forecast.TrainFEDformer(ctx, s, o)
}

// learntFEDformer is FEDformer trained on a series, ready to forecast, and what to say of it. The caller closes it.
func (a *app) learntFEDformer(ctx context.Context, s forecast.Series, o forecast.FEDformerOptions, f fedformerFlags) (*forecast.ONNXModel, string, error) {
	began := time.Now()
	fmt.Fprintf(a.err, "training FEDformer on %d bins of %s\n", len(s.Values), job.FormatDuration(s.Step))
	file, r, err := a.trainFEDformer(ctx, s, o, f)
	if ctx.Err() != nil {
		return nil, "", errors.New("train FEDformer: interrupted")
	}
	if err != nil {
		return nil, "", err
	}
	note := fmt.Sprintf("width %d, input of %d bins; trained in %s on %s; epoch %d of %d was best", f.width, r.Info.Input,
		job.FormatDuration(time.Since(began).Round(time.Second)), job.Count(f.threads, "thread"), r.Best, len(r.Epochs))
	m, err := forecast.NewONNX("just trained", file, forecast.ONNXOptions{})
	return m, note, err
}

// trainedEpoch is an epoch for scripts.
type trainedEpoch struct {
	Loss       *float64 `json:"loss"`
	Validation *float64 `json:"validation_loss"`
}

func trainedEpochs(all []fedformer.Progress) []trainedEpoch {
	var out []trainedEpoch
	for _, p := range all {
		out = append(out, trainedEpoch{figure(p.Loss), figure(p.Validation)})
	}
	return out
}
