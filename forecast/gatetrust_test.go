package forecast

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// What is trusted depends on what is usual: an error that is so always is the traffic's, and one that is new is the forecaster's.
func TestTrustIsRelativeToWhatIsUsual(t *testing.T) {
	t.Parallel()
	s := synthetic(4000, time.Second, func(i int) float64 { return cycle(float64(i) / 120) })
	const from, change, to = 400, 2200, 2800
	for _, c := range []struct {
		name           string
		usual, now     float64 // WAPE
		before, after  bool    // trusted
		reason, atOnce string  // after, and at bin 600
	}{
		{"noise is trusted when it is known to be usual", 0.4, 0.4, true, true, "the recent error of seasonal is 40.0 %", "it is trusted again below 28.0 %, four fifths of the 35.0 % up to which it was"},
		{"noise that doubles is not", 0.4, 0.9, true, false, "it is trusted again below 56.0 %, four fifths of the 70.0 % up to which it was, since usually it is 40.0 %", "it is trusted again below 28.0 %, four fifths of the 35.0 % up to which it was"},
		{"20 % is not where 3 % is usual", 0.03, 0.2, true, false, "it is trusted again below 12.0 %, four fifths of the 15.0 % up to which it was, since usually it is 3.0 %", ""},
		{"10 % is, all the same", 0.03, 0.1, true, true, "", ""},
		{"30 % is where 8 % is usual", 0.08, 0.3, true, true, "", ""},
		{"18 % is not where 2 % is", 0.02, 0.18, true, false, "it is trusted again below 12.0 %, four fifths of the 15.0 % up to which it was, since usually it is 2.0 %", ""},
		{"20 % is where 15 % is usual", 0.15, 0.2, true, true, "", ""},
		{"what misses nearly all is never", 0.9, 0.9, false, false, "it is trusted again below 56.0 %, four fifths of the 70.0 % up to which it was, since usually it is 90.0 %", "it is trusted again below 28.0 %, four fifths of the 35.0 % up to which it was"},
	} {
		g := newGate(t, nil, scripted{"seasonal", func(end time.Time) (float64, error) {
			if s.Bin(end) < change {
				return 1 + c.usual, nil
			}
			return 1 + c.now, nil
		}})
		verdicts := live(t, g, s, from, change)
		b, err := json.Marshal(g.State())
		if err != nil {
			t.Fatal(err)
		}
		var saved GateState
		if err := json.Unmarshal(b, &saved); err != nil {
			t.Fatal(err)
		}
		if err := g.Restore(saved); err != nil { // what is usual survives a restart
			t.Fatal(err)
		}
		verdicts = append(verdicts, live(t, g, s, change, to)...)
		if v := verdicts[600-from]; !strings.Contains(v.Reason, c.atOnce) || v.Trusted != (c.atOnce == "") {
			t.Errorf("%s: before it is known what is usual the verdict is %v, %s", c.name, v.Trusted, v.Reason)
		}
		if v := verdicts[change-from-1]; v.Trusted != c.before || !v.Scored {
			t.Errorf("%s: with an error as usual the verdict is %v, %s", c.name, v.Trusted, v.Reason)
		}
		if v := verdicts[to-from-1]; v.Trusted != c.after || !v.Scored || !strings.Contains(v.Reason, c.reason) {
			t.Errorf("%s: at the end the verdict is %v, %s", c.name, v.Trusted, v.Reason)
		}
	}
}

// Another forecaster's past errors do not tell what is usual for one, and a state that cannot be is refused.
func TestPastScoresAreOfOneForecaster(t *testing.T) {
	t.Parallel()
	at := epoch
	var st GateState
	st.Version, st.Fallback = gateStateVersion, "seasonal"
	for i := range 12 {
		st.Past = append(st.Past, PastScore{At: at.Add(time.Duration(i) * time.Hour), Using: "onnx:old@1", WAPE: 0.3})
	}
	g := newGate(t, nil, scripted{"seasonal", always(1)})
	if err := g.Restore(st); err != nil || len(g.State().Past) != 0 {
		t.Errorf("of a forecaster that is there no more %d scores are kept, %v", len(g.State().Past), err)
	}
	st.Past[3].At = at
	if err := g.Restore(st); err == nil || !strings.Contains(err.Error(), "past score 3") {
		t.Errorf("of scores out of order: %v", err)
	}
}

// A bin that is a fault does not end the trust in a forecast, nor the use of a model.
func TestFaultDoesNotMoveTheGate(t *testing.T) {
	t.Parallel()
	s := with(exactDemo(), map[int]float64{700: 1e6, 900: 0, 1100: 1e6})
	for i, v := range live(t, newGate(t, scripted{"model", always(1.03)}, scripted{"seasonal", always(1.03)}), s, 400, 1300) {
		if i > 60 && (!v.Trusted || v.Changed || v.Recent.WAPE > 0.05) {
			t.Fatalf("at bin %d the verdict is %+v", 400+i, v)
		}
	}
}

// That one model was not trusted says nothing of the next: it has not to be better than others for it.
func TestDoubtEndsWithTheModel(t *testing.T) {
	s := exactDemo()
	old := newGate(t, scripted{"old", always(2)}, scripted{"seasonal", always(2)})
	if v := live(t, old, s, 400, 500); v[99].Trusted {
		t.Fatalf("forecasts of twice what comes are trusted: %+v", v[99])
	}
	restored := newGate(t, scripted{"new", always(1.3)}, scripted{"seasonal", always(2)})
	if err := restored.Restore(old.State()); err != nil {
		t.Fatal(err)
	}
	old.Replace(scripted{"new", always(1.3)})
	for name, g := range map[string]*Gate{"replaced": old, "restored": restored} {
		if _, err := g.Warm(s.Until(s.At(500)), 20); err != nil {
			t.Fatal(err)
		}
		if v := live(t, g, s, 500, 501)[0]; v.Using != "new" || !v.Trusted { // 30 % is less than 35 %, and more than four fifths of it
			t.Errorf("%s: the verdict on the new model is %+v", name, v)
		} else if why := map[string]string{"replaced": ", the place of which was taken by new", "restored": ", which is not what the job names any more"}[name]; !strings.Contains(v.Change, why+"; the recent error of new is 30.0 %") {
			t.Errorf("%s: it says %q", name, v.Change)
		}
	}
}
