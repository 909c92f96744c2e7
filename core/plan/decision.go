package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Kind is what a decision does.
type Kind string

// The kinds. KindNone means that nothing is wanted; KindHold, that something
// prevents a change or makes one unsafe, and [Decision.Hold] says what.
const (
	KindOut  Kind = "out"
	KindIn   Kind = "in"
	KindNone Kind = "none"
	KindHold Kind = "hold"
)

// Decision is the answer to one observation.
type Decision struct {
	// At is the observation's Now; Policy the name of who decided.
	At     time.Time `json:"at"`
	Policy string    `json:"policy"`
	// Current is the number of workers before, Target after the decision.
	Current int  `json:"current"`
	Target  int  `json:"target"`
	Kind    Kind `json:"kind"`
	// Reason is one sentence for a person.
	Reason string `json:"reason"`
	// Source says which rule set the target: "forecast", "reactive", "lag",
	// "utilisation", "manual", "limits", "static" or "rate".
	Source string `json:"source,omitempty"`
	// Hold lists what prevented a change that was wanted, or any change at all.
	Hold []string `json:"hold,omitempty"`
	// Terms is the arithmetic, in the order in which it was done.
	Terms []Term `json:"terms,omitempty"`
	// Plan is the plan that the decision was read from; empty for policies and
	// situations without one.
	Plan Plan `json:"plan,omitzero"`
	// Load is what the target must carry, if LoadKnown, and Capacity is F(Target), samples/s.
	Load      Number `json:"load" known:"LoadKnown"`
	LoadKnown bool   `json:"load_known"`
	Capacity  Number `json:"capacity"`
	// Saturated tells that no permitted number of workers carries the load.
	Saturated bool `json:"saturated,omitempty"`
	// NoHelp says that the lag asks for more workers and more do not help, and why; "": that is not so.
	NoHelp string `json:"more_do_not_help,omitempty"`
	// State is to be handed back in the next observation.
	State json.RawMessage `json:"state"`
}

// Plan is workers per step.
type Plan struct {
	Start time.Time     `json:"start,omitzero"`
	Step  time.Duration `json:"step,omitempty"`
	// Workers is the plan after Algorithm 1, Raw before it (Eq. 10).
	Workers []int `json:"workers,omitempty"`
	Raw     []int `json:"raw,omitempty"`
}

// Term is one quantity of the arithmetic behind a decision.
type Term struct {
	Name string `json:"name"`
	// Expr says how the value came about.
	Expr  string `json:"expr,omitempty"`
	Value Number `json:"value"`
	Unit  string `json:"unit,omitempty"`
	// Parts are what the value is the sum of, where that is more than one thing.
	Parts []Part `json:"parts,omitempty"`
}

// Term returns the first term of that name.
func (d Decision) Term(name string) (Term, bool) {
	i := slices.IndexFunc(d.Terms, func(t Term) bool { return t.Name == name })
	if i < 0 {
		return Term{}, false
	}
	return d.Terms[i], true
}

// In is the decision with its times in a zone: Explain writes them so.
func (d Decision) In(zone *time.Location) Decision {
	d.At, d.Plan.Start = d.At.In(zone), d.Plan.Start.In(zone)
	return d
}

// Words say what is decided: stay, hold, scale out, scale in.
func (k Kind) Words() string {
	switch k {
	case KindNone:
		return "stay"
	case KindOut, KindIn:
		return "scale " + string(k)
	}
	return string(k)
}

// Explain renders the decision with its arithmetic as text of several lines, for
// `kale explain` and for tests.
func (d Decision) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s: %s", d.At.Format("2006-01-02T15:04:05.999Z07:00"), d.Policy, d.Kind.Words())
	switch {
	case d.Target == 0 && d.Current == 0:
		b.WriteString(", with no worker asked for yet\n")
	case d.Target == d.Current:
		fmt.Fprintf(&b, " at %s\n", workers(d.Target))
	default:
		fmt.Fprintf(&b, " from %d to %s\n", d.Current, workers(d.Target))
	}
	fmt.Fprintf(&b, "  why   %s\n", d.Reason)
	for _, h := range d.Hold {
		if !strings.Contains(d.Reason, h) {
			fmt.Fprintf(&b, "  held  %s\n", h)
		}
	}
	name, value := 0, 0
	for _, t := range d.Terms {
		name, value = max(name, len([]rune(t.Name))), max(value, len([]rune(t.text())))
	}
	for _, t := range d.Terms {
		line := fmt.Sprintf("  %-*s  %*s  %s", name, t.Name, value, t.text(), t.how())
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	if len(d.Plan.Workers) > 0 {
		fmt.Fprintf(&b, "  plan from %s, per %s: %s\n", d.Plan.Start.Format("15:04:05"), formatDuration(d.Plan.Step), runs(d.Plan.Workers))
		if !slices.Equal(d.Plan.Workers, d.Plan.Raw) {
			fmt.Fprintf(&b, "  before Algorithm 1: %s\n", runs(d.Plan.Raw))
		}
	}
	return b.String()
}

// how is how the value came about, and its parts.
func (t Term) how() string {
	parts := partsText(float64(t.Value), t.Parts)
	if t.Expr == "" || parts == "" {
		return t.Expr + parts
	}
	return t.Expr + ": " + parts
}

// text is the value with its unit.
func (t Term) text() string {
	switch {
	case math.IsNaN(float64(t.Value)):
		return "not known"
	case t.Unit == unitHours:
		return formatHours(float64(t.Value)) + " " + t.Unit
	}
	if t.Unit == "s" && finite(float64(t.Value)) && t.Value > -1e9 && t.Value < 1e9 {
		return formatDuration(time.Duration(float64(t.Value) * float64(time.Second)))
	}
	if one, plural := strings.CutSuffix(t.Unit, "s"); plural && one != "" && t.Value == 1 && !strings.Contains(t.Unit, "/") {
		return "1 " + one
	}
	return strings.TrimRight(formatNumber(float64(t.Value))+" "+t.Unit, " ")
}

// runs writes a plan as "4×3 6×9": three steps of 4 workers, nine of 6.
func runs(plan []int) string {
	var parts []string
	for i := 0; i < len(plan); {
		end := i + 1
		for end < len(plan) && plan[end] == plan[i] {
			end++
		}
		parts = append(parts, fmt.Sprintf("%d×%d", plan[i], end-i))
		i = end
	}
	return strings.Join(parts, " ")
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}
