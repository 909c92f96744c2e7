package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast"
)

// Where the gate has set the named model aside, the forecaster in use is seasonal: what is trained anew has to lead over both by more than chance, and it is said which is which.
func TestRetrainAgainstOneThatIsNotInUse(t *testing.T) {
	file := rival{name: "the job file's model", rests: true}
	got := ForecastTrained{
		Origins: 24, From: time.Unix(1_800_000_000, 0), Model: 0.0253, Current: 0.8013, Seasonal: 0.0232, Naive: 0.05,
		OverCurrent: forecast.Lead{By: 0.776, SE: 0.001}, OverSeasonal: forecast.Lead{By: -0.0021, SE: 0.001},
	}
	for _, c := range []struct {
		name   string
		change func(*ForecastTrained)
		better bool
		says   string
	}{
		{"worse than seasonal, within gate_tolerance", func(*ForecastTrained) {}, false, "its error is 2.53 %, that of seasonal, in use, 2.32 %, of the job file's model, not in use, 80.13 %, of seasonal naive 5.00 %"},
		{"better than seasonal by chance", func(t *ForecastTrained) { t.Model, t.OverSeasonal = 0.023, forecast.Lead{By: 0.0002, SE: 0.001} }, false, "that may be chance, which a lead of more than 0.2 points"},
		{"better than seasonal", func(t *ForecastTrained) { t.Model, t.OverSeasonal = 0.02, forecast.Lead{By: 0.0032, SE: 0.001} }, true, "its error is 2.00 %, that of seasonal, in use, 2.32 %, of the job file's model, not in use, 80.13 %"},
		{"worse than the file", func(t *ForecastTrained) {
			t.Model, t.Current, t.OverSeasonal, t.OverCurrent = 0.02, 0.01, forecast.Lead{By: 0.0032, SE: 0.001}, forecast.Lead{By: -0.01, SE: 0.001}
		}, false, "its lead over the job file's model, which may come to be in use again, may be chance"},
		{"of the file nothing is known", func(t *ForecastTrained) { t.Current = math.NaN() }, false, "too little is known"},
	} {
		g := got
		c.change(&g)
		if better, says := g.better(file); better != c.better || !strings.Contains(says, c.says) {
			t.Errorf("%s: better %v, %q", c.name, better, says)
		}
	}
}

// misled is a rig whose job names a model that learnt another traffic, which its gate has set aside; held to what arrives seasonal is far better.
func misled(t *testing.T) *retrained {
	t.Helper()
	onnxtest.Library(t)
	raw, _, err := someModel(20, []time.Duration{time.Minute}, 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &retrained{rig: newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `history  = "1m"`, fmt.Sprintf("history  = \"5m\"\n    retrain  = \"1h\"\n    model = %q", file), 1)
	}})}
	r.unevenTraffic()
	if err := r.readHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.now = time.Now().Truncate(time.Second).Add(-time.Second) // it stays: nothing arrives any more
	r.s.want.Retraining = &retraining{Tried: r.now}
	if by := r.foresees(); !r.s.foresee.gate.FallenBack() || by != "seasonal" {
		t.Fatalf("forecasts are made by %s: %s", by, r.s.foresee.last.Reason)
	}
	return r
}

// foresees makes a forecast, and says by which forecaster.
func (r *retrained) foresees() string {
	f := r.s.foresee.forecast(r.now, r.s.history(r.now))
	r.s.noteForecaster(r.now)
	return f.Source
}

// comesTo ends a training, and waits until what it has come to is taken or not.
func (r *retrained) comesTo(train func(context.Context, ForecastTraining) (ForecastTrained, error)) (says string) {
	r.t.Helper()
	r.s.opt.TrainForecast = train
	r.s.train(r.t.Context(), r.now)
	run := r.s.training
	r.s.training = nil
	<-run.done
	if err := r.s.trained(r.now, run); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "it is taken or not", func() error {
		if r.s.want.Retraining.Taking == nil {
			return nil
		}
		return errors.Join(r.s.promote(r.now), errors.New("it is under way"))
	})
	return r.s.want.Retraining.Says
}

// unevenTraffic fills the topic with a minute's season of which someModel knows nothing.
func (r *rig) unevenTraffic() {
	r.t.Helper()
	began := time.Now().Truncate(time.Minute).Add(-8 * time.Minute)
	var at []time.Time
	for s := range int(time.Since(began) / time.Second) {
		for i := range []int{4, 16}[s%60/30] {
			at = append(at, began.Add(time.Duration(s)*time.Second+time.Duration(i)*time.Millisecond))
		}
	}
	r.fill(len(at), func(i int) time.Time { return at[i] })
}

