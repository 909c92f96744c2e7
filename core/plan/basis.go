package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kale-sched/kale/estimator"
)

// Basis says what a throughput model rests on: which of its values were measured,
// and where the prior comes from that stands in for the others.
type Basis struct {
	// Prior names the source of the prior; "" means that nothing is known of the
	// model's origin.
	Prior string `json:"prior,omitempty"`
	// Measured is empty while nothing has been measured; then the model is the prior.
	Measured []estimator.Evidence `json:"measured,omitempty"`
	// Change is the last change of capacity at one number of workers, while it is news; nil: none is.
	Change *estimator.Change `json:"change,omitempty"`
	// Strain is a full load to which the model is lowered everywhere; nil: none is.
	Strain *estimator.Strain `json:"strain,omitempty"`
}

// lowered says to what the model is lowered, "" where it is not.
func (b Basis) lowered() string {
	if b.Strain == nil {
		return ""
	}
	return fmt.Sprintf("lowered to %s at %s, the most that a full load trained a moment ago", formatRate(b.Strain.Rate), workers(b.Strain.Workers))
}

// changed says how capacity changed, "" where it did not.
func (b Basis) changed() string {
	c := b.Change
	if c == nil || !(c.Before > 0) {
		return ""
	}
	word, than := "fell", "less"
	if c.After > c.Before {
		word, than = "rose", "more"
	}
	at := workers(c.Workers)
	if c.Servers > 0 {
		at += fmt.Sprintf(" on %d servers", c.Servers)
	}
	return fmt.Sprintf("capacity of %s %s from %s to %s at %s (%s %% %s)", at, word, formatNumber(c.Before), formatRate(c.After), c.At.Format("15:04"),
		formatNumber(math.Round(100*math.Abs(c.After/c.Before-1))), than)
}

// at finds what was measured of w workers. servers counts only for models that
// tell servers apart.
func (b Basis) at(w, servers int) (estimator.Evidence, bool) {
	for _, e := range b.Measured {
		if e.Workers == w && (e.Servers == 0 || e.Servers == servers) {
			return e, true
		}
	}
	return estimator.Evidence{}, false
}

// Of says in a few words what F(w) rests on, "" where nothing is known of it.
func (b Basis) Of(w, servers int) string {
	return clauses(b.of(w, servers), b.lowered())
}

// clauses joins those that say something.
func clauses(says ...string) string {
	return strings.Join(slices.DeleteFunc(says, func(s string) bool { return s == "" }), "; ")
}

func (b Basis) of(w, servers int) string {
	e, ok := b.at(w, servers)
	switch {
	case ok && e.Adjusted:
		return fmt.Sprintf("%s by what capacity became elsewhere since it was measured", formatRate(e.Rate))
	case ok && e.AtLeast:
		return fmt.Sprintf("at least %s was seen", formatRate(e.Rate))
	case ok:
		return "measured: " + formatRate(e.Rate)
	case b.Prior == "":
		return ""
	case len(b.Measured) > 0:
		return "the prior, at the level of what was measured"
	}
	return "the prior: " + b.Prior
}

// Word is Of in one word: "measured", "adjusted" (since then capacity changed
// elsewhere), "seen" (a lower bound), "prior" or "".
func (b Basis) Word(w, servers int) string {
	e, ok := b.at(w, servers)
	switch {
	case ok && e.Adjusted:
		return "adjusted"
	case ok && e.AtLeast:
		return "seen"
	case ok:
		return "measured"
	case b.Prior != "":
		return "prior"
	}
	return ""
}

// String says what the model as a whole rests on.
func (b Basis) String() string {
	return clauses(b.whole(), b.lowered(), b.changed())
}

func (b Basis) whole() string {
	if len(b.Measured) == 0 {
		if b.Prior == "" {
			return ""
		}
		return "nothing measured yet, all by the prior: " + b.Prior
	}
	parts := make([]string, 0, len(b.Measured))
	for i, e := range b.Measured {
		at := fmt.Sprint(e.Workers)
		if i == 0 {
			at = workers(e.Workers)
		}
		if e.Servers > 0 {
			at += fmt.Sprintf(" on %d servers", e.Servers)
		}
		least := ""
		if e.AtLeast {
			least = "at least "
		}
		if e.Adjusted {
			at += " (by what it became elsewhere)"
		}
		parts = append(parts, fmt.Sprintf("%s at %s", least+formatRate(e.Rate), at))
	}
	text := "measured " + strings.Join(parts, ", ")
	if b.Prior != "" {
		text += "; elsewhere the prior (" + b.Prior + ") at their level"
	}
	return text
}
