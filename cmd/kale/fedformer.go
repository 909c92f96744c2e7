package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kale-sched/kale/core/backend"
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
		if c.Flags().Changed(name) && !trained && !(name == "threads" && c.Name() == "eval") { // which measures on them
			return usagef("-%s is of FEDformer: give %s too", name, other)
		}
	}
	if f.threads < 1 || f.width < 1 || f.epochs < 1 {
		return usagef("-threads %d, -width %d, -epochs %d: want 1 or more of each", f.threads, f.width, f.epochs)
	}
	if heads := fedformer.Small(1).Heads; f.width%heads != 0 { // before anything is learnt
		return usagef("-width %d: want a multiple of %d, the number of heads among which it is divided", f.width, heads)
	}
	return nil
}

// trainFEDformer trains on a series, and tells how far it is.
func (a *app) trainFEDformer(ctx context.Context, s forecast.Series, o forecast.FEDformerOptions, f fedformerFlags) ([]byte, forecast.TrainReport, error) {
	bar := a.progress()
	defer bar.done()
	o.Seed, o.Threads, o.Width, o.Epochs, o.Progress = f.seed, f.threads, f.width, f.epochs, a.epochs(bar)
	return forecast.TrainFEDformer(ctx, s, o)
}

// epochs tells how far a training of FEDformer is.
func (a *app) epochs(bar *progress) func(fedformer.Progress) {
	return func(p fedformer.Progress) {
		if math.IsNaN(p.Validation) {
			bar.show("epoch %d of %d: minibatch %d of %d, loss %.3f", p.Epoch, p.Epochs, p.Batch, p.Batches, p.Loss)
			return
		}
		bar.done()
		fmt.Fprintf(a.err, "epoch %d of %d: loss %.3f, and %.3f on the windows that say when to stop\n", p.Epoch, p.Epochs, p.Loss, p.Validation)
	}
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

// partSuffix ends the name of what keeps a training of FEDformer after each epoch, beside the model that it is to become.
const partSuffix = ".part"

func keepPart(out string) func([]byte) error {
	return func(part []byte) error { return backend.WriteFile(out+partSuffix, part) }
}

// goesOn says how a training that was interrupted goes on, where it can.
func goesOn(f trainFlags) string {
	if _, err := os.Stat(f.out + partSuffix); err != nil || f.model != forecast.FEDformer {
		return ""
	}
	return fmt.Sprintf("; kale forecast train -resume -o %s goes on after the last whole epoch", f.out)
}

// checkResume refuses what a training that is gone on with has already.
func (f *trainFlags) checkResume(c *cobra.Command, args []string) (err error) {
	if len(args) > 0 {
		return usagef("-resume goes on with what %s was being trained from: leave %s out", f.out, args[0])
	}
	c.Flags().Visit(func(given *pflag.Flag) {
		if !slices.Contains([]string{"resume", "out", "epochs", "threads", "width", "against", "json", "state-dir"}, given.Name) {
			err = usagef("-resume goes on as %s was being trained: leave -%s out; -epochs may be more, and -threads others", f.out, given.Name)
		}
	})
	if !c.Flags().Changed("epochs") && err == nil {
		f.epochs = 0
	}
	if !c.Flags().Changed("width") {
		f.width = 0
	}
	if !c.Flags().Changed("threads") {
		f.threads = 0
	} else if f.threads < 1 && err == nil {
		err = usagef("-threads %d: want 1 or more", f.threads)
	}
	return err
}

// resumeFEDformer goes on with a training that was ended.
func (a *app) resumeFEDformer(ctx context.Context, f trainFlags, against forecast.Forecaster) ([]byte, forecast.TrainReport, error) {
	path := f.out + partSuffix
	part, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, forecast.TrainReport{}, fmt.Errorf("go on with a training of FEDformer: there is no %s: none was ended before its end, after an epoch, that was to become %s", path, f.out)
	}
	if err != nil {
		return nil, forecast.TrainReport{}, fmt.Errorf("go on with a training of FEDformer: %w", err)
	}
	bar := a.progress()
	defer bar.done()
	model, r, source, err := forecast.ResumeFEDformer(ctx, part, forecast.FEDformerOptions{Epochs: f.epochs, Threads: f.threads, Width: f.width, Against: against, Save: keepPart(f.out), Progress: a.epochs(bar)})
	if errors.Is(err, forecast.ErrNoPart) {
		err = fmt.Errorf("%s: %w: train anew", path, err)
	}
	if err == nil {
		fmt.Fprintf(a.err, "went on with the training on %s\n", source)
	}
	return model, r, err
}
