package forecast

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scripted is a forecaster of the repeating cycle that is wrong by the factor
// that wrong gives for the end of the history, or fails with the error.
type scripted struct {
	name  string
	wrong func(end time.Time) (float64, error)
}

func (s scripted) Name() string { return s.name }

func (s scripted) Forecast(history Series, steps int) (Forecast, error) {
	factor, err := s.wrong(history.End())
	if err != nil {
		return Forecast{}, err
	}
	f := Forecast{At: history.End(), Step: history.Step, Source: s.name}
	for h := range steps {
		v := factor * cycle(float64(history.Bin(f.At)+h)/120)
		f.Mean, f.Lower, f.Upper = append(f.Mean, v), append(f.Lower, v), append(f.Upper, v)
	}
	return f, nil
}

// always is wrong by the same factor at all times.
func always(factor float64) func(time.Time) (float64, error) {
	return func(time.Time) (float64, error) { return factor, nil }
}

func newGate(t testing.TB, primary, fallback Forecaster) *Gate {
	t.Helper()
	g, err := NewGate(primary, fallback, GateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// live runs a gate on the demo's series, one tick per bin from bin from to bin to,
// and returns every verdict.
func live(t testing.TB, g *Gate, s Series, from, to int) []Verdict {
	t.Helper()
	var out []Verdict
	for i := from; i < to; i++ {
		f, v, err := g.Forecast(s.At(i), s.Until(s.At(i)), 20)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Validate(); err != nil {
			t.Fatal(err)
		}
		if f.Source != v.Using || v.FallenBack != strings.Contains(f.Note, " instead of ") || v.Reason == "" {
			t.Fatalf("bin %d: the forecast by %q notes %q, and the verdict is %+v", i, f.Source, f.Note, v)
		}
		out = append(out, v)
	}
	return out
}

// exactDemo is a long series of which scripted{wrong: 1} knows every bin.
func exactDemo() Series {
	return synthetic(2000, time.Second, func(i int) float64 { return cycle(float64(i) / 120) })
}

func TestGateFallsBackAndComesBack(t *testing.T) {
	s := exactDemo()
	model := scripted{"model", func(end time.Time) (float64, error) {
		if b := s.Bin(end); b >= 600 && b < 900 {
			return 1.5, nil // The model is half too high for five minutes.
		}
		return 1.02, nil
	}}
	g := newGate(t, model, scripted{"seasonal", always(1.05)})
	verdicts := live(t, g, s, 400, 1300)
	var changes []int
	for i, v := range verdicts {
		if v.Changed {
			changes = append(changes, 400+i)
		}
	}
	// Falling back takes the errors that it takes to be sure, coming back the time
	// for the bad forecasts to leave the window of 120 bins. And then it is quiet.
	if len(changes) != 2 || changes[0] < 600 || changes[0] > 630 || changes[1] < 900 || changes[1] > 1060 {
		t.Fatalf("the choice changes at bins %v, want once soon after 600 and once within 160 after 900", changes)
	}
	during := verdicts[changes[0]-400]
	if during.Using != "seasonal" || !during.FallenBack || !during.Trusted {
		t.Errorf("when it falls back the verdict is %+v", during)
	}
	if want := "that of seasonal is 5.0 %"; !strings.Contains(during.Why, want) {
		t.Errorf("the reason is %q, want %q in it", during.Why, want)
	}
	back := verdicts[changes[1]-400]
	for _, c := range []struct {
		v          Verdict
		used, left Score
		names      [2]string
	}{{during, during.Fallback, during.Primary, [2]string{"seasonal", "model"}}, {back, back.Primary, back.Fallback, [2]string{"model", "seasonal"}}} {
		want := fmt.Sprintf("forecasts are made by %s now, and no longer by %s; over the same %d forecasts of %d bins the recent error of %s is %.1f %%, and that of %s is %.1f %%",
			c.names[0], c.names[1], c.used.Bins, c.used.Distinct, c.names[0], 100*c.used.WAPE, c.names[1], 100*c.left.WAPE)
		if c.names[0] == "model" && c.used.WAPE > c.left.WAPE {
			want += "; a model is preferred where the two are about level, and set aside where it is more than 10 % worse"
		}
		if c.v.Change != want || c.used.Bins < 40 || c.used.Distinct < 20 || c.used.Distinct > 120 {
			t.Errorf("of the change it says %q, want %q", c.v.Change, want)
		}
	}
	if last := verdicts[len(verdicts)-1]; last.Using != "model" || last.FallenBack || math.Abs(last.Recent.WAPE-0.02) > 1e-3 {
		t.Errorf("at the end the verdict is %+v", last)
	}
}

// Who reads that a model is in use again, the recent error of which is a little greater, is told why.
func TestGateSaysWhyTheWorseIsInUse(t *testing.T) {
	g := newGate(t, scripted{"model", always(1)}, scripted{"seasonal", always(1)})
	const why = "; a model is preferred where the two are about level, and set aside where it is more than 10 % worse"
	for _, c := range []struct {
		primary, fallback float64
		fallenBack, says  bool
	}{{0.539, 0.538, false, true}, {0.537, 0.538, false, false}, {0.7, 0.538, true, false}} {
		v := Verdict{Using: "model", FallenBack: c.fallenBack, Primary: Score{Bins: 100, Distinct: 50, WAPE: c.primary}, Fallback: Score{Bins: 100, Distinct: 50, WAPE: c.fallback}}
		before := "seasonal"
		if c.fallenBack {
			v.Using, before = before, v.Using
		}
		if got := g.change(before, v, nil, nil); strings.HasSuffix(got, why) != c.says {
			t.Errorf("of %v and %v it says %q", c.primary, c.fallback, got)
		}
	}
}

func TestGateDoesNotFlap(t *testing.T) {
	s := exactDemo()
	// Now a little better, now a little worse, always within the tolerance.
	model := scripted{"model", func(end time.Time) (float64, error) {
		return 1.10 + 0.008*math.Sin(float64(s.Bin(end))/20), nil
	}}
	for i, v := range live(t, newGate(t, model, scripted{"seasonal", always(1.10)}), s, 400, 1400) {
		if v.Changed || v.FallenBack {
			t.Fatalf("bin %d: %+v; an error within the tolerance must not matter", 400+i, v)
		}
	}
}

func TestGateSurvivesFailures(t *testing.T) {
	s := exactDemo()
	broken := errors.New("the model is broken")
	model := scripted{"model", func(end time.Time) (float64, error) {
		if b := s.Bin(end); b >= 600 && b < 610 {
			return 0, broken
		}
		return 1, nil
	}}
	verdicts := live(t, newGate(t, model, scripted{"seasonal", always(1.05)}), s, 400, 700)
	for i, v := range verdicts {
		failing := 400+i >= 600 && 400+i < 610
		if v.Changed && (failing != strings.HasPrefix(v.Change, "forecasts are made by seasonal now, and no longer by model, which gave none: the model is broken; over the same") || !strings.Contains(v.Change, "that of")) {
			t.Errorf("of the change at bin %d it says %q", 400+i, v.Change)
		}
		if v.FallenBack != failing || failing && !strings.Contains(v.Why, broken.Error()) {
			t.Fatalf("bin %d: %+v", 400+i, v)
		}
	}
	none := errors.New("no season yet")
	g := newGate(t, scripted{"model", always(1)}, scripted{"seasonal", func(time.Time) (float64, error) { return 0, none }})
	for _, v := range live(t, g, s, 400, 500) {
		if v.Using != "model" {
			t.Fatalf("without a fallback that answers: %+v", v)
		}
	}
	fail := func(err error) func(time.Time) (float64, error) {
		return func(time.Time) (float64, error) { return 0, err }
	}
	g = newGate(t, scripted{"model", fail(broken)}, scripted{"seasonal", fail(none)})
	_, v, err := g.Forecast(s.At(400), s.Until(s.At(400)), 20)
	if !errors.Is(err, broken) || !errors.Is(err, none) || v.Trusted || v.Reason == "" {
		t.Errorf("when both fail: %v, %+v", err, v)
	}
}

// An error that has no bound is said in words.
func TestScoreInWords(t *testing.T) {
	for wape, want := range map[float64]string{
		0.081:       "8.1 % over 360 forecasts of 120 bins",
		10:          "1000.0 % over 360 forecasts of 120 bins",
		728.764:     "more than ten times the traffic over 360 forecasts of 120 bins",
		math.Inf(1): "more than ten times the traffic over 360 forecasts of 120 bins",
	} {
		if got := (Score{WAPE: wape, Bins: 360, Distinct: 120}).String(); got != want {
			t.Errorf("%v is %q, want %q", wape, got, want)
		}
	}
}

// taught is a model that says until when it was trained.
type taught struct {
	scripted
	until time.Time
}

func (m taught) TrainedUntil() time.Time { return m.until }

// What a model says of bins that it was trained on flatters it: the score says so, until enough others have come.
func TestGateSaysWhatAModelWasTrainedOn(t *testing.T) {
	s := exactDemo()
	model := scripted{"model", always(1.05)}
	for _, tt := range []struct {
		until int
		want  string
	}{
		{400, "the recent error of model is 5.0 % over 450 forecasts of 120 bins that it was trained on"},
		{350, "the recent error of model is 5.0 % over 170 forecasts of 50 bins"},
		{385, "the recent error of model is 5.0 % over 450 forecasts of 120 bins, 420 of which it was trained on"},
	} {
		g := newGate(t, taught{model, s.At(tt.until)}, scripted{"seasonal", always(1.2)})
		if _, err := g.Warm(s.Until(s.At(400)), 20); err != nil {
			t.Fatal(err)
		}
		if v := live(t, g, s, 400, 401)[0]; v.Reason != tt.want {
			t.Errorf("trained until bin %d: %q, want %q", tt.until, v.Reason, tt.want)
		}
	}
}

func TestGateTrust(t *testing.T) {
	s := exactDemo()
	t.Run("not before it is scored", func(t *testing.T) {
		verdicts := live(t, newGate(t, scripted{"model", always(1)}, scripted{"seasonal", always(1)}), s, 400, 460)
		if verdicts[0].Trusted || !strings.Contains(verdicts[0].Reason, "scored on 0 forecasts of bins that have come; 40 are needed") {
			t.Errorf("the first verdict is %+v", verdicts[0])
		}
		if !verdicts[59].Trusted {
			t.Errorf("after a minute the verdict is %+v", verdicts[59])
		}
	})
	t.Run("at once when warm", func(t *testing.T) {
		g := newGate(t, scripted{"model", always(1.5)}, scripted{"seasonal", always(1.05)})
		if n, err := g.Warm(s.Until(s.At(400)), 20); err != nil || n != 24 {
			t.Fatalf("warm: %d origins, %v", n, err)
		}
		v := live(t, g, s, 400, 401)[0]
		if !v.Trusted || v.Using != "seasonal" || !v.FallenBack {
			t.Errorf("the first verdict after a warm start is %+v", v)
		}
	})
	t.Run("not when both are bad, and again when one is good", func(t *testing.T) {
		bad := func(end time.Time) (float64, error) {
			if b := s.Bin(end); b >= 600 && b < 800 {
				return 2, nil
			}
			return 1.03, nil
		}
		verdicts := live(t, newGate(t, scripted{"model", bad}, scripted{"seasonal", bad}), s, 400, 1100)
		if v := verdicts[250]; v.Trusted || !strings.Contains(v.Reason, "it is trusted ") {
			t.Errorf("while both are wrong by a factor of two: %+v", v)
		}
		if v := verdicts[650]; !v.Trusted {
			t.Errorf("when they are good again: %+v", v)
		}
	})
	t.Run("not when the history is old or ends in a gap", func(t *testing.T) {
		g := newGate(t, nil, scripted{"seasonal", always(1)})
		live(t, g, s, 400, 500)
		if _, v, err := g.Forecast(s.At(505), s.Until(s.At(500)), 20); err != nil || !v.Trusted {
			t.Errorf("5 s after the last bin: %+v, %v", v, err)
		}
		if _, v, err := g.Forecast(s.At(530).Add(191895712), s.Until(s.At(500)), 20); err != nil || v.Trusted || v.Reason != "the last measurement is 30.2s old; a forecast of 20s is trusted up to 5s" {
			t.Errorf("30 s after the last bin: %+v, %v", v, err)
		}
		gap := exactDemo()
		for i := 470; i < 500; i++ {
			gap.Values[i] = math.NaN()
		}
		if _, v, err := g.Forecast(s.At(500), gap.Until(s.At(500)), 20); err != nil || v.Trusted {
			t.Errorf("with 30 unknown bins at the end: %+v, %v", v, err)
		}
	})
}

func TestGateStateSurvivesARestart(t *testing.T) {
	s := exactDemo()
	model := scripted{"model", func(end time.Time) (float64, error) { return 1.2 + 0.2*math.Sin(float64(s.Bin(end))/70), nil }}
	fallback := scripted{"seasonal", always(1.2)}
	whole := live(t, newGate(t, model, fallback), s, 400, 1000)

	g := newGate(t, model, fallback)
	restarted := live(t, g, s, 400, 700)
	b, err := json.Marshal(g.State())
	if err != nil {
		t.Fatal(err)
	}
	var st GateState
	if err := json.Unmarshal(b, &st); err != nil {
		t.Fatal(err)
	}
	g = newGate(t, model, fallback)
	if err := g.Restore(st); err != nil {
		t.Fatal(err)
	}
	restarted = append(restarted, live(t, g, s, 700, 1000)...)
	if diff := cmp.Diff(whole, restarted); diff != "" {
		t.Errorf("a restart changes verdicts (-whole +restarted):\n%s", diff)
	}
	if n := len(g.State().Kept); n > 2*keptPerWindow {
		t.Errorf("it keeps %d forecasts", n)
	}

	other := newGate(t, scripted{"new model", always(1)}, fallback)
	if err := other.Restore(st); err != nil {
		t.Fatal(err)
	}
	v := live(t, other, s, 700, 701)[0]
	if v.Using != "new model" || v.Primary.Bins != 0 || v.FallenBack {
		t.Errorf("a new model inherits the scores of the old one: %+v", v)
	}
	st.Version = 99
	if err := other.Restore(st); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("a state of another version: %v", err)
	}
}

func TestGateReplace(t *testing.T) {
	s := exactDemo()
	g := newGate(t, scripted{"old", always(2)}, scripted{"seasonal", always(1.05)})
	if v := live(t, g, s, 400, 500); !v[99].FallenBack {
		t.Fatalf("the old model is wrong by a factor of two, and the verdict is %+v", v[99])
	}
	g.Replace(scripted{"new", always(1)})
	if _, err := g.Warm(s.Until(s.At(500)), 20); err != nil {
		t.Fatal(err)
	}
	v := live(t, g, s, 500, 501)[0]
	if v.Using != "new" || !v.Trusted || v.Primary.WAPE > 1e-6 || v.Primary.Bins < 40 {
		t.Errorf("the first verdict with the new model is %+v", v)
	}
}

func TestGateIsCausal(t *testing.T) {
	a, b := exactDemo(), exactDemo()
	for i := 700; i < len(b.Values); i++ {
		b.Values[i] = 7
	}
	run := func(s Series) []Verdict {
		return live(t, newGate(t, scripted{"model", always(1.1)}, NewNaive(2*time.Minute)), s, 660, 701)
	}
	if diff := cmp.Diff(run(a), run(b)); diff != "" {
		t.Errorf("what comes after bin 700 changes verdicts before it:\n%s", diff)
	}
}

func TestNewGateErrors(t *testing.T) {
	if _, err := NewGate(nil, nil, GateOptions{}); err == nil {
		t.Error("a gate without a fallback is accepted")
	}
	if _, err := NewGate(nil, NewSeasonal(nil), GateOptions{MaxWAPE: -1}); err == nil {
		t.Error("a negative bound is accepted")
	}
	g := newGate(t, nil, NewSeasonal([]time.Duration{2 * time.Minute}))
	if _, v, err := g.Forecast(epoch, Series{Start: epoch, Step: time.Second}, 20); !errors.Is(err, ErrShortHistory) || v.Trusted {
		t.Errorf("of an empty history: %v, %+v", err, v)
	}
}

// Where next to nothing arrives, a forecaster that expects nothing is right, and no other is the worse for it: the gate goes on with what it used. When traffic is
// back it judges again.
func TestGateDoesNotJudgeByNextToNothing(t *testing.T) {
	const quiet, back = 1000, 1400
	for name, left := range map[string]float64{"silence": 0, "a trickle": 0.002} {
		s := synthetic(2000, time.Second, func(i int) float64 {
			if i >= quiet && i < back {
				return left * cycle(float64(i)/120)
			}
			return cycle(float64(i) / 120)
		})
		learns := func(end time.Time) (float64, error) { // as soon as there is nothing else in the gate's window
			if s.Bin(end) < quiet+120 {
				return 1.5, nil
			}
			return left, nil
		}
		fallen := newGate(t, scripted{"model", learns}, scripted{"seasonal", always(1)}) // the model was worse while something came
		live(t, fallen, s, 600, quiet)
		if v := live(t, fallen, s, quiet, back); !v[0].FallenBack || !v[len(v)-1].FallenBack {
			t.Errorf("%s: a model that expects that takes over from seasonal: %+v", name, v[len(v)-1])
		}
		better := newGate(t, scripted{"model", always(1)}, scripted{"seasonal", learns}) // and this one was better
		live(t, better, s, 600, quiet)
		if v := live(t, better, s, quiet, back); v[0].FallenBack || v[len(v)-1].FallenBack {
			t.Errorf("%s: seasonal takes over from a model: %+v", name, v[len(v)-1])
		}
		turned := newGate(t, scripted{"model", func(end time.Time) (float64, error) {
			if s.Bin(end) >= back {
				return 2, nil
			}
			return 1, nil
		}}, scripted{"seasonal", always(1)})
		if v := live(t, turned, s, back, 2000); !v[len(v)-1].FallenBack {
			t.Errorf("%s: it does not judge when traffic is back: %+v", name, v[len(v)-1])
		}
	}
}
