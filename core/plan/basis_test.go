package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/estimator"
)

func TestBasisSaysWhatWasMeasured(t *testing.T) {
	fixed := []estimator.Evidence{{Workers: 2, Rate: 1600, Intervals: 5}, {Workers: 4, Rate: 3300, AtLeast: true, Intervals: 3}}
	apart := []estimator.Evidence{{Workers: 2, Servers: 3, Rate: 1600, Intervals: 5}}
	adjusted := []estimator.Evidence{{Workers: 2, Rate: 1120, Intervals: 5, Adjusted: true}, {Workers: 4, Rate: 2300, Intervals: 3}}
	for _, c := range []struct {
		basis     Basis
		w         int
		of, word  string
		wholeText string
	}{
		{Basis{}, 2, "", "", ""},
		{Basis{Prior: "a guess"}, 2, "the prior: a guess", "prior", "nothing measured yet, all by the prior: a guess"},
		{Basis{Prior: "a guess", Measured: fixed}, 2, "measured: 1,600 records/s", "measured", "measured 1,600 records/s at 2 workers, at least 3,300 records/s at 4; elsewhere the prior (a guess) at their level"},
		{Basis{Prior: "a guess", Measured: fixed}, 4, "at least 3,300 records/s was seen", "seen", ""},
		{Basis{Prior: "a guess", Measured: fixed}, 3, "the prior, at the level of what was measured", "prior", ""},
		{Basis{Measured: adjusted}, 2, "1,120 records/s by what capacity became elsewhere since it was measured", "adjusted", "measured 1,120 records/s at 2 workers (by what it became elsewhere), 2,300 records/s at 4"},
		{Basis{Measured: fixed}, 3, "", "", "measured 1,600 records/s at 2 workers, at least 3,300 records/s at 4"},
		{Basis{Prior: "a guess", Measured: apart}, 2, "the prior, at the level of what was measured", "prior", "measured 1,600 records/s at 2 workers on 3 servers; elsewhere the prior (a guess) at their level"},
	} {
		if got := c.basis.Of(c.w, 2); got != c.of {
			t.Errorf("%+v: of %d workers %q, want %q", c.basis, c.w, got, c.of)
		}
		if got := c.basis.Word(c.w, 2); got != c.word {
			t.Errorf("%+v: word of %d workers %q, want %q", c.basis, c.w, got, c.word)
		}
		if got := c.basis.String(); c.wholeText != "" && got != c.wholeText {
			t.Errorf("%+v: %q, want %q", c.basis, got, c.wholeText)
		}
	}
}

// A capacity that changed is told, wherever the model is, and among the terms of a decision.
func TestBasisSaysThatCapacityChanged(t *testing.T) {
	at := time.Date(2026, 3, 2, 14, 5, 0, 0, time.UTC)
	fell := &estimator.Change{At: at, Workers: 4, Before: 2662, After: 1935}
	for want, b := range map[string]Basis{
		"measured 1,935 records/s at 4 workers; elsewhere the prior (a guess) at their level; capacity of 4 workers fell from 2,662 to 1,935 records/s at 14:05 (27 % less)": {
			Prior: "a guess", Measured: []estimator.Evidence{{Workers: 4, Rate: 1935, Intervals: 4}}, Change: fell},
		"measured 900 records/s at 1 worker on 2 servers; capacity of 1 worker on 2 servers rose from 600 to 900 records/s at 14:05 (50 % more)": {
			Measured: []estimator.Evidence{{Workers: 1, Servers: 2, Rate: 900, Intervals: 4}}, Change: &estimator.Change{At: at, Workers: 1, Servers: 2, Before: 600, After: 900}},
	} {
		if got := b.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	o := reference()
	o.Basis = Basis{Measured: []estimator.Evidence{{Workers: 4, Rate: 1935, Intervals: 4}}, Change: fell}
	if got := policy(t, "kale").Decide(o).Explain(); !strings.Contains(got, "F changed") || !strings.Contains(got, "capacity of 4 workers fell from 2,662 to 1,935 records/s at 14:05 (27 % less)") {
		t.Errorf("the explanation does not say that capacity fell:\n%s", got)
	}
}
