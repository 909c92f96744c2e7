package trainer

import (
	"testing"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// BenchmarkWorkerSaturated is a whole worker with a backlog and an emulated accelerator of 80 ms a step of 256 records (3,200 records/s): how much of
// the time is the accelerator busy? It reports busy_share and records/s; the servers are in the same process.
func BenchmarkWorkerSaturated(b *testing.B) {
	needONNX(b)
	c := broker(b, 4)
	cl := producer(b, c)
	for p := range int32(4) {
		produce(b, cl, p, 20000)
	}
	j := startJob(b, jobSpec(b, c, withModel("deepfm"), func(s *rpc.TrainSpec) {
		s.Model.Batch, s.Model.EmbeddingDim, s.Model.Hidden = 256, 8, []int32{64, 32}
		s.Worker.Chunk, s.Worker.Queue, s.Worker.Window, s.Worker.EmulateStepMs = 64, 1024, 1<<20, 80
		s.BeatMs = 100
	}))
	j.worker(0, 1)
	first := j.waitFor("steps", func(s *rpc.JobStatus) bool { return s.GetTotals().GetSteps() >= 10 })
	var last *rpc.JobStatus
	for b.Loop() {
		last = j.waitFor("more steps", func(s *rpc.JobStatus) bool { return s.GetTotals().GetSteps() >= first.GetTotals().GetSteps()+50 })
	}
	x, y := first.GetTotals(), last.GetTotals()
	wall := y.GetWallSeconds() - x.GetWallSeconds()
	b.ReportMetric((y.GetBusySeconds()-x.GetBusySeconds())/wall, "busy_share")
	b.ReportMetric(float64(y.GetRecords()-x.GetRecords())/wall, "records/s")
	b.ReportMetric(y.GetStepSeconds()*1000, "ms/step")
	if !last.GetMembers()[0].GetMetrics().GetSaturated() {
		b.Errorf("a worker with a backlog does not say that it is saturated")
	}
}

// BenchmarkHandOver drains a worker while records arrive every 10 ms, and reports the longest time in which the partition made no progress, in which the
// hand-over lies: fetching stops, the lease goes back to the chief and on to the other worker, which begins to fetch. Steps take 20 ms, beats come
// every 100 ms.
func BenchmarkHandOver(b *testing.B) {
	c := broker(b, testPartitions)
	cl := producer(b, c)
	j := startJob(b, jobSpec(b, c, func(s *rpc.TrainSpec) { s.BeatMs, s.Worker.EmulateStepMs = 100, 20 }))
	var worst, usual int64
	for b.Loop() {
		leaver := j.worker(0, uint64(time.Now().UnixMilli()))
		j.waitFor("the leaver reads", func(s *rpc.JobStatus) bool { return s.GetPartitions()[0].GetHolder() == "worker-0" })
		heir := j.worker(1, uint64(time.Now().UnixMilli()))
		var hot int32 // a partition that the leaver still has when both share them
		j.waitFor("they share the partitions", func(s *rpc.JobStatus) bool {
			n := map[string]int{}
			for _, p := range s.GetPartitions() {
				n[p.GetHolder()]++
				if p.GetHolder() == "worker-0" {
					hot = p.GetPartition()
				}
			}
			return n["worker-0"] == testPartitions/2 && n["worker-1"] == testPartitions/2
		})
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					produce(b, cl, hot, 5)
				}
			}
		}()
		time.Sleep(500 * time.Millisecond) // the steady state before
		began := time.Now().UnixMilli()
		if err := leaver.stop(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // and after
		close(stop)
		<-done
		before, during := j.gaps(hot, began)
		worst, usual = max(worst, during), max(usual, before)
		if err := heir.stop(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(worst), "gap_ms")
	b.ReportMetric(float64(usual), "steady_gap_ms")
}

// gaps returns the longest time between two advances of a partition, in the second before a moment and in the second after it, ms.
func (j *job) gaps(p int32, at int64) (before, after int64) {
	j.t.Helper()
	ch, done, err := j.chief()
	if err != nil {
		j.t.Fatal(err)
	}
	defer done()
	r, err := ch.Advances(j.t.Context(), &rpc.AdvancesRequest{})
	if err != nil {
		j.t.Fatal(err)
	}
	last := int64(0)
	for _, a := range r.GetAdvances() {
		if a.GetPartition() != p || a.GetUnixMs() < at-450 || a.GetUnixMs() > at+450 {
			continue
		}
		if last > 0 {
			if a.GetUnixMs() < at {
				before = max(before, a.GetUnixMs()-last)
			} else {
				after = max(after, a.GetUnixMs()-last)
			}
		}
		last = a.GetUnixMs()
	}
	return before, after
}
