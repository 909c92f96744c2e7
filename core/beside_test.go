package core

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/forecast/forecasttest"
)

// heavy is a job whose forecast model is a file that takes long, and a history for it.
func heavy(t *testing.T, width int) (*job.Job, forecast.Series) {
	t.Helper()
	raw, err := forecasttest.Untrained(width, 96, 60, time.Second, 1)
	return foreseenBy(t, raw, err)
}

// foreseenBy is a job with a forecast model, and a history for it.
func foreseenBy(t *testing.T, raw []byte, err error) (*job.Job, forecast.Series) {
	t.Helper()
	onnxtest.Library(t)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	j := parseJob(t, strings.Replace(fmt.Sprintf(rigJob, "b:1", rigTopic, job.ModeLive, t.TempDir()), `history  = "1m"`, fmt.Sprintf("history = \"30m\"\n model = %q", file), 1))
	s := forecast.Series{Start: time.Unix(1_800_000_000, 0), Step: time.Second}
	for i := range 1800 {
		s.Values = append(s.Values, 1000*(1.2+math.Sin(float64(i)/60*2*math.Pi))+float64(i*7919%101))
	}
	return j, s
}

// waited is what foresight says when the trial of its model has ended.
func waited(t *testing.T, f *foresight, s forecast.Series) plan.Forecast {
	t.Helper()
	select {
	case <-f.aside.trying():
	case <-time.After(2 * time.Minute):
		t.Fatal("the trial does not end")
	}
	f.aside.patience = time.Minute
	return f.forecast(s.End(), s)
}

