package audit

import (
	"math"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/ps"
)

// tablet has applied the offsets 1 to 4 of partition 0, and counted the given ones.
func tablet(id int32, offsets ...int64) *rpc.TabletSums {
	p := &rpc.PartitionSum{Partition: 0, Applied: &rpc.OffsetSet{Watermark: 5}}
	for _, o := range offsets {
		p.N++
		p.Hash += stream.RecordHash("clicks", 0, o)
	}
	return &rpc.TabletSums{Tablet: id, Partitions: []*rpc.PartitionSum{p}}
}

// upTo is a tablet that has applied less.
func upTo(watermark int64, t *rpc.TabletSums) *rpc.TabletSums {
	t.Partitions[0].Applied.Watermark = watermark
	return t
}

// against holds tablets of a job that began at offset 1 against a log that begins at an offset and has the given records.
func against(from, to int64, records []int64, want int, tablets ...*rpc.TabletSums) *comparison {
	return given(nil, from, to, records, want, tablets...)
}

// given is against, of a job of which an operator has given up some spans.
func given(lost []checkpoint.LostSpan, from, to int64, records []int64, want int, tablets ...*rpc.TabletSums) *comparison {
	return held(checkpoint.JobState{Lost: lost}, from, to, records, want, tablets...)
}

// cutOff is against, of a job whose log was cut off at its end.
func cutOff(cuts []checkpoint.CutOff, to int64, records []int64, tablets ...*rpc.TabletSums) *comparison {
	return held(checkpoint.JobState{CutOff: cuts}, 0, to, records, len(tablets), tablets...)
}

// held is against, of a job with some state.
func held(job checkpoint.JobState, from, to int64, records []int64, want int, tablets ...*rpc.TabletSums) *comparison {
	c := &comparison{}
	c.hold(job, from, to, records, want, tablets...)
	return c
}

func (c *comparison) hold(job checkpoint.JobState, from, to int64, records []int64, want int, tablets ...*rpc.TabletSums) {
	job.Job, job.Topic, job.Tablets = "ctr", "clicks", want
	c.job, c.starts, c.ledgers = job, map[int32]int64{0: 1}, ps.Ledgers{Sums: tablets}
	c.cutOff = c.cutsOff(map[int32]int64{0: to})
	cuts := c.cuts(stream.Extent{Start: map[int32]int64{0: from}, End: map[int32]int64{0: to}})[0]
	var sums []stream.PartitionSum
	for i := range len(cuts) - 1 {
		s := stream.PartitionSum{From: cuts[i], To: cuts[i+1]}
		for _, o := range records {
			if o >= s.From && o < s.To {
				s.N++
				s.Sum += stream.RecordHash("clicks", 0, o)
			}
		}
		sums = append(sums, s)
	}
	c.compare(map[int32][]stream.PartitionSum{0: sums})
}

