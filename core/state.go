package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// State is what becomes of a job, in one word.
type State string

// The states of a job.
const (
	StateNeverStarted State = "never started"
	StateStarting     State = "starting"     // wanted, and nobody trains yet, or again
	StateObserved     State = "observed"     // mode observe, and nothing of it runs
	StateCannotStart  State = "cannot start" // nobody trains, and what would have to run does not stay up or is refused
	StateRunning      State = "running"
	StateStuck        State = "stuck" // something stands in its way until a person has done something about it
	StatePaused       State = "paused"
	StateStopping     State = "stopping"
	StateStopped      State = "stopped"
	StateGone         State = "gone"    // it was not stopped, and nothing of it runs
	StateUnknown      State = "unknown" // something that had to be asked does not answer
)

// stateOf names the job's state as the last look shows it.
func (s *Scheduler) stateOf(sample Sample) State {
	switch {
	case s.want.Stopped:
		return StateStopped
	case s.want.Stopping:
		return StateStopping
	case s.halted():
		return StateStuck
	case s.chiefFails() || s.serverFails():
		return StateCannotStart
	case s.seen.blind():
		return StateStuck
	case sample.Unknown != "" && !s.toldByChief(sample):
		return StateUnknown
	case s.want.Manual.Paused:
		return StatePaused
	case s.stuck() != "":
		return StateStuck
	case sample.Running != nil && *sample.Running > 0 && len(s.down) == 0 && !s.serverSilent():
		return StateRunning
	case s.onlooks(s.seen):
		return StateObserved
	case s.cannotStart() != "":
		return StateCannotStart
	}
	return StateStarting
}

// toldByChief says that only the backend tells nothing, or not all, while the chief says that the job trains, or is paused as it was ordered: the cluster's
// controller is not needed for that, and what becomes of the job is known without it.
func (s *Scheduler) toldByChief(sample Sample) bool {
	n := s.seen
	return sample.Unknown == n.unlisted() && n.chiefErr == nil && (s.trains() || s.want.Manual.Paused && n.chief.GetPaused())
}

// onlooks says that the scheduler only observes a job of which nothing lives.
func (s *Scheduler) onlooks(n *seen) bool {
	return s.job.Autoscale.Mode == job.ModeObserve && silent(n.chiefErr) && n.unlisted() == "" && !slices.ContainsFunc(n.list, func(st backend.Status) bool { return st.State.Live() })
}

// crashLoop is how many ends of one process are no chance.
const crashLoop = 3

// chiefFails says that the chief does not answer because its server does not stay up.
func (s *Scheduler) chiefFails() bool {
	t := s.troubles[backend.ID{Role: backend.RoleServer}]
	return t != nil && t.times >= crashLoop && s.seen.listErr == nil && s.seen.chiefErr != nil && silent(s.seen.chiefErr)
}

// serverFails says that nothing is trained because another server than the chief's does not stay up.
func (s *Scheduler) serverFails() bool {
	if s.serverDown() == "" || s.seen.listErr != nil {
		return false
	}
	for place, t := range s.troubles {
		if place.Role == backend.RoleServer && t.times >= crashLoop && !s.well(t.id) {
			return true
		}
	}
	return false
}

// cannotStart says why a job in which nobody trains will not get on by itself; "" when it may.
func (s *Scheduler) cannotStart() string {
	if s.ensureErr != nil && NeedsAPerson(s.ensureErr) {
		return "the backend starts nothing: " + s.ensureErr.Error()
	}
	for _, place := range slices.SortedFunc(maps.Keys(s.troubles), backend.ID.Compare) {
		switch t := s.troubles[place]; {
		case t.refusal != nil && NeedsAPerson(t.refusal):
			return fmt.Sprintf("%s is not started: %s", t.id, t.refused)
		case t.times >= crashLoop:
			return t.String()
		}
	}
	return ""
}

// NeedsAPerson says that a backend's refusal does not pass by waiting.
func NeedsAPerson(err error) bool {
	switch backend.CodeOf(err) {
	case backend.NoCapacity, backend.RetryAfter, backend.Unavailable, backend.Conflict, backend.Gone:
		return false
	}
	return true
}

// trainedRecords is how many records the job has trained, nil while that is not known: the chief does not answer, or has not heard from every
// server since it started.
func trainedRecords(st *rpc.JobStatus) *uint64 {
	if len(st.GetServers()) == 0 {
		return nil
	}
	for _, sv := range st.GetServers() {
		if sv.GetMetrics() == nil {
			return nil
		}
	}
	n := st.GetTrainedRecords()
	return &n
}

// lastRecords reads the newest decision and the newest one that scaled, nil where there is none.
func lastRecords(st *state.Store) (last, change *Record, err error) {
	records, err := state.Last[*Record](st, state.Decisions, 1)
	if err != nil {
		return nil, nil, err
	}
	if len(records) > 0 {
		last = records[0]
	}
	var c Record
	found, err := st.Get(changeKey, &c)
	if found {
		change = &c
	}
	return last, change, err
}