// A model that takes long to be held to the past delays no decision: the fallback is used meanwhile, and says why. Then all is as if it had been waited for: the forecast, what the gate
// says, and what it remembers.
func TestLargeModelDelaysNothing(t *testing.T) {
	j, s := heavy(t, 128)
	lg := slog.New(slog.DiscardHandler)
	var told []string
	preview := &Scheduler{job: j, opt: Options{Progress: func(what string, done, total int) {
		told = append(told, fmt.Sprintf("%s: %d of %d", what, done, total))
	}}}
	at, err := askedForesight(lg, j, nil, preview.asks())
	if err != nil {
		t.Fatal(err)
	}
	defer at.close()
	first, later := s.Until(s.At(1780)), s.Until(s.At(1790))
	at.forecast(first.End(), first)
	n := slices.IndexFunc(told, func(line string) bool { return strings.HasPrefix(line, tryingOnThePast) })
	if n < 0 {
		t.Fatalf("who waits for it is told %q", told)
	}
	at.forecast(later.End(), later)
	want := at.forecast(s.End(), s)
	if told = told[:n]; n < 16 || told[0] != fmt.Sprintf("holding the forecast model to the past: 0 of %d", n-1) || told[n-1] != fmt.Sprintf("holding the forecast model to the past: %d of %[1]d", n-1) {
		t.Errorf("who waits for it, such as kale plan, is told %q", told)
	}

	f, err := askedForesight(lg, j, nil, asked{spawn: func(g func()) { go g() }, patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	turns <- struct{}{} // another job's model has its turn
	said := f.forecast(first.End(), first)
	if said.Source != "seasonal" || !strings.Contains(said.Reason, "seasonal instead of onnx:untrained: it is to be held to the past, after the model of another job") {
		t.Errorf("while another has its turn: %s: %s", said.Source, said.Reason)
	}
	f.forecast(later.End(), later)
	<-turns
	eventually(t, "it says how far it is", func() error {
		if got := f.forecast(later.End(), later); !strings.Contains(got.Reason, "it is being held to the past: ") || !strings.Contains(got.Reason, "moments") || got.Source != "seasonal" {
			return fmt.Errorf("%s: %s", got.Source, got.Reason)
		}
		return nil
	})
	if f.changed != "" {
		t.Errorf("that the model is not ready yet counts as a change: %s", f.changed)
	}
	got := waited(t, f, s)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("afterwards it forecasts otherwise: %s, want %s", got.Reason, want.Reason)
	}
	was, is := at.gate.State(), f.gate.State()
	if !reflect.DeepEqual(is.Kept, was.Kept) || len(is.Kept) < 10 || is.Using != was.Using {
		t.Errorf("the gate remembers %d forecasts, using %q; want %d, %q, or others", len(is.Kept), is.Using, len(was.Kept), was.Using)
	}
}

// The scheduler's end ends the trial of a model, and so does the promotion of another, also of one that has not had its turn.
func TestTrialEndsWithTheJob(t *testing.T) {
	j, s := heavy(t, 256)
	begin := func() *foresight {
		f, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, asked{spawn: func(g func()) { go g() }, patience: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		f.forecast(s.End(), s)
		return f
	}
	turns <- struct{}{} // so that it does not end before it is looked at
	f := begin()
	e := f.aside.run
	<-turns
	eventually(t, "the trial goes on", func() error {
		if f.tried.done.Load() < 1 {
			return fmt.Errorf("%d of %d", f.tried.done.Load(), f.tried.total.Load())
		}
		return nil
	})
	f.close()
	if done, total := f.tried.done.Load(), f.tried.total.Load(); !e.ended() || e.err == nil || !strings.Contains(e.err.Error(), "it is closed") || done >= total {
		t.Errorf("at the end: ended %v, %v, at %d of %d", e.ended(), e.err, done, total)
	}

	turns <- struct{}{}
	f = begin()
	defer f.close()
	e = f.aside.run
	raw, err := os.ReadFile(j.Forecast.ModelFile())
	if err == nil {
		err = f.use(j.Forecast.ModelFile(), raw)
	}
	<-turns
	if err != nil {
		t.Fatal(err)
	}
	if !e.ended() || e.err == nil {
		t.Errorf("the trial of the model before: ended %v, %v", e.ended(), e.err)
	}
	f.forecast(s.End(), s)
	if got := waited(t, f, s); f.aside.run != nil || strings.Contains(got.Reason, "held to the past") {
		t.Errorf("the model that was promoted: %s: %s", got.Source, got.Reason)
	}
}

// A model that was too slow is left alone for a while, and its error says why.
func TestSlowModelIsLeftAlone(t *testing.T) {
	slow := tooSlow{asked: new(int)}
	b := &beside{Forecaster: slow, spawn: func(g func()) { g() }, patience: time.Second, progress: &tryProgress{}, closed: make(chan struct{})}
	for range 3 {
		if _, err := b.Forecast(forecast.Series{}, 1); err == nil || !strings.Contains(err.Error(), "too slow") {
			t.Errorf("it says %v", err)
		}
	}
	if b.slow = time.Now(); *slow.asked != 1 {
		t.Errorf("it was asked %d times", *slow.asked)
	}
	if _, _ = b.Forecast(forecast.Series{}, 1); *slow.asked != 2 {
		t.Errorf("later it was asked %d times", *slow.asked)
	}
}

type tooSlow struct {
	forecast.Forecaster
	asked *int
}

func (s tooSlow) Forecast(forecast.Series, int) (forecast.Forecast, error) {
	*s.asked++
	return forecast.Forecast{}, fmt.Errorf("model m: %w", forecast.ErrTooSlow)
}

// A model that never gives a forecast is told of once, with why, and again when that is another or it gave one meanwhile: it was never in use, so that nothing changes with it. So is one
// that is stopped after its time. A history that is too short is no fault of it.
func TestModelThatNeverAnswersIsTold(t *testing.T) {
	for name, what := range map[string]float32{"is NaN": float32(math.NaN()), "more than 1e+12 cannot be": 1e32} {
		raw, err := forecasttest.Saying(what, 96, 60, time.Second)
		j, s := foreseenBy(t, raw, err)
		var told []string
		f, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, asked{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.close()
		for at := 1700; at <= 1800; at += 10 {
			past := s.Until(s.At(at))
			f.forecast(past.End(), past)
			if f.changed != "" {
				told, f.changed = append(told, f.changed), ""
			}
		}
		if len(told) != 1 || !strings.HasPrefix(told[0], "forecasts are made by seasonal instead of onnx:untrained: it gave no forecast: ") || !strings.Contains(told[0], name) {
			t.Errorf("of output that %s is told %q", name, told)
		}
	}

	j, s := heavy(t, 8)
	f, err := wrappedForesight(slog.New(slog.DiscardHandler), j, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	f.forecast(s.End(), s)
	for i, step := range []struct {
		failed error
		says   string
	}{
		{forecast.ErrShortHistory, ""}, {fmt.Errorf("of 3 moments: %w", forecast.ErrTooSlow), "it is too slow"}, {notReadyError{why: "it is held to the past"}, ""},
		{fmt.Errorf("of 4 moments: %w", forecast.ErrTooSlow), ""}, {fmt.Errorf("it is broken"), "it is broken"}, {nil, ""}, {fmt.Errorf("it is broken"), "it is broken"},
	} {
		f.changed = ""
		v := forecast.Verdict{Using: "seasonal", FallenBack: true, Failed: step.failed}
		if step.failed != nil {
			v.Why = "it gave no forecast: " + step.failed.Error()
		}
		if f.sayFailing(v); (f.changed == "") != (step.says == "") || !strings.Contains(f.changed, step.says) {
			t.Errorf("%d: of %v is told %q, want %q", i, step.failed, f.changed, step.says)
		}
	}
}

// sluggish is a forecaster that takes its time while it is slow.
type sluggish struct {
	forecast.Forecaster
	slow *atomic.Bool
}

func (s sluggish) Forecast(h forecast.Series, steps int) (forecast.Forecast, error) {
	if s.slow.Load() {
		time.Sleep(20 * time.Millisecond)
	}
	return s.Forecaster.Forecast(h, steps)
}

// A model that is never in time is told of once, though it has no error, and once more when it is in time again; that it is held to the past is not told.
func TestModelThatIsAlwaysLateIsTold(t *testing.T) {
	onnxtest.Library(t)
	file := filepath.Join(t.TempDir(), "m.onnx")
	raw, _, err := someModel(20, []time.Duration{time.Minute}, 1)
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for model, named := range map[string]string{job.ForecastEnsemble: job.ForecastEnsemble, file: "onnx:" + forecast.Linear} {
		t.Run(named, func(t *testing.T) { lateIsTold(t, model, named) })
	}
}

// lateIsTold holds a job's model, which is called named, to that.
func lateIsTold(t *testing.T, model, named string) {
	j := parseJob(t, strings.Replace(fmt.Sprintf(rigJob, "b:1", rigTopic, job.ModeLive, t.TempDir()), `history  = "1m"`, `history = "30m"`+fmt.Sprintf("\n model = %q", model), 1))
	s := forecast.Series{Start: time.Unix(1_800_000_000, 0), Step: time.Second}
	for i := range 600 {
		s.Values = append(s.Values, 1000*(1.2+math.Sin(float64(i)/60*2*math.Pi)))
	}
	var slow atomic.Bool
	slow.Store(true)
	var ours sync.WaitGroup
	f, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, asked{patience: time.Millisecond, spawn: func(work func()) { ours.Go(work) },
		wrap: func(of forecast.Forecaster) forecast.Forecaster {
			if of.Name() == "seasonal" {
				return of
			}
			return sluggish{of, &slow}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Wait()
	defer f.close()
	ticks := func(n int) (told []string) {
		for range n {
			f.forecast(s.End(), s)
			if f.changed != "" {
				told, f.changed = append(told, f.changed), ""
			}
		}
		return told
	}
	if told := ticks(3 * lateForecasts); len(told) > 0 {
		t.Errorf("while it is held to the past it tells %q", told)
	}
	<-f.aside.trying()
	if told := ticks(3 * lateForecasts); len(told) != 1 || !strings.Contains(told[0], "forecasts are made by seasonal instead of "+named+", which was not in time for 5 decisions in a row: its forecast took longer than ") {
		t.Errorf("while it is late it tells %q", told)
	}
	slow.Store(false)
	f.aside.patience = time.Minute
	if run := f.aside.run; run != nil { // what was asked while it was slow
		<-run.done
	}
	if told := ticks(lateForecasts - 1); len(told) > 0 {
		t.Errorf("in time for less than %d it tells %q", lateForecasts, told)
	}
	if told := ticks(2 * lateForecasts); len(told) != 1 || !strings.HasPrefix(told[0], named+" gives its forecasts in time again, 5 in a row: ") {
		t.Errorf("in time again it tells %q", told)
	}

	// One that is now late and now in time is told of less and less often, and one that has taken its place begins anew.
	told := 0
	for i := range 400 {
		f.changed = ""
		v := forecast.Verdict{Using: named}
		if i/6%2 == 0 {
			v = forecast.Verdict{Using: "seasonal", Failed: notReadyError{why: "late", late: true}}
		}
		if f.sayLate(v); f.changed != "" {
			told++
		}
	}
	if told > 3 {
		t.Errorf("of one that is late for 6 decisions and in time for as many it tells %d times in 400", told)
	}
	if f.punctual(); f.saidLate || f.inTime() != lateForecasts {
		t.Errorf("another model has what was said of the one before: %+v", f)
	}
}

// ONNX Runtime takes in a model beside the ticks: a scheduler that begins does not wait for it. What it refuses is told then, and who looks once is told at once.
func TestModelIsTakenInBeside(t *testing.T) {
	raw, err := forecasttest.Saying(1, 96, 60, time.Second)
	raw = bytes.Replace(raw, []byte("\"\x03Add"), []byte("\"\x03Odd"), 1) // of which only ONNX Runtime knows that there is no such operator
	j, s := foreseenBy(t, raw, err)
	if _, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, asked{}); err == nil || !strings.Contains(err.Error(), "Odd") {
		t.Errorf("who waits for it is told %v", err)
	}
	var ours sync.WaitGroup
	f, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, asked{patience: time.Minute, spawn: func(work func()) { ours.Go(work) }})
	if err != nil {
		t.Fatalf("it is waited for: %v", err)
	}
	defer ours.Wait()
	defer f.close()
	f.forecast(s.End(), s)
	f.forecast(s.End(), s)
	if !strings.HasPrefix(f.changed, "forecasts are made by seasonal instead of onnx:untrained: it gave no forecast: ") || !strings.Contains(f.changed, "Odd") {
		t.Errorf("it tells %q", f.changed)
	}
}

// A restart changes no decision: on a job that runs the first one waits for the model, but no longer than until the next would be due. Orders are taken meanwhile.
func TestRestartWaitsForTheModel(t *testing.T) {
	j, _ := heavy(t, 64)
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.NewReplacer(`history  = "1m"`, fmt.Sprintf("history = \"5m\"\n model = %q", j.Forecast.ModelFile()), `tick         = "1s"`, `tick = "10s"`).Replace(text)
	}})
	r.steadyTraffic()
	if err := r.readHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.started(2)
	r.order("auto", 0)
	r.until("it forecasts by the model", func() error {
		if src := r.s.foresee.last.Source; src != "onnx:untrained" && !strings.Contains(r.s.foresee.last.Reason, "its recent error is") {
			return fmt.Errorf("%s: %s", src, r.s.foresee.last.Reason)
		}
		return nil
	})
	restart := func() {
		r.reopen()
		r.s.spawn = func(f func()) { go f() }
		r.s.foresee.aside.patience = time.Millisecond
		r.now = time.Now()
		if err := r.readHistory(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	forecasts := func() bool { return len(r.s.foresee.last.Mean) > 0 }

	turns <- struct{}{}
	restart()
	r.beat()
	if forecasts() {
		t.Error("it decides before the model is there")
	}
	tried := r.s.modelTried()
	if <-turns; tried == nil {
		t.Fatal("it does not wait for the model")
	}
	for range 5 { // on a busy machine more of the history has to be read, and it is held to that too
		if tried != nil {
			<-tried
		}
		if r.beat(); forecasts() {
			break
		}
		tried = r.s.modelTried()
	}
	if !forecasts() || strings.Contains(r.s.foresee.last.Reason, "held to the past") {
		t.Errorf("then it decides by %q: %s; unknown: %q, waits: %v", r.s.foresee.last.Source, r.s.foresee.last.Reason, r.s.seen.unknown(r.s.begun()), r.s.modelTried() != nil)
	}

	turns <- struct{}{}
	restart()
	r.beats(3)
	if forecasts() {
		t.Error("it decides before the model is there")
	}
	if r.order("scale", 3); r.s.want.Target == 3 {
		t.Fatal("there are 3 workers before they are ordered")
	}
	if r.beat(); r.s.want.Target != 3 {
		t.Errorf("an order meanwhile: target %d; unknown: %q", r.s.want.Target, r.s.seen.unknown(r.s.begun()))
	}
	r.order("auto", 0)
	if r.beats(12); !forecasts() || !strings.Contains(r.s.foresee.last.Reason, "held to the past") {
		t.Errorf("after a tick it decides by %q: %s", r.s.foresee.last.Source, r.s.foresee.last.Reason)
	}
	<-turns
}
