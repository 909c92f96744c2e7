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
	r.Remaining, r.DoneUnixMs = 0, at(5).UnixMilli()
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
