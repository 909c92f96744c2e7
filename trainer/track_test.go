package trainer

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/trainer/spans"
)

// reread is a repairer without a broker: tracks over a ledger, and logs from which each poll brings so many records of each partition.
type reread struct {
	*tracks
	l     *ledger
	logs  map[int32][]fetched
	at    map[int32]int64 // from where each partition is fetched
	each  int             // records of a partition in one poll
	now   time.Time
	seeks int
	polls int
	order []*chunk // as they were placed
}

// newReread has logs of so many records, each of which is a second younger than the one before it, holes left out.
func newReread(partitions int32, records int64, hole func(partition int32, offset int64) bool) *reread {
	r := &reread{tracks: &tracks{32, map[int32]*track{}}, l: newLedger(), logs: map[int32][]fetched{}, at: map[int32]int64{}, each: 256, now: time.Unix(1e9, 0)}
	for p := range partitions {
		for o := range records {
			if hole == nil || !hole(p, o) {
				r.logs[p] = append(r.logs[p], fetched{record: record{offset: o, timestampMS: 1e12 + 1000*o}})
			}
		}
	}
	return r
}

// round is what the repairer does in one turn: it places what is ready, or polls. False: nothing is to be read any more.
func (r *reread) round() bool {
	seek, drop := r.aim(r.l.reads(func(int32) bool { return false }))
	for _, p := range drop {
		delete(r.at, p)
	}
	for p, at := range seek {
		r.at[p] = at
		r.seeks++
	}
	for _, t := range r.by {
		t.cut(r.now)
	}
	if t := r.ready(); t != nil {
		c := t.chunk.ready[0]
		t.chunk.ready = t.chunk.ready[1:]
		r.order = append(r.order, c)
		e := r.l.entries[t.entry]
		if e.begin = c.end; e.begin >= e.end {
			r.l.remove(e.id)
		}
		return true
	}
	if len(r.by) == 0 {
		return false
	}
	r.polls++
	for p, at := range r.at {
		log := r.logs[p]
		i, _ := slices.BinarySearchFunc(log, at, func(f fetched, at int64) int { return int(f.offset - at) })
		got := log[i:min(len(log), i+r.each)]
		r.by[p].take(got)
		if len(got) > 0 {
			r.at[p] = got[len(got)-1].offset + 1
		}
	}
	return true
}

func (r *reread) run(t *testing.T) {
	t.Helper()
	for range 1_000_000 {
		if !r.round() {
			return
		}
	}
	t.Fatalf("it is never done: %d polls, %d seeks, left %+v", r.polls, r.seeks, r.l.reads(func(int32) bool { return false }))
}

// After a rollback there may be hundreds of short spans in each partition. They are read in a few fetches and not in one or two each, no partition waits for
// another one to be done, and the oldest records are trained first.
func TestManySpansAreReadAtOnce(t *testing.T) {
	const partitions, each = 4, 300
	r := newReread(partitions, 40_000, nil)
	for p := range int32(partitions) {
		for i := range int64(each) {
			r.l.want(p, 100*i+10, 100*i+42)
		}
	}
	r.run(t)
	if fetches := 100 * each / r.each; r.seeks != partitions || r.polls > fetches+2 {
		t.Errorf("%d seeks and %d polls for %d spans in each of %d partitions; want %d and about %d", r.seeks, r.polls, each, partitions, partitions, fetches)
	}
	last := int64(0)
	for i, c := range r.order {
		if len(c.records) == 0 {
			t.Fatalf("%+v is empty", c)
		}
		at := c.records[0].timestampMS
		// What one poll has brought of a partition may be younger than what the next one brings of another.
		if at < last-1000*int64(2*r.each) {
			t.Fatalf("chunk %d, partition %d [%d,%d), is %v older than one that went before", i, c.partition, c.begin, c.end, time.Duration(last-at)*time.Millisecond)
		}
		last = max(last, at)
	}
}

// Spans that are far apart are asked for, and a lower one that comes up meanwhile goes first.
func TestTrackSeeks(t *testing.T) {
	r := newReread(1, 50_000, nil)
	r.l.want(0, 20_000, 20_064)
	r.l.want(0, 40_000, 40_064)
	for len(r.order) == 0 {
		r.round()
	}
	r.l.want(0, 100, 132)
	r.run(t)
	var got []string
	for _, c := range r.order {
		got = append(got, fmt.Sprintf("[%d,%d)×%d", c.begin, c.end, len(c.records)))
	}
	want := []string{"[20000,20032)×32", "[100,128)×28", "[128,132)×4", "[20032,20064)×32", "[40000,40032)×32", "[40032,40064)×32"}
	if diff := cmp.Diff(want, got); diff != "" || r.seeks != 4 {
		t.Errorf("%d seeks, placed (-want +got):\n%s", r.seeks, diff)
	}
}

