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

// Needs says what a policy looks at beyond what every observation holds. The
// shell leaves out what is not needed: a forecast's spread is long.
type Needs struct {
	Spread bool // quantiles and scenarios of the forecast
	Beyond bool // Forecast.Beyond
}

// NeedsOf returns the needs of the policy of that name; an unknown one has none.
func NeedsOf(name string) Needs {
	for _, e := range registry {
		if e.name == name {
			return e.needs
		}
	}
	return Needs{}
}

// entry is one policy in the registry.
type entry struct {
	name   string
	needs  Needs
	params []param
	build  func(Params) planner
}

// param is one number that a policy accepts.
type param struct {
	name     string
	def      float64
	min, max float64
}

// registry lists the policies, in the order in which they are shown.
var registry = []entry{
	{name: "kale", build: func(Params) planner { return kale{} }},
	{
		name:   "static",
		params: []param{{name: "workers", def: 0, min: 0, max: 65536}},
		build:  func(p Params) planner { return static{workers: int(p["workers"])} },
	},
	{
		name:   "follow",
		params: []param{{name: "margin", def: 0.03, min: 0, max: 10}},
		build:  func(p Params) planner { return follow{margin: p["margin"]} },
	},
}

// Names lists the policies.
func Names() []string {
	names := make([]string, len(registry))
	for i, e := range registry {
		names[i] = e.name
	}
	return names
}

// New returns the policy of that name. The policies and their parameters:
//
//   - "kale": Kale §3.4, Eq. 10 and Algorithm 1 on the forecast, with the
//     fallback of §3.4.3. No parameters: ρ, τ, cooldowns and thresholds are part
//     of the observation.
//   - "static": always the same number of workers: "workers", 0 for the maximum.
//   - "follow": the last measured rate plus "margin" (0.03).
//
// An unknown name or parameter is an error that lists what exists.
func New(name string, params Params) (Policy, error) {
	i := slices.IndexFunc(registry, func(e entry) bool { return e.name == name })
	if i < 0 {
		return nil, fmt.Errorf("unknown policy %q%s; the policies are %s", name, suggest(name, Names()), strings.Join(Names(), ", "))
	}
	e := registry[i]
	known := make([]string, len(e.params))
	full := Params{}
	for k, p := range e.params {
		known[k] = p.name
		full[p.name] = p.def
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
		p, v := e.params[j], params[k]
		if math.IsNaN(v) || v < p.min || v > p.max {
			return nil, fmt.Errorf("policy %q: %s = %v; expected %v to %v", name, k, v, p.min, p.max)
		}
		full[k] = v
	}
	return guarded{name: name, planner: e.build(full)}, nil
}

func listParams(known []string) string {
	if len(known) == 0 {
		return "it has none"
	}
	return "it has " + strings.Join(known, ", ")
}

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
