package core

import (
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// State is what becomes of a job, in one word.
type State string

// The states of a job.
const (
	StateNeverStarted State = "never started"
	StateStarting     State = "starting" // wanted, and nobody trains yet
	StateRunning      State = "running"
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
	case sample.Unknown != "":
		return StateUnknown
	case s.want.Manual.Paused:
		return StatePaused
	case sample.Running == 0:
		return StateStarting
	}
	return StateRunning
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
