package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// outOfReach says that a process which was released is on a node that does not answer its cluster, and that nothing waits for its end: another one has its place, or
// for as long as a silent process is given (awayAfter) nobody could tell whether it lives. The cluster ends it when the node is back. Whatever
// goes on there until then is shut out by the generation that takes its place, now or in the next run: of a job two never train into one model (EXACTLY_ONCE.md).
func (s *Scheduler) outOfReach(st backend.Status, waited time.Duration) bool {
	return st.State == backend.StateStopping && st.Away && (s.replaced(st.ID) || waited >= awayAfter)
}

// noteLeft takes down, for people, which processes a stop has left on nodes that are away.
func (s *Scheduler) noteLeft(now time.Time, left []backend.Status) {
	if s.want.LeftAway = ""; len(left) == 0 {
		return
	}
	s.want.LeftAway = leftWords(left)
	s.want.remember(Note{At: now, Text: s.want.LeftAway})
	s.lg.Warn("the job has stopped without the end of what is on nodes that are away", "left", s.want.LeftAway)
}

// leftWords say what may still run on nodes that do not answer their cluster, and what becomes of it.
func leftWords(left []backend.Status) string {
	var who, nodes []string
	for _, st := range left {
		who = append(who, st.ID.String())
		if st.Node != "" && !slices.Contains(nodes, st.Node) {
			nodes = append(nodes, st.Node)
		}
	}
	slices.Sort(nodes)
	where := "its node does"
	switch len(nodes) {
	case 0:
	case 1:
		where = "node " + nodes[0] + " does"
	default:
		where = "nodes " + strings.Join(nodes, ", ") + " do"
	}
	return fmt.Sprintf("%s may still run: %s not answer the cluster, which ends what is left there when it is back; the next run shuts it out", strings.Join(who, ", "), where)
}
