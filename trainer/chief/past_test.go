package chief

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
)

// trains joins a worker process and lets it report.
func trains(t *testing.T, m *machine, rank int, startedMS int64, records uint64) uint64 {
	t.Helper()
	name := fmt.Sprint("worker-", rank)
	resp, err := m.join(t0, &rpc.JoinRequest{Member: name, Rank: int32(rank), Generation: 1, Address: "a", StartedUnixMs: startedMS})
	if err != nil {
		t.Fatal(err)
	}
	if records > 0 {
		m.beat(t0, &rpc.BeatRequest{Member: name, Session: resp.GetSession(), Seq: 1, State: rpc.MemberState_MEMBER_STATE_READY, Metrics: &rpc.WorkerMetrics{
			Records: records, Validation: &rpc.Validation{Positive: []uint64{records}, Negative: []uint64{0, records}}, LagMs: &rpc.Histogram{Counts: []uint64{0, 0, records}},
		}})
	}
	return resp.GetSession()
}

// successor is the chief after m, which was told what m kept.
func successor(t *testing.T, m *machine) *machine {
	t.Helper()
	raw, err := proto.Marshal(m.memory())
	if err != nil {
		t.Fatal(err)
	}
	o := m.opt
	o.Incarnation++
	o.Memory = &rpc.ChiefMemory{}
	if err := proto.Unmarshal(raw, o.Memory); err != nil {
		t.Fatal(err)
	}
	return newMachine(o, t0)
}

func wantTotals(t *testing.T, m *machine, records uint64, when string) {
	t.Helper()
	sum := m.totals()
	bin := func(c []uint64, i int) uint64 {
		if i < len(c) {
			return c[i]
		}
		return 0
	}
	if p, n, l := bin(sum.GetValidation().GetPositive(), 0), bin(sum.GetValidation().GetNegative(), 1), bin(sum.GetLagMs().GetCounts(), 2); sum.GetRecords() != records ||
		p != records || n != records || l != records {
		t.Errorf("%s: %d records, %d positive, %d negative, %d lags; want %d of each", when, sum.GetRecords(), p, n, l, records)
	}
}

// The totals outlive a chief: those of workers that had left, of workers that end with the chief, and of those that register again, which count once.
func TestTotalsOutliveTheChief(t *testing.T) {
	m := newTestMachine(1, 1)
	trains(t, m, 0, 1, 100)
	m.tick(t0.Add(time.Hour)) // it was not heard of
	trains(t, m, 0, 2, 20)    // its successor
	trains(t, m, 1, 1, 3)
	wantTotals(t, m, 123, "before")
	m = successor(t, m)
	wantTotals(t, m, 123, "with a new chief")
	trains(t, m, 1, 1, 0)
	wantTotals(t, m, 123, "when one has registered again")
	trains(t, m, 1, 1, 7)
	wantTotals(t, m, 127, "when it has reported again")
	m = successor(t, successor(t, m))
	wantTotals(t, m, 127, "two chiefs later")
	o := m.opt
	o.Memory, o.Timeline = m.memory(), "another"
	wantTotals(t, newMachine(o, t0), 0, "in another timeline")
}

// What is kept of processes does not grow with their number, and the totals are those of all.
func TestMemoryIsBounded(t *testing.T) {
	m := newTestMachine(1, 1)
	const n = 5 * keptProcesses
	for i := range n {
		trains(t, m, 0, int64(i+1), 1)
	}
	wantTotals(t, m, n, "after many")
	if got := len(m.memory().GetProcesses()); got > keptProcesses+1 {
		t.Errorf("%d processes are kept, want %d and the one that lives", got, keptProcesses)
	}
	for range 3 {
		m = successor(t, m)
	}
	wantTotals(t, m, n, "with a later chief")
}
