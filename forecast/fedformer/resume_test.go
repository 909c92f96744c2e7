package fedformer

import (
	"bytes"
	"encoding/gob"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// A training that was ended and is gone on with comes to what one comes to that was not.
func TestResumedTrainingIsTheSame(t *testing.T) {
	onnxtest.Library(t)
	c, d := days()
	o := Options{Rate: 0.003, Epochs: 5, Patience: 5, Windows: 64}
	whole, err := Train(t.Context(), c, d, o)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	var last []byte
	o.Save = func(b []byte) error {
		if len(last) > 0 {
			return full // the second time: as if it were killed after its first epoch
		}
		last = slices.Clone(b)
		return nil
	}
	if _, err := Train(t.Context(), c, d, o); !errors.Is(err, full) {
		t.Fatalf("with a disk that is full: %v", err)
	}
	for range 10 { // each time one more
		o.Resume, last = last, nil
		got, err := Train(t.Context(), c, d, o)
		if err == nil {
			got.Epochs, whole.Epochs = losses(got.Epochs), losses(whole.Epochs)
			if !reflect.DeepEqual(got, whole) {
				t.Errorf("it came to epochs %+v, the best %d; want %+v, %d, and the same weights", got.Epochs, got.Best, whole.Epochs, whole.Best)
			}
			return
		}
		if !errors.Is(err, full) {
			t.Fatal(err)
		}
	}
	t.Error("it does not end")
}

// losses leaves out what is no number before an epoch's end.
func losses(ps []Progress) (out []Progress) {
	for _, p := range ps {
		out = append(out, Progress{Epoch: p.Epoch, Loss: p.Loss, Validation: p.Validation})
	}
	return out
}

// What was saved is gone on with only by the same training, and garbage by none.
func TestResumeIsRefused(t *testing.T) {
	onnxtest.Library(t)
	c, d := days()
	var last []byte
	o := Options{Rate: 0.003, Epochs: 1, Patience: 1, Windows: 64, Save: func(b []byte) error { last = slices.Clone(b); return nil }}
	if _, err := Train(t.Context(), c, d, o); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*saved)) []byte {
		var s saved
		if err := gob.NewDecoder(bytes.NewReader(last)).Decode(&s); err != nil {
			t.Fatal(err)
		}
		f(&s)
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(s); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	o.Save = nil
	for name, raw := range map[string][]byte{
		"garbage":           []byte("garbage"),
		"the half of it":    last[:len(last)/2],
		"windows too many":  change(func(s *saved) { s.Next = []int{len(d.Learn)} }),
		"a weight too few":  change(func(s *saved) { clear(s.Weights) }),
		"a moment too few":  change(func(s *saved) { clear(s.Second) }),
		"a generator lacks": change(func(s *saved) { s.Shuffle = nil }),
	} {
		o.Resume = raw
		if _, err := Train(t.Context(), c, d, o); err == nil {
			t.Errorf("%s: it goes on", name)
		}
	}
	o.Resume = last
	for name, f := range map[string]func(*Config, *Data, *Options){
		"another seed": func(c *Config, _ *Data, _ *Options) { c.Seed++ },
		"another rate": func(_ *Config, _ *Data, o *Options) { o.Rate *= 2 },
		"other data":   func(_ *Config, d *Data, _ *Options) { d.Learn = d.Learn[1:] },
	} {
		c, d, o := c, d, o
		f(&c, &d, &o)
		if _, err := Train(t.Context(), c, d, o); !errors.Is(err, ErrOtherTraining) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.Epochs = 2
	if got, err := Train(t.Context(), c, d, o); err != nil || len(got.Epochs) != 2 && got.Best == 0 {
		t.Errorf("with more epochs: %d, %v", len(got.Epochs), err)
	}
}
