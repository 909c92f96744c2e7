package slurm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// exclusion is a node that the job's workloads are kept off, and why.
type exclusion struct {
	node, why string
	until     time.Time // zero: as long as that lasts
}

func (x exclusion) String() string {
	if x.until.IsZero() {
		return x.node + " is left out: " + x.why
	}
	return fmt.Sprintf("%s is left out until %s: %s", x.node, x.until.Local().Format(time.TimeOnly), x.why)
}

// lasts says until when it is left out.
func (x exclusion) lasts() string {
	if x.until.IsZero() {
		return "that is over"
	}
	return x.until.Local().Format(time.RFC3339)
}

// excluded gives the nodes that new workloads of the job are kept off, of those that there are, and takes them out of the room.
func (j *job) excluded(views []view, r *room) []exclusion {
	out := append(j.badNodes(views, r), j.unendingNodes(views, r)...)
	if r == nil {
		return out
	}
	for i := range r.nodes {
		if slices.ContainsFunc(out, func(x exclusion) bool { return x.node == r.nodes[i].name }) {
			r.nodes[i].suits = false
		}
	}
	r.excluded = out
	return out
}

func nodesOf(out []exclusion) (names []string) {
	for _, x := range out {
		names = append(names, x.node)
	}
	return names
}

// unendingNodes gives the nodes on which Slurm ends something in vain and of which it does not know yet that they are away, unless no other node is left.
func (j *job) unendingNodes(views []view, r *room) []exclusion {
	var away []exclusion
	for _, v := range views {
		if v.away != "" && v.unending() && !slices.Contains(nodesOf(away), v.row.nodes) {
			away = append(away, exclusion{node: v.row.nodes, why: fmt.Sprintf("Slurm tries in vain to end %s there", v.id)})
		}
	}
	if r == nil || !slices.ContainsFunc(r.nodes, func(sp spot) bool { return sp.suits && !slices.Contains(nodesOf(away), sp.name) }) {
		return nil
	}
	return away
}

// badNodes gives the nodes on which workloads of the job failed at once, or which failed themselves, several times and lately. What lives there and began after such a
// failure excuses it, if it is of the same role: a server that needs no GPU says nothing of the GPUs. So does whoever took the node out of use and put it into use
// again. They are known from the folders, so a restart forgets none. When that would leave out more than half of the nodes, the fault is the program's, and none is
// left out.
func (j *job) badNodes(views []view, r *room) []exclusion {
	mishaps := map[string][]mishap{}
	lost := map[string][]time.Time{} // when workloads went with their node
	for _, v := range views {
		node, at := v.whereEnded()
		switch {
		case time.Since(at) >= badFor:
		case v.failedAtOnce():
			mishaps[node] = append(mishaps[node], mishap{v.id.Role, at})
		case v.verdict.State == "NODE_FAIL" && !v.verdict.Ordered:
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
	for node, at := range j.restored() {
		mishaps[node] = slices.DeleteFunc(mishaps[node], func(m mishap) bool { return at.After(m.at) })
	}
	var bad []exclusion
	for node, ms := range mishaps {
		if node != "" && len(ms) >= badFailures {
			bad = append(bad, badNode(node, ms))
		}
	}
	slices.SortFunc(bad, func(a, b exclusion) int { return strings.Compare(a.node, b.node) })
	allowed := 0 // those that are away for a moment count too, as all are after slurmctld has started
	if r != nil {
		for _, sp := range r.nodes {
			if j.set.allows(sp.node) {
				allowed++
			}
		}
	}
	if 2*len(bad) > allowed {
		j.lg.Debug("workloads fail at once on most nodes: the program or its set-up is at fault; no node is left out", "nodes", nodesOf(bad))
		return nil
	}
	return bad
}

// badNode says why a node is left out, and until when: until too few of its mishaps count.
func badNode(node string, ms []mishap) exclusion {
	slices.SortFunc(ms, func(a, b mishap) int { return b.at.Compare(a.at) })
	fell := 0
	for _, m := range ms {
		if m.role == "" {
			fell++
		}
	}
	var why []string
	if n := len(ms) - fell; n > 0 {
		why = append(why, fmt.Sprintf("%d of the job's processes failed there as soon as they were started", n))
	}
	if fell > 0 {
		why = append(why, fmt.Sprintf("it failed %d times", fell))
	}
	return exclusion{node: node, why: strings.Join(why, ", and "), until: ms[badFailures-1].at.Add(badFor)}
}

// nodesFile keeps in the job's folder when nodes were put into use again, for the next scheduler.
const nodesFile = "nodes.json"

// restored gives when nodes that were taken out of use were put into use again, as far as that was seen.
func (j *job) restored() map[string]time.Time {
	known, path := map[string]time.Time{}, filepath.Join(j.dir(), nodesFile)
	_ = backend.ReadJSON(path, &known) // without it, a node is left out for longer
	changed := false
	for node, at := range j.queue.restoredAt() {
		if time.Since(at) < badFor && at.After(known[node]) {
			known[node], changed = at, true
		}
	}
	maps.DeleteFunc(known, func(_ string, at time.Time) bool { return time.Since(at) >= badFor })
	if _, err := os.Stat(j.dir()); changed && err == nil {
		if err := backend.WriteJSON(path, known); err != nil {
			j.lg.Warn("cannot note that nodes are in use again; trying again", "err", err)
		}
	}
	return known
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
