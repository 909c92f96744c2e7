package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// Rule 1: what a tablet has applied lies in its own snapshot: tablets that are restored from different moments each repeat only what they
// lack. The naive server keeps one set for itself, and either repeats records in the newer tablets or loses them in the older ones.
func TestRule1TabletsOfDifferentMomentsRestoreTogether(t *testing.T) {
	r := newRig(t, 4, 1, 4, 1)
	s := r.start(0)
	ids := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	r.push(s, request(s, ids, part(0, 0, 10)), 4, 0, 0)
	r.snapshot(s)
	r.push(s, request(s, ids, part(0, 10, 20)), 4, 0, 0)
	// The process dies when the second round has reached tablets 0 and 1.
	s.generation++
	for _, tablet := range s.tablets[:2] {
		if err := s.snapshotTablet(tablet); err != nil {
			t.Fatal(err)
		}
	}

	s = r.start(0)
	if applied, touched, _ := watermarks(s); applied != 10 || touched != 20 {
		t.Fatalf("restored to applied %d, touched %d; want 10, 20", applied, touched)
	}
	// The stream is replayed from the lowest watermark.
	answer := r.push(s, request(s, ids, part(0, 10, 20)), 2, 2, 0)
	if len(answer.Partial) != 0 {
		t.Error(answer)
	}
	for _, id := range ids {
		if row, dense := r.weights(s, id); row != 2 || dense[0] != 2 || dense[3] != 2 {
			t.Errorf("row %d is %v, dense %v; want 2 everywhere", id, row, dense)
		}
	}
	for _, ts := range s.Sums() {
		if got := ts.Partitions[0]; got.N != 20 || got.Hash != part(0, 0, 20).Hash {
			t.Errorf("tablet %d: %d records, hash %x", ts.Tablet, got.N, got.Hash)
		}
	}
}

// Rule 2: server 0 is stopped, replaced, resumes, and snapshots. Its successor's newer state must be what is restored, and the old one must be told to exit.
func TestRule2StoppedServerCannotOverwriteNewerSnapshot(t *testing.T) {
	r := newRig(t, 4, 1, 4, 1)
	old := r.start(0)
	r.push(old, request(old, []uint64{1}, part(0, 0, 10)), 4, 0, 0)
	r.snapshot(old)
	r.push(old, request(old, []uint64{1}, part(0, 10, 20)), 4, 0, 0) // not in a snapshot when it stops

	next := r.start(0)
	r.push(next, request(next, []uint64{1}, part(0, 10, 200)), 4, 0, 0)
	r.snapshot(next)

	// The old one goes on: pushes that were on their way to it, then its snapshots, many of them.
	for i := range int64(5) {
		r.push(old, request(old, []uint64{1}, part(0, 20+i, 21+i)), 4, 0, 0)
		if err := old.Snapshot(t.Context()); !errors.Is(err, checkpoint.ErrSuperseded) {
			t.Fatalf("the old server's snapshot: %v, want ErrSuperseded", err)
		}
	}
	third := r.start(0)
	if diff := cmp.Diff(sumsOf(next), sumsOf(third), protocmp.Transform()); diff != "" {
		t.Errorf("restored is not what the newest incarnation had: %s", diff)
	}
	if row, _ := r.weights(third, 1); row != 2 {
		t.Errorf("row is %v, want 2", row)
	}
	// An old server with nothing new to write is told as well.
	idle := r.start(0)
	r.snapshot(idle)
	r.start(0)
	if err := idle.Snapshot(t.Context()); !errors.Is(err, checkpoint.ErrSuperseded) {
		t.Errorf("an idle old server: %v, want ErrSuperseded", err)
	}
}

// sumsOf leaves the incarnation out, which differs from process to process.
func sumsOf(s *Server) []*rpc.TabletSums {
	sums := s.Sums()
	for _, ts := range sums {
		ts.Incarnation = 0
	}
	return sums
}