// Whatever is wanted, whenever, and wherever the log has holes: each wanted span is covered, by chunks that hold its records, each once.
func TestTracksProperty(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		holes := rng.IntN(3)
		const end = 6000
		r := newReread(3, end+1, func(_ int32, o int64) bool { return o < end && rng.IntN(4) < holes })
		r.each = 1 + rng.IntN(200)
		want := map[int32]*spans.Set{}
		taken := map[int32]*spans.Set{} // wanted and not read yet: wanted spans do not overlap
		add := func() {
			p, begin := int32(rng.IntN(3)), rng.Int64N(end-1)
			to := min(end, begin+1+rng.Int64N(150))
			if taken[p] == nil {
				want[p], taken[p] = &spans.Set{}, &spans.Set{}
			}
			for _, sp := range taken[p].Missing(begin, to) {
				r.l.want(p, sp.Begin, sp.End)
			}
			want[p].Add(begin, to)
			taken[p].Add(begin, to)
		}
		for range 1 + rng.IntN(40) {
			add()
		}
		for left := rng.IntN(20); r.round(); {
			if left > 0 && rng.IntN(10) == 0 {
				left--
				add()
			}
		}
		got := map[int32]*spans.Set{}
		for _, c := range r.order {
			if got[c.partition] == nil {
				got[c.partition] = &spans.Set{}
			}
			if len(got[c.partition].Missing(c.begin, c.end)) != 1 || got[c.partition].Missing(c.begin, c.end)[0] != (spans.Span{Begin: c.begin, End: c.end}) {
				t.Fatalf("seed %d: partition %d [%d,%d) was placed before", seed, c.partition, c.begin, c.end)
			}
			got[c.partition].Add(c.begin, c.end)
			var offsets, inLog []int64
			for _, rec := range c.records {
				offsets = append(offsets, rec.offset)
			}
			for _, f := range r.logs[c.partition] {
				if c.begin <= f.offset && f.offset < c.end {
					inLog = append(inLog, f.offset)
				}
			}
			if !slices.Equal(offsets, inLog) {
				t.Fatalf("seed %d: partition %d [%d,%d) holds %v, the log %v", seed, c.partition, c.begin, c.end, offsets, inLog)
			}
		}
		for _, p := range slices.Sorted(maps.Keys(want)) {
			if !slices.Equal(want[p].Spans(), orNone(got[p]).Spans()) {
				t.Errorf("seed %d: partition %d: wanted %v, read %v", seed, p, want[p].Spans(), orNone(got[p]).Spans())
			}
		}
	}
}

func orNone(s *spans.Set) *spans.Set {
	if s == nil {
		return &spans.Set{}
	}
	return s
}

// A partition of which nothing arrives fails, but not for brokers that answer nobody: what they lack is said of them, and their time does not count.
func TestTracksWaitForSilentBrokers(t *testing.T) {
	ts := tracks{chunkSize: 32, by: map[int32]*track{}}
	tr := &track{partition: 3}
	tr.aim(entry{id: 1, partition: 3, begin: 64, end: 96}, 32)
	ts.by[3] = tr
	ts.wait(2*repairAgain, false)
	ts.wait(time.Hour, true)
	if tr.failed != nil {
		t.Errorf("of brokers that do not answer a partition is said: %v", tr.failed)
	}
	ts.wait(2*repairAgain, false)
	if tr.failed != nil {
		t.Errorf("brokers that answer again had no time: %v", tr.failed)
	}
	ts.wait(2*repairAgain, false)
	if tr.failed == nil || tr.failed.Error() != "no record at or above offset 64 arrives, though the span to repair ends at 96" {
		t.Errorf("nothing arrives, and it says %v", tr.failed)
	}
}

// What was read before nothing more comes counts, and the rest is what is needed.
func TestTrackFails(t *testing.T) {
	r := newReread(1, 50, nil)
	r.l.want(0, 10, 100)
	for range 10 {
		r.round()
	}
	tr := r.by[0]
	tr.fail(errors.New("gone"))
	r.round()
	if e := r.l.reads(func(int32) bool { return false }); len(e) != 1 || e[0].begin != 50 || tr.needed() != 50 {
		t.Errorf("left are %+v, needed is %d", e, tr.needed())
	}
}
