package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// Observation is everything that a decision may depend on, at one moment. It
// holds values only, and marshals to JSON and back without loss (durations are
// nanoseconds, missing rates null). The zero value of an optional field means
// "not there", never "zero measured".
type Observation struct {
	// Now is the moment of the decision.
	Now time.Time `json:"now"`
	// Interval is the time until the next decision.
	Interval time.Duration `json:"interval"`

	// Rates are measured arrival rates in samples/s up to Now; NaN where missing.
	Rates Series `json:"rates"`
	// Forecast is what is expected from Now on.
	Forecast Forecast `json:"forecast"`
	// BacklogRecords is the number of records that wait to be trained.
	BacklogRecords int64 `json:"backlog_records" known:"LagKnown"`
	// Lag is the age of the oldest untrained record, if LagKnown.
	Lag      time.Duration `json:"lag" known:"LagKnown"`
	LagKnown bool          `json:"lag_known"`
	// Standing is how many partitions stand still until a person has done something about it: no worker mends that, and neither Lag nor BacklogRecords counts them.
	Standing int `json:"standing_partitions,omitempty"`

	// Target is the number of workers in force: what the shell was last told to
	// keep. 0 before the first decision; then the workers that exist count.
	Target int `json:"target"`
	// Workers are the workers that exist, by state.
	Workers Workers `json:"workers"`
	// Servers is the number of parameter servers.
	Servers int `json:"servers"`

	// Model is the throughput function F.
	Model estimator.Model `json:"model"`
	// ModelError is the relative standard error of Model by workers; empty: Model is
	// taken for exact.
	ModelError estimator.Doubts `json:"model_error,omitempty"`
	// Basis says what Model rests on, for people: nothing is decided by it.
	Basis Basis `json:"basis,omitzero"`
	// RescaleCost is the time during which a rescale stops training: about 0 for
	// a live one, minutes for pause-and-restart.
	RescaleCost Measured `json:"rescale_cost"`
	// JoinTime is the time from a decision until a new worker trains, the wait in
	// the cluster's queue included. The plan is read that much earlier.
	JoinTime Measured `json:"join_time"`

	Limits Limits `json:"limits"`
	// Rho (workers) and Tau are the parameters of Algorithm 1.
	Rho int           `json:"rho"`
	Tau time.Duration `json:"tau"`
	// CooldownOut is the least time from a scale-out to the next one; CooldownIn
	// from a change in either direction to a scale-in.
	CooldownOut time.Duration `json:"cooldown_out"`
	CooldownIn  time.Duration `json:"cooldown_in"`
	// Headroom is added to every load as a fraction: 0.1 plans for 110 %.
	Headroom float64 `json:"headroom"`
	// MaxLag is the job's objective.
	MaxLag time.Duration `json:"max_lag"`

	Fallback Fallback `json:"fallback"`
	// Utilisation is the mean share of time that the accelerators were busy, 0 to
	// 1, if UtilKnown.
	Utilisation float64 `json:"utilisation" known:"UtilKnown"`
	UtilKnown   bool    `json:"util_known"`

	// Flow is what the members did since the last decision or so.
	Flow Flow `json:"flow,omitzero"`
	// Hottest is the partition that is furthest behind.
	Hottest Hottest `json:"hottest,omitzero"`
	// Partitions is the number of partitions of the topic; 0 when it is unknown.
	Partitions int `json:"partitions,omitempty"`

	// Action is the rescale that is being carried out, if any.
	Action Action `json:"action,omitzero"`
	// Budget bounds how often the number of workers may change.
	Budget Budget `json:"budget,omitzero"`
	// Hold tells that the shell does not know enough to act.
	Hold Hold `json:"hold,omitzero"`
	// Manual is what a person has ordered.
	Manual Manual `json:"manual,omitzero"`

	// State is [Decision.State] of the last decision; empty before the first.
	State json.RawMessage `json:"state,omitempty"`
}

// Series is a row of measurements: Values[i] covers the step that starts at
// Start + i·Step.
type Series struct {
	Start  time.Time     `json:"start,omitzero"`
	Step   time.Duration `json:"step,omitempty"`
	Values Values        `json:"values,omitempty"`
}