// EXACTLY_ONCE rule 19: the check must be able to fail, in every way in which the promise can be broken.
func TestCompareSeesEveryKindOfMistake(t *testing.T) {
	for name, c := range map[string]struct {
		tablets        []*rpc.TabletSums
		lost, repeated int64
		exact          bool
		verdict        Verdict
	}{
		"exact":                            {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), tablet(1, 4, 3, 2, 1)}, 0, 0, true, Exact},
		"one lost in one tablet":           {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), tablet(1, 1, 2, 4)}, 1, 0, false, NotExact},
		"one doubled in one tablet":        {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4, 4), tablet(1, 1, 2, 3, 4)}, 0, 1, false, NotExact},
		"one lost hides one doubled":       {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), tablet(1, 1, 2, 2, 4)}, 1, 1, false, NotExact},
		"a tablet without a snapshot":      {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, 4, 0, false, NotExact},
		"a tablet that saw no partition":   {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), {Tablet: 1}}, 4, 0, false, Exact}, // which it trains yet
		"a tablet that is behind":          {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), upTo(3, tablet(1, 1, 2))}, 2, 0, false, Exact},
		"behind, and one lost":             {[]*rpc.TabletSums{tablet(0, 1, 2, 3, 4), upTo(4, tablet(1, 1, 3))}, 2, 0, false, NotExact},
		"both tablets lost different ones": {[]*rpc.TabletSums{tablet(0, 1, 2, 3), tablet(1, 2, 3, 4)}, 1, 0, false, NotExact},
	} {
		t.Run(name, func(t *testing.T) {
			c1 := against(0, 5, []int64{1, 2, 3, 4}, 2, c.tablets...)
			got, proof := c1.counts(), c1.proof()
			if got.Lost != c.lost || got.Repeated != c.repeated || got.Exact() != c.exact {
				t.Errorf("lost %d, repeated %d, exact %v; want %d, %d, %v (%s)", got.Lost, got.Repeated, got.Exact(), c.lost, c.repeated, c.exact, got.Mismatch)
			}
			if got.Produced != 4 {
				t.Errorf("produced %d, want 4", got.Produced)
			}
			if !c.exact && got.Mismatch == "" {
				t.Error("nothing says what does not agree")
			}
			if proof.Verdict != c.verdict || proof.Total.InLog+proof.Total.Waiting != 4 {
				t.Errorf("the proof is %+v, want %s", proof, c.verdict)
			}
		})
	}
}

// Which tablets do not agree, and which are only behind, is told of each.
func TestProofNamesTheTablets(t *testing.T) {
	p := against(0, 5, []int64{1, 2, 3, 4}, 5, tablet(0, 1, 2, 3, 4), upTo(4, tablet(1, 1, 2, 3)), upTo(2, tablet(2, 1)), tablet(3, 1, 2, 4)).proof()
	if d := gocmp.Diff([]int32{3, 4}, p.Mismatched); d != "" { // the last has no snapshot
		t.Errorf("mismatched (-want +got):\n%s", d)
	}
	if d := gocmp.Diff([]Lacking{{2, 3}, {1, 1}}, p.Lacking); d != "" {
		t.Errorf("lacking (-want +got):\n%s", d)
	}
}

// What is trained above the first gap is in the row too, and told: a repair that has not ended leaves such a gap.
func TestWhatIsTrainedAboveAGapIsTold(t *testing.T) {
	gap := func(id int32) *rpc.TabletSums {
		t := upTo(2, tablet(id, 1, 4))
		t.Partitions[0].Applied.Above = []*rpc.Span{{Begin: 4, End: 5}}
		return t
	}
	for name, c := range map[string]struct {
		tablets []*rpc.TabletSums
		want    Partition
	}{
		"no gap":                      {[]*rpc.TabletSums{upTo(3, tablet(0, 1, 2))}, Partition{From: 1, To: 3, Figures: Figures{InLog: 2, Trained: 2, Waiting: 2}}},
		"in each tablet":              {[]*rpc.TabletSums{gap(0), gap(1)}, Partition{From: 1, To: 2, Beyond: 1, Figures: Figures{InLog: 2, Trained: 2, Waiting: 2}}},
		"in a tablet that lacks more": {[]*rpc.TabletSums{upTo(4, tablet(0, 1, 2, 3)), gap(1)}, Partition{From: 1, To: 2, Beyond: 1, Figures: Figures{InLog: 2, Trained: 2, Waiting: 2}}},
	} {
		got := against(0, 5, []int64{1, 2, 3, 4}, len(c.tablets), c.tablets...).proof()
		if d := gocmp.Diff([]Partition{c.want}, got.Partitions); d != "" || got.Verdict != Exact {
			t.Errorf("%s: %s (%s)\n%s", name, got.Verdict, got.Mismatch, d)
		}
	}
}

