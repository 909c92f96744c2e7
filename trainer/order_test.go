package trainer

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

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

// backlog is a topic whose partitions hold records of the same times.
func backlog(t *testing.T, partitions int32, records int) (*kfake.Cluster, map[int32]int64) {
	c := broker(t, partitions)
	cl := producer(t, c)
	ends := map[int32]int64{}
	for p := range partitions {
		var rs []*kgo.Record
		for i := range records {
			rs = append(rs, &kgo.Record{Topic: testTopic, Partition: p, Value: click(i), Timestamp: time.UnixMilli(int64(1e12 + i))})
		}
		if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		ends[p] = int64(records)
	}
	return c, ends
}

// checkEven waits until one partition is trained, and checks that the others are not far behind.
func (j *job) checkEven(ends map[int32]int64) {
	s := j.waitFor("one partition is trained", func(s *rpc.JobStatus) bool {
		return slices.ContainsFunc(s.GetPartitions(), func(p *rpc.PartitionStatus) bool {
			return p.GetApplied() > 0 && p.GetApplied() == ends[p.GetPartition()]
		})
	})
	for _, p := range s.GetPartitions() {
		if end := ends[p.GetPartition()]; p.GetApplied() < end/2 {
			j.t.Errorf("partition %d is trained up to %d of %d when another is trained whole", p.GetPartition(), p.GetApplied(), end)
		}
	}
}

// TestBacklogOfEveryPartitionIsBegun: with a backlog in every partition, none waits until what was fetched of another is trained.
func TestBacklogOfEveryPartitionIsBegun(t *testing.T) {
	c, ends := backlog(t, 4, 1500)
	// One partition alone would take 2 s, in which the others are fetched, however busy the machine is.
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.EmulateStepMs, s.Worker.Window = 20, 1<<20 }))
	j.worker(0, 1)
	j.checkEven(ends)
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// TestFullQueueReadsWhatComesOfOthers: while the queue is full of what was fetched of one partition, what comes of the others is fetched, and has its turn. (Nothing
// was fetched before all of the first was trained: at a start it depended on whose fetch came first, and with a backlog in one partition the others' records waited
// for as much as one fetch brings.)
func TestFullQueueReadsWhatComesOfOthers(t *testing.T) {
	const hot, others = 8000, 1000 // of 64 in 20 ms: what the others have is trained in a third of the time of the first
	c := broker(t, 4)
	cl := producer(t, c)
	produce(t, cl, 3, hot)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.EmulateStepMs, s.Worker.Window = 20, 1<<20 }))
	j.worker(0, 1)
	j.waitFor("the queue is full", func(s *rpc.JobStatus) bool { return s.GetPartitions()[3].GetApplied() > 0 })
	ends := map[int32]int64{0: others, 1: others, 2: others, 3: hot}
	for p := range int32(3) {
		produce(t, cl, p, others)
	}
	s := j.waitFor("the first is trained", func(s *rpc.JobStatus) bool { return s.GetPartitions()[3].GetApplied() == hot })
	for _, p := range s.GetPartitions()[:3] {
		if p.GetApplied() < others {
			t.Errorf("partition %d is trained up to %d of %d when the backlog of another, of %d, is trained whole", p.GetPartition(), p.GetApplied(), others, hot)
		}
	}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// TestRepairOfEveryPartitionIsBegun: so it is when a server comes back without a snapshot.
func TestRepairOfEveryPartitionIsBegun(t *testing.T) {
	c, ends := backlog(t, 4, 3000)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) {
		s.Worker.EmulateStepMs, s.Worker.Window, s.SnapshotEveryMs = 5, 1<<20, time.Hour.Milliseconds()
	}))
	j.worker(0, 1)
	j.waitApplied(ends)
	j.crash(1)
	j.waitFor("the loss is known", func(s *rpc.JobStatus) bool { return len(s.GetRollbacks()) > 0 })
	j.checkEven(ends)
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}
