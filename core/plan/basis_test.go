package plan

import (
	"testing"

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
