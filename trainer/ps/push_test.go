package ps

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kale-sched/kale/core/rpc"
)

// Rule 2: every message names timeline, incarnation and map version, and the newest chief; whoever disagrees is refused without effect.
func TestRule2FencedMessagesAreRefused(t *testing.T) {
	r := newRig(t, 4, 1, 8, 2)
	s := r.start(0)
	s.SetChief(7)
	s.SetChief(5) // never back
	for name, change := range map[string]func(*rpc.Fence){
		"an old incarnation":  func(f *rpc.Fence) { f.Server-- },
		"a later incarnation": func(f *rpc.Fence) { f.Server++ },
		"no incarnation":      func(f *rpc.Fence) { f.Server = 0 },
		"another timeline":    func(f *rpc.Fence) { f.Timeline = "t0" },
		"another map":         func(f *rpc.Fence) { f.MapVersion++ },
		"an old chief":        func(f *rpc.Fence) { f.Chief = 6 },
	} {
		t.Run(name, func(t *testing.T) {
			req := request(s, []uint64{1}, part(0, 0, 10))
			change(req.Fence)
			_, err := s.Push(t.Context(), req)
			wantCode(t, err, codes.FailedPrecondition)
			_, err = s.Pull(t.Context(), &rpc.PullRequest{Fence: req.Fence})
			wantCode(t, err, codes.FailedPrecondition)
		})
	}
	_, err := s.Push(t.Context(), &rpc.PushRequest{})
	wantCode(t, err, codes.FailedPrecondition)
	if applied, touched, _ := watermarks(s); applied != 0 || touched != 0 {
		t.Errorf("a refused push moved the watermark: applied %d, touched %d", applied, touched)
	}
	// A newer chief that the sender knows of fences the older one here as well.
	req := request(s, []uint64{1}, part(0, 0, 10))
	req.Fence.Chief = 9
	r.push(s, req, 4, 0, 0)
	req.Fence.Chief = 8
	_, err = s.Push(t.Context(), req)
	wantCode(t, err, codes.FailedPrecondition)
}

// Rule 5: a duplicate that arrives while the first is between its claim and its last weight waits, and its answer is true when it gets
// it. The naive server answers "already applied" as soon as the range is marked.
func TestRule5DuplicateDuringApplyWaits(t *testing.T) {
	r := newRig(t, 1, 1, 4, 2)
	s := r.start(0)
	claimed, release := make(chan struct{}), make(chan struct{})
	arrived := make(chan struct{}, 2)
	first := true
	s.beforeTablet = func(int) { arrived <- struct{}{} }
	s.midApply = func(int) {
		if first {
			first = false
			close(claimed)
			<-release
		}
	}
	type result struct {
		answer *rpc.PushResponse
		err    error
	}
	push := func(done chan result) {
		answer, err := s.Push(context.Background(), request(s, []uint64{3}, part(0, 0, 10)))
		done <- result{answer, err}
	}
	one, two := make(chan result, 1), make(chan result, 1)
	go push(one)
	<-arrived
	<-claimed
	go push(two)
	<-arrived
	select {
	case got := <-two:
		t.Errorf("the duplicate was answered (%v) before the first push was applied", got)
		two <- got
	case <-time.After(50 * time.Millisecond): // only a wrong server is in time; a slow machine lets it pass, and fails nothing
	}
	close(release)
	if got := <-one; got.err != nil || got.answer.Applied != 1 {
		t.Errorf("first: %v", got)
	}
	if got := <-two; got.err != nil || got.answer.Already != 1 {
		t.Errorf("duplicate: %v, want already applied", got)
	}
	if row, dense := r.weights(s, 3); row != 1 || dense[0] != 1 {
		t.Errorf("the row is %v, the dense weight %v: want each record's gradient once, 1", row, dense[0])
	}
}

// Rule 5: a push whose caller gives up in mid-apply is applied whole, so that its retry finds the range marked. The naive server stops
// half-way, or marks the range after the weights.
func TestRule5AbandonedPushIsAppliedOnce(t *testing.T) {
	r := newRig(t, 4, 1, 4, 2)
	s := r.start(0)
	ctx, cancel := context.WithCancel(t.Context())
	s.midApply = func(tablet int) {
		if tablet == 1 {
			cancel()
		}
	}
	ids := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	if _, err := s.Push(ctx, request(s, ids, part(0, 0, 10))); err != nil {
		t.Fatal(err)
	}
	r.push(s, request(s, ids, part(0, 0, 10)), 0, 4, 0)
	for _, id := range ids {
		if row, _ := r.weights(s, id); row != 1 {
			t.Errorf("row %d is %v, want 1", id, row)
		}
	}
}

