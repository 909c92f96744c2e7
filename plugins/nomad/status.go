package nomad

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// ending is what start.sh left on the node when the workload ended for good.
type ending struct {
	code   int
	reason string
}

// status gives the contract's view of the workload. whatEnded tells how an allocation that is complete ended; false
// when that cannot be known now.
func (v view) status(whatEnded func(*api.AllocationListStub) (ending, bool)) backend.Status {
	st := backend.Status{ID: v.id, Submitted: v.submitted(), State: backend.StatePending}
	a := v.latest()
	if a != nil {
		v.placed(a, &st)
		st.Restarts = len(v.allocs) - 1
		for _, each := range v.allocs {
			if task := each.TaskStates[taskName]; task != nil {
				st.Restarts += int(task.Restarts)
			}
		}
		v.task(a, &st)
		v.allocation(a, &st, whatEnded)
		v.moved(a, &st)
		v.waits(a, &st)
	}
	v.overrule(a, &st)
	if st.Away = v.away(); st.Away && !st.State.Live() {
		st.Node = v.lostOn()
	}
	return st
}

// leftAway reports whether an allocation was given up with its node, which is away still: what ran there may live.
func (v view) leftAway() bool { return v.lostOn() != "" }

// lostOn names that node; "": there is none.
func (v view) lostOn() string {
	for _, a := range v.allocs {
		if n := v.nodes[a.NodeID]; a.ClientStatus == api.AllocClientStatusLost && n != nil && n.Status != api.NodeStatusReady {
			return n.Name
		}
	}
	return ""
}

// away reports whether all that may live of the workload is on nodes that do not answer; where it was released, Nomad must have been told so too.
func (v view) away() bool {
	if v.over() {
		return v.leftAway()
	}
	if v.released {
		return v.unreachable() && slices.ContainsFunc(v.allocs, func(a *api.AllocationListStub) bool { return !ended(a) })
	}
	a := v.latest()
	if a == nil || ended(a) {
		return false
	}
	n := v.nodes[a.NodeID]
	return a.ClientStatus == api.AllocClientStatusUnknown || n != nil && n.Status != api.NodeStatusReady
}

// task reads what Nomad's client says about the process.
func (v view) task(a *api.AllocationListStub, st *backend.Status) {
	task := a.TaskStates[taskName]
	if task == nil {
		return
	}
	st.Started, st.Finished = task.StartedAt.UTC(), task.FinishedAt.UTC()
	if task.StartedAt.IsZero() {
		st.Started = task.StartedAt
	}
	if task.FinishedAt.IsZero() {
		st.Finished = task.FinishedAt
	}
	if e := lastEnd(a); e != nil {
		st.ExitCode = exitCode(e)
	}
	st.Reason = joined(lately(task.Events))
}

// lastEnd is how the process of an allocation ended last, nil where none did.
func lastEnd(a *api.AllocationListStub) (last *api.TaskEvent) {
	if task := a.TaskStates[taskName]; task != nil {
		for _, e := range task.Events {
			if e.Type == api.TaskTerminated {
				last = e
			}
		}
	}
	return last
}

func exitCode(e *api.TaskEvent) int {
	if e.Signal != 0 {
		return 128 + e.Signal
	}
	return e.ExitCode
}

// lately gives what happened last to a task, and why it is not running, when something failed since it ran: Nomad tries again and again, and its last word is
// of the next try.
func lately(events []*api.TaskEvent) (failure, last string) {
	for _, e := range events {
		last = strings.TrimSpace(e.DisplayMessage)
		switch e.Type {
		case api.TaskStarted:
			failure = ""
		case api.TaskArtifactDownloadFailed, api.TaskDriverFailure, api.TaskSetupFailure, api.TaskFailedValidation:
			failure, last = last, ""
		case api.TaskTerminated:
			if code := exitCode(e); code != 0 {
				failure, last = "it crashed with "+backend.EndWords(code), ""
				if why := strings.TrimSpace(e.Message); why != "" {
					failure += " (" + why + ")"
				}
			}
		case api.TaskRestarting:
			last = fmt.Sprintf("it starts again in %v", time.Duration(e.StartDelay).Round(100*time.Millisecond))
		}
	}
	return failure, last
}

// moved says of one that starts in another place, and has not failed there, how and why the process before it ended.
func (v view) moved(a *api.AllocationListStub, st *backend.Status) {
	if len(v.allocs) < 2 || ended(a) || lastEnd(a) != nil {
		return
	}
	older := v.allocs[len(v.allocs)-2]
	if e := lastEnd(older); e != nil {
		st.ExitCode = exitCode(e)
	}
	if task := a.TaskStates[taskName]; task != nil {
		if failure, _ := lately(task.Events); failure != "" {
			return
		}
	}
	if st.State == backend.StateStarting {
		st.Reason = v.whyMoved(older) + "; it starts again on " + a.NodeName
	}
}

// migrated is why an allocation ended that somebody had Nomad stop, or that a drain moved.
const migrated = "alloc is being migrated"

// whyMoved says why an allocation was not the last one.
func (v view) whyMoved(older *api.AllocationListStub) string {
	switch why := older.DesiredDescription; {
	case older.ClientStatus == api.AllocClientStatusLost:
		return fmt.Sprintf("its node %s was lost", older.NodeName)
	case v.drained(older):
		return fmt.Sprintf("its node %s was drained by its administrator", older.NodeName)
	case why == migrated:
		return fmt.Sprintf("somebody had Nomad stop it on %s", older.NodeName)
	case why != "":
		return fmt.Sprintf("Nomad took it from %s: %s", older.NodeName, strings.ToLower(why[:1])+why[1:])
	}
	return "Nomad took it from " + older.NodeName
}

