package plan

import (
	"encoding/json"
	"fmt"
	"time"
)

// stateVersion is the version of the policies' own state. A state of another
// version is not guessed at: the policy starts afresh and says so.
const stateVersion = 1

// state is what a policy remembers from one decision to the next. All policies
// share it, so that a change of policy keeps the cooldowns.
type state struct {
	Version int `json:"v"`
	// LastOut and LastIn are when the last changes were decided.
	LastOut time.Time `json:"last_out,omitzero"`
	LastIn  time.Time `json:"last_in,omitzero"`
	// LagOver tells that the last decision saw lag over the fallback threshold,
	// and Lag how much: a lag that does not fall needs more than the model says.
	LagOver bool          `json:"lag_over,omitempty"`
	Lag     time.Duration `json:"lag,omitempty"`
	// Blind tells that the last decision did not know the lag, and LagNew that it was the first that knew it again: what was away (Kafka, the chief) has only
	// just come back then, so that nothing tells yet whether the lag falls.
	Blind  bool `json:"blind,omitempty"`
	LagNew bool `json:"lag_new,omitempty"`
	// Unseen is for how many decisions more the lag says nothing of the workers in force, and Asked the backlog that they were asked for (onway.go).
	Unseen int           `json:"unseen,omitempty"`
	Asked  *backlogAsked `json:"asked,omitempty"`
	// Cap is the number of workers that idle accelerators have shown to be enough
	// although the plan wants more; 0 for none. No new one before NoCapUntil.
	Cap        int       `json:"cap,omitempty"`
	NoCapUntil time.Time `json:"no_cap_until,omitzero"`
	// Trial and Bottleneck are what scale-outs for lag have shown, or are to show (bottleneck.go); Short is what was seen when there was one (toofew.go).
	Trial      *trial      `json:"trial,omitempty"`
	Bottleneck *bottleneck `json:"bottleneck,omitempty"`
	Short      *shortfall  `json:"short,omitempty"`
	// Memory is what one policy alone remembers.
	Memory *memory `json:"memory,omitempty"`
}

// readState reads the state of an observation. note is a clause for the reason
// when the state could not be used; the state is then a fresh one.
func readState(raw json.RawMessage, now time.Time) (s state, note string) {
	fresh := state{Version: stateVersion}
	if len(raw) == 0 || string(raw) == "null" {
		return fresh, ""
	}
	err := json.Unmarshal(raw, &s)
	head := struct {
		Version int `json:"v"`
	}{s.Version}
	if err != nil && json.Unmarshal(raw, &head) != nil { // of another version the rest may be of another shape
		head.Version = stateVersion
	}
	switch {
	case head.Version != stateVersion:
		return fresh, fmt.Sprintf("the policy's saved state has version %d and this program knows %d, so it starts afresh", head.Version, stateVersion)
	case err != nil:
		return fresh, "the policy's saved state could not be read, so it starts afresh"
	}
	return s.at(now), ""
}

// at is the state as it counts at now: a clock that was set back must not prolong
// a cooldown by the difference.
func (s state) at(now time.Time) state {
	if s.LastOut.After(now) {
		s.LastOut = now
	}
	if s.LastIn.After(now) {
		s.LastIn = now
	}
	return s
}

// Undone is d's state where d is not carried out, and prev was the state before it: a change that was not made starts no cooldown.
func (d Decision) Undone(prev json.RawMessage) json.RawMessage {
	before, _ := readState(prev, d.At)
	next, _ := readState(d.State, d.At)
	next.LastOut, next.LastIn, next.Trial = before.LastOut, before.LastIn, before.Trial
	next.Unseen, next.Asked = before.Unseen, before.Asked
	return next.encode()
}

// encode writes the state. It cannot fail: its floats are finite (memory.go sees to
// that), and its times come from JSON or from an observation whose Now was checked.
func (s state) encode() json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic("plan: encode policy state: " + err.Error())
	}
	return raw
}
