package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/forecast/forecasttest"
)

// promoting is a rig whose job's model is a small file, and where a model of so many dimensions was found to be better and is to be promoted: it is opened
// when held is closed. It returns both IDs.
func promoting(t *testing.T, width int) (r *retrained, was, id string, held chan struct{}) {
	t.Helper()
	onnxtest.Library(t)
	raw, was, err := someModel(20, []time.Duration{time.Minute}, 1)
	if err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(t.TempDir(), "small.onnx")
	if err := os.WriteFile(small, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	r = &retrained{rig: newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `history  = "1m"`, fmt.Sprintf("history  = \"5m\"\n    retrain  = \"2s\"\n    gate_tolerance = 10\n    model = %q", small), 1) // neither model has learnt anything: whatever their errors are, the gate is to use them
	}})}
	if raw, err = forecasttest.Untrained(width, 96, 60, time.Second, 1); err != nil {
		t.Fatal(err)
	}
	info, err := forecast.ReadModelInfo(raw)
	if err != nil {
		t.Fatal(err)
	}
	r.got = surely(ForecastTrained{ID: info.ID, Origins: 24, From: r.now, Model: 0.01, Current: 0.02, Seasonal: 0.03, Naive: 0.04})
	r.s.opt.TrainForecast = func(_ context.Context, what ForecastTraining) (ForecastTrained, error) {
		r.asked = append(r.asked, what)
		return r.got, os.WriteFile(what.Out, raw, 0o644)
	}
	r.steadyTraffic()
	if err := r.readHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.started(1)
	if len(r.asked) > 0 && r.s.want.Retraining.Taking != nil {
		t.Fatal("it is trained before the test begins")
	}
	held = make(chan struct{})
	r.s.spawn = func(f func()) {
		if opens := r.s.want.Retraining.Taking != nil && r.s.coming == nil; opens {
			go func() {
				<-held
				f()
			}()
			return
		}
		go f()
	}
	r.until("a training is under way", func() error {
		if r.s.training == nil {
			return errors.New("there is none")
		}
		return nil
	})
	<-r.s.training.done
	r.beat()
	if r.s.want.Retraining.Taking == nil {
		t.Fatalf("what is better is not taken: %s", r.s.View().Retraining.Says)
	}
	return r, was, info.ID, held
}

// goesOn beats, and says whether decisions are made and by which model.
func (r *retrained) goesOn(model string) {
	r.t.Helper()
	before := r.decision().At
	r.beats(5)
	if at := r.decision().At; at.Sub(before) < 4*time.Second {
		r.t.Errorf("the last decision is of %v after", at.Sub(before))
	}
	if got := r.s.foresee.model.ID(); got != model {
		r.t.Errorf("forecasts are made by %s, want %s", got, model)
	}
}

