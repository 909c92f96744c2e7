package trainer

import (
	"testing"

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