// Rule 5: a snapshot's cut never tears a push. Every push adds one to every weight of every tablet, so in any consistent state of a tablet
// each weight is the number of records that its ledger counts. Pushes run all the time, and every generation is read back.
func TestRule5SnapshotNeverTearsAPush(t *testing.T) {
	r := newRig(t, 2, 1, 64, 3)
	r.opt.Keep = 1000
	s := r.start(0)
	ids := append(idsOf(r.opt.Layout, 0, 3*slabRows), idsOf(r.opt.Layout, 1, 3*slabRows+7)...)
	var stop atomic.Bool
	done := make(chan int64)
	go func() { // ends when stop is set; pushes only
		var n int64
		for ; !stop.Load(); n++ {
			if _, err := s.Push(t.Context(), request(s, ids, part(0, n, n+1))); err != nil {
				t.Error(err)
				break
			}
		}
		done <- n
	}()
	for range 25 {
		r.snapshot(s)
	}
	stop.Store(true)
	pushed := <-done
	distinct := map[uint64]bool{}
	for tablet := range 2 {
		all, err := r.store.Generations(tablet)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range all {
			got, _, err := readTablet(r.store, g, true, s.opt.matches)
			if err != nil {
				t.Fatal(err)
			}
			var n uint64
			if len(got.ledgers) > 0 {
				n = got.ledgers[0].N
			}
			distinct[n] = true
			if uint64(got.steps) != n || n > uint64(pushed) {
				t.Errorf("%v: %d steps, %d records, %d pushed", g, got.steps, n, pushed)
			}
			if len(got.rows.ids) != 0 && len(got.rows.ids) != len(idsOf(r.opt.Layout, tablet, 3*slabRows))+7*tablet {
				t.Errorf("%v: %d rows: a push is torn", g, len(got.rows.ids))
			}
			for i, v := range got.rows.view().slabs {
				view := got.rows.view()
				for _, w := range view.used(i) {
					if w != float32(n) {
						t.Fatalf("%v: a weight of %v after %d records (slab %d of epoch %d): a push is torn", g, w, n, i, v.epoch)
					}
				}
			}
			for _, w := range got.dense.v {
				if w != float32(n) {
					t.Fatalf("%v: a dense weight of %v after %d records: a push is torn", g, w, n)
				}
			}
		}
	}
	if len(distinct) < 3 {
		t.Fatalf("all snapshots are of %d moments: the test has not interleaved anything", len(distinct))
	}
	// And the live state is whole after all the copying.
	for _, id := range ids {
		if row, _ := r.weights(s, id); row != float32(pushed) {
			t.Fatalf("row %d is %v after %d pushes", id, row, pushed)
		}
	}
}

// Rule 11: durable is the watermark of the oldest retained, verified generation, the lowest over tablets: never that of the newest, since the newest may turn out
// to be unreadable.
func TestRule11DurableIsOldestVerified(t *testing.T) {
	r := newRig(t, 4, 1, 4, 1)
	s := r.start(0)
	want := func(s *Server, applied, durable int64) {
		t.Helper()
		if a, _, d := watermarks(s); a != applied || d != durable {
			t.Fatalf("applied %d, durable %d; want %d, %d", a, d, applied, durable)
		}
	}
	push := func(s *Server, begin, end int64) { r.push(s, request(s, nil, part(0, begin, end)), 4, 0, 0) }
	want(s, 0, 0)
	push(s, 0, 10)
	want(s, 10, 0)
	r.snapshot(s)
	want(s, 10, 10)
	push(s, 10, 20)
	r.snapshot(s)
	want(s, 20, 10)
	push(s, 20, 30)
	push(s, 40, 50) // above a gap
	want(s, 30, 10)
	r.snapshot(s)
	want(s, 30, 20)

	// A restart knows the same from the files alone.
	s = r.start(0)
	want(s, 30, 20)

	// The newest generation of one tablet is damaged: durable was right not to count on it.
	all, err := r.store.Generations(2)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	damage(t, r.store.Path(all[0]))
	s = r.start(0)
	want(s, 20, 20)

	// A round that did not reach all tablets moves nothing: the lowest counts.
	r.snapshot(s)
	want(s, 20, 20)
	r.push(s, request(s, nil, part(0, 60, 70)), 4, 0, 0)
	for _, tablet := range s.tablets[:3] {
		for range 2 {
			s.generation++
			if err := s.snapshotTablet(tablet); err != nil {
				t.Fatal(err)
			}
		}
	}
	want(s, 20, 20)

	// An idle job's durable comes to its applied: by as many snapshots as are kept, and then nothing more is written.
	r.push(s, request(s, nil, part(0, 20, 30), part(0, 40, 50)), 1, 3, 0)
	push(s, 30, 40)
	want(s, 50, 20)
	r.snapshot(s)
	r.snapshot(s)
	want(s, 50, 50)
	before, err := r.store.Generations(1)
	if err != nil {
		t.Fatal(err)
	}
	r.snapshot(s)
	if after, err := r.store.Generations(1); err != nil || !cmp.Equal(before, after) {
		t.Errorf("an unchanged tablet was written again: %v, then %v, %v", before, after, err)
	}

	// So it does after a restart, when the newest generation is all that is known to be of the present.
	push(s, 50, 60)
	r.snapshot(s)
	s = r.start(0)
	want(s, 70, 50)
	r.snapshot(s)
	want(s, 70, 70)
}