// Trimmed is the series from its first known value to its last: none where nothing is known.
func (s Series) Trimmed() Series {
	from, to := 0, len(s.Values)
	for from < to && !finite(s.Values[from]) {
		from++
	}
	for to > from && !finite(s.Values[to-1]) {
		to--
	}
	if from == to {
		return Series{}
	}
	return Series{Start: s.Start.Add(time.Duration(from) * s.Step), Step: s.Step, Values: s.Values[from:to]}
}

// Flow is how fast the members train, and how busy they are with it.
type Flow struct {
	Known bool `json:"known,omitempty"`
	// Trained is the rate at which records were trained, samples/s over all members.
	Trained float64 `json:"trained"`
	// Busy is the members' mean share of time spent training, 0 to 1. Unlike
	// Utilisation, it needs no accelerator.
	Busy float64 `json:"busy"`
}

// Workers counts the workers of a job by state.
type Workers struct {
	// Running are trained in: members of the job.
	Running int `json:"running"`
	// Pending are asked for or starting, and do not train yet.
	Pending int `json:"pending"`
	// Draining are on their way out, and held until released.
	Draining int `json:"draining"`
	// Unknown are in no state that the shell could establish.
	Unknown int `json:"unknown"`
}

// Measured is a duration and where it comes from.
type Measured struct {
	Value time.Duration `json:"value"`
	// Samples is how often it was measured; 0 means that Value is an assumption.
	Samples int `json:"samples"`
	// Queue is what of Value is the wait for a place in the cluster's queue, as it is now.
	Queue time.Duration `json:"queue,omitempty"`
}

// Fallback holds the thresholds of Kale §3.4.3.
type Fallback struct {
	// LagOver is the lag from which workers are added whatever the forecast says.
	// 0 means half of MaxLag.
	LagOver time.Duration `json:"lag_over,omitempty"`
	// CatchUp is the time within which a backlog is to be worked off. 0 means
	// MaxLag.
	CatchUp time.Duration `json:"catch_up,omitempty"`
	// UtilisationOver and UtilisationUnder, shares of 0 to 1, are the bounds
	// beyond which accelerators are too busy or too idle. 0 means: not used.
	UtilisationOver  float64 `json:"utilisation_over,omitempty"`
	UtilisationUnder float64 `json:"utilisation_under,omitempty"`
}