// What retention has removed since it was trained is held against its offsets where each was a record; where that cannot be, no more is claimed than is known.
func TestRetentionAfterTraining(t *testing.T) {
	for name, c := range map[string]struct {
		from, to int64
		records  []int64
		tablets  []*rpc.TabletSums
		verdict  Verdict
		want     Figures
	}{
		"each offset was a record":       {3, 5, []int64{3, 4}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, Exact, Figures{InLog: 2, Trained: 4, Removed: 2}},
		"all are gone":                   {5, 5, nil, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, Exact, Figures{Trained: 4, Removed: 4}},
		"more than what was trained":     {7, 9, []int64{7, 8}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, Unknown, Figures{Trained: 4, Removed: 4, Waiting: 2, Gone: 2}},
		"and one is missing beside it":   {7, 9, []int64{7, 8}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 3)}, NotExact, Figures{Trained: 4, Removed: 4, Repeated: 1, Waiting: 2, Gone: 2}},
		"a hole, or one that is lost":    {3, 5, []int64{3, 4}, []*rpc.TabletSums{tablet(0, 2, 3, 4)}, Unknown, Figures{InLog: 2, Trained: 3, Removed: 2, Unproven: 2, Uncounted: 1}},
		"a hole, and tablets differ":     {3, 5, []int64{3, 4}, []*rpc.TabletSums{tablet(0, 2, 3, 4), tablet(1, 1, 3, 4)}, NotExact, Figures{InLog: 2, Trained: 3, Removed: 2, Unproven: 2, Uncounted: 1}},
		"one doubled in place of a hole": {3, 5, []int64{3, 4}, []*rpc.TabletSums{tablet(0, 2, 2, 3, 4)}, NotExact, Figures{InLog: 2, Trained: 4, Removed: 2, Repeated: 1}},
		"more than there were offsets":   {3, 5, []int64{3, 4}, []*rpc.TabletSums{tablet(0, 1, 1, 2, 3, 4)}, NotExact, Figures{InLog: 2, Trained: 5, Removed: 2, Repeated: 1}},
		"fewer than the log has":         {3, 5, []int64{3, 4}, []*rpc.TabletSums{tablet(0, 4)}, NotExact, Figures{InLog: 2, Trained: 1, Removed: 2, Missing: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := against(c.from, c.to, c.records, len(c.tablets), c.tablets...).proof()
			if d := gocmp.Diff([]Partition{{From: 1, To: 5, Figures: c.want}}, got.Partitions); d != "" || got.Verdict != c.verdict || (got.Mismatch != "") != (c.verdict == NotExact) {
				t.Errorf("%s, want %s (%s)\n%s", got.Verdict, c.verdict, got.Mismatch, d)
			}
		})
	}
}

// What compaction has removed since it was trained is no repeat, and cannot be told from one: no more is claimed than is known. What the log still has, and was not
// counted, is missing all the same, and more than it has room for is repeated.
func TestCompactionAfterTraining(t *testing.T) {
	for name, c := range map[string]struct {
		records []int64
		tablets []*rpc.TabletSums
		verdict Verdict
		want    Figures
	}{
		"nothing was removed":       {[]int64{1, 2, 3, 4}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, Exact, Figures{InLog: 4, Trained: 4}},
		"before it was trained":     {[]int64{1, 3, 4}, []*rpc.TabletSums{tablet(0, 1, 3, 4)}, Exact, Figures{InLog: 3, Trained: 3}},
		"since it was trained":      {[]int64{1, 4}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4), tablet(1, 1, 2, 3, 4)}, Unknown, Figures{InLog: 2, Trained: 4, Compacted: 2}},
		"and tablets differ":        {[]int64{1, 4}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4), tablet(1, 1, 2, 2, 4)}, NotExact, Figures{InLog: 2, Trained: 4, Compacted: 2}},
		"and one is missing":        {[]int64{1, 4}, []*rpc.TabletSums{tablet(0, 4)}, NotExact, Figures{InLog: 2, Trained: 1, Missing: 1}},
		"and more than had room":    {[]int64{1, 4}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 3, 4)}, NotExact, Figures{InLog: 2, Trained: 5, Repeated: 1}},
		"one missing, one repeated": {[]int64{1, 4}, []*rpc.TabletSums{tablet(0, 1, 1)}, NotExact, Figures{InLog: 2, Trained: 2, Missing: 1, Repeated: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			cmp := &comparison{compacted: true}
			cmp.hold(checkpoint.JobState{}, 0, 5, c.records, len(c.tablets), c.tablets...)
			got := cmp.proof()
			if d := gocmp.Diff([]Partition{{From: 1, To: 5, Figures: c.want}}, got.Partitions); d != "" || got.Verdict != c.verdict || !got.Compacted {
				t.Errorf("%s, want %s (%s)\n%s", got.Verdict, c.verdict, got.Mismatch, d)
			}
		})
	}
}