// drained says that an allocation's node was drained since it was placed there.
func (v view) drained(a *api.AllocationListStub) bool {
	n := v.nodes[a.NodeID]
	return n != nil && n.LastDrain != nil && n.LastDrain.UpdatedAt.After(time.Unix(0, a.CreateTime))
}

// allocation judges by the newest allocation.
func (v view) allocation(a *api.AllocationListStub, st *backend.Status, whatEnded func(*api.AllocationListStub) (ending, bool)) {
	task := a.TaskStates[taskName]
	switch a.ClientStatus {
	case api.AllocClientStatusPending:
		st.State = backend.StateStarting
		if st.Reason == "" {
			st.Reason = "placed on " + a.NodeName
		}
	case api.AllocClientStatusRunning:
		st.State = backend.StateStarting
		if task != nil && task.State == "running" {
			st.State, st.Reason = backend.StateRunning, ""
		}
	case api.AllocClientStatusComplete:
		v.completed(a, st, whatEnded)
	case api.AllocClientStatusFailed:
		st.State = backend.StateFailed
		if st.Reason == "" {
			st.Reason = a.ClientDescription
		}
	case api.AllocClientStatusLost:
		st.State, st.Reason = backend.StateFailed, fmt.Sprintf("its node %s was lost", a.NodeName)
	default:
		st.State, st.Reason = backend.StateUnknown, fmt.Sprintf("its node %s does not answer Nomad; it may be running", a.NodeName)
	}
	if n := v.nodes[a.NodeID]; n != nil && !ended(a) {
		switch {
		case n.Status != "ready" && a.ClientStatus != api.AllocClientStatusUnknown:
			st.State, st.Reason = backend.StateUnknown, fmt.Sprintf("its node %s is %s; it may be running", n.Name, n.Status)
		case n.Drain:
			st.OnDrainedNode(v.drains[a.NodeID])
		}
	}
}

func (v view) completed(a *api.AllocationListStub, st *backend.Status, whatEnded func(*api.AllocationListStub) (ending, bool)) {
	if !v.job.Stop && v.job.Status != "dead" { // moved by a drain or by a person; the next one is on its way
		st.State, st.Reason = backend.StatePending, "it was stopped on "+a.NodeName+" and waits for another place"
		if why := a.DesiredDescription; why != "" {
			st.Reason += ": " + strings.ToLower(why[:1]) + why[1:]
		}
		return
	}
	e, known := whatEnded(a)
	st.State = backend.StateExited
	switch {
	case !known:
		st.Reason = fmt.Sprintf("it ended; its node %s cannot say with which code", a.NodeName)
	default:
		st.ExitCode, st.Reason = e.code, e.reason
		if e.code != 0 {
			st.State = backend.StateFailed
		}
		if why := restartedByHand(a); why != "" {
			st.Reason = why
		}
	}
	if a.DesiredStatus != api.AllocDesiredStatusRun && !v.job.Stop {
		st.State, st.Reason = backend.StateFailed, v.removed(a)
	}
}

// restartedByHand says that somebody had Nomad restart an allocation, which ended its process in order; "": nobody did.
func restartedByHand(a *api.AllocationListStub) string {
	task := a.TaskStates[taskName]
	if task == nil {
		return ""
	}
	for _, e := range task.Events {
		if e.Type == api.TaskRestartSignal {
			return fmt.Sprintf("somebody had Nomad restart it (%s); it ended in order", strings.TrimSpace(e.DisplayMessage))
		}
	}
	return ""
}

// removed says why Nomad's servers ended an allocation whose job goes on.
func (v view) removed(a *api.AllocationListStub) string {
	if v.drained(a) {
		return fmt.Sprintf("its node %s was drained by its administrator", a.NodeName)
	}
	if a.DesiredDescription == migrated {
		return fmt.Sprintf("somebody had Nomad stop it on %s", a.NodeName)
	}
	return fmt.Sprintf("Nomad ended it on %s, and starts it nowhere else: %s", a.NodeName, a.DesiredDescription)
}

// overrule applies what is known about the whole workload.
func (v view) overrule(a *api.AllocationListStub, st *backend.Status) {
	switch {
	case v.released && !v.over():
		st.State, st.Reason = backend.StateStopping, "released, "+v.how.String()
		if a != nil && a.ClientStatus == api.AllocClientStatusUnknown {
			st.Reason += fmt.Sprintf("; its node %s does not answer Nomad", a.NodeName)
		}
	case v.released:
		st.State, st.Reason = backend.StateExited, "released, "+v.how.String()
		if node := v.lostOn(); node != "" {
			st.Reason += fmt.Sprintf("; its node %s does not answer Nomad, which has given it up with it", node)
		}
	case v.job.Stop && !v.over():
		st.State, st.Reason = backend.StateStopping, "its Nomad job was stopped, and not by Kale"
	case v.job.Stop && (a == nil || a.DesiredStatus == api.AllocDesiredStatusStop):
		st.State, st.Reason = backend.StateFailed, "its Nomad job was stopped, and not by Kale"
	case a == nil && v.job.Status == "dead":
		st.State, st.Reason = backend.StateFailed, "Nomad gave it up without placing it"
	}
}
