package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast"
)

// retrained is a rig whose job trains its forecast model anew every 2 s, with what a training is to come to, or fails with.
type retrained struct {
	*rig
	asked []ForecastTraining
	got   ForecastTrained
	err   error
}

func newRetrained(t *testing.T, also ...string) *retrained {
	onnxtest.Library(t)
	r := &retrained{rig: newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `history  = "1m"`, "history  = \"1m\"\n    retrain  = \"2s\"\n"+strings.Join(also, "\n"), 1)
	}})}
	r.s.opt.TrainForecast = r.train
	return r
}

// train writes a model of its own each time, as the real one does.
func (r *retrained) train(_ context.Context, what ForecastTraining) (ForecastTrained, error) {
	r.asked = append(r.asked, what)
	if r.err != nil {
		return ForecastTrained{}, r.err
	}
	if better, _ := surely(r.got).better(r.s.foresee.rival()); !better {
		return surely(r.got), os.WriteFile(what.Out, []byte("it is not looked at"), 0o600)
	}
	raw, id, err := someModel(what.Horizon, what.Seasons, len(r.asked))
	if err != nil {
		return ForecastTrained{}, err
	}
	got := surely(r.got)
	got.ID = id
	return got, os.WriteFile(what.Out, raw, 0o600)
}

// surely is what a training has come to, of which no difference is chance.
func surely(t ForecastTrained) ForecastTrained {
	t.OverCurrent, t.OverSeasonal = forecast.Lead{By: t.Current - t.Model, SE: 0.0001}, forecast.Lead{By: t.Seasonal - t.Model, SE: 0.0001}
	return t
}

// What is better by no more than chance does not take the place of the one in use, else models would take turns.
func TestPromotionIsMoreThanChance(t *testing.T) {
	got := ForecastTrained{Origins: 18, From: time.Unix(1_800_000_000, 0), Model: 0.0199, Current: 0.02, Seasonal: 0.03, Naive: 0.05, OverCurrent: forecast.Lead{By: 0.0001, SE: 0.0005}, OverSeasonal: forecast.Lead{By: 0.01, SE: 0.001}}
	for _, c := range []struct {
		name     string
		change   func(*ForecastTrained)
		replaces bool
		better   bool
		says     string
	}{
		{"by a hundredth", func(*ForecastTrained) {}, true, false, ": that may be chance, which a lead of more than 0.1 points over these forecasts would not be"},
		{"by a hundredth, surely", func(t *ForecastTrained) { t.OverCurrent.SE = 0.00004 }, true, true, "over 18 forecasts since "},
		{"of too few", func(t *ForecastTrained) { t.OverCurrent.SE = math.NaN() }, true, false, ": these are too few to tell that from chance"},
		{"over seasonal, surely", func(*ForecastTrained) {}, false, true, "that of seasonal 3.00 %"},
		{"over seasonal, by chance", func(t *ForecastTrained) { t.OverSeasonal.SE = 0.006 }, false, false, "may be chance, which a lead of more than 1.2 points"},
		{"alike", func(t *ForecastTrained) { t.Model, t.OverCurrent.By = 0.0199999, 0.0000001 }, true, false, "it is as good as the one in use, the error of both is 2.00 %, of seasonal 3.00 %"},
		{"alike, and worse", func(t *ForecastTrained) { t.Model, t.OverCurrent.By = 0.0200001, -0.0000001 }, true, false, "it is as good as the one in use, the error of both is 2.00 %, of seasonal 3.00 %"},
		{"alike, surely better", func(t *ForecastTrained) { t.Model, t.OverCurrent = 0.019998, forecast.Lead{By: 0.000002, SE: 1e-7} }, true, true, "its error is 1.9998 %, that of the one in use 2.0000 %"},
		{"not known", func(t *ForecastTrained) { t.OverCurrent = forecast.Lead{} }, true, false, "may be chance"},
	} {
		g := got
		c.change(&g)
		against := rival{}
		if c.replaces {
			against.name = "the job file's model"
		}
		if better, says := g.better(against); better != c.better || !strings.Contains(says, c.says) {
			t.Errorf("%s: better %v, %q", c.name, better, says)
		}
	}
}