// beside trains a model, and measures it and the one that it is held against, as kale forecast train does in another process.
func (r *retrained) beside(_ context.Context, what ForecastTraining) (out ForecastTrained, err error) {
	r.asked = append(r.asked, what)
	against, err := forecast.OpenONNX(what.Current, forecast.ONNXOptions{Threads: 1})
	if err != nil {
		return out, err
	}
	defer func() { _ = against.Close() }()
	raw, m, err := forecast.TrainLinear(what.History, forecast.LinearOptions{Horizon: what.Horizon, Seasons: what.Seasons, Against: against})
	if err != nil {
		return out, err
	}
	out = ForecastTrained{
		ID: m.Info.ID, Origins: m.Holdout, From: m.From, Model: m.Model.WAPE, Current: m.Against.WAPE, Seasonal: m.Seasonal.WAPE, Naive: m.Naive.WAPE,
		OverCurrent: m.OverAgainst, OverSeasonal: m.OverSeasonal, OverNaive: m.OverNaive,
	}
	if out.FallsBack, err = forecast.Worse(out.Model, out.Seasonal, what.Gate); err != nil {
		return out, err
	}
	return out, os.WriteFile(what.Out, raw, 0o600)
}

// What is worse than seasonal, which is in use, is not promoted, however bad the file is that the job names; nor what the gate would not use though its training says it is better. "is in use" is said
// of what forecasts are made by, and of nothing else.
func TestRetrainLeavesSeasonalInPlace(t *testing.T) {
	r := misled(t)
	unused := r.s.foresee.model.ID()
	stays := func(what, says string) {
		t.Helper()
		if got := r.comesTo(r.train); !strings.Contains(got, says) {
			t.Errorf("%s: it says %q, want %q", what, got, says)
		}
		if f, by := r.s.foresee, r.foresees(); by != "seasonal" || f.model.ID() != unused || r.s.want.Retraining.Promoted != "" {
			t.Errorf("%s: forecasts are made by %s, %+v", what, by, r.s.want.Retraining)
		}
		for _, note := range r.s.want.HandOvers {
			if strings.Contains(note.Text, "is in use:") || strings.Contains(note.Text, "forecasts are made by onnx:linear now") {
				t.Errorf("%s: it is told that %s", what, note.Text)
			}
		}
	}
	r.got = ForecastTrained{Origins: 24, From: r.now, Model: 0.0253, Current: 0.8013, Seasonal: 0.0232, Naive: 0.05}
	stays("worse than seasonal", "was not taken: its error is 2.53 %, that of seasonal, in use, 2.32 %, of the job file's model, not in use, 80.13 %")
	r.got.Model = 0.01
	stays("worse than seasonal in the gate's window", "could not be taken: held to the last ")
	if says := r.s.want.Retraining.Says; !strings.Contains(says, ", that of seasonal, which is in use and stays it, ") {
		t.Errorf("it says %q", says)
	}
}

// A model that is trained and measured in earnest beside a file that rests is held against both, and does not take the place of seasonal where that is better, as it is on a course that keeps to its
// season: forecasts go on by it, and nothing else is told.
func TestRetrainInEarnestLosesToSeasonal(t *testing.T) {
	r := misled(t)
	unused := r.s.foresee.model.ID()
	says := r.comesTo(r.beside)
	by := r.foresees()
	told := slices.ContainsFunc(r.s.want.HandOvers, func(n Note) bool {
		return strings.HasPrefix(n.Text, "a forecast model that was trained anew is in use: ")
	})
	if by != "seasonal" || told || r.s.foresee.model.ID() != unused {
		t.Errorf("forecasts are made by %s, and that the new one is in use is told: %v. %s", by, told, says)
	}
	if !strings.Contains(says, "that of seasonal, in use, ") || !strings.Contains(says, "the job file's model, not in use, ") || filepath.Base(r.asked[0].Current) != inUseFile {
		t.Errorf("held against %s: %s", r.asked[0].Current, says)
	}
}

// Who waits for a model is told how far it has been tried at the moments of the past, of which each takes long where the model does.
func TestTryingAModelIsTold(t *testing.T) {
	j, _ := modelled(t)
	told := map[string]int{}
	s := &Scheduler{job: j, opt: Options{Progress: func(what string, _, total int) { told[fmt.Sprintf("%s of %d", what, total)]++ }}}
	f, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, s.asks())
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	h := steadyBins(300)
	f.forecast(h.End(), h)
	if told["asking the forecast model for what it would have forecast at moments of the past of 24"] != 24 {
		t.Errorf("it is told %v", told)
	}
}

// A model that was trained anew is not given up for an outage of the brokers as its training ends: it is held to what comes after.
func TestPromotionOutlastsAnOutage(t *testing.T) {
	j, id := modelled(t)
	file := j.Forecast.Model
	j.Forecast.Model = ""
	f, err := askedForesight(slog.New(slog.DiscardHandler), j, nil, asked{spawn: func(g func()) { go g() }, patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	c := f.await(file, id, func(g func()) { go g() })
	defer c.end()
	<-c.opened
	whole := steadyBins(300)
	hole := steadyBins(300)
	for i := 280; i < 300; i++ {
		hole.Values[i] = math.NaN()
	}
	for range 3 { // trials
		if f.ready(c, hole) {
			t.Fatalf("while nothing is measured it is ready: %v", c.err)
		}
		<-c.aside.trying()
	}
	eventually(t, "it is held to what came after the outage", func() error {
		if !f.ready(c, whole) {
			return errors.New("it is not ready")
		}
		return nil
	})
	if errors.Is(c.err, forecast.ErrUnmeasured) {
		t.Error(c.err)
	}
}
