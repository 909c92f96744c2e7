package core

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/estimator"
	"github.com/kale-sched/kale/forecast"
)

// Sight is what a shell knows of its job at one moment: the scheduler from the backend, the chief and the brokers, a replay from a trace.
// [Sight.Observation] is the one place where it becomes what a policy sees, so that what replays well is what runs.
type Sight struct {
	Now time.Time
	// History is the measured arrival rate up to the last whole bin of forecast.interval, and Forecast what follows from it.
	History  forecast.Series
	Forecast plan.Forecast
	// BacklogRecords wait to be trained, the oldest of them for Lag.
	BacklogRecords int64
	Lag            time.Duration
	LagKnown       bool
	// Standing partitions wait for a person: neither of these counts them.
	Standing int
	// Target is the number of workers in force; 0 before the first decision.
	Target  int
	Workers plan.Workers
	Model   estimator.Model
	Basis   plan.Basis
	// ModelError is how sure the model is; none: it is taken for exact, as in a replay.
	ModelError estimator.Doubts
	// Gaps and Joins are the last measured outages and joins, oldest first ([Remember]); QueueWait is the wait for a place in the cluster as it is now.
	Gaps, Joins []time.Duration
	QueueWait   time.Duration
	Limits      plan.Limits
	// Utilisation is the members' mean share of busy time, if UtilKnown.
	Utilisation float64
	UtilKnown   bool
	// Flow is how fast and how busily the members train, Partitions how many the topic has; 0: unknown.
	Flow       plan.Flow
	Partitions int
	// Hottest is the partition that is furthest behind; a replay has none.
	Hottest plan.Hottest
	// Budget bounds how often the number of workers may change.
	Budget plan.Budget
	// Rescale is the one under way, nil for none.
	Rescale *Rescale
	Manual  plan.Manual
	// State is what the policy handed on with its last decision.
	State json.RawMessage
	// Unknown says what of all this could not be established; "" when nothing.
	Unknown string
	// Broken says what keeps the job from training that no other number of workers mends; "" when nothing does.
	Broken string
}

// Observation is everything that the policy of job j may know.
func (v Sight) Observation(j *job.Job) plan.Observation {
	o := plan.Observation{
		Now: v.Now, Interval: j.Autoscale.Tick, Forecast: v.Forecast,
		BacklogRecords: v.BacklogRecords, Lag: v.Lag, LagKnown: v.LagKnown, Standing: v.Standing,
		Target: v.Target, Workers: v.Workers, Servers: j.Servers.Count, Model: v.Model, ModelError: v.ModelError, Basis: v.Basis,
		RescaleCost: measured(v.Gaps, 0), JoinTime: joinTime(j, v.Joins, v.QueueWait),
		Limits: v.Limits, Rho: j.Autoscale.Rho, Tau: j.Autoscale.Tau,
		CooldownOut: j.Autoscale.CooldownOut, CooldownIn: j.Autoscale.CooldownIn, Headroom: j.Autoscale.Headroom, MaxLag: j.SLO.MaxLag,
		Fallback: fallback(j.Autoscale.Fallback), Utilisation: v.Utilisation, UtilKnown: v.UtilKnown,
		Flow: v.Flow, Hottest: v.Hottest, Partitions: v.Partitions, Budget: v.Budget, Manual: v.Manual, State: v.State,
	}
	if n := v.Partitions; j.Workers.Forward == job.ForwardNone && n > 0 {
		o.Limits.Short.Max = min(o.Limits.Short.Max, max(n, o.Limits.Min))
	}
	if n := v.Partitions; j.Workers.Forward == job.ForwardNone && n > 0 && n < o.Limits.Max {
		o.Limits.Max = max(n, o.Limits.Min)
		o.Limits.Why = fmt.Sprintf(`the topic has %s, and with workers.forward = %q workers beyond that have nothing to do`, job.Count(n, "partition"), job.ForwardNone)
	}
	// The policy gets the rates of one horizon; the forecaster had the whole history.
	n := min(len(v.History.Values), int(j.Forecast.Horizon/j.Forecast.Interval))
	from := len(v.History.Values) - n
	o.Rates = plan.Series{Start: v.History.At(from), Step: v.History.Step, Values: plan.Values(v.History.Values[from:])}
	if v.Unknown != "" {
		o.Hold = plan.Hold{Unknown: true, Reason: v.Unknown}
	}
	if v.Broken != "" && v.Unknown == "" {
		o.Hold = plan.Hold{Reason: v.Broken}
	}
	if r := v.Rescale; r != nil && j.Autoscale.Mode != job.ModeObserve {
		live := j.Autoscale.Mode == job.ModeLive
		o.Action = plan.Action{Kind: r.Kind, Target: r.To, Since: r.Decided, CanGrow: live && r.Kind == plan.KindOut, CanTurn: live}
	}
	return o
}

// Prior is the throughput model of the job file.
func Prior(j *job.Job) estimator.Model {
	return estimator.Model{Form: estimator.Form(j.Throughput.Form), Theta: j.Throughput.Theta, Batch: float64(j.Throughput.Batch)}
}

// joinTime is the measured join time, or what is assumed before one was measured, and the wait for a place.
func joinTime(j *job.Job, joins []time.Duration, wait time.Duration) plan.Measured {
	m := measured(joins, min(assumedJoin, j.Forecast.Horizon/4))
	m.Value, m.Queue = m.Value+wait, wait
	return m
}

// Remember adds a measured outage or join to those that are kept, of which the median counts.
func Remember(kept []time.Duration, d time.Duration) []time.Duration { return keepLast(kept, d) }