// someModel is a model file for bins of a second, another one for each n.
func someModel(horizon int, seasons []time.Duration, n int) (raw []byte, id string, err error) {
	s := forecast.Series{Start: time.Unix(1_800_000_000, 0), Step: time.Second}
	for i := range 300 {
		s.Values = append(s.Values, 100+50*math.Sin(float64(i)/60*2*math.Pi)+float64((i*(7+n))%11))
	}
	raw, report, err := forecast.TrainLinear(s, forecast.LinearOptions{Horizon: horizon, Seasons: seasons})
	if err != nil {
		return nil, "", err
	}
	return raw, report.Info.ID, nil
}

// modelled is a job that names a file of someModel, and the model's ID.
func modelled(t *testing.T) (j *job.Job, id string) {
	t.Helper()
	onnxtest.Library(t)
	raw, id, err := someModel(20, []time.Duration{time.Minute}, 1)
	if err != nil {
		t.Fatal(err)
	}
	j = parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir()))
	j.Forecast.Model = filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(j.Forecast.Model, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return j, id
}

// steadyBins is a history of bins of a second in which as much arrives in each.
func steadyBins(bins int) forecast.Series {
	return forecast.Series{Start: time.Unix(1_800_000_000, 0), Step: time.Second, Values: slices.Repeat([]float64{100}, bins)}
}

