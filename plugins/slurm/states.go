package slurm

import (
	"strings"

	"github.com/kale-sched/kale/core/backend"
)

// phase is what a state of Slurm's means for a workload.
type phase int

const (
	phaseUnknown phase = iota // a state that this source does not know
	phaseQueued               // no node yet
	phasePlaced               // a node is being prepared, or the job is held still on it
	phaseRunning
	phaseEnding // its processes are being ended
	phaseOver   // ended; the node is free again
)

// slurmState is one row of squeue's table of states.
type slurmState struct {
	phase phase
	ended backend.State // for phaseOver, when the script left no word: what has become of the workload
	says  string        // for people
}

// stateSuspended is that of a job whose processes stand still, while it keeps its GPUs.
const stateSuspended = "SUSPENDED"

// slurmStates is squeue's table of job states, in its long form.
var slurmStates = map[string]slurmState{
	"PENDING":       {phaseQueued, "", "it waits in Slurm's queue"},
	"REQUEUED":      {phaseQueued, "", "Slurm has put it back into the queue"},
	"REQUEUE_FED":   {phaseQueued, "", "Slurm has put it back into the queue of a federation"},
	"REQUEUE_HOLD":  {phaseQueued, "", "Slurm has put it back into the queue and holds it"},
	"SPECIAL_EXIT":  {phaseQueued, "", "Slurm has put it back into the queue in a special state"},
	"RESV_DEL_HOLD": {phaseQueued, "", "its reservation was deleted, and Slurm holds it: leave reservation out, or name another"},
	"CONFIGURING":   {phasePlaced, "", "its node is being prepared"},
	stateSuspended:  {phasePlaced, "", "Slurm has suspended it; it goes on when Slurm lets it"},
	"STOPPED":       {phasePlaced, "", "it was stopped with SIGSTOP; it goes on with SIGCONT"},
	"RUNNING":       {phaseRunning, "", ""},
	"RESIZING":      {phaseRunning, "", "its size is being changed"},
	"SIGNALING":     {phaseRunning, "", "it is being signalled"},
	"STAGE_OUT":     {phaseEnding, "", "its files are being staged out"},
	"COMPLETING":    {phaseEnding, "", "Slurm is cleaning up after it"},
	"COMPLETED":     {phaseOver, backend.StateFailed, "its job ended, and left no word of how"},
	"FAILED":        {phaseOver, backend.StateFailed, "its job failed before or beside its program: slurm.log in its folder may say why"},
	"CANCELLED":     {phaseOver, backend.StateFailed, "somebody cancelled its job"},
	"TIMEOUT":       {phaseOver, backend.StateFailed, "its time limit was reached"},
	"DEADLINE":      {phaseOver, backend.StateFailed, "its deadline was reached"},
	"PREEMPTED":     {phaseOver, backend.StateFailed, "a job of higher priority took its place"},
	"NODE_FAIL":     {phaseOver, backend.StateFailed, "its node failed"},
	"BOOT_FAIL":     {phaseOver, backend.StateFailed, "its node could not be started"},
	"LAUNCH_FAILED": {phaseOver, backend.StateFailed, "it could not be launched on its node"},
	"OUT_OF_MEMORY": {phaseOver, backend.StateFailed, "it used more memory than it asked for: raise workers.memory"},
	"REVOKED":       {phaseOver, backend.StateFailed, "another cluster of the federation runs it"},
}

// stateOf gives what Slurm's name of a state means.
func stateOf(name string) slurmState {
	if s, ok := slurmStates[name]; ok {
		return s
	}
	return slurmState{phaseUnknown, "", "Slurm says " + name + ", which this version of Kale does not know"}
}

// reasonPriority is that of a job which others come before; the first in the queue waits for Resources.
const (
	reasonPriority  = "Priority"
	reasonResources = "Resources"
)

// reasons says for people what squeue's reasons mean; the first that the reason begins with counts.
var reasons = []struct{ reason, says string }{
	{"None", ""},
	{reasonResources, "nothing that it fits on is free"},
	{reasonPriority, "other jobs come first: of higher priority, or submitted before"},
	{"DependencyNeverSatisfied", "the job that it waits for cannot end as it should any more (directives)"},
	{"Dependency", "it waits for another job (directives)"},
	{"BeginTime", "its begin time has not come (directives), or it was put back into the queue"},
	{"JobHeldUser", "it is held: scontrol release JOB lets it go"},
	{"JobHeldAdmin", "the site holds it: ask the site"},
	{"ReqNodeNotAvail", "the nodes that it could run on are down, drained or reserved"},
	{"Nodes required for job are DOWN", "the nodes that it could run on are down, drained or reserved"},
	{"PartitionDown", "its partition is down: ask the site, or set another"},
	{"PartitionInactive", "its partition is closed: ask the site, or set another"},
	{"PartitionNodeLimit", "its partition allows no such job: set another"},
	{"PartitionTimeLimit", "its time limit is above the partition's: lower time"},
	{"PartitionConfig", "it may not run in its partition: set another"},
	{"Reservation", "its reservation has not begun"},
	{"InvalidQOS", "its QOS is not valid: correct qos"},
	{"InvalidAccount", "its account is not valid: correct account"},
	{"BadConstraints", "no node has what constraint asks for"},
	{"Licenses", "it waits for a licence"},
	{"launch failed requeued held", "its node could not launch it, and Slurm holds it"},
	{"QOSMaxWall", "its time limit is above its QOS's: lower time (sacctmgr show qos)"},
	{"QOSMax", "a limit of its QOS is reached (sacctmgr show qos)"},
	{"QOSGrp", "the QOS as a whole has reached its limit (sacctmgr show qos)"},
	{"QOSJobLimit", "its QOS allows no more jobs (sacctmgr show qos)"},
	{"QOS", "a limit of its QOS is reached (sacctmgr show qos)"},
	{"AssocMax", "a limit of its account is reached (sacctmgr show assoc)"},
	{"AssocGrp", "the account as a whole has reached its limit (sacctmgr show assoc)"},
	{"Assoc", "a limit of its account is reached (sacctmgr show assoc)"},
	{"MaxGRESPerAccount", "its account holds as many GPUs as it may"},
	{"MaxJobs", "as many jobs as allowed are there"},
	{"Prolog", "the site's prolog is running on its node"},
	{"SystemFailure", "Slurm itself failed: ask the site"},
	{"Cleaning", "it is being put back into the queue"},
}

// explain says for people why a job waits or ended: Slurm's reason, and what it means.
func explain(reason string) string {
	reason = strings.Trim(reason, "()")
	for _, r := range reasons {
		if !strings.HasPrefix(reason, r.reason) {
			continue
		}
		if r.says == "" {
			return ""
		}
		return reason + ": " + r.says
	}
	return reason
}
