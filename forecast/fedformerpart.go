package forecast

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"time"

	"github.com/kale-sched/kale/forecast/fedformer"
)

// fedformerPart is a training of FEDformer after one of its epochs, with all that it is made from: what is gone on with needs nothing else.
type fedformerPart struct {
	Version                               int
	History                               Series
	Seasons                               []time.Duration
	Horizon, Input, Width, Threads, Epoch int
	Seed                                  uint64
	TrainedAt                             time.Time
	Source                                string
	State                                 []byte // package fedformer's
}

const fedformerPartVersion = 1

// ErrNoPart says that what is to be gone on with is no training of FEDformer that was ended.
var ErrNoPart = errors.New("this is no training of FEDformer that was ended, or it was damaged")

// part gives Options.Save the training as it is now: a digest, and what it is of.
func (t *fedformerTrainer) part(state []byte) ([]byte, error) {
	o := t.options
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(fedformerPart{
		Version: fedformerPartVersion, History: t.history, Seasons: o.Seasons, Horizon: o.Horizon, Input: o.Input, Width: o.Width, Threads: o.Threads, Epoch: o.Epochs,
		Seed: o.Seed, TrainedAt: o.TrainedAt, Source: o.Source, State: state,
	})
	sum := sha256.Sum256(b.Bytes())
	return append(sum[:], b.Bytes()...), err
}

func readPart(raw []byte) (p fedformerPart, err error) {
	if len(raw) < sha256.Size || sha256.Sum256(raw[sha256.Size:]) != [sha256.Size]byte(raw[:sha256.Size]) {
		return p, ErrNoPart
	}
	if err := gob.NewDecoder(bytes.NewReader(raw[sha256.Size:])).Decode(&p); err != nil {
		return p, fmt.Errorf("%w: %w", ErrNoPart, err)
	}
	if p.Version != fedformerPartVersion {
		return p, fmt.Errorf("it was written by another version of Kale (%d, and this one reads %d): train anew", p.Version, fedformerPartVersion)
	}
	return p, nil
}

// ResumeFEDformer goes on with a training that was ended, from what [FEDformerOptions].Save was given last, as [TrainFEDformer] would have. Of the options it
// takes Epochs and Threads, unless 0, a Width that is the training's, Against, Runtime, Progress and Save; with another number of threads what it gives may differ in the last digits. It
// says from where the history was, too. ErrNoPart: it is none.
func ResumeFEDformer(ctx context.Context, part []byte, o FEDformerOptions) (model []byte, r TrainReport, source string, err error) {
	p, err := readPart(part)
	if err != nil {
		return nil, r, "", fmt.Errorf("go on with a training of fedformer: %w", err)
	}
	if width := cmp.Or(p.Width, fedformer.Small(p.Horizon).Width); o.Width != 0 && o.Width != width {
		return nil, r, "", fmt.Errorf("go on with a training of fedformer: it is of width %d, and cannot go on with %d", width, o.Width)
	}
	if o.Epochs == 0 {
		o.Epochs = p.Epoch
	}
	o.Threads = cmp.Or(o.Threads, p.Threads)
	o.Horizon, o.Seasons, o.Input, o.Width, o.Seed, o.TrainedAt, o.Source, o.resume = p.Horizon, p.Seasons, p.Input, p.Width, p.Seed, p.TrainedAt, p.Source, p.State
	model, r, err = TrainFEDformer(ctx, p.History, o)
	return model, r, p.Source, err
}

// save is package fedformer's Save; nil: nobody asks.
func (t *fedformerTrainer) save() func([]byte) error {
	if t.options.Save == nil {
		return nil
	}
	return func(state []byte) error {
		raw, err := t.part(state)
		if err != nil {
			return err
		}
		return t.options.Save(raw)
	}
}
