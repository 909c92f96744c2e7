package trainer

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
)

// hole is a network path that can be made to swallow everything.
type hole struct{ swallows atomic.Bool }

func (h *hole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if h.swallows.Load() { // as any dialer gives up at some time: closing a client of franz-go waits for it
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &holeConn{c, h}, nil
}

type holeConn struct {
	net.Conn
	h *hole
}

func (c *holeConn) Write(b []byte) (int, error) {
	if c.h.swallows.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *holeConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.h.swallows.Load() {
			return n, err
		}
	}
}

// A worker that alone cannot reach the brokers, though it reaches the chief and the servers, gives its partitions to one that can; what it had still to read
// again as well. It gets some again when a broker answers it.
func TestWorkerCutOffFromTheBrokers(t *testing.T) {
	c := broker(t, 2)
	cl := producer(t, c)
	j := &job{t: t, spec: jobSpec(t, c, func(s *rpc.TrainSpec) { s.Servers = 1 })}
	j.server(0)
	produce(t, cl, 0, 40)
	j.waitFor("the chief", func(*rpc.JobStatus) bool { return true })
	path := &hole{}
	w, err := newWorker(testLogger(t, "cut off"), j.spec, WorkerOptions{Rank: 0, Generation: 1, Listen: "127.0.0.1:0"}, j.findChief)
	if err != nil {
		t.Fatal(err)
	}
	w.streamOpts = []kgo.Opt{kgo.Dialer(path.dial)}
	start(t, w.run)
	j.waitApplied(map[int32]int64{0: 40})
	path.swallows.Store(true)
	w.mu.Lock()
	w.ledger.want(0, 40, 60) // as if it had been read, and a server had forgotten it
	w.leases[0].position = 60
	w.mu.Unlock()
	w.repairWake.set()
	j.worker(1, 1)
	produce(t, cl, 0, 100)
	produce(t, cl, 1, 100)
	ends := map[int32]int64{0: 140, 1: 100}
	j.waitApplied(ends)
	s := j.waitFor("worker 0 holds nothing, and says why", func(s *rpc.JobStatus) bool {
		for _, p := range s.GetProblems() {
			if p.GetPartition() == -1 && p.GetKind() == rpc.PartitionProblem_KIND_UNREACHABLE {
				return true
			}
		}
		return false
	})
	for _, p := range s.GetPartitions() {
		if p.GetHolder() != "worker-1" {
			t.Errorf("partition %d is read by %q", p.GetPartition(), p.GetHolder())
		}
	}
	path.swallows.Store(false)
	j.waitFor("worker 0 reads again", func(s *rpc.JobStatus) bool {
		return len(s.GetProblems()) == 0 && s.GetPartitions()[0].GetHolder() != s.GetPartitions()[1].GetHolder()
	})
	produce(t, cl, 0, 50)
	produce(t, cl, 1, 50)
	ends = map[int32]int64{0: 190, 1: 150}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// A worker that no broker answers, and whose connections hang, can still be told to leave.
func TestCutOffWorkerCanEnd(t *testing.T) {
	c := broker(t, 1)
	j := &job{t: t, spec: jobSpec(t, c, func(s *rpc.TrainSpec) { s.Servers = 1 })}
	j.server(0)
	j.waitFor("the chief", func(*rpc.JobStatus) bool { return true })
	path := &hole{}
	w, err := newWorker(testLogger(t, "cut off"), j.spec, WorkerOptions{Rank: 0, Generation: 1, Listen: "127.0.0.1:0"}, j.findChief)
	if err != nil {
		t.Fatal(err)
	}
	w.streamOpts = []kgo.Opt{kgo.Dialer(path.dial)}
	p := start(t, w.run)
	j.waitFor("it reads", func(s *rpc.JobStatus) bool { return s.GetPartitions()[0].GetHolder() == "worker-0" })
	path.swallows.Store(true)
	j.waitFor("it says that it is cut off", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) > 0 })
	p.cancel()
	eventually(t, func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	}, func() string { return "the worker ends" })
	if p.err != nil {
		t.Error(p.err)
	}
}
