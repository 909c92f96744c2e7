package audit

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream"
)

// tablet counts the given offsets of partition 0 as trained.
func tablet(id int32, offsets ...int64) *rpc.TabletSums {
	p := &rpc.PartitionSum{Partition: 0}
	for _, o := range offsets {
		p.N++
		p.Hash += stream.RecordHash("clicks", 0, o)
	}
	return &rpc.TabletSums{Tablet: id, Partitions: []*rpc.PartitionSum{p}}
}

func logOf(offsets ...int64) map[int32]stream.PartitionSum {
	s := stream.PartitionSum{N: int64(len(offsets))}
	for _, o := range offsets {
		s.Sum += stream.RecordHash("clicks", 0, o)
	}
	return map[int32]stream.PartitionSum{0: s}
}

// EXACTLY_ONCE rule 19: the check must be able to fail, in every way in which the promise can be broken.
func TestCompareSeesEveryKindOfMistake(t *testing.T) {
	log := logOf(1, 2, 3, 4)
	for name, c := range map[string]struct {
		tablets        []*rpc.TabletSums
		lost, repeated int64
		exact          bool
	}{
		"exact":                            {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), tablet(1, 4, 3, 2, 1)}, 0, 0, true},
		"one lost in one tablet":           {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), tablet(1, 1, 2, 4)}, 1, 0, false},
		"one doubled in one tablet":        {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4, 4), tablet(1, 1, 2, 3, 4)}, 0, 1, false},
		"one lost hides one doubled":       {[]*rpc.TabletSums{tablet(0, 1, 2, 2, 4), tablet(1, 1, 2, 3, 4)}, 1, 1, false},
		"a tablet without a snapshot":      {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, 4, 0, false},
		"a tablet that saw no partition":   {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), {Tablet: 1}}, 4, 0, false},
		"both tablets lost different ones": {[]*rpc.TabletSums{tablet(0, 1, 2, 3), tablet(1, 2, 3, 4)}, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := compare(log, c.tablets, 2)
			if got.Lost != c.lost || got.Repeated != c.repeated || got.Exact() != c.exact {
				t.Errorf("lost %d, repeated %d, exact %v; want %d, %d, %v (%s)", got.Lost, got.Repeated, got.Exact(), c.lost, c.repeated, c.exact, got.Mismatch)
			}
			if got.Produced != 4 {
				t.Errorf("produced %d, want 4", got.Produced)
			}
			if !c.exact && got.Mismatch == "" {
				t.Error("nothing says what does not agree")
			}
		})
	}
}

// Dead-lettered records are counted as dead and not as lost.
func TestCompareCountsDeadLetters(t *testing.T) {
	ts := tablet(0, 1, 2, 4)
	ts.Partitions[0].DeadN, ts.Partitions[0].DeadHash = 1, stream.RecordHash("clicks", 0, 3)
	got := compare(logOf(1, 2, 3, 4), []*rpc.TabletSums{ts}, 1)
	want := Counts{Produced: 4, Trained: 3, Dead: 1, Tablets: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func ms(v int64) time.Time { return time.UnixMilli(v) }

func TestOldestIsTheAgeOfTheFirstUntrainedRecord(t *testing.T) {
	e := &Entries{from: map[int32]int64{0: 10, 1: 0}, at: map[int32][]int64{0: {1000, 1100, 1200}, 1: {1050}}}
	for _, c := range []struct {
		at      int64
		applied map[int32]int64
		want    time.Duration
	}{
		{1500, map[int32]int64{0: 13, 1: 1}, 0},
		{1500, map[int32]int64{0: 12, 1: 1}, 300 * time.Millisecond},
		{1500, map[int32]int64{0: 11, 1: 0}, 450 * time.Millisecond},
		{1500, nil, 500 * time.Millisecond},
		{1150, map[int32]int64{0: 12, 1: 1}, 0}, // what is next had not entered yet
	} {
		if got := e.Oldest(ms(c.at), c.applied); got != c.want {
			t.Errorf("at %d, applied %v: %v, want %v", c.at, c.applied, got, c.want)
		}
	}
}

func TestRateAndFirstAbove(t *testing.T) {
	var at []int64
	for i := range int64(100) { // 10 a second, then 100 a second from 5 s on
		if i < 50 {
			at = append(at, i*100)
		} else {
			at = append(at, 5000+(i-50)*10)
		}
	}
	e := &Entries{from: map[int32]int64{0: 0}, at: map[int32][]int64{0: at}}
	if got := e.Rate(ms(0), ms(5000)); math.Abs(got-10) > 0.01 {
		t.Errorf("rate %v, want 10", got)
	}
	first, ok := e.FirstAbove(30, ms(0), ms(6000), time.Second)
	if !ok || first.Before(ms(5100)) || first.After(ms(5400)) {
		t.Errorf("above 30/s at %v (%v), want soon after 5.2 s", first.UnixMilli(), ok)
	}
	if _, ok := e.FirstAbove(1000, ms(0), ms(6000), time.Second); ok {
		t.Error("1000/s was never reached")
	}
}

func TestPercentile(t *testing.T) {
	v := []float64{5, 1, 4, 2, 3}
	for p, want := range map[float64]float64{0: 1, 50: 3, 99: 5, 100: 5} {
		if got := Percentile(v, p); got != want {
			t.Errorf("p%v = %v, want %v", p, got, want)
		}
	}
	if Percentile(nil, 50) != 0 {
		t.Error("no values have no percentile")
	}
}
