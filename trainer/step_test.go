package trainer

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
)

// randomBatch is a batch of n records with random features and weights.
func randomBatch(e *engine, n int) *batch {
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	b := &batch{}
	c := &chunk{id: 1, begin: 0, end: int64(n)}
	b.chunks = append(b.chunks, c)
	const rows = 20
	for range rows {
		b.ids = append(b.ids, rng.Uint64())
		for range e.width {
			b.rows = append(b.rows, float32(rng.NormFloat64()))
		}
	}
	for range e.spec.DenseSize() {
		b.params = append(b.params, float32(rng.NormFloat64()*0.3))
	}
	for i := range n {
		b.label = append(b.label, float32(rng.IntN(2)))
		for range e.spec.DenseFields {
			b.dense = append(b.dense, float32(rng.NormFloat64()))
		}
		for range e.spec.SparseFields {
			b.slots = append(b.slots, int32(rng.IntN(rows)))
		}
		b.recs = append(b.recs, trained{offset: int64(i), hash: uint64(i)})
	}
	return b
}

func testEngine(t testing.TB, kind string) *engine {
	t.Helper()
	needONNX(t)
	e, err := newEngine(slog.New(slog.DiscardHandler), &rpc.TrainSpec{
		Features: &rpc.FeatureSpec{Sparse: []string{"a", "b", "c"}, Dense: []string{"x"}},
		Model:    &rpc.ModelSpec{Kind: kind, EmbeddingDim: 4, Hidden: []int32{8, 4}, Batch: 32, L2: 0.01, Seed: 5},
		Worker:   &rpc.WorkerSpec{Threads: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
	return e
}

// TestRule7PartsOfABatchAddUp: the gradient of a batch is the sum of those of any division of its records, weight decay included, since the loss is a sum over the
// nominal batch. So a tablet that gets the batch in two pieces gets the same as one that gets it whole.
func TestRule7PartsOfABatchAddUp(t *testing.T) {
	for _, kind := range []string{"lr", "deepfm"} {
		t.Run(kind, func(t *testing.T) {
			e := testEngine(t, kind)
			b := randomBatch(e, 29) // not full: three rows of padding
			whole, err := e.compute(b, nil)
			if err != nil {
				t.Fatal(err)
			}
			var left, right []int
			for i := range b.records() {
				if i%3 == 0 {
					left = append(left, i)
				} else {
					right = append(right, i)
				}
			}
			x, err := e.compute(b, left)
			if err != nil {
				t.Fatal(err)
			}
			y, err := e.compute(b, right)
			if err != nil {
				t.Fatal(err)
			}
			near := func(what string, got, a, b float32) {
				if d := math.Abs(float64(got - a - b)); d > 1e-5*(1+math.Abs(float64(got))) {
					t.Errorf("%s: %g is not %g + %g", what, got, a, b)
				}
			}
			// The rows of records that do not count are left out.
			row := func(g *gradients, id uint64) []float32 {
				if i := slices.Index(g.ids, id); i >= 0 {
					return g.rows[i*e.width : (i+1)*e.width]
				}
				return make([]float32, e.width)
			}
			for _, id := range whole.ids {
				for k := range e.width {
					near("rows", row(whole, id)[k], row(x, id)[k], row(y, id)[k])
				}
			}
			if len(x.ids) >= len(whole.ids) && len(y.ids) >= len(whole.ids) {
				t.Errorf("%d and %d rows of %d: none was left out", len(x.ids), len(y.ids), len(whole.ids))
			}
			for i := range whole.dense {
				near("dense", whole.dense[i], x.dense[i], y.dense[i])
			}
			near("share", whole.share, x.share, y.share)
			near("share", whole.share, 29.0/32, 0)
			if diff := cmp.Diff(whole.pred, x.pred); diff != "" {
				t.Errorf("predictions depend on which records count: %s", diff)
			}
		})
	}
}

func TestABatchThatIsTooLargeIsRefused(t *testing.T) {
	e := testEngine(t, "lr")
	if _, err := e.compute(randomBatch(e, 33), nil); err == nil {
		t.Error("33 records fit into a batch of 32")
	}
}

// TestPartsOfABatch: what is pushed for a span counts the records that are really in the tensor (rule 19), and only those.
func TestPartsOfABatch(t *testing.T) {
	b := &batch{
		chunks: []*chunk{{partition: 1, begin: 10, end: 20}, {partition: 0, begin: 10, end: 12}, {partition: 1, begin: 40, end: 90, lost: true}},
		recs:   []trained{{partition: 1, offset: 10, hash: 1}, {partition: 1, offset: 19, hash: 2}, {partition: 0, offset: 11, hash: 4}},
		dead:   []trained{{partition: 1, offset: 12, hash: 8}},
	}
	want := []*rpc.RangePart{
		{Span: &rpc.Span{Partition: 1, Begin: 10, End: 20}, N: 2, Hash: 3, DeadN: 1, DeadHash: 8},
		{Span: &rpc.Span{Partition: 0, Begin: 10, End: 12}, N: 1, Hash: 4},
		{Span: &rpc.Span{Partition: 1, Begin: 40, End: 90}, LostOffsets: 50},
	}
	show := func(ps []*rpc.RangePart) (out []string) {
		for _, p := range ps {
			out = append(out, p.String())
		}
		return out
	}
	if diff := cmp.Diff(show(want), show(b.parts())); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(show([]*rpc.RangePart{{Span: &rpc.Span{Partition: 1, Begin: 11, End: 13}, DeadN: 1, DeadHash: 8}}), show([]*rpc.RangePart{b.part(1, 11, 13)})); diff != "" {
		t.Error(diff)
	}
	if got := b.part(1, 80, 100).GetLostOffsets(); got != 10 {
		t.Errorf("%d lost offsets in [80,100), want 10", got)
	}
	if diff := cmp.Diff([]int{1, 2}, b.indexesIn([]*rpc.Span{{Partition: 1, Begin: 13, End: 20}, {Partition: 0, Begin: 0, End: 100}})); diff != "" {
		t.Error(diff)
	}
}

func TestLagBuckets(t *testing.T) {
	for _, ms := range []float64{-5, 0, 1, 1.19, 2, 3, 1000, 1e6} {
		i := lagBucket(ms)
		upper := math.Pow(2, float64(i)/4)
		if ms > upper*1.000001 {
			t.Errorf("%g ms is above the bound %g of bucket %d", ms, upper, i)
		}
		if i > 0 && ms <= math.Pow(2, float64(i-1)/4)*0.999999 {
			t.Errorf("%g ms belongs below bucket %d", ms, i)
		}
	}
	if lagBucket(1e300) != lagBuckets-1 {
		t.Error("the last bucket takes the rest")
	}
}

// TestRule22ReplaysAreNotValidated: a replayed record is trained, and left out of the scores.
func TestRule22ReplaysAreNotValidated(t *testing.T) {
	var m metrics
	b := &batch{recs: []trained{{}, {replay: true}, {}}, label: []float32{1, 1, 0}}
	now := time.Unix(100, 0)
	m.setReady(now)
	m.stepBegins(now, true)
	m.stepEnds(b, &gradients{pred: []float32{1, 0.5, 0.25}}, time.Second)
	r := m.report(now.Add(2*time.Second), 7)
	if r.GetRecords() != 3 || r.GetSteps() != 1 || !r.GetSaturated() || r.GetBusySeconds() != 1 || r.GetWallSeconds() != 2 || r.GetQueueRecords() != 7 {
		t.Errorf("report: %v", r)
	}
	if p, n := r.GetValidation().GetPositive(), r.GetValidation().GetNegative(); p[255] != 1 || n[64] != 1 || p[128] != 0 {
		t.Errorf("validation: %v", r.GetValidation())
	}
	if want := -math.Log(1-1e-7) - math.Log(0.75); math.Abs(r.GetLossSum()-want) > 1e-9 {
		t.Errorf("loss %g, want %g", r.GetLossSum(), want)
	}
	if m.report(now.Add(3*time.Second), 0).GetSaturated() {
		t.Error("an idle worker says that it is saturated")
	}
}

// A step in which the process was suspended for minutes does not make the next ones be thought as long, for which the pull of each would wait; one that has become
// slower is learnt.
func TestSuspendedStepIsNoMeasure(t *testing.T) {
	var m metrics
	b := &batch{}
	now := time.Unix(100, 0)
	for range 20 {
		m.stepBegins(now, true)
		m.stepEnds(b, nil, 50*time.Millisecond)
	}
	m.stepBegins(now, true)
	m.stepEnds(b, nil, 5*time.Minute)
	if _, step := m.stepLeft(now); step > 60*time.Millisecond {
		t.Errorf("after a step of five minutes one of 50 ms is thought to take %v", step)
	}
	for range 60 {
		m.stepBegins(now, true)
		m.stepEnds(b, nil, 400*time.Millisecond)
	}
	if _, step := m.stepLeft(now); step < 380*time.Millisecond {
		t.Errorf("steps take 400 ms by now, and are thought to take %v", step)
	}
}

// TestSaturatedMeansEveryStep: one step that had to wait for records, and the interval teaches nothing about capacity.
func TestSaturatedMeansEveryStep(t *testing.T) {
	var m metrics
	b := &batch{}
	now := time.Unix(100, 0)
	for _, full := range []bool{true, false, true} {
		m.stepBegins(now, full)
		m.stepEnds(b, nil, time.Millisecond)
	}
	if m.report(now, 0).GetSaturated() {
		t.Error("saturated, though a step waited")
	}
	m.stepBegins(now, true)
	if !m.report(now, 0).GetSaturated() || !m.report(now.Add(time.Second), 0).GetSaturated() {
		t.Error("one long step that began with a full batch is saturated for as long as it takes")
	}
}

func BenchmarkCompute(b *testing.B) {
	e := testEngine(b, "deepfm")
	x := randomBatch(e, 32)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.compute(x, nil); err != nil {
			b.Fatal(err)
		}
	}
}
