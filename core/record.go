package core

import (
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// Sample is what was observed at one watch beat; core/state keeps them, and pictures are drawn from them. What is not known is nil, and never zero: who was to
// tell (the chief of Trained, Running, Busy and Capacity, the backend of Held, both of Pending, the brokers of Rate and Lag) did not answer.
type Sample struct {
	At time.Time `json:"at"`
	// Rate is the arrival rate over the last interval, samples/s.
	Rate *float64 `json:"rate,omitempty"`
	// Trained is the rate at which records are trained, samples/s, as the members report it.
	Trained *float64 `json:"trained,omitempty"`
	// Lag is the age of the oldest untrained record in seconds, LagRecords their number, and LagUnknown why they are not known; Repairing says that
	// both count records that were trained before.
	Lag        *float64 `json:"lag_s,omitempty"`
	LagRecords *int64   `json:"lag_records,omitempty"`
	LagUnknown string   `json:"lag_unknown,omitempty"`
	Repairing  bool     `json:"repairing,omitempty"`
	// Forecast is what had been expected for now, with its band.
	Forecast *Band `json:"forecast,omitempty"`
	// Capacity is F(running) by the model in force.
	Capacity *float64 `json:"capacity,omitempty"`
	Target   int      `json:"target"`
	Running  *int     `json:"running,omitempty"`
	Pending  *int     `json:"pending,omitempty"`
	Draining int      `json:"draining"`
	// Held counts all worker allocations that the backend has not released: they are paid for.
	Held *int `json:"held,omitempty"`
	// Busy is the members' mean share of time in which the accelerator was busy.
	Busy *float64 `json:"busy,omitempty"`
	// Applied is the trained watermark of each partition.
	Applied map[int32]int64 `json:"applied,omitempty"`
	Unknown string          `json:"unknown,omitempty"`
}

// Band is a forecast for one moment, samples/s.
type Band struct {
	Mean  float64 `json:"mean"`
	Lower float64 `json:"lower"`
	Upper float64 `json:"upper"`
}

// Rescale is one change of the number of workers, from its decision to its end.
type Rescale struct {
	Kind plan.Kind `json:"kind"`
	From int       `json:"from"`
	To   int       `json:"to"`
	// Ranks are those of the workers that come, or go.
	Ranks   []int     `json:"ranks,omitempty"`
	Decided time.Time `json:"decided"`
	// Done is when the last new worker had trained, or the last leaving one had handed over everything, by the chief's clock; when that was seen, where
	// the chief did not say. Zero while it is under way.
	Done time.Time `json:"done,omitzero"`
	// Settled is when nothing of it was waited for any more, such as a worker that hung or an idle one that might have got something yet.
	Settled time.Time `json:"settled,omitzero"`
	// Join divides the time of the last new worker; nil for a scale-in.
	Join *Join `json:"join,omitempty"`
	// FirstTrained is when the first new worker trained; zero for a scale-in.
	FirstTrained time.Time `json:"first_trained,omitzero"`
	// OldCapacity is F(From) by the model in force at the decision, samples/s; ConfiguredCapacity is that of the job file's prior.
	OldCapacity        float64 `json:"old_capacity"`
	ConfiguredCapacity float64 `json:"configured_capacity"`
	Reason             string  `json:"reason"`
	// Gap is the longest time in which a partition with unread records had no applied record, less the median of the steady state. It may last longer than the
	// rescale: a partition may still have waited at Done. A start (From 0) has none.
	Gap time.Duration `json:"gap" known:"GapKnown"`
	// GapKnown is false when progress could not be followed for the whole time (the chief was away), and of a start.
	GapKnown bool `json:"gap_known"`
	// Aborted says that another decision took its place before it was done, or that it was given up.
	Aborted bool `json:"aborted,omitempty"`
	// Unfinished says what it still waited for when it was given up.
	Unfinished string `json:"unfinished,omitempty"`
	// CameAbout says that it came about after all since it was given up: what waited was left to wait, and has come.
	CameAbout bool `json:"came_about,omitempty"`
	// Hindered says that meanwhile something else kept the new workers, or all, from training, so that it tells nothing of how fast a worker joins.
	Hindered bool `json:"hindered,omitempty"`
}

// Record is a decision with all that it was made from, as core/state keeps it and `kale explain` shows it.
type Record struct {
	Observation plan.Observation `json:"observation"`
	Decision    plan.Decision    `json:"decision"`
	// LastJoin divides the last measured join: how the lead came about by which the plan is shifted. nil before one was measured.
	LastJoin *Join `json:"last_join,omitempty"`
	// Repairs say which parameter servers are being taught again what they had lost, so that lag is not to be trusted meanwhile, and what was started again
	// because it did not answer.
	Repairs []string `json:"repairs,omitempty"`
	// LagUnknown says why Observation.LagKnown is false; "": it is not.
	LagUnknown string `json:"lag_unknown,omitempty"`
	// Pool is what the job's pool gives it, nil: it is in none. Decision is within that.
	Pool *PoolShare `json:"pool,omitempty"`
	// Observed only: nothing was done (autoscale.mode = "observe"). Differs says that it is then another decision than the one before that differed.
	ObserveOnly bool `json:"observe_only,omitempty"`
	Differs     bool `json:"differs,omitempty"`
}

// Changes says that the decision changes how many workers there are or, where it is observed only, how many there would be.
func (r *Record) Changes() bool {
	if r.ObserveOnly {
		return r.Differs
	}
	return r.Decision.Kind == plan.KindOut || r.Decision.Kind == plan.KindIn
}

// differs says that an observed decision wants something else than the change before it; nil: there is none.
func (r *Record) differs(before *Record) bool {
	if before == nil || !before.ObserveOnly {
		return r.Decision.Target != r.Decision.Current
	}
	return r.Decision.Target != before.Decision.Target || r.Decision.Current != before.Decision.Current
}

// View is the scheduler's whole picture of its job at one moment. It is replaced, never changed: readers may keep it.
type View struct {
	Job string `json:"job"`
	// State is what becomes of the job, in one word: see the constants. Scheduler is true: a Glance, which has both too, says false.
	State      State         `json:"state"`
	Scheduler  bool          `json:"scheduler"`
	Mode       string        `json:"mode"`
	Now        time.Time     `json:"now"` // when it was made or, from the API, asked for; Sample.At is when it was observed
	Started    time.Time     `json:"started"`
	MaxLag     time.Duration `json:"max_lag"`
	Watch      time.Duration `json:"watch"` // from one look to the next, while nothing is under way
	Min        int           `json:"min"`
	Max        int           `json:"max"`
	Sample     Sample        `json:"sample"`
	Decision   *Record       `json:"decision,omitempty"`
	LastChange *Record       `json:"last_change,omitempty"`
	Rescale    *Rescale      `json:"rescale,omitempty"` // under way
	// Pool is what the job's pool gives it now, nil: it is in none.
	Pool *PoolShare `json:"pool,omitempty"`
	// LastRescale is the last one that ended; it is not changed any more.
	LastRescale *Rescale `json:"last_rescale,omitempty"`
	// WorkerRenewal is the last worker that gave way to a successor before the cluster could end it, for an hour, or a day where that went wrong; it is not changed any more.
	WorkerRenewal *Renewed `json:"worker_renewal,omitempty"`
	// ServerRenewal is the last parameter server that was replaced before its walltime ended; it is not changed any more.
	ServerRenewal *ServerRenewal `json:"server_renewal,omitempty"`
	// Retraining tells of the forecast models that are trained anew; nil: none is.
	Retraining *Retraining `json:"retraining,omitempty"`
	// Calendar tells of the job file's events and holidays that are under way or begin within two days.
	Calendar []string `json:"calendar,omitempty"`
	// Stuck is what stands in the job's way until a person has done something about it, in a few words; "": nothing. Of a job that stops, or has, it is what keeps it
	// from being run again.
	Stuck string `json:"stuck,omitempty"`
	// Notes are what happened in the last day, the oldest first.
	Notes []Note `json:"notes,omitempty"`
	// Rollbacks are those that are known, the oldest first.
	Rollbacks []Rollback   `json:"rollbacks,omitempty"`
	Workers   []WorkerView `json:"workers,omitempty"`
	Servers   []ServerView `json:"servers,omitempty"`
	// Left are workers that the job has had and has not now, the newest generation of each: the backend keeps their logs for a while.
	Left []string `json:"left,omitempty"`
	// Unlisted says why Workers and Servers may not be all; "": they are.
	Unlisted string `json:"processes_unknown,omitempty"`
	// Listed is when the backend told last of all of them; absent: it has not since the scheduler is up, or tells now.
	Listed   time.Time     `json:"processes_known_at,omitzero"`
	Forecast plan.Forecast `json:"forecast"`
	Manual   plan.Manual   `json:"manual"`
	// PausedSince is when a person paused it; zero: nobody has, or that is not known (Manual.Paused tells).
	PausedSince time.Time `json:"paused_since,omitzero"`
	Waits       string    `json:"waits_for,omitempty"` // what a change under way, or a stop, waits for
	Cause       string    `json:"cause,omitempty"`     // why it cannot start, in the state of that name
	// Trained is how many records were trained, Dead how many could not be decoded, and Lost how many offsets retention took before; nil: not known.
	Trained *uint64 `json:"trained_records,omitempty"`
	Dead    *uint64 `json:"dead_records,omitempty"`
	Lost    *uint64 `json:"lost_offsets,omitempty"`
	// CutOff is how many offsets were trained before the end of the log was cut off below them: what the log has there now is not trained.
	CutOff *uint64 `json:"cut_off_offsets,omitempty"`
	Skips  bool    `json:"skips_undecodable,omitempty"` // they are in no topic: stream.on_undecodable is "skip"
	// DeadLetter is the topic that they are in; "": none.
	DeadLetter string   `json:"dead_letter,omitempty"`
	AUC        *float64 `json:"auc,omitempty"`
	Model      string   `json:"throughput_model"`
	// ModelBasis says what of Model was measured, and where the prior comes from.
	ModelBasis plan.Basis    `json:"throughput_basis"`
	Problems   []string      `json:"problems,omitempty"`
	Emulated   bool          `json:"emulated_accelerator,omitempty"`
	Join       plan.Measured `json:"join_time"`
	LastJoin   *Join         `json:"last_join,omitempty"`
	Gap        plan.Measured `json:"rescale_gap,omitzero"` // zero: none was measured
	Stopping   bool          `json:"stopping,omitempty"`
	Forced     bool          `json:"forced,omitempty"` // the stop waits for nothing
	// Unwritten says why the last stop did without its last snapshot, and LeftAway what it left on nodes that did not answer; "": it did not, and left nothing.
	Unwritten string `json:"unwritten,omitempty"`
	LeftAway  string `json:"left_away,omitempty"`
	Stopped   bool   `json:"stopped,omitempty"`
	// StopProcess is the kale stop that stops the job in the place of a scheduler; 0: a scheduler has it.
	StopProcess int            `json:"stop_process,omitempty"`
	LastStop    time.Time      `json:"last_stop,omitzero"` // when the job stopped last, by this scheduler or one before
	History     History        `json:"history,omitzero"`
	Chief       *rpc.JobStatus `json:"-"`
}

// History is the measured arrival rate that the last forecast was made from; NaN is null.
type History = plan.Series

// WorkerView is one worker as the backend and the chief see it.
type WorkerView struct {
	ID         string `json:"id"`
	Rank       int    `json:"rank"`
	Generation uint64 `json:"generation"`
	Backend    string `json:"backend"` // state of its allocation
	Member     string `json:"member"`  // state of its membership
	// Partitions, Rate, Busy and Queue are by the chief's word; nil: it does not answer, or does not count the worker.
	Partitions []int32   `json:"partitions,omitzero"`
	Rate       *float64  `json:"records_per_second,omitempty"`
	Busy       *float64  `json:"busy,omitempty"`
	Queue      *int64    `json:"queue_records,omitempty"`
	Node       string    `json:"node,omitempty"`
	Devices    []string  `json:"devices,omitempty"`
	Restarts   int       `json:"restarts"`
	PID        int       `json:"pid,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Deadline   time.Time `json:"deadline,omitzero"` // from when on the cluster may end it by itself
	// EndCause is why there is a deadline: "walltime", "drain" or "preemption".
	EndCause backend.EndCause `json:"end_cause,omitempty"`
}

// ServerView is one parameter server as the backend and the chief see it.
type ServerView struct {
	ID      string `json:"id"`
	Index   int    `json:"index"`
	Backend string `json:"backend"`
	// Up says whether the chief hears from it; nil: the chief does not answer. Known says that the server has told what follows, which is nil otherwise.
	Up           *bool     `json:"up,omitempty"`
	Known        bool      `json:"known"`
	Incarnation  uint64    `json:"incarnation,omitempty"`
	Rows         *uint64   `json:"rows,omitempty"`
	MemoryBytes  *uint64   `json:"memory_bytes,omitempty"`
	LastSnapshot time.Time `json:"last_snapshot,omitzero"`
	Error        string    `json:"snapshot_error,omitempty"`
	Restarts     int       `json:"restarts"`
	PID          int       `json:"pid,omitempty"`
	Node         string    `json:"node,omitempty"`
	// Beside says that it is the successor of one that still serves, and waits for a place or holds one: Reason says which. Of one that does not run Reason says why.
	Beside bool   `json:"beside,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Replaced says that its successor has its place: what the chief says is of that one.
	Replaced bool `json:"replaced,omitempty"`
}

// Serving are the servers without those that wait to follow one of them, and without those that one of them has followed.
func (v *View) Serving() []ServerView {
	return slices.DeleteFunc(slices.Clone(v.Servers), func(s ServerView) bool { return s.Beside || s.Replaced })
}
