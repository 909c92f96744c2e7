package forecast

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast/fedformer"
)

// hours is traffic of n hours with a daily cycle, less of it at weekends, and noise.
func hours(n int) Series {
	r := rand.New(rand.NewPCG(3, 3))
	return synthetic(n, time.Hour, func(i int) float64 {
		rate := 1000 * cycle(float64(i%24)/24) * (1 + 0.03*r.NormFloat64())
		if day := epoch.Add(time.Duration(i) * time.Hour).Weekday(); day == time.Saturday || day == time.Sunday {
			rate *= 0.7
		}
		return rate
	})
}

func fedformerOptions() FEDformerOptions {
	return FEDformerOptions{Horizon: 12, Input: 48, Width: 16, Seed: 1, Epochs: 5, Seasons: []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}, Source: "test"}
}

// The loss falls, the model is better than naive on what it has not seen, and the file answers as the model did that was measured.
func TestTrainFEDformer(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s, o := hours(900), fedformerOptions()
	told := 0
	o.Progress, o.least = func(fedformer.Progress) { told++ }, 2400
	file, r, err := TrainFEDformer(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("epoch %d of %d; WAPE on the holdout: model %.4f, naive %.4f, seasonal %.4f; loss %.4f, then %.4f", r.Best, len(r.Epochs), r.Model.WAPE, r.Naive.WAPE, r.Seasonal.WAPE,
		r.Epochs[0].Loss, r.Epochs[len(r.Epochs)-1].Loss)
	if best := r.Epochs[r.Best-1]; !(best.Validation < 0.1) || !(best.Loss < r.Epochs[0].Loss/2) || told == 0 {
		t.Errorf("the loss went from %.4f to %.4f, and is %.4f on the validation windows; want less than 0.1", r.Epochs[0].Loss, best.Loss, best.Validation)
	}
	if !(r.Model.WAPE < r.Naive.WAPE) {
		t.Errorf("WAPE is %.4f, and that of naive %.4f", r.Model.WAPE, r.Naive.WAPE)
	}
	if diff := cmp.Diff([]string{"hour_of_day", "day_of_week"}, r.Info.TimeFeatures); diff != "" {
		t.Errorf("of five weeks in hours (-want +got):\n%s", diff)
	}

	path := filepath.Join(t.TempDir(), "fedformer.onnx")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	saved, err := OpenONNX(path, ONNXOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := saved.Close(); err != nil {
			t.Error(err)
		}
	}()
	if diff := cmp.Diff(forecastOf(t, open(t, file), s, 12), forecastOf(t, saved, s, 12)); diff != "" {
		t.Errorf("the file forecasts other than what was written (-written +file):\n%s", diff)
	}
	// Over the holdout again, by the file: the same errors, and a band that holds.
	first := s.Bin(r.From)
	again, err := Backtest(saved, s, BacktestOptions{Steps: 12, First: first, Every: 1, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Holdout != again.Origins || math.Abs(again.WAPE-r.Model.WAPE) > 1e-9 {
		t.Errorf("the file's WAPE is %v at %d moments, that of the report %v at %d", again.WAPE, again.Origins, r.Model.WAPE, r.Holdout)
	}
	if again.Coverage < 0.75 || again.Coverage90 < 0.85 {
		t.Errorf("%.2f lie within 80 %% and %.2f within 90 %%", again.Coverage, again.Coverage90)
	}
	// The same options give the same file and another seed another.
	o = o.Quick()
	o.Progress, o.Epochs = nil, 1
	file, _, err = TrainFEDformer(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	if same, _, err := TrainFEDformer(t.Context(), s, o); err != nil || !bytes.Equal(file, same) {
		t.Errorf("trained again it is another file (%v)", err)
	}
	o.Seed = 2
	if other, _, err := TrainFEDformer(t.Context(), s, o); err != nil || bytes.Equal(file, other) {
		t.Errorf("another seed gave the same file (%v)", err)
	}
}

// Unknown bins and silent windows are nothing to learn from, and no reason to fail.
func TestTrainFEDformerWithGaps(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s, o := hours(900), fedformerOptions().Quick()
	for i := range s.Values {
		switch {
		case i%97 == 5, 300 <= i && i < 360:
			s.Values[i] = math.NaN()
		case i < 80:
			s.Values[i] = 0
		}
	}
	o.Epochs = 2
	_, r, err := TrainFEDformer(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	if math.IsNaN(r.Model.WAPE) || math.IsNaN(r.Epochs[0].Validation) || r.Origins > 600 {
		t.Errorf("%+v", r)
	}
}

func TestTrainFEDformerErrors(t *testing.T) {
	onnxtest.Library(t)
	good, s := fedformerOptions().Quick(), hours(900)
	unknown := hours(900)
	for i := range unknown.Values {
		if i%10 == 0 {
			unknown.Values[i] = math.NaN()
		}
	}
	for _, c := range []struct {
		s      Series
		change func(o *FEDformerOptions)
		want   string
		short  bool
	}{
		{s, func(o *FEDformerOptions) { o.Input = 12 }, "an input of 12 bins is shorter than one season of 24", false},
		{s, func(o *FEDformerOptions) { o.Seasons = nil }, "no season was given", false},
		{s, func(o *FEDformerOptions) { o.Seasons[0] = 90 * time.Minute }, "a season of 1h30m", false},
		{s, func(o *FEDformerOptions) { o.Width = 20 }, "a width of 20 cannot be divided among 8 heads", false},
		{s, func(o *FEDformerOptions) { o.Horizon = 0 }, "a forecast of 0 steps", false},
		{s, func(o *FEDformerOptions) { o.Epochs = -1 }, "-1 epochs", false},
		{hours(150), nil, "eleven horizons of 12", true},
		{unknown, nil, "only 0 of 900 bins of the history have a window before and outcomes after them that were measured", false},
	} {
		o := good
		o.Seasons = []time.Duration{24 * time.Hour}
		if c.change != nil {
			c.change(&o)
		}
		_, _, err := TrainFEDformer(t.Context(), c.s, o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "train fedformer") != 1 || errors.Is(err, ErrShortHistory) != c.short {
			t.Errorf("%v; want it to say %q", err, c.want)
		}
	}
	// What is said to be needed is enough.
	good.Epochs = 1
	for n, enough := range map[int]bool{48 + 11*12 + fedformerLeast: true, 48 + 11*12 + fedformerLeast - 1: false} {
		if _, _, err := TrainFEDformer(t.Context(), hours(n), good); (err == nil) != enough {
			t.Errorf("with %d bins: %v", n, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := TrainFEDformer(ctx, s, good); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// A training that was ended after an epoch is gone on with from what was saved, and from nothing else, and comes to the same model.
func TestResumeFEDformer(t *testing.T) {
	onnxtest.Library(t)
	s, o := hours(600), fedformerOptions().Quick()
	o.Epochs, o.TrainedAt, o.Horizon, o.Input, o.Width = 2, epoch, 6, 24, 8
	s.Values[200] = math.NaN()
	whole, want, err := TrainFEDformer(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	killed := errors.New("killed")
	var part []byte
	o.Save = func(b []byte) error { part = b; return killed }
	if _, _, err := TrainFEDformer(t.Context(), s, o); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	again, r, source, err := ResumeFEDformer(t.Context(), part, FEDformerOptions{}.Quick())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, whole) || r.Best != want.Best || len(r.Epochs) != 2 || source != "test" {
		t.Errorf("it is another model: %d and %d bytes, best of %d epochs %d, of the whole one %d; from %q", len(again), len(whole), len(r.Epochs), r.Best, want.Best, source)
	}
	for _, bad := range [][]byte{nil, part[:20], part[:len(part)-1], append([]byte("x"), part...)} {
		if _, _, _, err := ResumeFEDformer(t.Context(), bad, FEDformerOptions{}); !errors.Is(err, ErrNoPart) {
			t.Errorf("of %d bytes: %v", len(bad), err)
		}
	}
}
