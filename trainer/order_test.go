package trainer

import (
	"testing"

	"github.com/kale-sched/kale/core/rpc"
)

// TestBacklogIsTrainedInOrder: one worker reads a hot partition with a long backlog, and others help. What is read ahead of the oldest untrained record stays
// within what queues hold: freshness is that record's age.
func TestBacklogIsTrainedInOrder(t *testing.T) {
	const records, helpers = 12_000, 2
	c := broker(t, 1)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.EmulateStepMs, s.Worker.Window = 10, 1<<20 }))
	for rank := range 1 + helpers {
		j.worker(rank, 1)
	}
	j.waitFor("all are ready", func(s *rpc.JobStatus) bool {
		for _, m := range s.GetMembers() {
			if m.GetState() != rpc.MemberState_MEMBER_STATE_READY {
				return false
			}
		}
		return len(s.GetMembers()) == 1+helpers
	})
	produce(t, producer(t, c), 0, records)
	queue := int64(j.spec.GetWorker().GetQueue())
	batches := 6 * int64(j.spec.GetModel().GetBatch()) // held, being filled, waiting, on the accelerator, waiting, being pushed
	// The queue, what may come back from each helper, and what may be with helpers and not confirmed; as much again for what the next beats will confirm.
	most := 2 * (queue + helpers*queue/2 + 4*queue + batches)
	var worst int64
	j.waitFor("all is trained", func(s *rpc.JobStatus) bool {
		p := s.GetPartitions()[0]
		worst = max(worst, p.GetPosition()-p.GetApplied())
		return p.GetApplied() == records
	})
	if worst > most {
		t.Errorf("%d records were read ahead of the oldest untrained one, want %d at most", worst, most)
	}
	if s := j.status(); s.GetTotals().GetForwardedRecords() == 0 {
		t.Error("nothing was forwarded")
	}
	j.checkOnce(readLog(t, c, map[int32]int64{0: records}), nil)
}

// TestManySpansToRepair: below the position there are many holes, and each is trained, once.
func TestManySpansToRepair(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	produce(t, cl, 0, 1000)
	j := startJob(t, jobSpec(t, c))
	for i := range int64(30) {
		j.pushForeign(KindCounting, nil, 31*i+10, 31*i+20+i%7)
	}
	j.worker(0, 1)
	j.worker(1, 1)
	produce(t, cl, 0, 500)
	ends := map[int32]int64{0: 1500}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
	if s := j.status(); s.GetTotals().GetReplayedRecords() == 0 {
		t.Error("nothing was read again")
	}
}
