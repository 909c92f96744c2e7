package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// slowly is a graph that says again what was, after so many products of matrices of 512 × 512, of 0.27 GFLOP each.
func slowly(products int) func(*onnx.Graph, *onnx.Tensor) *onnx.Tensor {
	return func(g *onnx.Graph, x *onnx.Tensor) *onnx.Tensor {
		const n = 512
		bins := 144
		w := g.Const(make([]float32, n*n), n, n)
		h := g.MatMul(g.Const(make([]float32, n), n, 1), g.MatMul(x, g.Const(make([]float32, bins*n), bins, n)))
		for range products {
			h = g.MatMul(h, w)
		}
		return g.Add(x, g.MatMul(g.MatMul(g.Const(make([]float32, n), 1, n), h), g.Const(make([]float32, n*bins), n, bins)))
	}
}

// A model file that takes long is asked after the others, tells how far it is held to the past, and is stopped by the first signal in the midst of an answer: what was measured is
// printed, and says that it is not all.
func TestForecastOfASlowModelIsInterrupted(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s, dir := newShell(t), t.TempDir()
	trace, slow := filepath.Join(dir, "rates.csv"), filepath.Join(dir, "slow.onnx")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	writeModel(t, slow, "slow", 10*time.Minute, 144, slowly(200)) // to be held to the past it takes minutes
	interrupted := func(args ...string) result {
		t.Helper()
		b := s.start(append([]string{"forecast"}, args...)...)
		b.eventually("it says how far it is", func() bool { return strings.Contains(b.err.String(), "holding "+slow+" to the past, moments: ") })
		b.interrupt()
		began := time.Now()
		r := b.end()
		if took := time.Since(began); took > 40*time.Second || r.code != exitFailed {
			t.Errorf("%s: exit code %d, %v after it was interrupted: %s", args[0], r.code, took, r.err)
		}
		return r
	}
	page := filepath.Join(dir, "eval.html")
	r := interrupted("eval", "-trace", trace, "-model", slow, "-origins", "8", "-horizon", "1h", "-json", "-o", page)
	var e evaluation
	if err := json.Unmarshal([]byte(r.out), &e); err != nil {
		t.Fatalf("%v: %s", err, r.err)
	}
	if !e.Partial || len(e.Rows) != 6 || e.Moments != e.Planned || e.Planned < 8 || len(e.Notes) == 0 || e.Notes[len(e.Notes)-1] != (evalNote{"onnx:slow", "left out: it was interrupted before " + slow + " had answered"}) {
		t.Errorf("%+v", e)
	}
	if !strings.Contains(r.err, "; "+page+" is not written, which would be of all of it") || exists(page) {
		t.Errorf("of the page it says %s", r.err)
	}
	if !strings.Contains(r.err, "interrupted: what is printed is of") || !strings.Contains(r.err, "and without "+slow) {
		t.Errorf("it fails with %s", r.err)
	}
	var text strings.Builder
	if err := writeEvaluation(&text, e); err != nil || !strings.Contains(text.String(), "PARTIAL: it was interrupted before every forecaster was measured\n") {
		t.Errorf("%v: it prints\n%s", err, text.String())
	}
	out := filepath.Join(dir, "new.onnx")
	if r := interrupted("train", "-trace", trace, "-horizon", "1h", "-o", out, "-against", slow); !strings.Contains(r.err, "train a forecast model: interrupted; "+out+" is as it was") || exists(out) {
		t.Errorf("train: %s", r.err)
	}
}

// Work that cannot be told to end is not waited for once the command is interrupted: large maps take half a minute each to learn.
func TestInterruptedWorkIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	if !during(ctx, func() {}) {
		t.Error("work that is done was not done")
	}
	begun, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	go func() {
		<-begun
		cancel()
	}()
	if during(ctx, func() { close(begun); <-end }) { // it ends after the test only
		t.Error("work that goes on was done")
	}
}

// A model file that gives no answer in time is asked once, and not at each moment; the others are measured, and why it is not is said.
func TestForecastOfAModelThatNeverAnswers(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	dir := t.TempDir()
	trace, endless := filepath.Join(dir, "rates.csv"), filepath.Join(dir, "endless.onnx")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	writeModel(t, endless, "endless", 10*time.Minute, 144, slowly(2000))
	run := func(args ...string) (result, time.Duration) {
		var out, err buffer
		a := newShell(t).app(&out, &err)
		a.answerWithin = 500 * time.Millisecond
		began := time.Now()
		code := a.run(t.Context(), append([]string{"forecast"}, args...))
		return result{code, out.String(), err.String()}, time.Since(began)
	}
	const why = "it is too slow: ONNX Runtime had not answered after 500ms, and was stopped: train or export a smaller model. It was not asked again"
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	r, took := run("eval", "-trace", trace, "-model", endless, "-horizon", "1h", "-origins", "200")
	if r.code != exitFailed || !strings.Contains(words(r.out), "onnx:endless: left out, it has no answer at any moment") || !strings.Contains(words(r.out), why) || !strings.Contains(words(r.err), why) || !strings.Contains(r.out, "1h     seasonal") {
		t.Errorf("exit code %d: %s\n%s", r.code, r.err, r.out)
	}
	t.Logf("eval: %v", took)
	r, took = run("train", "-trace", trace, "-horizon", "1h", "-o", filepath.Join(dir, "new.onnx"), "-against", endless)
	if r.code != exitDone || !strings.Contains(words(r.err), "endless.onnx has no answer at") || !strings.Contains(words(r.err), why) {
		t.Errorf("exit code %d: %s\n%s", r.code, r.err, r.out)
	}
	t.Logf("train: %v", took)
	r, _ = run("train", "-trace", trace, "-horizon", "1h", "-o", filepath.Join(dir, "new.onnx"), "-against", endless, "-json")
	if got, err := trainedAnew([]byte(r.out)); err != nil || !strings.Contains(got.Silent, why) || !(got.OverNaive.SE > 0) { // which a scheduler reads
		t.Errorf("exit code %d: a scheduler reads %+v of it, %v", r.code, got, err)
	}
}
