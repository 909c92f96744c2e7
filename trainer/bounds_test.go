package trainer

import (
	"context"
	"testing"

	"github.com/kale-sched/kale/core/rpc"
)

// gate stands before the parameter servers and lets pushes through only once it is open.
type gate struct {
	parameters
	open chan struct{}
}

func (g *gate) Push(ctx context.Context, p *pushRequest) ([]*rpc.Missing, error) {
	select {
	case <-g.open:
		return g.parameters.Push(ctx, p)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// gatedWorker starts a worker whose pushes wait until open is called.
func (j *job) gatedWorker(rank int) (w *worker, open func()) {
	j.t.Helper()
	w, err := newWorker(testLogger(j.t, "gated"), j.spec, WorkerOptions{Rank: rank, Generation: 1, Listen: "127.0.0.1:0"}, j.servers[0].store.Chief)
	if err != nil {
		j.t.Fatal(err)
	}
	g := &gate{open: make(chan struct{})}
	w.onStart = func() { g.parameters, w.params = w.params, g }
	start(j.t, w.run)
	return w, func() { close(g.open) }
}

// gatedWorkerOpen is gatedWorker with its gate open: a worker whose inside the test can see.
func (j *job) gatedWorkerOpen(rank int) (*worker, func()) {
	j.t.Helper()
	w, open := j.gatedWorker(rank)
	open()
	return w, open
}

// TestRule13Window: with nothing applied, a worker takes in no more of a partition than the window, however much room its queue has; other
// partitions are not held up. When progress resumes, so does reading.
func TestRule13Window(t *testing.T) {
	c := broker(t, 2)
	cl := producer(t, c)
	produce(t, cl, 0, 1000)
	produce(t, cl, 1, 90)
	const window = 100
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.Window, s.Worker.Queue = window, 10000 }))
	w, open := j.gatedWorker(0)
	positions := func() (p0, p1 int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.leases[0] == nil || w.leases[1] == nil {
			return -1, -1
		}
		return w.leases[0].position, w.leases[1].position
	}
	s := j.waitFor("the window holds the source back", func(s *rpc.JobStatus) bool {
		_, p1 := positions()
		return s.GetTotals().GetFetchWaits() > 0 && p1 == 90
	})
	beats := s.GetMembers()[0].GetLastBeatUnixMs()
	j.waitFor("some beats more", func(s *rpc.JobStatus) bool { return s.GetMembers()[0].GetLastBeatUnixMs() > beats+200 })
	if p0, _ := positions(); p0 != 96 { // six chunks of 16
		t.Errorf("position %d with nothing applied, want 96 within a window of %d", p0, window)
	}
	open()
	ends := map[int32]int64{0: 1000, 1: 90}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// README, "Nothing is lost silently": a full queue slows the source and never drops.
func TestFullQueueHoldsTheSourceBack(t *testing.T) {
	c := broker(t, 1)
	produce(t, producer(t, c), 0, 3000)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.Window, s.Worker.Queue = 1<<20, 128 }))
	w, open := j.gatedWorker(0)
	j.waitFor("the queue holds the source back", func(s *rpc.JobStatus) bool { return s.GetTotals().GetFetchWaits() > 0 })
	w.mu.Lock()
	queued, position := w.unit.Queued(), w.leases[0].position
	w.mu.Unlock()
	// In the queue, and in at most five batches of 64 under way: assembled, handed over, stepped, waiting to be pushed, in the push.
	if queued > 128 || position > 128+5*64 {
		t.Errorf("%d records queued, position %d", queued, position)
	}
	open()
	ends := map[int32]int64{0: 3000}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}