// Offsets that were given up since retention had removed them were never records of this job, whether an operator or the policy gave them up: the tablet has
// counted them. Which they were the hash sums say, where they were one span or an operator's.
func TestWhatWasGivenUpIsNotLost(t *testing.T) {
	lost := func(n uint64, t *rpc.TabletSums) *rpc.TabletSums {
		t.Partitions[0].LostOffsets = n
		return t
	}
	span := func(begin, end int64) checkpoint.LostSpan { return checkpoint.LostSpan{Begin: begin, End: end} }
	for name, c := range map[string]struct {
		from    int64 // of the log, which ends at 10
		kept    []checkpoint.LostSpan
		tablets []*rpc.TabletSums
		verdict Verdict
		want    Figures
	}{
		"by an operator":                     {3, []checkpoint.LostSpan{span(1, 3)}, []*rpc.TabletSums{lost(2, tablet(0, 3, 4, 5, 6, 7, 8, 9))}, Exact, Figures{InLog: 7, Trained: 7, LostOffsets: 2}},
		"by the policy":                      {3, nil, []*rpc.TabletSums{lost(2, tablet(0, 3, 4, 5, 6, 7, 8, 9))}, Exact, Figures{InLog: 7, Trained: 7, LostOffsets: 2}},
		"trained before it, then removed":    {5, nil, []*rpc.TabletSums{lost(2, tablet(0, 1, 2, 5, 6, 7, 8, 9))}, Exact, Figures{InLog: 5, Trained: 7, LostOffsets: 2, Removed: 2}},
		"trained around it, then removed":    {7, nil, []*rpc.TabletSums{lost(2, tablet(0, 1, 2, 5, 6, 7, 8, 9)), lost(2, tablet(1, 1, 2, 5, 6, 7, 8, 9))}, Exact, Figures{InLog: 3, Trained: 7, LostOffsets: 2, Removed: 4}},
		"one doubled in place of another":    {5, nil, []*rpc.TabletSums{lost(2, tablet(0, 2, 2, 5, 6, 7, 8, 9))}, Unknown, Figures{InLog: 5, Trained: 7, LostOffsets: 2, Removed: 2, Unproven: 2}},
		"two spans that nobody kept":         {7, nil, []*rpc.TabletSums{lost(2, tablet(0, 1, 3, 5, 6, 7, 8, 9))}, Unknown, Figures{InLog: 3, Trained: 7, LostOffsets: 2, Removed: 4, Unproven: 4}},
		"two spans, and tablets differ":      {7, nil, []*rpc.TabletSums{lost(2, tablet(0, 1, 3, 5, 6, 7, 8, 9)), lost(2, tablet(1, 2, 4, 5, 6, 7, 8, 9))}, NotExact, Figures{InLog: 3, Trained: 7, LostOffsets: 2, Removed: 4, Unproven: 4}},
		"two spans by an operator":           {7, []checkpoint.LostSpan{span(2, 3), span(4, 5)}, []*rpc.TabletSums{lost(2, tablet(0, 1, 3, 5, 6, 7, 8, 9))}, Exact, Figures{InLog: 3, Trained: 7, LostOffsets: 2, Removed: 4}},
		"doubled beside an operator's spans": {7, []checkpoint.LostSpan{span(2, 3), span(4, 5)}, []*rpc.TabletSums{lost(2, tablet(0, 3, 3, 5, 6, 7, 8, 9))}, NotExact, Figures{InLog: 3, Trained: 7, LostOffsets: 2, Removed: 4, Repeated: 1}},
		"trained by one tablet, and given up by one that had forgotten it": {5, []checkpoint.LostSpan{span(1, 5)}, []*rpc.TabletSums{
			lost(2, tablet(0, 1, 2, 5, 6, 7, 8, 9)), tablet(1, 1, 2, 3, 4, 5, 6, 7, 8, 9)}, Exact, Figures{InLog: 5, Trained: 7, LostOffsets: 2, Removed: 2}},
		"one missing beside it":  {5, nil, []*rpc.TabletSums{lost(2, tablet(0, 2, 5, 6, 7, 8, 9))}, Unknown, Figures{InLog: 5, Trained: 6, LostOffsets: 2, Removed: 2, Unproven: 2, Uncounted: 1}},
		"more than were removed": {5, nil, []*rpc.TabletSums{lost(3, tablet(0, 1, 2, 5, 6, 7, 8, 9))}, NotExact, Figures{InLog: 5, Trained: 7, LostOffsets: 3, Removed: 1, Repeated: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sums := range c.tablets {
				upTo(10, sums)
			}
			got := given(c.kept, c.from, 10, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, len(c.tablets), c.tablets...).proof()
			if d := gocmp.Diff([]Partition{{From: 1, To: 10, Figures: c.want}}, got.Partitions); d != "" || got.Verdict != c.verdict {
				t.Errorf("%s, want %s (%s)\n%s", got.Verdict, c.verdict, got.Mismatch, d)
			}
		})
	}
}

