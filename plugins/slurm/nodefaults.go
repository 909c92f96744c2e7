package slurm

import (
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// badFailures is how many workloads must have failed at once on a node for it to be left out.
	badFailures = 2
	// badFor is how long such a failure counts.
	badFor = 30 * time.Minute
	// quickEnd is how soon after its start a process ends that fails at once, by supervise.sh.
	quickEnd = 10 * time.Second
	// oneFailure is within what time the workloads that a node took with it are told by Slurm: together they are one failure of that node.
	oneFailure = time.Minute
)

// mishap is something that speaks against a node: a process that failed at once there, or a failure of the node itself, which has no role.
type mishap struct {
	role string
	at   time.Time // by the node's clock, where its script told
}

// unendingNodes gives the nodes on which Slurm ends something in vain and of which it does not know yet that they are away, unless no other node is left.
func (j *job) unendingNodes(views []view, r *room) []string {
	var away []string
	for _, v := range views {
		if v.away != "" && v.unending() && !slices.Contains(away, v.row.nodes) {
			away = append(away, v.row.nodes)
		}
	}
	if r == nil || !slices.ContainsFunc(r.nodes, func(sp spot) bool { return sp.suits && !slices.Contains(away, sp.name) }) {
		return nil
	}
	return away
}

// badNodes gives the nodes on which workloads of the job failed at once, or which failed themselves, several times and lately. What lives there and began after such a
// failure excuses it, if it is of the same role: a server that needs no GPU says nothing of the GPUs. They are known from the folders, so a restart forgets none. When that
// would leave out more than half of the nodes, the fault is the program's, and none is left out.
func (j *job) badNodes(views []view, r *room) []string {
	mishaps := map[string][]mishap{}
	lost := map[string][]time.Time{} // when workloads went with their node
	for _, v := range views {
		node, at := v.whereEnded()
		switch {
		case time.Since(at) >= badFor:
		case v.failedAtOnce():
			mishaps[node] = append(mishaps[node], mishap{v.id.Role, at})
		case v.verdict.State == "NODE_FAIL":
			lost[node] = append(lost[node], at)
		}
	}
	for node, times := range lost {
		slices.SortFunc(times, time.Time.Compare)
		for i, at := range times {
			if i == 0 || at.Sub(times[i-1]) > oneFailure {
				mishaps[node] = append(mishaps[node], mishap{at: at})
			}
		}
	}
	for _, v := range views {
		if v.verdict == nil && v.report.steady() {
			mishaps[v.report.Node] = slices.DeleteFunc(mishaps[v.report.Node], func(m mishap) bool {
				return (m.role == "" || m.role == v.id.Role) && v.report.First.After(m.at)
			})
		}
	}
	var bad []string
	for node, ms := range mishaps {
		if node != "" && len(ms) >= badFailures {
			bad = append(bad, node)
		}
	}
	slices.Sort(bad)
	allowed := 0 // those that are away for a moment count too, as all are after slurmctld has started
	if r != nil {
		for _, sp := range r.nodes {
			if j.set.allows(sp.node) {
				allowed++
			}
		}
	}
	if len(bad) == 0 {
		return nil
	}
	if 2*len(bad) > allowed {
		j.lg.Warn("workloads fail at once on most nodes: the program or its set-up is at fault; no node is left out", "nodes", bad)
		return nil
	}
	j.lg.Warn("nodes on which workloads fail at once are left out", "nodes", bad, "for", badFor)
	return bad
}

// failedAtOnce reports whether the node may be at fault for what has ended: the program kept failing as soon as it was started, or the job failed without a word.
func (v view) failedAtOnce() bool {
	return v.report.Quick || v.report.State == "" && (v.verdict.State == "FAILED" || v.verdict.State == "LAUNCH_FAILED" || v.verdict.State == "BOOT_FAIL")
}

// whereEnded gives where and when it ended, zero where it has not: as its script says, by the clock that also tells when others began on that node and before Slurm says so,
// or as Slurm says.
func (v view) whereEnded() (node string, at time.Time) {
	switch {
	case v.report.Quick:
		return v.report.Node, v.report.Finished
	case v.verdict != nil:
		return v.verdict.Node, v.verdict.At
	}
	return "", time.Time{}
}

// steady reports whether the process runs, and for longer now than one that fails at once.
func (r report) steady() bool {
	return r.State == backend.StateRunning && time.Since(later(r.First, r.Finished)) >= quickEnd
}
