package core

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/forecast"
)

// A promoted file that is damaged is written anew from its copy: by the next training, which is held against it, and by the next scheduler. Where the copy is damaged too, why forecasts are made by
// another is told as it is.
func TestPromotedFileIsMended(t *testing.T) {
	r := newRetrained(t)
	r.started(1)
	r.got = ForecastTrained{Origins: 24, From: r.now, Model: 0.01, Current: 0.02, Seasonal: 0.03, Naive: 0.05}
	r.tried()
	promoted := r.s.want.Retraining.Promoted
	if promoted == "" || r.s.foresee.model.ID() != promoted {
		t.Fatalf("%+v", r.s.want.Retraining)
	}
	r.got.Model = 0.04 // no other is better
	path, spare := filepath.Join(r.state, promotedFile), filepath.Join(r.state, spareFile)
	r.s.sparing.Wait()
	train := func(_ context.Context, what ForecastTraining) (ForecastTrained, error) {
		raw, err := os.ReadFile(what.Current)
		if err != nil {
			return ForecastTrained{}, err
		}
		if info, err := forecast.ReadModelInfo(raw); err != nil || info.ID != promoted {
			t.Errorf("it is held against %s: %v", info.ID, err)
		}
		return r.train(t.Context(), what)
	}
	for _, change := range []func() error{
		func() error { return os.WriteFile(path, []byte("garbage"), 0o600) },
		func() error { return os.Remove(path) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		r.s.opt.TrainForecast = train
		if says := r.tried(); !strings.Contains(says, "was not taken: its error is 4.00 %, that of the one in use") {
			t.Errorf("a training beside a damaged file: %s", says)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		if m := r.s.foresee.model; m == nil || m.ID() != promoted {
			t.Errorf("the next scheduler uses %v", m)
		}
		r.s.sparing.Wait()
	}
	// Where it cannot be written anew its copy is used all the same.
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if m := r.s.foresee.model; m == nil || m.ID() != promoted {
		t.Errorf("where the file cannot be written the next scheduler uses %v", m)
	}
	r.s.sparing.Wait()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.s.sparing.Wait()
	if err := os.Remove(spare); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.s.sparing.Wait()
	if _, err := os.Stat(spare); err != nil {
		t.Errorf("a copy that is lost is not made anew: %v", err)
	}

	for _, file := range []string{path, spare} {
		if err := os.WriteFile(file, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := r.s.want // the forecaster that was in use last
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	f.Gate = []byte(strings.Replace(string(r.s.foresee.state()), `"Using":""`, `"Using":"onnx:linear"`, 1))
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	r.steadyTraffic()
	r.reopen()
	if err := r.readHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.beats(3)
	if _, err := r.note("forecasts are made by seasonal now, and no longer by onnx:linear, the file of which cannot be used: it was changed after its promotion: what it holds now is no model ("); err != nil {
		t.Error(err)
	}
}