// What the log has at offsets that were trained before its end was cut off below them are other records, which were never trained: by their offsets alone they would
// be taken for those that were. Before any are written there is none of that, and below the end that was seen some may be.
func TestALogThatWasCutOffIsNotExact(t *testing.T) {
	cut := []checkpoint.CutOff{{Partition: 0, At: 3, ReadTo: 5}}
	for name, c := range map[string]struct {
		kept    []checkpoint.CutOff
		to      int64
		records []int64
		tablets []*rpc.TabletSums
		verdict Verdict
		cuts    []checkpoint.CutOff
		want    Figures
		lost    int64 // in the counts
	}{
		"it ends there":              {cut, 3, []int64{1, 2}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, Unknown, cut, Figures{InLog: 2, Trained: 4, Removed: 2, CutOff: 2}, 0},
		"and nobody has met that":    {nil, 4, []int64{1, 2, 3}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, Unknown, []checkpoint.CutOff{{Partition: 0, At: 4, ReadTo: 5}}, Figures{InLog: 3, Trained: 4, Removed: 1, CutOff: 1}, 0},
		"it has grown a bit":         {cut, 4, []int64{1, 2, 3}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, NotExact, cut, Figures{InLog: 2, Trained: 4, Removed: 2, CutOff: 2, Replaced: 1}, 1},
		"it has grown past that":     {cut, 7, []int64{1, 2, 3, 4, 5, 6}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, NotExact, cut, Figures{InLog: 2, Trained: 4, Removed: 2, CutOff: 2, Replaced: 2, Waiting: 2}, 4},
		"with a hole":                {cut, 7, []int64{1, 2, 4, 5, 6}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, NotExact, cut, Figures{InLog: 2, Trained: 4, Removed: 2, CutOff: 2, Replaced: 1, Waiting: 2}, 3},
		"and is trained":             {cut, 7, []int64{1, 2, 3, 4, 5, 6}, []*rpc.TabletSums{upTo(7, tablet(0, 1, 2, 3, 4, 5, 6))}, NotExact, cut, Figures{InLog: 4, Trained: 6, Removed: 2, CutOff: 2, Replaced: 2}, 2},
		"and one is missing":         {cut, 7, []int64{1, 2, 3, 4, 5, 6}, []*rpc.TabletSums{upTo(7, tablet(0, 1, 3, 4, 5))}, NotExact, cut, Figures{InLog: 4, Trained: 4, Removed: 2, CutOff: 2, Replaced: 2, Unproven: 2, Uncounted: 2}, 2},
		"snapshots are older":        {cut, 7, []int64{1, 2, 3, 4, 5, 6}, []*rpc.TabletSums{upTo(3, tablet(0, 1, 2))}, Exact, nil, Figures{InLog: 2, Trained: 2, Waiting: 4}, 4},
		"of another partition":       {[]checkpoint.CutOff{{Partition: 7, At: 3, ReadTo: 5}}, 5, []int64{1, 2, 3, 4}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4)}, Exact, nil, Figures{InLog: 4, Trained: 4}, 0},
		"one tablet had it all read": {cut, 5, []int64{1, 2, 3, 4}, []*rpc.TabletSums{tablet(0, 1, 2, 3, 4), upTo(4, tablet(1, 1, 2, 3))}, NotExact, cut, Figures{InLog: 2, Trained: 3, Removed: 1, CutOff: 1, Replaced: 1, Waiting: 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			compared := cutOff(c.kept, c.to, c.records, c.tablets...)
			got, counts := compared.proof(), compared.counts()
			to := int64(5)
			for _, sums := range c.tablets {
				to = sums.Partitions[0].Applied.Watermark
			}
			if d := gocmp.Diff([]Partition{{From: 1, To: to, Cuts: c.cuts, Figures: c.want}}, got.Partitions); d != "" || got.Verdict != c.verdict {
				t.Errorf("%s, want %s (%s)\n%s", got.Verdict, c.verdict, got.Mismatch, d)
			}
			if counts.Lost != c.lost || counts.Exact() != (c.lost == 0 && c.cuts == nil) {
				t.Errorf("counts %+v, want %d lost", counts, c.lost)
			}
		})
	}
}

