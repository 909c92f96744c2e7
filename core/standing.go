package core

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
)

// stands says that a partition's problem is in the stream or in the job file, so that the partition stands until a person has done something about it.
func stands(p *rpc.PartitionProblem) bool {
	switch p.GetKind() {
	case rpc.PartitionProblem_KIND_LOST, rpc.PartitionProblem_KIND_RECREATED, rpc.PartitionProblem_KIND_TRUNCATED:
		return true
	}
	return halts(p)
}

// stillAt are the partitions with such problems.
func stillAt(ps []*rpc.PartitionProblem) map[int32]bool {
	out := map[int32]bool{}
	for _, p := range ps {
		if stands(p) {
			out[p.GetPartition()] = true
		}
	}
	return out
}

// noteStanding takes down where partitions stand, for whoever asks when no chief does answer any more, and says whether that is news. That a worker leaves
// resolves nothing: what a partition stood at is forgotten when it has come past that, or when another problem of that partition is told.
func (s *Scheduler) noteStanding() (changed bool) {
	if s.seen.chiefErr != nil {
		return false
	}
	applied := s.seen.applied()
	var now []*rpc.PartitionProblem
	told := map[int32]bool{}
	for _, p := range s.seen.chief.GetProblems() {
		if stands(p) && !told[p.GetPartition()] {
			told[p.GetPartition()] = true
			now = append(now, p)
		}
	}
	for _, p := range s.want.Standing {
		past := applied[p.GetPartition()] > p.GetNeeded()
		if p.GetPartition() < 0 { // of the whole topic
			past = !s.want.Stopping
		}
		if !told[p.GetPartition()] && !past {
			now = append(now, p)
		}
	}
	slices.SortStableFunc(now, func(a, b *rpc.PartitionProblem) int { return cmp.Compare(a.GetPartition(), b.GetPartition()) })
	if slices.EqualFunc(now, s.want.Standing, func(a, b *rpc.PartitionProblem) bool { return proto.Equal(a, b) }) {
		return false
	}
	s.want.Standing = now
	return true
}

// standingWords are what stops partitions of a job that does not run.
func standingWords(ps []*rpc.PartitionProblem) []string {
	const runAgain = "; then run the job again"
	out := chiefProblems(ps)
	for i, p := range out {
		out[i] = strings.NewReplacer(thenRunAgain, runAgain, thenTakeUp, runAgain, thenGoesOn, runAgain).Replace(p)
	}
	return out
}
