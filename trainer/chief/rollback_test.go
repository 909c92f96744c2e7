package chief

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

func upTo(end int64) map[int32]*spans.Set {
	return map[int32]*spans.Set{0: spans.Of(spans.Span{Begin: 0, End: end})}
}

func wantRollbacks(t *testing.T, m *machine, now time.Time, want ...*rpc.Rollback) {
	t.Helper()
	if diff := cmp.Diff(want, m.status(now).GetRollbacks(), protocmp.Transform()); diff != "" {
		t.Errorf("rollbacks (-want +got):\n%s", diff)
	}
}

// A server that comes back with less than it had is reported: how much is trained again for it, how much of that is left, and when it is done; another
// loss before that carries over what was still owed. The other server is not mentioned.
func TestRollbackIsReported(t *testing.T) {
	m := newTestMachine(1, 2)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	report(t, m, at(1), 0, 1, upTo(100))
	report(t, m, at(1), 1, 2, upTo(90))
	wantRollbacks(t, m, at(1))
	report(t, m, at(2), 0, 3, upTo(100)) // it was asked to end, and lost nothing
	wantRollbacks(t, m, at(2))

	report(t, m, at(3), 1, 4, upTo(40))
	r := &rpc.Rollback{Server: 1, Incarnation: 4, UnixMs: at(3).UnixMilli(), Offsets: 50, Remaining: 50}
	wantRollbacks(t, m, at(3), r)
	report(t, m, at(4), 1, 4, upTo(70))
	r.Remaining = 20
	wantRollbacks(t, m, at(4), r)

	report(t, m, at(5), 1, 5, upTo(30))
	r.DoneUnixMs = at(5).UnixMilli() // over with 20 left, which are part of the next
	again := &rpc.Rollback{Server: 1, Incarnation: 5, UnixMs: at(5).UnixMilli(), Offsets: 60, Remaining: 60}
	wantRollbacks(t, m, at(5), r, again)
	report(t, m, at(6), 1, 5, upTo(95))
	again.Remaining, again.DoneUnixMs = 0, at(6).UnixMilli()
	wantRollbacks(t, m, at(6), r, again)
	report(t, m, at(7), 1, 5, upTo(200))
	wantRollbacks(t, m, at(7), r, again)
}

// Server 0 takes the chief with it: the new chief learns from the workers what had been confirmed to them, whoever comes first.
func TestRollbackOfTheChiefsOwnServer(t *testing.T) {
	for name, workerFirst := range map[string]bool{"a worker registers first": true, "the server reports first": false} {
		t.Run(name, func(t *testing.T) {
			m := newTestMachine(1, 2)
			m.partitions[0].start = 10
			register := func() {
				if _, err := m.join(t0, &rpc.JoinRequest{
					Member: "worker-0", Generation: 1, Address: "a", Timeline: "T",
					Applied: []*rpc.OffsetSet{{Partition: 0, Watermark: 80, Above: []*rpc.Span{{Begin: 85, End: 90}}}},
				}); err != nil {
					t.Fatal(err)
				}
			}
			if workerFirst {
				register()
			}
			report(t, m, t0, 0, 7, map[int32]*spans.Set{0: spans.Of(spans.Span{Begin: 10, End: 50})})
			report(t, m, t0, 1, 2, map[int32]*spans.Set{0: spans.Of(spans.Span{Begin: 10, End: 95})})
			if !workerFirst {
				register()
			}
			wantRollbacks(t, m, t0, &rpc.Rollback{Server: 0, Incarnation: 7, UnixMs: t0.UnixMilli(), Offsets: 35, Remaining: 35})
		})
	}
}

// However often servers come back, what is remembered is bounded.
func TestRollbacksAreBounded(t *testing.T) {
	m := newTestMachine(1, 1)
	for i := range 3 * keptRollbacks {
		report(t, m, t0.Add(time.Duration(2*i)*time.Second), 0, uint64(i+1), upTo(100))
		report(t, m, t0.Add(time.Duration(2*i+1)*time.Second), 0, uint64(i+2), upTo(10))
	}
	if n := len(m.status(t0).GetRollbacks()); n != keptRollbacks {
		t.Errorf("%d rollbacks are remembered, want %d", n, keptRollbacks)
	}
}

// All of a job is killed, and nobody is left to say what had been confirmed to him: the next chief holds the servers against what the one before kept. It knows of
// the rollbacks before it too, and sees through those that were under way.
func TestNextChiefKnowsWhatWasApplied(t *testing.T) {
	at := func(s int) time.Time { return time.UnixMilli(t0.UnixMilli()).Add(time.Duration(s) * time.Second) }
	m := newTestMachine(1, 2)
	m.partitions[0].start = 10
	some := func(end int64) map[int32]*spans.Set {
		return map[int32]*spans.Set{0: spans.Of(spans.Span{Begin: 10, End: end}, spans.Span{Begin: 105, End: 110})}
	}
	report(t, m, at(1), 0, 1, some(100))
	report(t, m, at(1), 1, 2, some(100))
	report(t, m, at(2), 1, 3, some(60)) // server 1 came back with less, and is on its way
	under := &rpc.Rollback{Server: 1, Incarnation: 3, UnixMs: at(2).UnixMilli(), Offsets: 40, Remaining: 40}
	wantRollbacks(t, m, at(2), under)

	next := newTestMachine(4, 2)
	next.partitions[0].start = 10
	next.remember(m.memory())
	wantRollbacks(t, next, at(10), under)
	report(t, next, at(11), 0, 4, some(100)) // the chief's own server lost nothing; server 1 has not reported yet
	wantRollbacks(t, next, at(11), under)
	report(t, next, at(12), 1, 3, some(80)) // it outlived the chief
	under.Remaining = 20
	wantRollbacks(t, next, at(12), under)

	last := newTestMachine(5, 2)
	last.partitions[0].start = 10
	last.remember(next.memory())
	report(t, last, at(21), 0, 5, some(90)) // killed with all others, and its newest snapshot is older
	report(t, last, at(22), 1, 6, some(70))
	under.DoneUnixMs = at(22).UnixMilli() // with 20 left: what it still lacked is part of the next
	wantRollbacks(t, last, at(22), under,
		&rpc.Rollback{Server: 0, Incarnation: 5, UnixMs: at(21).UnixMilli(), Offsets: 10, Remaining: 10},
		&rpc.Rollback{Server: 1, Incarnation: 6, UnixMs: at(22).UnixMilli(), Offsets: 30, Remaining: 30})
}

// Tablets that were not restored from their newest snapshots are a rollback, whatever is known of offsets; it is told once, and nobody says more than once per process.
func TestFallbackIsARollback(t *testing.T) {
	m := newTestMachine(1, 1)
	beat := func(seq uint64) {
		t.Helper()
		if _, err := m.serverBeat(t0, &rpc.ServerBeatRequest{
			Fence: &rpc.Fence{Timeline: "T", Server: 7}, Seq: seq, Metrics: &rpc.ServerMetrics{RestoredUnixMs: 5, Fallbacks: []string{"tablet 3 was damaged"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	beat(1)
	beat(2)
	wantRollbacks(t, m, t0, &rpc.Rollback{
		Server: 0, Incarnation: 7, UnixMs: t0.UnixMilli(), SnapshotUnixMs: 5, DoneUnixMs: t0.UnixMilli(), Fallbacks: []string{"tablet 3 was damaged"},
	})
}