// Action is a rescale under way; Kind is "" for none.
type Action struct {
	Kind   Kind      `json:"kind,omitempty"`
	Target int       `json:"target,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// CanGrow tells that a scale-out may be given a higher target before it is
	// complete, as live joins allow.
	CanGrow bool `json:"can_grow,omitempty"`
	// CanTurn tells that any other target may take this one's place at once, for which
	// only a person's order is reason enough.
	CanTurn bool `json:"can_turn,omitempty"`
}

// Budget bounds how often the number of workers may change; the zero value is no
// bound.
type Budget struct {
	Limited bool `json:"limited,omitempty"`
	// Left is how many changes are allowed now; Next is the time until there is one
	// more, and Every the time from that one to the next.
	Left  int           `json:"left,omitempty"`
	Next  time.Duration `json:"next,omitempty"`
	Every time.Duration `json:"every,omitempty"`
}

// Hold is set while the shell's picture is incomplete: the backend's status
// failed or is partial, or the chief cannot be reached. With a Reason alone the
// picture is complete, and what it shows is not mended by another number of
// workers: only an order changes it.
type Hold struct {
	Unknown bool   `json:"unknown,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Manual is a standing order of a person. Paused wins over Pinned.
type Manual struct {
	Paused bool `json:"paused,omitempty"`
	Pinned bool `json:"pinned,omitempty"`
	Target int  `json:"target,omitempty"`
}

// current is the number of workers in force.
func (o *Observation) current() int {
	if o.Target > 0 {
		return o.Target
	}
	return o.Workers.Running + o.Workers.Pending
}

// lagKnown tells whether Lag can be used. A negative lag is a clock that jumped.
func (o *Observation) lagKnown() bool { return o.LagKnown && o.Lag >= 0 }

// lagOver and catchUp apply the defaults of [Fallback].
func (o *Observation) lagOver() time.Duration {
	if o.Fallback.LagOver > 0 {
		return o.Fallback.LagOver
	}
	return o.MaxLag / 2
}

func (o *Observation) catchUp() time.Duration {
	if o.Fallback.CatchUp > 0 {
		return o.Fallback.CatchUp
	}
	return o.MaxLag
}

// outage is how long a rescale stops training; 0 where it is live, and what little it
// stops is part of the join. One that stops training does so for all of the join.
func (o *Observation) outage() time.Duration {
	if o.RescaleCost.Value < o.JoinTime.Value/2 {
		return 0
	}
	return o.RescaleCost.Value
}

// unforeseenLag is the lag from which the plan counts as wrong: lagOver, and where a
// rescale stops training its outage besides, as the lag that it leaves is nobody's
// error; but no more than leaves time for a rescale before the objective is broken.
func (o *Observation) unforeseenLag() time.Duration {
	out := o.outage()
	return max(o.lagOver(), min(addDurations(o.lagOver(), out), o.MaxLag-out))
}

// beyondLagOver says how that threshold comes about where it is not lag_over itself; else "".
func (o *Observation) beyondLagOver(threshold time.Duration) string {
	over, out := o.lagOver(), o.outage()
	switch {
	case threshold == over:
		return ""
	case threshold == addDurations(over, out):
		return fmt.Sprintf(": lag_over (%s) and the %s that a rescale stops training", formatDuration(over), formatDuration(out))
	}
	return fmt.Sprintf(": max_lag (%s) less the %s that a rescale stops training", formatDuration(o.MaxLag), formatDuration(out))
}

// utilKnown tells whether Utilisation can be used.
func (o *Observation) utilKnown() bool {
	return o.UtilKnown && o.Utilisation >= 0 && o.Utilisation <= 1
}

// flowKnown tells whether Flow can be used.
func (o *Observation) flowKnown() bool {
	return o.Flow.Known && o.Flow.Busy >= 0 && o.Flow.Busy <= 1 && o.Flow.Trained >= 0 && finite(o.Flow.Trained)
}

// busy is the members' share of time spent training, or else the accelerators'.
func (o *Observation) busy() (share float64, ok bool) {
	if o.flowKnown() {
		return o.Flow.Busy, true
	}
	return o.Utilisation, o.utilKnown()
}

// lead is how far ahead a decision must look to be in time: the join, and the
// interval until it can be taken again.
func (o *Observation) lead() time.Duration { return addDurations(o.JoinTime.Value, o.Interval) }

// problem says why nothing can be decided on this observation, or "".
func (o *Observation) problem() string {
	if y := o.Now.Year(); y < 2 || y > 9000 {
		return "the time of the observation is not set"
	}
	if p := o.Limits.problem(); p != "" {
		return p
	}
	if err := o.Model.Validate(); err != nil {
		return err.Error()
	}
	if o.Model.Form.UsesServers() && o.Servers < 1 {
		return fmt.Sprintf("the throughput model %q needs the number of parameter servers, and %d are known", o.Model.Form, o.Servers)
	}
	for _, d := range []struct {
		name string
		v    time.Duration
		min  time.Duration
	}{
		{"interval", o.Interval, 1}, {"max_lag", o.MaxLag, 1}, {"tau", o.Tau, 0}, {"cooldown_out", o.CooldownOut, 0},
		{"cooldown_in", o.CooldownIn, 0}, {"join_time", o.JoinTime.Value, 0}, {"rescale_cost", o.RescaleCost.Value, 0},
	} {
		if d.v < d.min {
			return fmt.Sprintf("%s is %v; it must be %v or more", d.name, d.v, d.min)
		}
	}
	if !(o.Headroom >= 0) || math.IsInf(o.Headroom, 0) {
		return fmt.Sprintf("headroom is %v; it must be a fraction of 0 or more", o.Headroom)
	}
	if o.Target < 0 || o.Workers.Running < 0 || o.Workers.Pending < 0 || o.Workers.Draining < 0 || o.Workers.Unknown < 0 {
		return "a count of workers is negative"
	}
	return ""
}

// addDurations adds without overflow; both are 0 or more.
func addDurations(a, b time.Duration) time.Duration {
	if s := a + b; s >= a {
		return s
	}
	return 1<<63 - 1
}
