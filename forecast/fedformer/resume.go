package fedformer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"math"
	"slices"
)

// saved is a training at the end of an epoch: all that the next one begins with.
type saved struct {
	Digest              [sha256.Size]byte // of what is trained, on what and how (digest)
	Epoch, Best, Waited int
	Rate, Least, Steps  float64
	Epochs              []Progress
	Shuffle             []byte // the generator's
	Next                []int
	Weights             Weights // of now, and those that were best
	BestWeights         Weights
	First, Second       Weights // Adam's moments
}

// digest stands for what a training's steps depend on. How many epochs it may take at most is no part of it, nor on how many
// threads: what is gone on with on others may differ in the last digits.
func (t *trainer) digest() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%+v %v %d %d 2\n", t.c, t.o.Rate, t.o.Windows, t.o.Patience)
	input, outcome := make([]float32, t.c.Input), make([]float32, t.c.Horizon)
	for _, bins := range [][]int{t.d.Learn, t.d.Validate} {
		for _, at := range bins {
			t.d.Window(at, input, outcome)
			for _, values := range [][]float32{input, outcome} {
				for _, v := range values {
					var raw [4]byte
					binary.LittleEndian.PutUint32(raw[:], math.Float32bits(v))
					h.Write(raw[:])
				}
			}
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// save gives the state after an epoch to Options.Save.
func (t *trainer) save(s saved) error {
	if t.o.Save == nil {
		return nil
	}
	var err error
	if s.Shuffle, err = t.chance.MarshalBinary(); err != nil {
		return err
	}
	s.Digest, s.Steps, s.Next, s.First, s.Second, s.Weights = t.sum, t.steps, t.next, t.first, t.second, Weights{}
	for _, name := range t.names {
		s.Weights[name] = t.bound(t.learn, name)
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(s); err != nil {
		return err
	}
	return t.o.Save(b.Bytes())
}

// ErrOtherTraining says that what Options.Resume has is not of this training.
var ErrOtherTraining = errors.New("what was saved is of another training: of another model, on other data, or with other options")

// resume takes up what Options.Resume has; without, it begins.
func (t *trainer) resume() (saved, error) {
	s := saved{Rate: t.o.Rate, Least: math.Inf(1)}
	if t.o.Resume == nil {
		return s, nil
	}
	var got saved
	if err := gob.NewDecoder(bytes.NewReader(t.o.Resume)).Decode(&got); err != nil {
		return s, fmt.Errorf("read the training that is to be gone on with: %w", err)
	}
	if got.Digest != t.sum {
		return s, ErrOtherTraining
	}
	for _, part := range []Weights{got.Weights, got.First, got.Second, got.BestWeights} {
		for _, name := range t.names {
			if len(part[name]) != len(t.first[name]) && (got.Best > 0 || part != nil) {
				return s, fmt.Errorf("read the training that is to be gone on with: %s has %d values, and not %d", name, len(part[name]), len(t.first[name]))
			}
		}
	}
	if slices.ContainsFunc(got.Next, func(i int) bool { return i < 0 || i >= len(t.d.Learn) }) {
		return s, errors.New("read the training that is to be gone on with: it has windows that are not there")
	}
	if err := t.chance.UnmarshalBinary(got.Shuffle); err != nil {
		return s, fmt.Errorf("read the training that is to be gone on with: %w", err)
	}
	t.steps, t.next = got.Steps, got.Next
	for _, name := range t.names {
		copy(t.bound(t.learn, name), got.Weights[name])
		copy(t.first[name], got.First[name])
		copy(t.second[name], got.Second[name])
	}
	return got, nil
}