// Rule 11: a partition that no retained snapshot knows yet is durable up to its pinned start, whatever is applied.
func TestRule11NewPartitionIsDurableToItsStart(t *testing.T) {
	r := newRig(t, 2, 1, 2, 1)
	s := r.start(0)
	r.push(s, request(s, nil, part(0, 0, 10)), 2, 0, 0)
	r.snapshot(s)
	r.push(s, request(s, nil, part(1, 100, 150)), 2, 0, 0)
	r.snapshot(s)
	_, _, durable := s.Progress()
	want := []*rpc.OffsetSet{{Partition: 0, Watermark: 10}, {Partition: 1, Watermark: 100}, {Partition: 2, Watermark: 0}}
	if diff := cmp.Diff(want, durable, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// What a server notes of its snapshots says where it goes on from the newest of them, while what is committed is of the oldest that is kept.
func TestNoteSaysWhereTheNewestSnapshotsGoOn(t *testing.T) {
	r := newRig(t, 4, 2, 2, 1)
	a, b := r.start(0), r.start(1)
	point := func(want map[int32]int64) {
		t.Helper()
		if got, known := rpc.RestorePoint(r.store.Root(), "t1", 2); known != (want != nil) || !maps.Equal(got, want) {
			t.Errorf("it goes on at %v, known %v; want %v", got, known, want)
		}
	}
	push := func(s *Server, from, to int64) {
		t.Helper()
		r.push(s, request(s, nil, part(0, from, to)), 2, 0, 0)
		r.snapshot(s)
	}
	push(a, 0, 10)
	point(nil) // of one server nothing is known
	push(b, 0, 20)
	point(map[int32]int64{0: 10, 1: 100, 2: 0})
	push(a, 10, 40)
	point(map[int32]int64{0: 20, 1: 100, 2: 0})
	push(b, 20, 30)
	point(map[int32]int64{0: 30, 1: 100, 2: 0})
	if _, known := rpc.RestorePoint(r.store.Root(), "t2", 2); known {
		t.Error("it is known of another timeline")
	}
}

// An unreadable snapshot is skipped for the one before, and everybody hears of it; when none can be read the server does not start afresh by itself.
func TestDamagedSnapshotIsReportedAndSkipped(t *testing.T) {
	r := newRig(t, 2, 1, 2, 1)
	s := r.start(0)
	for i := range int64(3) {
		r.push(s, request(s, []uint64{1}, part(0, 10*i, 10*i+10)), 2, 0, 0)
		r.snapshot(s)
	}
	all, err := r.store.Generations(1)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	damage(t, r.store.Path(all[0]))
	s = r.start(0)
	if applied, touched, _ := watermarks(s); applied != 20 || touched != 30 {
		t.Errorf("applied %d, touched %d; want 20, 30", applied, touched)
	}
	m := s.Metrics()
	if m.TrainedRecords != 20 {
		t.Errorf("%d records are trained, of which one of the tablets has 20", m.TrainedRecords)
	}
	if m.SnapshotError != "" {
		t.Errorf("that a snapshot cannot be read is told as one that was not written: %q", m.SnapshotError)
	}
	if len(m.Fallbacks) != 1 || !strings.HasPrefix(m.Fallbacks[0], "tablet 1 was restored from snapshot "+all[1].Name()+" of ") ||
		!strings.Contains(m.Fallbacks[0], " instead of "+all[0].Name()+" of ") ||
		!strings.HasSuffix(m.Fallbacks[0], " with 30 records, and is trained again with at least 10 records, because of damage: "+
			r.store.Path(all[0])+": it is cut short: it does not end as a snapshot of its length does") {
		t.Errorf("the metrics do not tell: %q", m.Fallbacks)
	}
	frozen, err := ReadCheckpoint(r.store, r.opt.Layout)
	if err != nil || len(frozen.Skipped()) != 1 || frozen.Applied(1, 0).Watermark(0) != 20 {
		t.Errorf("offline: %v, skipped %v", err, frozen.Skipped())
	}
	l, err := ReadLedgers(r.store, r.opt.Layout.tablets, r.opt.Timeline)
	if d := cmp.Diff(frozen.Sums(), l.Sums, protocmp.Transform()); err != nil || d != "" || len(l.Skipped) != 1 || !maps.Equal(l.Starts, frozen.Starts()) || l.Oldest.IsZero() {
		t.Errorf("what they have counted, without the model: %v, skipped %v\n%s", err, l.Skipped, d)
	}
	if _, err := ReadLedgers(r.store, r.opt.Layout.tablets, "another"); err == nil {
		t.Error("snapshots of another timeline are taken for the job's")
	}

	if err := os.WriteFile(r.store.Path(all[1]), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = r.tryStart(0)
	if !errors.Is(err, ErrUnrestorable) {
		t.Fatalf("%v, want a refusal to start tablet 1 anew", err)
	}
	for _, want := range []string{"tablet 1 has 2 snapshots and none can be used: ", r.store.Path(all[0]) + ": it is cut short", r.store.Path(all[1]) + ": it is empty", "touch " + r.store.AnewPath(1)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if _, err := ReadCheckpoint(r.store, r.opt.Layout); err == nil {
		t.Error("the offline reader takes a tablet without a readable snapshot for an empty one")
	}
}

// State of another job, topic, model or timeline is not restored.
func TestForeignSnapshotIsRefused(t *testing.T) {
	r := newRig(t, 2, 1, 2, 1)
	s := r.start(0)
	r.push(s, request(s, []uint64{1}, part(0, 0, 10)), 2, 0, 0)
	r.snapshot(s)
	for what, change := range map[string]func(*Options){
		"timeline":          func(o *Options) { o.Timeline = "t2" },
		"fingerprint":       func(o *Options) { o.Fingerprint = "g" },
		"topic":             func(o *Options) { o.Topic = "views" },
		"row width":         func(o *Options) { o.RowWidth = 2 },
		"optimiser":         func(o *Options) { o.Optimiser.Kind = "adam" },
		"number of tablets": func(o *Options) { o.Layout, _ = NewLayout(1, 1, 2) },
		"dense block":       func(o *Options) { o.Layout, _ = NewLayout(2, 1, 3) },
	} {
		opt := r.opt
		change(&opt)
		other := &rig{t, r.store, opt}
		if _, err := other.tryStart(0); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	if _, err := r.tryStart(0); err != nil {
		t.Errorf("its own: %v", err)
	}
}

// A snapshot that cannot be written (here: the store's folder is gone and a file is in its place) is in the metrics, serving goes on, and
// what was durable stays so; the next one succeeds when the cause is removed.
func TestFailedSnapshotIsKeptAndServingGoesOn(t *testing.T) {
	r := newRig(t, 2, 1, 2, 1)
	s := r.start(0)
	r.push(s, request(s, nil, part(0, 0, 10)), 2, 0, 0)
	r.snapshot(s)
	good := s.Metrics()
	tablets := filepath.Join(r.store.Root(), "tablets")
	if err := errors.Join(os.Rename(tablets, tablets+".away"), os.WriteFile(tablets, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.push(s, request(s, nil, part(0, 10, 20)), 2, 0, 0)
	if err := s.Snapshot(t.Context()); err == nil {
		t.Fatal("a snapshot into nothing succeeded")
	}
	m := s.Metrics()
	if !strings.Contains(m.SnapshotError, "2 of 2 tablets not written") || m.LastSnapshotUnixMs != good.LastSnapshotUnixMs {
		t.Errorf("metrics after the failure: %v", m)
	}
	if applied, _, durable := watermarks(s); applied != 20 || durable != 10 {
		t.Errorf("applied %d, durable %d; want 20, 10", applied, durable)
	}
	r.push(s, request(s, nil, part(0, 20, 30)), 2, 0, 0)
	if err := errors.Join(os.Remove(tablets), os.Rename(tablets+".away", tablets)); err != nil {
		t.Fatal(err)
	}
	r.snapshot(s)
	if m := s.Metrics(); m.SnapshotError != "" || m.LastSnapshotUnixMs < good.LastSnapshotUnixMs {
		t.Errorf("metrics after the recovery: %v", m)
	}
	s = r.start(0)
	if applied, _, durable := watermarks(s); applied != 30 || durable != 10 {
		t.Errorf("restored applied %d, durable %d; want 30, 10", applied, durable)
	}
}

// A snapshot that is given up, since who asked for it is gone or the server ends, is no fault of the store: it is not told as one that failed.
func TestSnapshotGivenUpHasNotFailed(t *testing.T) {
	r := newRig(t, 2, 1, 2, 1)
	s := r.start(0)
	r.push(s, request(s, nil, part(0, 0, 10)), 2, 0, 0)
	r.snapshot(s)
	good := s.Metrics()
	r.push(s, request(s, nil, part(0, 10, 20)), 2, 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Snapshot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the snapshot that was given up: %v", err)
	}
	if m := s.Metrics(); m.SnapshotError != "" || m.LastSnapshotUnixMs != good.LastSnapshotUnixMs {
		t.Errorf("metrics after it: %v", m)
	}
	r.snapshot(s)
	if applied, _, _ := watermarks(r.start(0)); applied != 20 {
		t.Errorf("after the next one %d records are restored, want 20", applied)
	}
}

// Adam's and Adagrad's state and step counters lie in the snapshot: a restored tablet goes on exactly as one that never stopped.
func TestOptimiserStateSurvives(t *testing.T) {
	for _, kind := range []string{"sgd", "adagrad", "adam"} {
		t.Run(kind, func(t *testing.T) {
			step := func(s *Server, i int64) {
				req := request(s, []uint64{1, 2, 3, 4, 5}, part(0, i, i+1))
				for k := range len(req.Grads) / 4 {
					putFloats(req.Grads[4*k:], []float32{float32(k+1) * 0.1 * float32(1+i)})
				}
				if _, err := s.Push(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			run := func(restart bool) []byte {
				r := newRig(t, 2, 1, 6, 3)
				r.opt.Optimiser = Optimiser{Kind: kind, LearningRate: 0.05, L2: 0.01}
				s := r.start(0)
				for i := range int64(6) {
					step(s, i)
					if restart && i == 2 {
						r.snapshot(s)
						s = r.start(0)
					}
				}
				var ids []byte
				for id := uint64(1); id <= 5; id++ {
					ids = appendID(ids, id)
				}
				answer, err := s.Pull(t.Context(), &rpc.PullRequest{Fence: fenceOf(s), Ids: ids, Dense: true})
				if err != nil {
					t.Fatal(err)
				}
				return append(answer.Rows, answer.Dense...)
			}
			if !cmp.Equal(run(false), run(true)) {
				t.Error("a run with a restart in the middle ends with other weights than one without")
			}
		})
	}
}

// Rule 20: the counting model counts each record once per tablet, in integers, and is read back from the snapshots alone.
func TestRule20CountsAreReadFromSnapshotsAlone(t *testing.T) {
	r := newRig(t, 4, 2, 0, 0)
	r.opt.Counting, r.opt.Optimiser = true, Optimiser{}
	servers := []*Server{r.start(0), r.start(1)}
	push := func(begin, end int64) {
		for _, s := range servers {
			req := &rpc.PushRequest{Fence: fenceOf(s), Parts: []*rpc.RangePart{part(0, begin, end)}}
			for o := begin; o < end; o++ {
				req.CountIds = appendID(req.CountIds, uint64(o%100))
			}
			if _, err := s.Push(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 { // duplicates
		push(0, 1000)
		push(2000, 2500)
	}
	for _, s := range servers {
		r.snapshot(s)
	}
	push(1000, 2000) // not in any snapshot
	_, err := servers[0].Push(t.Context(), &rpc.PushRequest{Fence: fenceOf(servers[0]), Parts: []*rpc.RangePart{part(0, 5000, 5001)}})
	if err == nil {
		t.Error("a record without an id to count was taken")
	}

	frozen, err := ReadCheckpoint(r.store, r.opt.Layout)
	if err != nil {
		t.Fatal(err)
	}
	if got := frozen.Tablets(); len(got) != 4 {
		t.Fatalf("tablets %v", got)
	}
	for tablet := range 4 {
		byID, total := frozen.Counts(tablet)
		if total != 1500 || len(byID) != 100 {
			t.Errorf("tablet %d counted %d records of %d ids, want 1500 of 100", tablet, total, len(byID))
		}
		for id, n := range byID {
			if n != 15 {
				t.Errorf("tablet %d counted id %d %d times, want 15", tablet, id, n)
			}
		}
		if got := fmt.Sprint(frozen.Applied(tablet, 0)); got != "[[0,1000) [2000,2500)]" {
			t.Errorf("tablet %d applied %s", tablet, got)
		}
	}
	want := part(0, 0, 1000)
	want.Hash += part(0, 2000, 2500).Hash
	for _, ts := range frozen.Sums() {
		if got := ts.Partitions[0]; got.N != 1500 || got.Hash != want.Hash {
			t.Errorf("tablet %d: %d records, hash %x", ts.Tablet, got.N, got.Hash)
		}
	}
	restored := r.start(1)
	if got := restored.tablets[0].counted; got != 1500 {
		t.Errorf("restored to a count of %d", got)
	}
}

// The frozen model is the one that the servers had.
func TestFrozenModelIsTheServersModel(t *testing.T) {
	r := newRig(t, 4, 2, 10, 2)
	r.opt.Optimiser = Optimiser{Kind: "adam", LearningRate: 0.1}
	full := make([]float32, 10)
	for server := range 2 {
		s := r.start(server)
		for i := range int64(3) {
			req := request(s, []uint64{5, 6, 7, 8}, part(0, i, i+1))
			if _, err := s.Push(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		r.snapshot(s)
		_, dense := r.weights(s, idsOf(r.opt.Layout, s.first, 1)[0])
		r.opt.Layout.Scatter(server, dense, full)
	}
	frozen, err := ReadCheckpoint(r.store, r.opt.Layout)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 10)
	if err := frozen.Dense(got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, got); diff != "" {
		t.Error(diff)
	}
	row, ok := frozen.Row(6)
	if !ok || len(row) != 2 || row[0] < 0.29 || row[0] > 0.31 { // three Adam steps of 0.1 along a constant gradient
		t.Errorf("row 6 is %v, %v", row, ok)
	}
	if _, ok := frozen.Row(99); ok {
		t.Error("a row that was never trained is there")
	}
	if frozen.Rows() != 4 || frozen.Starts()[1] != 100 {
		t.Errorf("%d rows, starts %v", frozen.Rows(), frozen.Starts())
	}
	if err := frozen.Dense(make([]float32, 9)); err == nil {
		t.Error("a buffer of the wrong length was taken")
	}
}
