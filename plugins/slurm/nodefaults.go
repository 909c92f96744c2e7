package slurm

import (
	"slices"
	"time"
)

const (
	// badFailures is how many workloads must have failed at once on a node for it to be left out.
	badFailures = 2
	// badFor is how long such a failure counts.
	badFor = 30 * time.Minute
	// oneFailure is within what time the workloads that a node took with it are told by Slurm: together they are one failure of that node.
	oneFailure = time.Minute
)

// badNodes gives the nodes on which workloads of the job failed at once, or which failed themselves, several times and lately, with nothing that runs there since. They are known
// from the folders, so a restart forgets none. When that would leave out more than half of the nodes, the fault is the program's, and none is left out.
func (j *job) badNodes(views []view, r *room) []string {
	failures := map[string]int{}
	lost := map[string][]time.Time{} // when workloads went with their node
	runs := map[string]bool{}
	for _, v := range views {
		switch {
		case v.verdict == nil && v.report.State != "" && !v.report.over():
			runs[v.report.Node] = true
		case v.verdict == nil || time.Since(v.verdict.At) >= badFor:
		case v.verdict.State == "NODE_FAIL":
			lost[v.verdict.Node] = append(lost[v.verdict.Node], v.verdict.At)
		case v.failedAtOnce():
			failures[v.verdict.Node]++
		}
	}
	for node, times := range lost {
		slices.SortFunc(times, time.Time.Compare)
		for i, at := range times {
			if i == 0 || at.Sub(times[i-1]) > oneFailure {
				failures[node]++
			}
		}
	}
	var bad []string
	for node, n := range failures {
		if node != "" && n >= badFailures && !runs[node] {
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

// failedAtOnce reports whether the node may be at fault: the program kept failing as soon as it was started, or the job failed without a word.
func (v view) failedAtOnce() bool {
	return v.report.Quick || v.report.State == "" && (v.verdict.State == "FAILED" || v.verdict.State == "LAUNCH_FAILED" || v.verdict.State == "BOOT_FAIL")
}
