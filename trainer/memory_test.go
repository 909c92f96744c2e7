package trainer

import (
	"context"
	"testing"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// server runs a real parameter server, as the program does.
func (j *job) server(i int) *process {
	return start(j.t, func(ctx context.Context) error {
		return RunServer(ctx, testLogger(j.t, "server"), j.spec, ServerOptions{Index: i, Listen: "127.0.0.1:0"})
	})
}

// Rule 16 and what people read: a new chief knows which spans were given up, and what the workers had trained that have left.
func TestChiefRemembers(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	spec := jobSpec(t, c, func(s *rpc.TrainSpec) { s.Servers, s.Stream.Start = 1, "earliest" })
	j := &job{t: t, spec: spec}
	produce(t, cl, 0, 200)
	ps := j.server(0)
	w := j.worker(0, 1)
	j.waitApplied(map[int32]int64{0: 200})
	before := j.waitFor("the records are reported", func(s *rpc.JobStatus) bool { return s.GetTotals().GetRecords() >= 200 })
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if err := ps.stop(); err != nil {
		t.Fatal(err)
	}
	// What an operator had given up, as MarkLost leaves it.
	store, err := checkpoint.Open(spec.GetCheckpointDir(), spec.GetJob())
	if err != nil {
		t.Fatal(err)
	}
	state, err := store.LoadJob()
	if err != nil {
		t.Fatal(err)
	}
	p := &serverProcess{job: state, store: store, incarnation: mustClaim(t, store)}
	for range 2 { // asked twice, kept once
		if err := p.keepLost(&rpc.Span{Partition: 0, Begin: 200, End: 300}); err != nil {
			t.Fatal(err)
		}
	}
	if state, err = store.LoadJob(); err != nil || len(state.Lost) != 1 {
		t.Fatalf("lost spans %v, %v; want one", state.Lost, err)
	}
	j.server(0)
	after := j.waitFor("the next chief", func(s *rpc.JobStatus) bool { return s.GetChief() > before.GetChief() })
	if got := after.GetTotals(); got.GetRecords() != before.GetTotals().GetRecords() || len(got.GetLagMs().GetCounts()) == 0 {
		t.Errorf("the next chief counts %d records and the lags %v, want %d", got.GetRecords(), got.GetLagMs(), before.GetTotals().GetRecords())
	}
	j.worker(0, 2)
	j.waitApplied(map[int32]int64{0: 300}) // nobody asks for what was given up: it is applied as empty
}

func mustClaim(t *testing.T, store *checkpoint.Store) uint64 {
	t.Helper()
	inc, err := store.ClaimIncarnation(0)
	if err != nil {
		t.Fatal(err)
	}
	return inc
}

// findChief looks where the chief is, as workers do.
func (j *job) findChief() (checkpoint.ChiefInfo, error) {
	store, err := checkpoint.Open(j.spec.GetCheckpointDir(), j.spec.GetJob())
	if err != nil {
		return checkpoint.ChiefInfo{}, err
	}
	return store.Chief()
}