// Rule 5: what cannot be applied is refused before anything is claimed, with a message that names it; the corrected push then applies everywhere.
func TestRule5InvalidPushClaimsNothing(t *testing.T) {
	r := newRig(t, 8, 2, 16, 2)
	s := r.start(1)
	var mine, others []uint64
	for id := uint64(0); id < 100; id++ {
		if r.opt.Layout.ServerOfRow(id) == 1 {
			mine = append(mine, id)
		} else {
			others = append(others, id)
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, c := range []struct {
		name, want string
		change     func(*rpc.PushRequest)
	}{
		{"a NaN in a row", "row ", func(q *rpc.PushRequest) { putFloats(q.Grads[12:], []float32{nan}) }},
		{"an infinity in the dense part", "dense weight 9", func(q *rpc.PushRequest) { putFloats(q.Dense[4:], []float32{inf}) }},
		{"a gradient whose square is infinite", "beyond", func(q *rpc.PushRequest) { putFloats(q.Dense, []float32{3e30}) }},
		{"gradients cut off", "bytes of gradients", func(q *rpc.PushRequest) { q.Grads = q.Grads[:8] }},
		{"ids cut off", "multiple of 8", func(q *rpc.PushRequest) { q.Ids = q.Ids[:12] }},
		{"dense cut off", "dense weights of server 1", func(q *rpc.PushRequest) { q.Dense = q.Dense[:4] }},
		{"no dense gradient", "dense weights of server 1", func(q *rpc.PushRequest) { q.Dense = nil }},
		{"another server's row", "does not serve", func(q *rpc.PushRequest) { q.Ids = appendID(q.Ids[:0], others[0]); q.Grads = q.Grads[:8] }},
		{"another server's tablet", "does not serve tablet 0", func(q *rpc.PushRequest) { q.Tablets = []int32{0} }},
		{"a row of a tablet that is not addressed", "does not address", func(q *rpc.PushRequest) { q.Tablets = []int32{int32(r.opt.Layout.TabletOfRow(mine[0])) ^ 1} }},
		{"no spans", "names no span", func(q *rpc.PushRequest) { q.Parts = nil }},
		{"an empty span", "not a span", func(q *rpc.PushRequest) { q.Parts[0].Span.End = 0 }},
		{"a missing span", "not a span", func(q *rpc.PushRequest) { q.Parts[0].Span = nil }},
		{"spans that overlap", "overlap", func(q *rpc.PushRequest) { q.Parts = append(q.Parts, part(1, 200, 300), part(0, 9, 12)) }},
		{"more records than offsets", "cannot hold", func(q *rpc.PushRequest) { q.Parts[0].N = 11 }},
		{"more records than offsets, wrapped", "cannot hold", func(q *rpc.PushRequest) { q.Parts[0].DeadN = math.MaxUint64 }},
		{"a span below the pinned start", "below the pinned start 100", func(q *rpc.PushRequest) { q.Parts = append(q.Parts, part(1, 99, 120)) }},
		{"a share that is no number", "share", func(q *rpc.PushRequest) { q.Share = nan }},
		{"gradients of no records", "no records", func(q *rpc.PushRequest) { q.Parts[0].N = 0 }},
		{"counts", "not the counting model", func(q *rpc.PushRequest) { q.CountIds = appendID(nil, 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := request(s, mine, part(0, 0, 10))
			c.change(req)
			_, err := s.Push(t.Context(), req)
			wantCode(t, err, codes.InvalidArgument)
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %q in it", err, c.want)
			}
		})
	}
	r.push(s, request(s, mine, part(0, 0, 10)), 4, 0, 0)
	if row, _ := r.weights(s, mine[0]); row != 1 {
		t.Errorf("row is %v, want 1: a refused push left something behind", row)
	}
}

// Rule 16, as far as tablets see it: without its pinned start a partition cannot be trained, since no watermark could be told.
func TestPushWaitsForPinnedStart(t *testing.T) {
	r := newRig(t, 2, 1, 2, 1)
	s := r.start(0)
	req := request(s, []uint64{1}, part(7, 50, 60))
	_, err := s.Push(t.Context(), req)
	wantCode(t, err, codes.Unavailable)
	if err := s.SetStarts(map[int32]int64{7: 50}); err != nil {
		t.Fatal(err)
	}
	r.push(s, req, 2, 0, 0)
	if err := s.SetStarts(map[int32]int64{7: 40, 8: 0}); err == nil || !strings.Contains(err.Error(), "partition 7 is pinned at 50") {
		t.Errorf("a pinned start was changed: %v", err)
	}
	if _, known := s.Starts()[8]; known {
		t.Error("a refused SetStarts took effect in part")
	}
	if err := s.SetStarts(map[int32]int64{1 << 30: 0}); err == nil {
		t.Error("an absurd partition was taken")
	}
}

// Rule 6: a tablet that has no id in a batch moves its watermark all the same.
func TestRule6TabletWithoutIDsMovesItsWatermark(t *testing.T) {
	r := newRig(t, 8, 1, 0, 2)
	s := r.start(0)
	only := idsOf(r.opt.Layout, 3, 2)
	r.push(s, request(s, only, part(0, 0, 10), part(1, 100, 120)), 8, 0, 0)
	// A batch of nothing but dead and lost records moves it too, and takes no optimiser step.
	dead := &rpc.RangePart{Span: &rpc.Span{Begin: 10, End: 30}, DeadN: 3, DeadHash: 99, LostOffsets: 5}
	r.push(s, &rpc.PushRequest{Fence: fenceOf(s), Parts: []*rpc.RangePart{dead}}, 8, 0, 0)
	for _, ts := range s.Sums() {
		want := &rpc.TabletSums{Tablet: ts.Tablet, Incarnation: s.opt.Incarnation, OptimiserSteps: 1, Partitions: []*rpc.PartitionSum{
			{Partition: 0, N: 10, Hash: part(0, 0, 10).Hash, DeadN: 3, DeadHash: 99, LostOffsets: 5, Applied: &rpc.OffsetSet{Partition: 0, Watermark: 30}},
			{Partition: 1, N: 20, Hash: part(1, 100, 120).Hash, Applied: &rpc.OffsetSet{Partition: 1, Watermark: 120}},
		}}
		if diff := cmp.Diff(want, ts, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	if m := s.Metrics(); m.TrainedRecords != 30 || m.DeadRecords != 3 || m.LostOffsets != 5 || m.Rows != 2 {
		t.Errorf("metrics: %v", m)
	}
}

// Rule 7: a push of which a tablet has some records is refused there without effect, and the answer names what is missing; the repair goes to
// those tablets only. The naive server applies the whole, or marks the rest as applied.
func TestRule7PartialOverlapRefused(t *testing.T) {
	r := newRig(t, 4, 1, 4, 2)
	s := r.start(0)
	l := r.opt.Layout
	in1, in2 := idsOf(l, 1, 1), idsOf(l, 2, 1)
	ids := append(append([]uint64{}, in1...), in2...)

	// Tablet 2 alone has [40,60) of partition 0 and the whole of [100,110) of partition 1.
	lead := request(s, in2, part(0, 40, 60), part(1, 100, 110))
	lead.Tablets = []int32{2}
	r.push(s, lead, 1, 0, 0)

	batch := request(s, ids, part(0, 0, 100), part(1, 100, 110))
	answer := r.push(s, batch, 3, 0, 1)
	want := []*rpc.Missing{{Tablets: []int32{2}, Spans: []*rpc.Span{{Begin: 0, End: 40}, {Begin: 60, End: 100}}}}
	if diff := cmp.Diff(want, answer.Partial, protocmp.Transform()); diff != "" {
		t.Fatal(diff)
	}
	before := s.Sums()[2]
	r.push(s, batch, 0, 3, 1)
	if diff := cmp.Diff(before, s.Sums()[2], protocmp.Transform()); diff != "" {
		t.Errorf("a refused push changed the tablet's sums: %s", diff)
	}
	if row, _ := r.weights(s, in2[0]); row != 1 {
		t.Errorf("a refused push changed a row of tablet 2 to %v", row)
	}
	if row, _ := r.weights(s, in1[0]); row != 1 {
		t.Errorf("the row of tablet 1 is %v, want 1", row)
	}

	// The repair: only the missing records, only that tablet, their part of the batch's weight.
	repair := request(s, in2, part(0, 0, 40), part(0, 60, 100))
	repair.Tablets, repair.Share = []int32{2}, 0.8
	r.push(s, repair, 1, 0, 0)
	r.push(s, repair, 0, 1, 0)
	r.push(s, batch, 0, 4, 0)
	for _, ts := range s.Sums() {
		if got := ts.Partitions[0]; got.N != 100 || got.Hash != part(0, 0, 100).Hash || got.Applied.Watermark != 100 {
			t.Errorf("tablet %d counted %d records, hash %x, watermark %d", ts.Tablet, got.N, got.Hash, got.Applied.Watermark)
		}
	}
	if m := s.Metrics(); m.PartialTabletPushes != 2 || m.DuplicateTabletPushes != 3+1+4 {
		t.Errorf("metrics: %v", m)
	}
}

// Rule 7: tablets that miss the same spans share an entry, others have their own.
func TestRule7TabletsThatMissTheSameShareAnEntry(t *testing.T) {
	r := newRig(t, 4, 1, 4, 1)
	s := r.start(0)
	for tablet, end := range map[int32]int64{0: 10, 1: 20, 3: 10} {
		req := request(s, nil, part(0, 0, end))
		req.Tablets = []int32{tablet}
		r.push(s, req, 1, 0, 0)
	}
	answer := r.push(s, request(s, nil, part(0, 0, 30)), 1, 0, 3)
	want := []*rpc.Missing{
		{Tablets: []int32{0, 3}, Spans: []*rpc.Span{{Begin: 10, End: 30}}},
		{Tablets: []int32{1}, Spans: []*rpc.Span{{Begin: 20, End: 30}}},
	}
	if diff := cmp.Diff(want, answer.Partial, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// Rule 7: a batch trained in parts decays as much as one trained whole, whatever the parts.
func TestRule7WeightDecayScalesWithShare(t *testing.T) {
	o := Optimiser{Kind: "sgd", LearningRate: 0.1, L2: 0.01}
	run := func(shares ...float32) float64 {
		w := []float32{10}
		for i, share := range shares {
			o.update(int64(i+1), share).apply(w, 1, make([]byte, 4))
		}
		return float64(10 - w[0])
	}
	whole, parts, short := run(1), run(0.25, 0.5, 0.25), run(0.25)
	if math.Abs(whole-parts) > 0.002*whole {
		t.Errorf("one batch decays by %v, the same in three parts by %v", whole, parts)
	}
	if math.Abs(short-whole/4) > 0.002*whole {
		t.Errorf("a quarter of a batch decays by %v, want a quarter of %v", short, whole)
	}
}

// Rule 13: a set that would grow without bound is refused for now; what closes its gaps is not.
func TestRule13SetsAreBounded(t *testing.T) {
	r := newRig(t, 2, 1, 2, 1)
	r.opt.MaxSpans = 4
	s := r.start(0)
	for i := int64(1); i <= 4; i++ {
		r.push(s, request(s, nil, part(0, 20*i, 20*i+10)), 2, 0, 0)
	}
	_, err := s.Push(t.Context(), request(s, nil, part(0, 500, 510)))
	wantCode(t, err, codes.ResourceExhausted)
	r.push(s, request(s, nil, part(0, 90, 95)), 2, 0, 0) // touches the last span
	r.push(s, request(s, nil, part(0, 30, 40)), 2, 0, 0) // closes a gap
	r.push(s, request(s, nil, part(0, 500, 510)), 2, 0, 0)
	if applied, _, _ := watermarks(s); applied != 0 {
		t.Errorf("watermark %d, want 0", applied)
	}
}

// Rule 19: the sums show a record that was trained twice; the check can fail. Sets of ranges cannot show it.
func TestRule19WithoutDeduplicationRepeatsShow(t *testing.T) {
	for _, unsafe := range []bool{false, true} {
		r := newRig(t, 2, 1, 2, 1)
		r.opt.UnsafeNoDedup = unsafe
		s := r.start(0)
		for range 2 {
			if _, err := s.Push(t.Context(), request(s, nil, part(0, 0, 10))); err != nil {
				t.Fatal(err)
			}
		}
		for _, ts := range s.Sums() {
			got, once := ts.Partitions[0], part(0, 0, 10)
			if repeated := got.N != once.N || got.Hash != once.Hash; repeated != unsafe {
				t.Errorf("unsafe %v: tablet %d reports %d records, hash %x; the log has %d, %x", unsafe, ts.Tablet, got.N, got.Hash, once.N, once.Hash)
			}
			if got.Applied.Watermark != 10 {
				t.Errorf("the set shows it: watermark %d", got.Applied.Watermark)
			}
		}
	}
}

// A row that was only pulled is not stored: memory grows with what is trained.
func TestPullStoresNothing(t *testing.T) {
	r := newRig(t, 4, 1, 4, 2)
	r.opt.InitRow = func(id uint64, row []float32) { row[0], row[1] = float32(id), -float32(id) }
	r.opt.InitDense = func() []float32 { return []float32{10, 20, 30, 40} }
	s := r.start(0)
	row, dense := r.weights(s, 12)
	if diff := cmp.Diff([]float32{10, 20, 30, 40}, dense); diff != "" || row != 12 {
		t.Errorf("row %v; dense %s", row, diff)
	}
	if m := s.Metrics(); m.Rows != 0 || m.Pulls != 1 {
		t.Errorf("after a pull: %v", m)
	}
	r.push(s, request(s, []uint64{12}, part(0, 0, 1)), 4, 0, 0)
	row, dense = r.weights(s, 12)
	if diff := cmp.Diff([]float32{11, 21, 31, 41}, dense); diff != "" || row != 13 {
		t.Errorf("after a push: row %v; dense %s", row, diff)
	}
	if m := s.Metrics(); m.Rows != 1 || m.MemoryBytes == 0 {
		t.Errorf("after a push: %v", m)
	}
	_, err := s.Pull(t.Context(), &rpc.PullRequest{Fence: fenceOf(s), Ids: []byte{1, 2, 3}})
	wantCode(t, err, codes.InvalidArgument)
}
