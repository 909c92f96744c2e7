package ps

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// record is one offset of one partition.
type record struct {
	partition int32
	offset    int64
}

// rowOf is the only row that a record trains.
func (r record) rowOf() uint64 { return uint64(r.offset)%13 + 100*uint64(r.partition) }

// tabletModel is the deliberately simple second implementation of a tablet: the records that it has seen, each once.
type tabletModel struct {
	seen  map[record]bool
	saved map[checkpoint.Generation]map[record]bool
	kept  []checkpoint.Generation // readable, newest first
}

// modelRun drives a server and its model with the same random story.
type modelRun struct {
	*rig
	rng    *rand.Rand
	server *Server
	model  []*tabletModel
}

// TestRandomStoryAgainstModel lets chance push (new, repeated, overlapping, to all tablets or some), snapshot (all tablets, or one before a crash),
// damage files, and restart, and compares every answer, every sum and every weight with the model's.
func TestRandomStoryAgainstModel(t *testing.T) {
	stories := 12
	if testing.Short() {
		stories = 3
	}
	for seed := range stories {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			run := &modelRun{rig: newRig(t, 5, 1, 5, 1), rng: rand.New(rand.NewPCG(uint64(seed), 1))}
			for range 5 {
				run.model = append(run.model, &tabletModel{seen: map[record]bool{}, saved: map[checkpoint.Generation]map[record]bool{}})
			}
			run.server = run.start(0)
			for range 120 {
				switch n := run.rng.IntN(100); {
				case n < 75:
					run.pushSome()
				case n < 85:
					run.snapshotAll()
				case n < 90:
					run.snapshotOneAndCrash()
				case n < 93:
					run.damageNewest()
				default:
					run.restart()
				}
				run.compare()
			}
		})
	}
}

// pushSome pushes one to three spans, aligned to fives most of the time, to all tablets or some.
func (r *modelRun) pushSome() {
	r.t.Helper()
	var parts []*rpc.RangePart
	rows := map[uint64]int{}
	var records []record
	for p := range int32(1 + r.rng.IntN(2)) {
		begin := int64(5 * r.rng.IntN(40))
		end := begin + int64(5*(1+r.rng.IntN(4)))
		if r.rng.IntN(8) == 0 {
			begin++
		}
		parts = append(parts, part(2*p, begin, end))
		for o := begin; o < end; o++ {
			rec := record{2 * p, o}
			records = append(records, rec)
			rows[rec.rowOf()]++
		}
	}
	asked := r.rng.Perm(5)[:1+r.rng.IntN(5)]
	if r.rng.IntN(2) == 0 {
		asked = []int{0, 1, 2, 3, 4}
	}
	req := &rpc.PushRequest{Fence: fenceOf(r.server), Parts: parts, Share: 1, Dense: make([]byte, 20)}
	for _, tablet := range asked {
		req.Tablets = append(req.Tablets, int32(tablet))
		putFloats(req.Dense[4*tablet:], []float32{-float32(len(records))})
	}
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		if slices.Contains(asked, r.opt.Layout.TabletOfRow(id)) {
			req.Ids = appendID(req.Ids, id)
			req.Grads = appendFloats(req.Grads, []float32{-float32(rows[id])})
		}
	}
	var applied, already int
	partial := map[int32]int{} // tablet → missing records
	for _, tablet := range asked {
		m := r.model[tablet]
		have := 0
		for _, rec := range records {
			if m.seen[rec] {
				have++
			}
		}
		switch have {
		case 0:
			applied++
			for _, rec := range records {
				m.seen[rec] = true
			}
		case len(records):
			already++
		default:
			partial[int32(tablet)] = len(records) - have
		}
	}
	answer := r.push(r.server, req, applied, already, len(partial))
	got := map[int32]int{}
	for _, m := range answer.Partial {
		for _, tablet := range m.Tablets {
			for _, sp := range m.Spans {
				for o := sp.Begin; o < sp.End; o++ {
					if r.model[tablet].seen[record{sp.Partition, o}] {
						r.t.Fatalf("tablet %d says that it lacks partition %d, offset %d", tablet, sp.Partition, o)
					}
					got[tablet]++
				}
			}
		}
	}
	if !maps.Equal(got, partial) {
		r.t.Fatalf("missing records by tablet: %v, want %v", got, partial)
	}
}

// saved notes that the model's tablet was snapshotted; a generation that the server need not have written changes nothing.
func (r *modelRun) saved(tablet int) {
	g := r.server.tablets[tablet].retained[0].generation
	m := r.model[tablet]
	if _, known := m.saved[g]; known {
		return
	}
	m.saved[g] = maps.Clone(m.seen)
	m.kept = append([]checkpoint.Generation{g}, m.kept[:min(len(m.kept), r.opt.Keep-1)]...)
}

