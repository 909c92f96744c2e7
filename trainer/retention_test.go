package trainer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kale-sched/kale/core/rpc"
)

// holdFetches makes the broker fail every fetch until release is called.
func holdFetches(t testing.TB, c *kfake.Cluster) (release func()) {
	t.Helper()
	var held atomic.Bool
	held.Store(true)
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !held.Load() {
			return nil, nil, false
		}
		c.KeepControl()
		return nil, errors.New("held by the test"), true
	})
	return func() { held.Store(false) }
}

// TestRule16FetchedIsNotLost: retention removes what comes next, while records that were fetched still wait for their chunk to fill. They are trained; only
// what was never fetched is reported.
func TestRule16FetchedIsNotLost(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.LingerMs = 3_600_000 }))
	w, _ := j.gatedWorkerOpen(0)
	produce(t, cl, 0, 16+5)
	// The first chunk is cut, so the five after it, which came with the same fetch, wait uncut.
	eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.leases[0] != nil && w.leases[0].position == 16
	}, func() string { return "the first chunk" })
	release := holdFetches(t, c)
	produce(t, cl, 0, 40)
	if err := c.DeleteRecords(testTopic, 0, 30); err != nil {
		t.Fatal(err)
	}
	release()
	s := j.waitFor("the loss is reported", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 1 })
	if p := s.GetProblems()[0]; p.GetKind() != rpc.PartitionProblem_KIND_LOST || p.GetNeeded() != 21 || p.GetLogStart() != 30 {
		t.Errorf("problem: %v", p)
	}
	w.mu.Lock()
	position := w.leases[0].position
	w.mu.Unlock()
	if position != 21 {
		t.Errorf("position %d, want 21: what was fetched counts", position)
	}
}

