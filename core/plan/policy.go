package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// Policy decides how many workers a job should have.
//
// Decide is a pure function: the same observation gives the same decision, byte
// for byte. It does not block, has no effect, never panics, whatever the
// observation holds, and is safe for concurrent use. An observation that cannot
// be decided on (impossible limits, an invalid model) gives a hold at the current
// target whose reason says what is wrong. The caller hands [Decision.State] back
// in the next [Observation.State].
type Policy interface {
	// Name is the name under which [New] knows the policy.
	Name() string
	Decide(Observation) Decision
}

// Params are a policy's own numbers, from the job file's autoscale block.
type Params map[string]float64

// planner is the part of a policy that differs: what it wants. The rules that
// all policies obey are applied to its proposal by [guarded].
type planner interface {
	propose(*sheet) proposal
}

// NeedsOf returns the needs of the policy of that name; an unknown one has none.
func NeedsOf(name string) Needs {
	i := find(name)
	if i < 0 {
		return Needs{}
	}
	return registry[i].Needs
}

// Policies describes the policies, in the order in which they are shown.
func Policies() []Info {
	out := make([]Info, len(registry))
	for i, e := range registry {
		out[i] = e.Info
		out[i].Params = slices.Clone(e.Params)
	}
	return out
}

// Names lists the policies.
func Names() []string {
	names := make([]string, len(registry))
	for i, e := range registry {
		names[i] = e.Name
	}
	return names
}

func find(name string) int {
	return slices.IndexFunc(registry, func(e entry) bool { return e.Name == name })
}

// New returns the policy of that name, with the parameters given and the defaults
// of [Policies] for the others. Every policy has the parameter "guard": 1, the
// default, keeps it to Kale's rules for a safe scale-in and to the job's
// cooldowns; 0 leaves it to its own machinery, as in a comparison.
//
// An unknown name or parameter is an error that lists what exists.
func New(name string, params Params) (Policy, error) {
	i := find(name)
	if i < 0 {
		return nil, fmt.Errorf("unknown policy %q%s; the policies are %s", name, suggest(name, Names()), strings.Join(Names(), ", "))
	}
	e := registry[i]
	all := append(slices.Clone(e.Params), guardParam)
	known := make([]string, len(all))
	full := Params{}
	for k, p := range all {
		known[k] = p.Name
		full[p.Name] = p.Default
	}
	given := make([]string, 0, len(params))
	for k := range params {
		given = append(given, k)
	}
	slices.Sort(given) // so that of two mistakes always the same one is reported
	for _, k := range given {
		j := slices.Index(known, k)
		if j < 0 {
			return nil, fmt.Errorf("policy %q has no parameter %q%s; %s", name, k, suggest(k, known), listParams(known))
		}
		p, v := all[j], params[k]
		if math.IsNaN(v) || v < p.Min || v > p.Max {
			return nil, fmt.Errorf("policy %q: %s = %v; expected %v to %v", name, k, v, p.Min, p.Max)
		}
		if p.Whole && v != math.Trunc(v) {
			return nil, fmt.Errorf("policy %q: %s = %v; expected a whole number", name, k, v)
		}
		full[k] = v
	}
	return guarded{name: name, open: full["guard"] == 0, planner: e.build(full)}, nil
}

func listParams(known []string) string { return "it has " + strings.Join(known, ", ") }

// suggest returns a "did you mean" clause when one of the names is close.
func suggest(given string, names []string) string {
	best, at := 3, -1
	for i, n := range names {
		if d := levenshtein.Distance(strings.ToLower(given), n, nil); d < best && d < len(n) {
			best, at = d, i
		}
	}
	if at < 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", names[at])
}