func (r *modelRun) snapshotAll() {
	r.t.Helper()
	r.snapshot(r.server)
	for tablet := range r.model {
		r.saved(tablet)
	}
}

func (r *modelRun) snapshotOneAndCrash() {
	r.t.Helper()
	tablet := r.rng.IntN(5)
	r.server.generation++
	if err := r.server.snapshotTablet(r.server.tablets[tablet]); err != nil {
		r.t.Fatal(err)
	}
	r.saved(tablet)
	r.restart()
}

// damageNewest tears the newest file of a tablet that has another, and restarts: a running server would not notice.
func (r *modelRun) damageNewest() {
	r.t.Helper()
	m := r.model[r.rng.IntN(5)]
	if len(m.kept) < 2 {
		return
	}
	damage(r.t, r.store.Path(m.kept[0]))
	m.kept = m.kept[1:]
	r.restart()
}

func (r *modelRun) restart() {
	r.t.Helper()
	r.server = r.start(0)
	for _, m := range r.model {
		m.seen = map[record]bool{}
		if len(m.kept) > 0 {
			m.seen = maps.Clone(m.saved[m.kept[0]])
		}
	}
}

// compare checks sums, weights, and the three offsets against the model.
func (r *modelRun) compare() {
	r.t.Helper()
	weights := map[uint64]int{}
	var dense [5]int
	sums := r.server.Sums()
	for tablet, m := range r.model {
		want := map[int32]*rpc.PartitionSum{}
		for rec := range m.seen {
			if want[rec.partition] == nil {
				want[rec.partition] = &rpc.PartitionSum{}
			}
			want[rec.partition].N++
			want[rec.partition].Hash += recordHash(rec.partition, rec.offset)
			dense[tablet]++
			if r.opt.Layout.TabletOfRow(rec.rowOf()) == tablet {
				weights[rec.rowOf()]++
			}
		}
		if len(sums[tablet].Partitions) != len(want) {
			r.t.Fatalf("tablet %d counts %d partitions, want %d", tablet, len(sums[tablet].Partitions), len(want))
		}
		for _, got := range sums[tablet].Partitions {
			if w := want[got.Partition]; got.N != w.N || got.Hash != w.Hash {
				r.t.Fatalf("tablet %d, partition %d: %d records, hash %x; want %d, %x", tablet, got.Partition, got.N, got.Hash, w.N, w.Hash)
			}
		}
	}
	for _, p := range []int32{0, 2} {
		for o := range int64(13) {
			id := record{p, o}.rowOf()
			row, got := r.weights(r.server, id)
			if row != float32(weights[id]) {
				r.t.Fatalf("row %d is %v, want %d", id, row, weights[id])
			}
			for tablet, d := range got {
				if d != float32(dense[tablet]) {
					r.t.Fatalf("dense weight of tablet %d is %v, want %d", tablet, d, dense[tablet])
				}
			}
		}
	}
	r.compareProgress()
}

func (r *modelRun) compareProgress() {
	r.t.Helper()
	applied, touched, durable := r.server.Progress()
	for i := range applied {
		p := applied[i].Partition
		start := r.server.Starts()[p]
		inAll := func(o int64) bool {
			for _, m := range r.model {
				if !m.seen[record{p, o}] {
					return false
				}
			}
			return true
		}
		inSome := func(o int64) bool {
			for _, m := range r.model {
				if m.seen[record{p, o}] {
					return true
				}
			}
			return false
		}
		safe := int64(1 << 40)
		for _, m := range r.model {
			mark := start
			for len(m.kept) > 0 && m.saved[m.kept[len(m.kept)-1]][record{p, mark}] {
				mark++
			}
			safe = min(safe, mark)
		}
		if durable[i].Watermark != safe {
			r.t.Fatalf("partition %d: durable %d, want %d", p, durable[i].Watermark, safe)
		}
		for o := start; o < start+300; o++ {
			if contains(applied[i], start, o) != inAll(o) || contains(touched[i], start, o) != inSome(o) {
				r.t.Fatalf("partition %d, offset %d: applied %v, touched %v; want %v, %v", p, o, contains(applied[i], start, o), contains(touched[i], start, o), inAll(o), inSome(o))
			}
		}
	}
}

func contains(s *rpc.OffsetSet, start, offset int64) bool {
	if offset >= start && offset < s.Watermark {
		return true
	}
	return slices.ContainsFunc(s.Above, func(sp *rpc.Span) bool { return sp.Begin <= offset && offset < sp.End })
}