// Dead-lettered records are counted as dead and not as lost.
func TestCompareCountsDeadLetters(t *testing.T) {
	ts := tablet(0, 1, 2, 4)
	ts.Partitions[0].DeadN, ts.Partitions[0].DeadHash = 1, stream.RecordHash("clicks", 0, 3)
	got := against(0, 5, []int64{1, 2, 3, 4}, 1, ts).counts()
	want := Counts{Produced: 4, Trained: 3, Dead: 1, Tablets: 1}
	if diff := gocmp.Diff(want, got); diff != "" {
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

// Of a partition in which training is at a record that cannot be decoded that is told, and of none other.
func TestARecordThatCannotBeDecodedIsTold(t *testing.T) {
	k := kafkatest.Embedded(t)
	k.CreateTopics(stream.TopicSpec{Name: "clicks", Partitions: 3})
	cl, err := kgo.NewClient(append(k.Client(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for p, values := range [][]string{{`{"click":1}`, `{not json`, `{"click":0}`}, {`{not json`, `{"click":1}`}, {`{not json`}} {
		for _, v := range values {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "clicks", Partition: int32(p), Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := Proof{Topic: "clicks", Partitions: []Partition{
		{Partition: 0, To: 1, Figures: Figures{Waiting: 2}}, {Partition: 1, To: 1, Figures: Figures{Waiting: 1}}, {Partition: 2, To: 1},
	}}
	err = p.decode(t.Context(), Stores{Kafka: k.Client(), Spec: &rpc.TrainSpec{Features: &rpc.FeatureSpec{Format: "json", Label: "click"}}})
	for i, x := range p.Partitions {
		if err != nil || x.Undecodable != (i == 0) {
			t.Errorf("partition %d at offset %d cannot be decoded: %v (%v)", i, x.To, x.Undecodable, err)
		}
	}
}