// A large model that is promoted is opened and held to the past beside the ticks: they go on by the one in use, also after a restart in the middle. The switch is told when it happens, once, and
// later schedulers keep to it.
func TestPromotionDelaysNothing(t *testing.T) {
	r, was, id, held := promoting(t, 256)
	const told = "a forecast model that was trained anew is in use: its error is 1.00 %"
	notYet := func(what string) {
		t.Helper()
		r.goesOn(was)
		if _, err := r.note(told); err == nil {
			t.Errorf("%s: the switch is told", what)
		}
		if v := r.s.View().Retraining; !strings.Contains(v.Says, "is better: it is used as soon as it is open and held to the past; its error is 1.00 %") || v.Model != "" {
			t.Errorf("%s: it says %+v", what, v)
		}
		if len(r.asked) != 1 {
			t.Errorf("%s: %d were trained", what, len(r.asked))
		}
	}
	notYet("while it is opened")

	turns <- struct{}{} // another job's model is held to the past
	close(held)
	<-r.s.coming.opened
	notYet("while it waits for its turn")
	if f := r.s.foresee.last; f.Source != "onnx:linear" && !strings.Contains(f.Reason, "onnx:linear") {
		t.Errorf("meanwhile it forecasts by %s: %s", f.Source, f.Reason)
	}

	train := r.s.opt.TrainForecast
	reopen := func() {
		r.reopen()
		r.s.opt.TrainForecast = train
		r.s.spawn = func(f func()) { go f() }
		r.now = time.Now()
		if err := r.readHistory(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{}) // the turn ends with the trial that waits for it
	go func() { defer close(done); <-turns }()
	<-done
	turns <- struct{}{}
	reopen()
	r.beats(1)
	<-r.s.coming.opened
	r.beats(1)
	if r.s.want.Retraining.Taking == nil || r.s.foresee.model.ID() != was {
		t.Errorf("after a restart in the middle %s is in use, %+v", r.s.foresee.model.ID(), r.s.want.Retraining)
	}
	if _, err := os.Stat(filepath.Join(r.state, candidateFile)); err != nil {
		t.Error(err)
	}
	<-turns
	<-r.s.coming.aside.trying()
	r.beat()
	if r.s.foresee.model.ID() != id || r.s.coming != nil {
		t.Fatalf("in the end %s is in use", r.s.foresee.model.ID())
	}
	if r.s.foresee.aside.run != nil || len(r.s.foresee.gate.Lacking(r.s.history(r.now))) > 0 {
		t.Error("it is to be held to the past again")
	}
	if v := r.s.View().Retraining; v.Model != id || !strings.Contains(v.Says, ", and promoted: its error is 1.00 %") {
		t.Errorf("in the end it says %+v", v)
	}
	n := 0
	for _, note := range r.s.View().Notes {
		if strings.Contains(note.Text, told) {
			n++
		}
	}
	past := r.s.want.Retraining.Past
	if n != 1 || len(past) != 1 || !past[0].Promoted {
		t.Errorf("it is told %d times; %+v", n, past)
	}

	r.s.opt.TrainForecast = nil
	train = nil
	path, candidate := filepath.Join(r.state, promotedFile), filepath.Join(r.state, candidateFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it is kept as %v: %v", info, err)
	}
	if reopen(); r.s.foresee.model.ID() != id {
		t.Error("the next scheduler does not keep to it")
	}
	if err := os.Rename(path, candidate); err != nil { // as where that one ended at once
		t.Fatal(err)
	}
	if reopen(); r.s.foresee.model.ID() != id || r.s.foresee.path != path {
		t.Errorf("a scheduler after one that ended before it had moved the file uses %s of %s", r.s.foresee.model.ID(), r.s.foresee.path)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// What cannot take the place of the model in use is given up and told, and leaves nothing behind; the one in use stays.
func TestPromotionThatFails(t *testing.T) {
	onnxtest.Library(t)
	r := newRetrained(t)
	r.started(1)
	r.s.opt.TrainForecast = nil
	raw, id, err := someModel(20, []time.Duration{time.Minute}, 1)
	if err != nil {
		t.Fatal(err)
	}
	candidate := filepath.Join(r.state, candidateFile)
	for _, tt := range []struct {
		content []byte
		over    string
		says    string
		slow    bool
	}{
		{content: raw, over: "another", says: "forecast.model has changed meanwhile"},
		{content: []byte("garbage"), says: candidate + ", the file that its training has written: the file was changed after it was written: what it holds now is no model ("},
		{says: "no such file"},
		{content: raw, slow: true, says: "too slow"},
		{content: raw},
	} {
		if tt.content != nil {
			if err := os.WriteFile(candidate, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.s.want.Retraining = &retraining{Tried: r.now, Taking: &promotion{ID: id, Over: tt.over, Took: "1s", Why: "it is better"}}
		if tt.slow {
			c := &comer{opened: make(chan struct{}), tried: &tryProgress{}}
			close(c.opened)
			c.first, c.aside = r.s.foresee.asked(tooSlow{Forecaster: forecast.NewSeasonal([]time.Duration{time.Minute}), asked: new(int)}, c.tried)
			c.aside.begin(r.s.history(r.now), 20, nil)
			r.s.coming = c
		}
		if err := r.s.promote(r.now); err != nil {
			t.Fatal(err)
		}
		got := r.s.want.Retraining
		_, left := os.Stat(candidate)
		if taken := tt.says == ""; taken != (r.s.foresee.model != nil) || taken != (got.Promoted == id) || got.Taking != nil || r.s.coming != nil || len(got.Past) != 1 || got.Past[0].Promoted != taken || left == nil {
			t.Errorf("%q: %+v, left %v", tt.says, got, left)
		}
		if tt.says == "" {
			continue
		}
		if notes := r.s.want.HandOvers; len(notes) == 0 || notes[len(notes)-1].Text != "of forecast models, "+got.Says || !strings.Contains(got.Says, tt.says) {
			t.Errorf("%q: it says %q, %+v", tt.says, got.Says, notes)
		}
	}
}

// A file of forecast.model that was written anew is read beside the ticks.
func TestChangedModelFileDelaysNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.onnx")
	write := func(n int) {
		raw, _, err := someModel(20, []time.Duration{time.Minute}, n)
		if err == nil {
			err = os.WriteFile(file, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	onnxtest.Library(t)
	write(1)
	r := newRetrained(t, fmt.Sprintf("model = %q", file))
	r.s.opt.TrainForecast = nil
	r.started(1)
	held := make(chan struct{})
	r.s.spawn = func(f func()) {
		go func() {
			<-held
			f()
		}()
	}
	write(2)
	const told = "is another model than the one that was read from it"
	r.goesOn(r.s.foresee.model.ID())
	if _, err := r.note(told); err == nil || r.s.named.reading == nil {
		t.Errorf("it is told before it is read, or not read: %v", r.s.named)
	}
	close(held)
	<-r.s.named.looked()
	r.beat()
	if _, err := r.note(told); err != nil {
		t.Error(err)
	}
}

// A plan, made beside the scheduler that runs the job, changes none of its files: not the copy of the model in use, when forecast.model is another by now, and not a promoted one's place.
func TestPlanLeavesTheModelsAlone(t *testing.T) {
	onnxtest.Library(t)
	file := filepath.Join(t.TempDir(), "m.onnx")
	var raws [3][]byte
	var ids [3]string
	for n := range raws {
		raw, last, err := someModel(20, []time.Duration{time.Minute}, n)
		if err != nil {
			t.Fatal(err)
		}
		raws[n], ids[n] = raw, last
	}
	write := func(path string, raw []byte) {
		t.Helper()
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, raws[0])
	r := newRetrained(t, fmt.Sprintf("model = %q", file))
	r.s.opt.TrainForecast = nil
	r.started(1)
	write(file, raws[1])
	write(filepath.Join(r.state, candidateFile), raws[2])
	r.s.want.Retraining = &retraining{Tried: r.now, Promoted: ids[2], Over: ids[1]}
	o := r.options("run")
	o.Wanted = (*Wanted)(r.s.want)
	if _, diags, err := NewPreview(t.Context(), o); err != nil || diags.HasErrors() {
		t.Fatal(err, diags)
	}
	for name, want := range map[string][]byte{inUseFile: raws[0], candidateFile: raws[2]} {
		if got, err := os.ReadFile(filepath.Join(r.state, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("a plan has changed %s: %v", name, err)
		}
	}
}
