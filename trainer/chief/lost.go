package chief

import (
	"fmt"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// mayLose says why a span cannot be given up; nil when retention has removed it.
func (m *machine) mayLose(sp *rpc.Span) error {
	p := m.partitions[sp.GetPartition()]
	if p == nil {
		return fmt.Errorf("mark lost: the job has no partition %d", sp.GetPartition())
	}
	if known := m.knownLogStart(p); sp.GetEnd() > known {
		return fmt.Errorf("mark lost: [%d, %d) of partition %d is not all gone: the log is known to start at %d; only what retention has removed can be given up",
			sp.GetBegin(), sp.GetEnd(), sp.GetPartition(), known)
	}
	if sp.GetBegin() < p.start || sp.GetEnd() <= sp.GetBegin() {
		return fmt.Errorf("mark lost: [%d, %d) of partition %d is not a span at or above its start %d", sp.GetBegin(), sp.GetEnd(), sp.GetPartition(), p.start)
	}
	return nil
}

// skipsLost says that spans which retention has removed are given up without asking.
func (m *machine) skipsLost() bool { return m.opt.Policies.GetOnLost() == "skip" }

// settled says that a problem is one of a loss that has been accepted, and that its worker has yet to hear of.
func (m *machine) settled(pr *rpc.PartitionProblem) bool {
	p := m.partitions[pr.GetPartition()]
	return p != nil && pr.GetKind() == rpc.PartitionProblem_KIND_LOST && spans.Union(p.lost, p.applied).Covers(pr.GetNeeded(), pr.GetLogStart())
}

// keepLost takes in a span that was given up.
func (m *machine) keepLost(partition int32, begin, end int64) {
	if p := m.partitions[partition]; p != nil {
		p.lost.Add(begin, end)
	}
}

// knownLogStart is how far retention is known to have removed a partition's records, by the watcher or by a worker that met the hole; −1: not known.
func (m *machine) knownLogStart(p *partition) int64 {
	known := p.logStart
	for _, w := range m.members {
		for _, pr := range w.problems {
			if pr.GetPartition() == p.id && pr.GetKind() == rpc.PartitionProblem_KIND_LOST {
				known = max(known, pr.GetLogStart())
			}
		}
	}
	return known
}

// toldLost says that a worker has met the hole that retention left in a partition.
func (m *machine) toldLost(p *partition) bool {
	for _, w := range m.members {
		for _, pr := range w.problems {
			if pr.GetPartition() == p.id && pr.GetKind() == rpc.PartitionProblem_KIND_LOST {
				return true
			}
		}
	}
	return false
}
