package plan

import "encoding/json"

// Succession is a policy whose decisions follow one another in one process, as in a
// replay: its state stays in memory and is not written as JSON and read again, which
// costs some policies most of a decision's time. The decisions are the same (a test
// holds them against each other). It belongs to one goroutine.
type Succession struct {
	policy Policy
	state  state
	before state           // the last decision
	raw    json.RawMessage // of a policy that [New] did not make
	was    json.RawMessage // before the last decision
}

// NewSuccession starts p afresh.
func NewSuccession(p Policy) *Succession {
	return &Succession{policy: p, state: state{Version: stateVersion}}
}

// Decide is [Policy.Decide] after all earlier calls. It ignores o.State, and leaves
// Decision.State empty.
func (s *Succession) Decide(o Observation) Decision {
	g, ok := s.policy.(guarded)
	if !ok {
		s.was, o.State = s.raw, s.raw
		d := s.policy.Decide(o)
		s.raw, d.State = d.State, nil
		return d
	}
	s.before = s.state
	d, next, why := g.decide(o, s.state.at(o.Now), "")
	if why == "" {
		s.state = next
	}
	return d
}

// Again decides as if the last decision had not been made: once more, on an
// observation with other limits.
func (s *Succession) Again(o Observation) Decision {
	s.state, s.raw = s.before, s.was
	return s.Decide(o)
}
