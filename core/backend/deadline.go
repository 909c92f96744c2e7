package backend

import "time"

// EndCause says why a workload's Status.Deadline is there.
type EndCause string

// The causes of a deadline. None is said where there is no deadline, or where the backend cannot tell.
const (
	EndWalltime   EndCause = "walltime"   // its time limit
	EndDrain      EndCause = "drain"      // its node's administrator wants the node empty: nothing new starts there, and to leave soon is welcome
	EndPreemption EndCause = "preemption" // the cluster wants back what it holds before its time limit
)

// String is the cause for people, as what ends: "its walltime".
func (c EndCause) String() string {
	switch c {
	case EndDrain:
		return "the drain of its node"
	case EndPreemption:
		return "a preemption"
	}
	return "its walltime"
}

// DrainWithin is by when workloads are to leave a node that is drained without a deadline, which would wait for them for ever: they train without end. It is the
// deadline that Nomad's command line sets by itself.
const DrainWithin = time.Hour

// OnDrainedNode makes the status that of a workload whose node is being drained until then; zero: at once, or nobody knows when. Where its walltime ends before
// that, it is still the drain for which it is to leave.
func (st *Status) OnDrainedNode(until time.Time) {
	switch {
	case until.IsZero():
	case st.Deadline.IsZero() || until.Before(st.Deadline):
		st.Deadline, st.EndCause, st.Asks = until, EndDrain, false // nobody asks for a drain
	case st.EndCause == EndWalltime:
		st.EndCause = EndDrain // at its walltime it is asked to end as it would be on another node
	}
	if st.State == StateRunning {
		st.Reason = "its node " + st.Node + " is being drained by its administrator"
	}
}
