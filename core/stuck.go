package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// servers reads in the checkpoint folder which of a job's servers cannot start, unless the chief knows that all are up.
func (n *seen) servers(j *job.Job) []rpc.RestoreRecord {
	up := 0
	for _, sv := range n.chief.GetServers() {
		if sv.GetInfo().GetUp() {
			up++
		}
	}
	if n.chiefErr == nil && up >= len(n.chief.GetServers()) {
		return nil
	}
	count := max(1, j.Servers.Count, len(n.chief.GetServers()))
	var out []rpc.RestoreRecord
	for _, r := range rpc.CannotStart(j.Checkpoint.Dir, j.Name, count) {
		if n.chiefErr == nil && n.chief.GetServers()[r.Server].GetInfo().GetUp() {
			continue
		}
		out = append(out, r)
	}
	return out
}

// troubledServers are the servers that have told the scheduler itself why they cannot start: where the checkpoint folder takes nothing, they cannot write it down.
func (s *Scheduler) troubledServers(n *seen) []rpc.RestoreRecord {
	var out []rpc.RestoreRecord
	for i := range s.job.Servers.Count {
		id := backend.ID{Role: backend.RoleServer, Rank: i, Generation: s.want.Servers[i]}
		h, ok := s.meet.heard(id)
		if ok && h.phase == rpc.Phase_PHASE_STARTING && h.trouble != "" && !n.saysWhy(id) {
			out = append(out, rpc.RestoreRecord{Server: i, At: h.at, Error: h.trouble})
		}
	}
	return out
}

// saysWhy says that a process is a server that says itself why it cannot start.
func (n *seen) saysWhy(id backend.ID) bool {
	return id.Role == backend.RoleServer && slices.ContainsFunc(n.cannotStart, func(r rpc.RestoreRecord) bool { return r.Server == id.Rank })
}

func cannotStart(r rpc.RestoreRecord) string {
	return fmt.Sprintf("parameter server %d cannot start: %s", r.Server, r.Error)
}

// halted says that nothing at all can be trained until a person has done something about it.
func (s *Scheduler) halted() bool {
	return s.seen.modelGone || len(s.seen.cannotStart) > 0 || recreated(s.seen.chief.GetProblems()) || len(s.unstarted()) > 0
}

// unstarted are the servers that have ended and cannot be started again, because the scheduler's state cannot be saved: nothing is trained without them.
func (s *Scheduler) unstarted() []string {
	if s.unsaved == nil || s.want.Target == 0 || s.want.Stopped || s.want.Stopping || s.seen.unlisted() != "" {
		return nil
	}
	var out []string
	for i := range s.job.Servers.Count {
		id := backend.ID{Role: backend.RoleServer, Rank: i, Generation: s.want.Servers[i]}
		if st, found := s.seen.allocation(id); id.Generation > 0 && (!found || !st.State.Live()) {
			out = append(out, id.String())
		}
	}
	return out
}

// checkpointGone is what stands in the way of a job that has stopped and whose model is not there any more.
const checkpointGone = "its checkpoint is gone"

// stuck is what stands in the job's way until a person has done something about it, in a few words; "": nothing.
func (s *Scheduler) stuck() string {
	if s.want.Stopped || s.want.Stopping { // what is wrong with a partition is for the next run; this keeps any from beginning
		if recreated(s.want.Standing) {
			return recreatedWords(s.want.Standing)
		}
		if s.want.Stopped && s.hasModel() && modelGone(s.job) {
			return checkpointGone
		}
		return ""
	}
	if why := s.seen.stuck(); why != "" {
		return why
	}
	if down := s.unstarted(); len(down) > 0 {
		return few(down) + " cannot be started again"
	}
	return ""
}

func (n *seen) stuck() string {
	if n.modelGone {
		gone := "its checkpoint folder is gone, or not shared by the nodes"
		if n.chiefErr == nil && !n.chief.GetPaused() && n.ready(n.unlisted() == "") > 0 && n.idle() == 0 {
			gone += "; it trains on"
		} else if n.chiefErr != nil && n.aliveAs(backend.RoleWorker) > 0 {
			gone += "; whether it trains on is not known"
		}
		return gone
	}
	if n.blind() {
		return unseen
	}
	if len(n.cannotStart) > 0 {
		return fmt.Sprintf("parameter server %d cannot start", n.cannotStart[0].Server)
	}
	return stuckWords(n.chief.GetProblems(), len(n.chief.GetPartitions()))
}

// recreated says that the log is not the one that was trained: of another topic, or its end was cut off.
func recreated(ps []*rpc.PartitionProblem) bool { return slices.ContainsFunc(ps, ofAnotherLog) }

func ofAnotherLog(p *rpc.PartitionProblem) bool {
	return p.GetKind() == rpc.PartitionProblem_KIND_RECREATED || isTruncated(p)
}

func isTruncated(p *rpc.PartitionProblem) bool {
	return p.GetKind() == rpc.PartitionProblem_KIND_TRUNCATED
}

// recreatedWords say what has become of the topic.
func recreatedWords(ps []*rpc.PartitionProblem) string {
	if slices.ContainsFunc(ps, func(p *rpc.PartitionProblem) bool { return p.GetKind() == rpc.PartitionProblem_KIND_RECREATED }) {
		return "the topic was deleted or created again"
	}
	return "the end of the topic's log was cut off"
}

const allStand = "all partitions stand still"

// stuckWords says which of so many partitions stand still.
func stuckWords(ps []*rpc.PartitionProblem, of int) string {
	if recreated(ps) {
		return recreatedWords(ps)
	}
	still := slices.Sorted(maps.Keys(stillAt(ps)))
	switch n := len(still); {
	case n == 0:
		return ""
	case n == 1 && of > 1:
		return numbered("partition", still) + " stands still"
	case n < of:
		return numbered("partition", still) + " stand still"
	}
	return allStand
}