// What is trained anew is held against the model that is in use, whatever became of the file that it was read from, of which a person is told once.
func TestRetrainHoldsAgainstWhatIsInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ctr.onnx")
	write := func(n int) string {
		raw, id, err := someModel(20, []time.Duration{time.Minute}, n)
		if err == nil {
			err = os.WriteFile(file, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	used := write(1)
	r := newRetrained(t, fmt.Sprintf("model = %q", file))
	r.started(1)
	if r.s.foresee.model.ID() != used {
		t.Fatal("the job file's model is not in use")
	}
	r.got = ForecastTrained{Origins: 24, From: r.now, Model: 0.03, Current: 0.02, Seasonal: 0.04, Naive: 0.05}
	notes := func(text string) (n int) {
		for _, note := range r.s.View().Notes {
			if strings.Contains(note.Text, file) && strings.Contains(note.Text, text) {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		change func()
		note   string
	}{
		{func() {}, ""},
		{func() { write(2) }, "is another model than the one that was read from it: kale run goes by what it has read until it begins anew"},
		{func() { _ = os.WriteFile(file, []byte("garbage"), 0o600) }, "cannot be used any more ("},
		{func() { _ = os.Remove(file) }, "is not there any more: kale run goes by"},
		{func() { write(1) }, ""},
	} {
		before := notes("")
		tt.change()
		r.beats(3)
		if got := notes(tt.note); tt.note != "" && got != 1 || tt.note == "" && got != before {
			t.Errorf("%d notes say %q: %+v", got, tt.note, r.s.View().Notes)
		}
		r.tried()
		against := r.asked[len(r.asked)-1].Current
		raw, err := os.ReadFile(against)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := forecast.ReadModelInfo(raw); err != nil || info.ID != used || r.s.foresee.model.ID() != used {
			t.Errorf("after %q it is held against %s, model %s: %v", tt.note, against, info.ID, err)
		}
	}
	copied := filepath.Join(r.state, inUseFile)
	for _, tt := range []struct {
		change func() error
		says   string
	}{
		{func() error { return os.WriteFile(copied, []byte("garbage"), 0o600) }, copied + ": the file was changed after it was written: what it holds now is no model ("},
		{func() error { return os.Remove(copied) }, "open " + copied},
	} {
		if err := tt.change(); err != nil {
			t.Fatal(err)
		}
		r.until("a training is given up", func() error {
			if says := r.s.View().Retraining.Says; !strings.Contains(says, "could not be trained anew: the model in use, which it is to be held against, is not to be had: "+tt.says) {
				return errors.New(says)
			}
			return nil
		})
	}
}

// Where next to nothing arrived every error is beyond 100 %, and tells nothing.
func TestRetrainTellsNothingOfNoTraffic(t *testing.T) {
	r := newRetrained(t)
	r.started(1)
	r.got = ForecastTrained{Origins: 24, From: r.now, Model: 854, Current: math.NaN(), Seasonal: 886, Naive: 14493}
	if says := r.tried(); r.s.foresee.model != nil || !strings.Contains(says, "not taken") || !strings.Contains(says, "no better than to expect nothing, whose error is 100 %") {
		t.Errorf("it is promoted, or not told why not: %q", says)
	}
	r.err = context.DeadlineExceeded
	if says := r.tried(); says != "could not be trained anew within 1m, which is how long it may take: set forecast.retrain longer, or use a model that is smaller" {
		t.Errorf("one that takes too long: %q", says)
	}
}

// What learnt of silence to expect none is not better for it: a model that was trained is not taken while next to nothing arrives.
func TestRetrainDoesNotJudgeByNextToNothing(t *testing.T) {
	r := newRetrained(t)
	r.started(1)
	history := forecast.Series{Start: r.now.Add(-200 * time.Second), Step: time.Second}
	for i := range 200 {
		history.Values = append(history.Values, []float64{100, 0.2}[i/100])
	}
	for _, tt := range []struct {
		from  time.Time
		taken bool
		says  string
	}{
		{history.At(100), false, "was not taken: too little traffic to tell: since " + history.At(100).Local().Format(time.DateTime) + " 0.2 records/s arrived on average, of 50 usually"},
		{history.At(90), true, "promoted: its error is 1.00 %"},
	} {
		raw, id, err := someModel(20, []time.Duration{time.Minute}, 1)
		if err != nil {
			t.Fatal(err)
		}
		what := ForecastTraining{History: history, Out: filepath.Join(r.state, candidateFile)}
		if err := os.WriteFile(what.Out, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		got := surely(ForecastTrained{ID: id, Origins: 24, From: tt.from, Model: 0.01, Current: math.NaN(), Seasonal: 400, Naive: 500})
		r.s.want.Retraining = &retraining{Tried: r.now}
		if err := r.s.trained(r.now, &trainingRun{began: r.now, what: what, got: got, cancel: func() {}}); err != nil {
			t.Fatal(err)
		}
		if says := r.s.want.Retraining.Says; !strings.Contains(says, tt.says) || (r.s.foresee.model != nil) != tt.taken {
			t.Errorf("from %v on: taken %v, %q", tt.from, r.s.foresee.model != nil, says)
		}
	}
}

// tried beats until a training has come to something.
func (r *retrained) tried() string {
	r.t.Helper()
	n := len(r.asked)
	r.until("a model is trained anew", func() error {
		if len(r.asked) == n || r.s.training != nil || r.s.want.Retraining.Taking != nil {
			return fmt.Errorf("%d were", len(r.asked))
		}
		return nil
	})
	return r.s.View().Retraining.Says
}

// A model that was trained anew takes the place of the one in use where it is better than that and than seasonal naive, and keeps it over a restart.
func TestRetrainPromotesWhatIsBetter(t *testing.T) {
	r := newRetrained(t)
	r.started(1)
	r.got = ForecastTrained{Origins: 24, From: r.now, Model: 0.03, Current: math.NaN(), Seasonal: 0.02, Naive: 0.05}
	if says := r.tried(); r.s.foresee.model != nil || !strings.Contains(says, "was not taken: its error is 3.00 %, that of seasonal 2.00 %") {
		t.Errorf("one that is worse than seasonal: %q", says)
	}
	if what := r.asked[0]; what.Kind != "linear" || what.Current != "" || what.Horizon != 20 || what.History.Step != time.Second {
		t.Errorf("it was asked to train %+v", what)
	}
	if _, err := r.note("of forecast models, one that was trained anew was not taken: its error is 3.00 %"); err != nil {
		t.Error(err)
	}
	r.got.Model = 0.01
	says := r.tried()
	first := r.s.want.Retraining.Promoted
	if r.s.foresee.model == nil || r.s.foresee.model.ID() != first || !strings.Contains(says, "promoted: its error is 1.00 %, that of seasonal 2.00 %") {
		t.Fatalf("one that is better: %q, model %v in use, %q promoted", says, r.s.foresee.model, first)
	}
	if _, err := r.note("a forecast model that was trained anew is in use: its error is 1.00 %"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.state, candidateFile)); err == nil {
		t.Error("what was trained is left behind")
	}

	r.reopen()
	r.s.opt.TrainForecast = r.train
	if m := r.s.foresee.model; m == nil || m.ID() != first {
		t.Fatalf("after a restart model %v is in use, want %s", m, first)
	}
	r.beat()
	if v := r.s.View().Retraining; v == nil || v.Model != first || !strings.Contains(v.Says, "promoted") || v.Last.IsZero() {
		t.Errorf("after a restart it says %+v", v)
	}
	r.got.Model, r.got.Current = 0.012, 0.01
	if says := r.tried(); r.s.foresee.model.ID() != first || !strings.Contains(says, "was not taken: its error is 1.20 %, that of the one in use 1.00 %") {
		t.Errorf("one that is worse than the one in use: %q", says)
	}
	if what := r.asked[len(r.asked)-1]; what.Current != filepath.Join(r.state, promotedFile) {
		t.Errorf("it is held against %q", what.Current)
	}
	r.got.Model, r.got.FallsBack = 0.009, true
	if says := r.tried(); r.s.foresee.model.ID() != first || !strings.HasSuffix(says, "; seasonal is so much better that it would be used instead (forecast.gate_tolerance)") {
		t.Errorf("one that the gate would not use is taken, or it is not told why not: %q", says)
	}
	r.got.FallsBack, r.got.Naive = false, 0.008
	if r.tried(); r.s.foresee.model.ID() != first {
		t.Error("one that is worse than seasonal naive is taken")
	}
	r.got.Naive = math.NaN()
	if says := r.tried(); r.s.foresee.model.ID() != first || !strings.Contains(says, "too little is known") {
		t.Errorf("one that cannot be compared: %q", says)
	}
	r.got.Naive = 0.05
	if r.tried(); r.s.foresee.model.ID() == first || r.s.foresee.model.ID() != r.s.want.Retraining.Promoted {
		t.Error("one that is better than the one in use is not taken")
	}
	// What came of each is kept, the refused ones too, and no more than the last of them.
	past := r.s.want.Retraining.Past
	if len(past) != 8 || past[0].Promoted || !strings.Contains(past[0].Says, "was not taken: its error is 3.00 %") || !past[1].Promoted || !past[7].Promoted || past[2].At.IsZero() {
		t.Errorf("it is kept that %+v", past)
	}
	if kept, err := RetrainedIn(r.s.store); err != nil || !slices.EqualFunc(kept, past, func(a, b Retrained) bool { return a.At.Equal(b.At) && a.Promoted == b.Promoted && a.Says == b.Says }) {
		t.Errorf("of its state: %v, %v", kept, err)
	}
	for range retrainingsKept {
		r.s.want.Retraining.keep(r.now, false)
	}
	if n := len(r.s.want.Retraining.Past); n != retrainingsKept {
		t.Errorf("%d are kept", n)
	}
	// A promoted file that was changed or removed is told of as an event, with its name and what helps, and the job goes on with what the job file says.
	path, promoted := filepath.Join(r.state, promotedFile), r.s.want.Retraining.Promoted
	other, otherID, err := someModel(20, []time.Duration{time.Minute}, 77)
	if err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func() error{
		"it was changed after its promotion: what it holds now is no model (": func() error { return os.WriteFile(path, []byte("garbage"), 0o600) },
		"it was changed after its promotion: it held model " + promoted + ", and holds model " + otherID + " now. The job file's is used instead, until one that is trained anew is better: put the file back from a copy and begin kale run anew, or let it be": func() error {
			return os.WriteFile(path, other, 0o600)
		},
		"it was removed after its promotion. The job file's": func() error { return os.Remove(path) },
	} {
		r.s.sparing.Wait()
		if err := errors.Join(os.Remove(filepath.Join(r.state, spareFile)), change()); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		r.reopen()
		r.beat()
		if r.s.foresee.model != nil {
			t.Errorf("%s: it is in use", says)
		}
		if _, err := r.note("of forecast models, the promoted one, " + path + ", cannot be used: " + says); err != nil {
			t.Error(err)
		}
	}
	r.s.want.Retraining.Over = "the ID of another file" // that the job file named
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	if r.reopen(); r.s.foresee.model != nil {
		t.Error("a model that was promoted over another file is used")
	}
}

// A model of another kind is trained anew as what it is, with the input that it has; beside the ensemble, which has no file, one is trained and held against that.
func TestRetrainKeepsTheKind(t *testing.T) {
	onnxtest.Library(t)
	file := filepath.Join(t.TempDir(), "m.onnx")
	s := forecast.Series{Start: time.Unix(1_800_000_000, 0), Step: time.Second}
	for i := range 900 {
		s.Values = append(s.Values, 100+50*math.Sin(float64(i)/60*2*math.Pi)+float64((i*7)%11))
	}
	for kind, input := range map[string]int{forecast.NLinear: 24, forecast.SparseTSF: 0, job.ForecastEnsemble: 0} {
		model := kind
		if kind != job.ForecastEnsemble {
			raw, _, err := forecast.TrainWindowModel(s, kind, forecast.LinearOptions{Horizon: 20, Seasons: []time.Duration{time.Minute}, Input: input})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			model = file
		}
		r := &retrained{rig: newRig(t, rigOptions{change: func(text string) string {
			return strings.Replace(text, `history  = "1m"`, fmt.Sprintf("history  = \"10m\"\n    retrain  = \"2s\"\n    model = %q", model), 1)
		}})}
		r.s.opt.TrainForecast = r.train
		r.started(1)
		r.got = ForecastTrained{Origins: 24, From: r.now, Model: 0.03, Current: 0.02, Seasonal: 0.04, Naive: 0.05}
		says := r.tried()
		what := r.asked[0]
		want := kind
		if kind == job.ForecastEnsemble {
			want = forecast.Linear
		}
		against := model
		if r.s.foresee.model != nil {
			against = filepath.Join(r.state, inUseFile)
		}
		if what.Kind != want || what.Input != input || what.Current != against || !strings.Contains(says, "that of the one in use 2.00 %") {
			t.Errorf("%s: it was asked to train %+v: %s", kind, what, says)
		}
		if kind == job.ForecastEnsemble {
			if u := r.s.foresee.gate.State(); u.Primary != "ensemble" {
				t.Errorf("the gate's first is %q", u.Primary)
			}
		}
	}
}

// A training that fails changes nothing, and is told; one that cannot be taken up again is not either.
func TestRetrainFails(t *testing.T) {
	r := newRetrained(t)
	r.started(1)
	r.err = errors.New("signal: killed")
	if says := r.tried(); says != "could not be trained anew: signal: killed" {
		t.Errorf("it says %q", says)
	}
	if _, err := r.note("the forecast model could not be trained anew: signal: killed"); err != nil {
		t.Error(err)
	}
	r.err = nil
	r.got = ForecastTrained{Origins: 24, From: r.now, Model: 0.01, Seasonal: 0.02, Naive: 0.05}
	if r.tried(); r.s.foresee.model == nil {
		t.Fatal("it is not promoted")
	}
	r.s.sparing.Wait()
	for _, name := range []string{promotedFile, spareFile} {
		if err := os.WriteFile(filepath.Join(r.state, name), []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r.reopen(); r.s.foresee.model != nil {
		t.Error("garbage is used")
	}
	r.beats(2)
	if r.s.last == nil {
		t.Error("nothing is decided")
	}
}

// While a model is trained, looks and decisions go on; a stop, and the scheduler's end, end it.
func TestRetrainDelaysNothing(t *testing.T) {
	r := newRetrained(t)
	r.started(1)
	r.s.spawn = func(f func()) { go f() }
	ended := make(chan struct{})
	var begun atomic.Int32
	r.s.opt.TrainForecast = func(ctx context.Context, _ ForecastTraining) (ForecastTrained, error) {
		begun.Add(1)
		<-ctx.Done()
		close(ended)
		return ForecastTrained{}, ctx.Err()
	}
	r.until("a training is under way", func() error {
		if r.s.training == nil {
			return errors.New("there is none")
		}
		return nil
	})
	was := Retrained{At: r.now.Add(-time.Hour), Says: "of an hour ago"}
	r.s.want.Retraining.Past, r.s.want.Retraining.Says = []Retrained{was}, was.Says
	before := r.decision().At
	r.beats(12)
	if at := r.decision().At; at.Sub(before) < 10*time.Second || begun.Load() != 1 {
		t.Errorf("beside a training the last decision is of %v after it began; %d were begun", at.Sub(before), begun.Load())
	}
	if v := r.s.View().Retraining; v == nil || !v.Next.IsZero() || v.Says != was.Says || !v.Last.Equal(was.At) {
		t.Errorf("it says %+v", v)
	}
	r.order("stop", 0)
	r.beat()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the stop does not end it")
	}
	if r.s.training != nil {
		t.Error("it is under way still")
	}
}

// After a restart with another model file, what forecasts are made by is told with the file that is in use.
func TestAnotherModelNamesItsFile(t *testing.T) {
	onnxtest.Library(t)
	j, id := modelled(t)
	file := j.Forecast.Model
	f, err := newForesight(slog.New(slog.DiscardHandler), j, json.RawMessage(`{"Version":1,"Using":"onnx:old"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	s := steadyBins(300)
	f.forecast(s.End(), s)
	if says := f.changed; f.model.ID() != id || !strings.HasPrefix(says, "forecasts are made by onnx:linear now, and no longer by onnx:old, which is not what the job names any more; ") || !strings.HasSuffix(says, "; its file is "+file) {
		t.Errorf("it says %q", says)
	}
}

// A training that the scheduler's end has cut short is begun again by the next one, and not only when the next is due: once, since it may be what ends the scheduler.
func TestTrainingThatIsCutShort(t *testing.T) {
	r := newRetrained(t)
	r.started(1)
	r.job.Forecast.Retrain = 24 * time.Hour
	begun := 0
	open := func() {
		r.s.spawn = func(f func()) { go f() }
		r.s.opt.TrainForecast = func(ctx context.Context, _ ForecastTraining) (ForecastTrained, error) {
			<-ctx.Done()
			return ForecastTrained{}, ctx.Err()
		}
		before := r.s.want.Retraining.Tried
		r.beats(3)
		if r.s.training != nil && r.s.want.Retraining.Tried.After(before) {
			begun++
		}
		r.s.endTraining()
	}
	r.s.want.Retraining = &retraining{Tried: r.now.Add(-25 * time.Hour)}
	for n, want := range []int{1, 2, 2, 2} {
		if open(); begun != want {
			t.Errorf("after %d schedulers it was begun %d times, want %d", n+1, begun, want)
		}
		r.reopen()
	}
	r.s.want.Retraining.Tried = r.now.Add(-25 * time.Hour)
	if open(); begun != 3 {
		t.Error("it is not begun when the next is due")
	}
	r.reopen()
	if open(); begun != 4 {
		t.Error("the next one is not begun again")
	}
	r.reopen()
	r.s.opt.TrainForecast, r.err = r.train, errors.New("signal: killed")
	r.s.want.Retraining.Begun = 1
	if says := r.tried(); says != "could not be trained anew: signal: killed" || r.s.want.Retraining.Begun != 0 {
		t.Errorf("%q, %+v", says, r.s.want.Retraining)
	}
}

// What a scheduler that was killed has left of its trainings goes when the next one begins, though the job has none any more; what was promoted stays.
func TestLeftoversOfTrainingsGo(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	left := []string{candidateFile, candidateFile + ".part", candidateFile + ".part.lock", candidateFile + ".csv", inUseFile}
	for _, name := range append(left, promotedFile) {
		if err := os.WriteFile(filepath.Join(r.state, name), []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.reopen()
	for _, name := range left {
		if _, err := os.Stat(filepath.Join(r.state, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if _, err := os.Stat(filepath.Join(r.state, promotedFile)); err != nil {
		t.Error(err)
	}
}

// Of bins of seconds the beginning of what was measured is told to the second: by the minute it would be another window.
func TestRetrainingTellsItsWindowByItsBins(t *testing.T) {
	from := time.Date(2026, 3, 1, 10, 4, 37, 0, time.Local)
	for step, want := range map[time.Duration]string{time.Second: "since 2026-03-01 10:04:37", time.Minute: "since 2026-03-01 10:04"} {
		got := ForecastTrained{Origins: 100, From: from, Step: step, Model: 0.1, Current: 0.2, Seasonal: 0.3, Naive: 0.4}
		if _, says := got.better(rival{}); !strings.Contains(says+";", want+";") && !strings.Contains(says+":", want+":") {
			t.Errorf("of bins of %v: %s", step, says)
		}
	}
}
