package forecast

import (
	"math"
	"strings"
	"testing"
	"time"
)

// eventWeek are ten days of bins of 10 minutes, of which the ninth has an event of four hours that came with a strength of its own, with a little noise.
func eventWeek(came float64) (truth Series, from, to time.Time) {
	truth = days(10)
	for i := range truth.Values {
		truth.Values[i] *= 1 + 0.03*math.Sin(7.7*float64(i)*float64(i)) // the same at each run
	}
	from = truth.Start.Add(8*24*time.Hour + 9*time.Hour)
	to = from.Add(4 * time.Hour)
	scale(truth, from, to, came)
	return truth, from, to
}

// wapeAt is the error of the bins from one moment to another, as forecast one to twelve bins ahead from every second bin in between.
func wapeAt(t *testing.T, f Forecaster, truth Series, from, to time.Time) float64 {
	t.Helper()
	missed, came := 0.0, 0.0
	for at := from; at.Before(to); at = at.Add(2 * truth.Step) {
		got, err := f.Forecast(truth.Until(at), 12)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Validate(); err != nil {
			t.Fatal(err)
		}
		for h, v := range got.Mean {
			if i := truth.Bin(at) + h; i < truth.Bin(to) {
				missed, came = missed+math.Abs(v-truth.Values[i]), came+truth.Values[i]
			}
		}
	}
	return missed / came
}

// An event that does not come, or comes weaker or stronger than declared, is taken as it comes after its first bins; one that comes as declared as before. The day after it, and the
// same time a day later, are as if it had not been.
func TestEventTakenAsItComes(t *testing.T) {
	t.Parallel()
	seasons := []time.Duration{24 * time.Hour}
	for _, c := range []struct {
		name           string
		declared, came float64
		says           string
	}{
		{"as declared", 3, 3, ""},
		{"not", 3, 1, `the declared event "sale" did not come (measured 1.0`},
		{"weaker", 3, 1.6, `the declared event "sale" came weaker than declared (measured 1.6`},
		{"stronger", 1.5, 3, `the declared event "sale" came stronger than declared (measured 2.9`},
		{"less, as declared", 0.3, 0.3, ""},
		{"less, not", 0.3, 1, `the declared event "sale" did not come (measured 1.0`},
		{"the other way", 2, 0.5, `the declared event "sale" did not come (measured 0.5`},
		{"nothing, as declared", 0, 0, ""},
		{"nothing, not", 0, 1, `the declared event "sale" did not come (measured 1.0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			truth, from, to := eventWeek(c.came)
			calendar := Calendar{Events: []Event{{Name: "sale", From: from, To: to, Uplift: c.declared}}, Seasons: seasons}
			f := calendar.With(NewSeasonal(seasons))
			usually := wapeAt(t, f, truth, from.Add(-6*time.Hour), from)
			// Half an hour after its beginning it is known how strong it is.
			if c.came > 0 {
				if got := wapeAt(t, f, truth, from.Add(30*time.Minute), to); got > usually+0.06 {
					t.Errorf("in the event it is off by %.1f %%, before it by %.1f %%", 100*got, 100*usually)
				}
			}
			for _, after := range []time.Duration{0, 20 * time.Hour} {
				if got := wapeAt(t, f, truth, to.Add(after), to.Add(after+6*time.Hour)); got > usually+0.03 {
					t.Errorf("%v after it it is off by %.1f %%, before it by %.1f %%", after, 100*got, 100*usually)
				}
			}
			outcomes := calendar.Outcomes(truth)
			if len(outcomes) != 1 || !strings.HasPrefix(outcomes[0].Says(), c.says) || c.says == "" && outcomes[0].Says() != "" {
				t.Errorf("%+v says %q, want %q", outcomes, outcomes[0].Says(), c.says)
			}
			if early := calendar.Outcomes(truth.Until(from.Add(30 * time.Minute))); len(early) != 1 || early[0].Says() != "" {
				t.Errorf("after half an hour it says %+v", early)
			}
			if late := calendar.Outcomes(truth.Until(from.Add(2 * time.Hour))); c.says != "" && !strings.Contains(late[0].Says(), " so far (measured ") {
				t.Errorf("after two hours it says %q", late[0].Says())
			}
		})
	}
}

// Events at once are measured together, and what begins later is taken as it is declared.
func TestEventsAtOnce(t *testing.T) {
	t.Parallel()
	truth, from, to := eventWeek(1)
	scale(truth, from.Add(2*time.Hour), to, 2) // only the second comes
	seasons := []time.Duration{24 * time.Hour}
	calendar := Calendar{Seasons: seasons, Events: []Event{
		{Name: "first", From: from, To: to, Uplift: 3}, {Name: "second", From: from.Add(2 * time.Hour), To: to, Uplift: 2}, {Name: "third", From: to, To: to.Add(2 * time.Hour), Uplift: 2},
	}}
	scale(truth, to, to.Add(2*time.Hour), 2)
	if got := wapeAt(t, calendar.With(NewSeasonal(seasons)), truth, from.Add(3*time.Hour), to.Add(2*time.Hour)); got > 0.1 {
		t.Errorf("it is off by %.1f %%", 100*got)
	}
}

// A forecaster is not charged with an event that did not come: the gate scores it on what it said without.
func TestGateDoesNotChargeEvents(t *testing.T) {
	t.Parallel()
	seasons := []time.Duration{24 * time.Hour}
	for _, came := range []float64{1, 3, 5} {
		truth, from, to := eventWeek(came)
		calendar := Calendar{Events: []Event{{Name: "sale", From: from, To: to, Uplift: 3}}, Seasons: seasons}
		g, err := NewGate(calendar.With(NewEnsemble(NewSeasonal(seasons))), calendar.With(NewSeasonal(seasons)), GateOptions{Window: 6 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Warm(truth.Until(from.Add(-2*time.Hour)), 12); err != nil {
			t.Fatal(err)
		}
		for at := from.Add(-2 * time.Hour); at.Before(to.Add(3 * time.Hour)); at = at.Add(truth.Step) {
			_, v, err := g.Forecast(at, truth.Until(at), 12)
			if err != nil {
				t.Fatal(err)
			}
			if !v.Trusted || v.FallenBack || v.Recent.WAPE > 0.2 {
				t.Fatalf("with an event that came %g times, at %v of it: %+v", came, at.Sub(from), v)
			}
		}
	}
}