// pastRetention is a worker that does nothing by itself, and its source, of a topic with 100 records in partition 0 of which the first 40 are gone.
func pastRetention(t *testing.T) (*worker, *source) {
	t.Helper()
	c := broker(t, 1)
	produce(t, producer(t, c), 0, 100)
	if err := c.DeleteRecords(testTopic, 0, 40); err != nil {
		t.Fatal(err)
	}
	w := stillWorker(t)
	w.spec.Stream.Brokers = c.ListenAddrs()
	s, err := newSource(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return w, s
}

// TestRule16GapBelowTheLogStartIsALoss: a fetch that begins above what is needed, because the log does, is no hole, even if the broker reports no error. Clients have
// been seen to move on to the log's start by themselves.
func TestRule16GapBelowTheLogStartIsALoss(t *testing.T) {
	w, s := pastRetention(t)
	exchange(t, w, grants(grant(0, 1, 1, 10)))
	s.reconcile()
	fetched := kgo.FetchPartition{Partition: 0, LogStartOffset: 40, Records: []*kgo.Record{{Offset: 40, Value: []byte("x")}}}
	if err := s.take(t.Context(), fetched, time.Now()); err != nil {
		t.Fatal(err)
	}
	s.place()
	l := w.leases[0]
	if !l.stopped || l.position != 10 || l.problem.GetKind() != rpc.PartitionProblem_KIND_LOST || l.problem.GetNeeded() != 10 || l.problem.GetLogStart() != 40 {
		t.Errorf("stopped %v at %d: %v", l.stopped, l.position, l.problem)
	}

	// A gap that the log's start does not explain is a hole: compaction, or aborted records of a broker that hides its control records.
	exchange(t, w, grants(grant(0, 1, 1, 10), grant(1, 1, 2, 10)))
	s.reconcile()
	if err := s.take(t.Context(), kgo.FetchPartition{Partition: 1, Records: fetched.Records}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if r := s.readers[1]; r.ending != nil || r.chunk.seen != 41 {
		t.Errorf("ending %v, seen up to %d", r.ending, r.chunk.seen)
	}
}

// A partition that stops for a loss, and may go on before its reader has been looked at again, as when the chief answers at once, is read on. (It stood still for ever.)
func TestRule16LossThatIsGivenUpAtOnce(t *testing.T) {
	w, s := pastRetention(t)
	exchange(t, w, grants(grant(0, 1, 1, 0)))
	l := w.leases[0]
	for !l.stopped {
		s.reconcile()
		s.place()
		if !l.stopped {
			s.poll(t.Context(), t.Context())
		}
	}
	w.mu.Lock()
	w.takeLost([]*rpc.Span{{Partition: 0, Begin: 0, End: 40}})
	w.mu.Unlock()
	if l.stopped {
		t.Fatalf("it does not go on: %v", l.problem)
	}
	for until := time.Now().Add(30 * time.Second); l.position < 100 && time.Now().Before(until); {
		s.reconcile()
		s.place()
		armed, done := context.WithTimeout(t.Context(), 10*time.Millisecond)
		s.poll(t.Context(), armed)
		done()
	}
	if l.position != 100 {
		t.Errorf("it was read up to %d, want 100", l.position)
	}
}

// TestRule16RetentionOvertakes: retention removes records before they are trained. The partition stops and says so; nothing is skipped until somebody
// gives the span up, or all such spans, which is counted.
func TestRule16RetentionOvertakes(t *testing.T) {
	for _, policy := range []string{"stop", "skip", "stop, then skip"} {
		t.Run(policy, func(t *testing.T) {
			c := broker(t, 2)
			cl := producer(t, c)
			produce(t, cl, 0, 100)
			produce(t, cl, 1, 20)
			if err := c.DeleteRecords(testTopic, 0, 40); err != nil {
				t.Fatal(err)
			}
			j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Stream.OnLost, _, _ = strings.Cut(policy, ",") }))
			j.worker(0, 1)
			if policy != "skip" {
				s := j.waitFor("the loss is reported", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 1 })
				p := s.GetProblems()[0]
				if p.GetKind() != rpc.PartitionProblem_KIND_LOST || p.GetPartition() != 0 || p.GetNeeded() != 0 || p.GetLogStart() != 40 {
					t.Fatalf("problem: %v", p)
				}
				j.waitApplied(map[int32]int64{1: 20}) // the other partition is not held up
				if got := j.status().GetPartitions()[0]; got.GetApplied() != 0 || got.GetFrontier() != 0 {
					t.Fatalf("records were skipped without being asked: %v", got)
				}
				ch, done, err := j.chief()
				if err != nil {
					t.Fatal(err)
				}
				defer done()
				if policy == "stop" {
					_, err = ch.MarkLost(t.Context(), &rpc.MarkLostRequest{Span: &rpc.Span{Partition: 0, Begin: 0, End: 40}})
				} else {
					_, err = ch.SetPolicies(t.Context(), &rpc.SetPoliciesRequest{Policies: &rpc.Policies{OnLost: "skip", OnUndecodable: "stop"}})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			ends := map[int32]int64{0: 100, 1: 20}
			j.waitApplied(ends)
			j.checkOnce(readLog(t, c, ends), nil)
			s := j.waitFor("the loss is counted and the problem gone", func(s *rpc.JobStatus) bool {
				return s.GetLostOffsets() == 40 && len(s.GetProblems()) == 0
			})
			if got := s.GetTrainedRecords(); got != 80 {
				t.Errorf("%d records trained, want 80", got)
			}
		})
	}
}

// TestRule16RetentionOvertakesRepair: what a restored server forgot is not in the log any more. It is reported and, when given up, counted; the rest of the
// span is repaired.
func TestRule16RetentionOvertakesRepair(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c))
	j.worker(0, 1)
	produce(t, cl, 0, 100)
	j.waitApplied(map[int32]int64{0: 100})
	if err := c.DeleteRecords(testTopic, 0, 60); err != nil {
		t.Fatal(err)
	}
	j.crash(1) // it never wrote a snapshot
	j.waitFor("the loss is reported", func(s *rpc.JobStatus) bool {
		return len(s.GetProblems()) == 1 && s.GetProblems()[0].GetKind() == rpc.PartitionProblem_KIND_LOST && s.GetProblems()[0].GetLogStart() == 60
	})
	ch, done, err := j.chief()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := ch.MarkLost(t.Context(), &rpc.MarkLostRequest{Span: &rpc.Span{Partition: 0, Begin: 0, End: 60}}); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 0, 50)
	j.waitApplied(map[int32]int64{0: 150})
	for _, tb := range j.sums() {
		p := tb.GetPartitions()[0]
		n, lost := uint64(150), uint64(0) // the tablets of server 0 had trained what is gone
		if tb.GetTablet() >= 4 {
			n, lost = 90, 60
		}
		if p.GetN() != n || p.GetLostOffsets() != lost {
			t.Errorf("tablet %d: %d trained, %d lost; want %d and %d", tb.GetTablet(), p.GetN(), p.GetLostOffsets(), n, lost)
		}
	}
}
