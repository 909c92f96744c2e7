package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/ps"
	"github.com/kale-sched/kale/trainer/spans"
)

var (
	// ErrNothing says that nothing of a job was trained yet, or that no snapshot has it.
	ErrNothing = errors.New("nothing to compare")
	// ErrRecreated says that the log that was trained is gone: its topic was deleted, and another one has its name.
	ErrRecreated = errors.New("the topic was created again")
)

// comparison holds each tablet against the log, partition by partition.
type comparison struct {
	job       checkpoint.JobState
	ledgers   ps.Ledgers
	starts    map[int32]int64
	cutOff    map[int32][]checkpoint.CutOff // where the end of the log was cut off, by partition
	cells     []map[int32]cell              // by tablet with a snapshot, then partition
	compacted bool                          // records may have been removed from the log's middle
	// mismatch is the first that does not agree, mismatched are the tablets that do not.
	mismatch   string
	mismatched map[int32]bool
}

// cell is one tablet and one partition. Its offsets are those that the tablet has applied.
type cell struct {
	applied     *spans.Set
	inLog       int64 // records that the log holds in it now
	trained     int64
	dead        int64
	lostOffsets int64
	missing     int64 // records of the log that were not counted although their offsets were applied
	repeated    int64
	removed     int64 // offsets that the log does not have any more, what was given up as lost left out
	unproven    int64 // of those, where it cannot be told whether each was counted once: fewer records were counted, or which offsets were given up is not known
	uncounted   int64 // of those, how many no record was counted of: there were holes, or they are missing
	waiting     int64 // records of the log beyond what is applied
	cutOff      int64 // offsets of the removed ones that were read before the end of the log was cut off below them
	replaced    int64 // records that the log has there now: other ones, which were never trained
	compacted   int64 // records that were counted beyond those that the log has now, where compaction may have removed them since
	gone        int64 // offsets beyond what is applied that the log does not have any more: never to be trained, unless they were since the snapshot
}

// compared reads a job's newest snapshots, and the log from the job's pinned start to its end.
func compared(ctx context.Context, s Stores, progress func(done, all int64)) (*comparison, error) {
	store := checkpoint.Attach(s.Spec.GetCheckpointDir(), s.Spec.GetJob())
	c := &comparison{compacted: s.Compacted}
	var err error
	c.job, err = store.LoadJob()
	if errors.Is(err, checkpoint.ErrNoJob) {
		return nil, fmt.Errorf("%w: the job has not begun to train, or checkpoint.dir is not the folder that it trains into: there is no job state in %s", ErrNothing, store.Root())
	}
	if err == nil {
		c.ledgers, err = ps.ReadLedgers(store, c.job.Tablets, c.job.Timeline)
	}
	if err != nil {
		return nil, err
	}
	if len(c.ledgers.Sums) == 0 {
		return nil, fmt.Errorf("%w: no tablet has a snapshot yet in %s: the first is written after checkpoint.every, and when the job is stopped", ErrNothing, store.Root())
	}
	c.starts = maps.Clone(c.ledgers.Starts)
	maps.Copy(c.starts, c.job.Starts)
	log, err := stream.ExtentOf(ctx, s.Kafka, c.job.Topic)
	if err != nil {
		return nil, err
	}
	var none kadm.TopicID
	if id := log.ID.String(); log.ID != none && c.job.TopicID != "" && c.job.TopicID != none.String() && id != c.job.TopicID {
		return nil, fmt.Errorf("%w: topic %q has id %s, and what was trained is of %s, whose log is gone: there is nothing to hold it against", ErrRecreated, c.job.Topic, id, c.job.TopicID)
	}
	for p := range c.starts {
		if _, ok := log.End[p]; !ok {
			return nil, fmt.Errorf("topic %q has no partition %d, of which the job has trained records", c.job.Topic, p)
		}
	}
	c.cutOff = c.cutsOff(log.End)
	sums, err := stream.LogSums(ctx, s.Kafka, c.job.Topic, c.cuts(log), progress)
	if err != nil {
		return nil, fmt.Errorf("%w; where retention removes records just now, try again", err)
	}
	c.compare(sums)
	return c, nil
}

// appliedOf is the set of offsets of a partition that a tablet has applied.
func appliedOf(start int64, sum *rpc.PartitionSum) *spans.Set {
	set := spans.Of(spans.Span{Begin: start, End: sum.GetApplied().GetWatermark()})
	for _, sp := range sum.GetApplied().GetAbove() {
		set.Add(sp.GetBegin(), sp.GetEnd())
	}
	return set
}

// cuts are, for each partition, the ends of its log and all places within where what some tablet has applied begins or ends: between two of them every
// tablet has applied all or nothing.
func (c *comparison) cuts(log stream.Extent) map[int32][]int64 {
	out := map[int32][]int64{}
	for p, start := range c.starts {
		start = max(start, log.Start[p])
		out[p] = []int64{start, max(start, log.End[p])}
	}
	for _, t := range c.ledgers.Sums {
		for _, sum := range t.GetPartitions() {
			p := sum.GetPartition()
			ends := out[p][:2:2]
			for _, sp := range appliedOf(c.starts[p], sum).Spans() {
				out[p] = within(out[p], ends, sp.Begin, sp.End)
			}
		}
	}
	for p, cuts := range c.cutOff {
		for _, cut := range cuts {
			out[p] = within(out[p], out[p][:2:2], cut.At, cut.ReadTo)
		}
	}
	for p := range out {
		slices.Sort(out[p])
		out[p] = slices.Compact(out[p])
		if len(out[p]) == 1 { // an empty log
			out[p] = append(out[p], out[p][0])
		}
	}
	return out
}

// within adds those places to a list that lie between two ends.
func within(list, ends []int64, places ...int64) []int64 {
	for _, at := range places {
		if at > ends[0] && at < ends[1] {
			list = append(list, at)
		}
	}
	return list
}

// cutsOff are where the end of a log was cut off: as the job's chief has it and, where no worker has met it yet, as the log's ends tell, which are below what is applied
// in a snapshot. Tablets that have applied less do not need them.
func (c *comparison) cutsOff(ends map[int32]int64) map[int32][]checkpoint.CutOff {
	out := map[int32][]checkpoint.CutOff{}
	for _, cut := range c.job.CutOff {
		if _, known := c.starts[cut.Partition]; known {
			out[cut.Partition] = append(out[cut.Partition], cut)
		}
	}
	for p, start := range c.starts {
		read := ends[p]
		for _, t := range c.ledgers.Sums {
			for _, sum := range t.GetPartitions() {
				if spans := appliedOf(start, sum).Spans(); sum.GetPartition() == p && len(spans) > 0 {
					read = max(read, spans[len(spans)-1].End)
				}
			}
		}
		known := slices.ContainsFunc(out[p], func(cut checkpoint.CutOff) bool { return cut.At <= ends[p] && cut.ReadTo >= read })
		if read > ends[p] && !known {
			out[p] = append(out[p], checkpoint.CutOff{Partition: p, At: ends[p], ReadTo: read})
		}
	}
	return out
}

// cutOffOf are the offsets of a set that were read before the end of the log was cut off below them.
func (c *comparison) cutOffOf(p int32, of *spans.Set) *spans.Set {
	out := &spans.Set{}
	for _, cut := range c.cutOff[p] {
		out.Add(cut.At, cut.ReadTo)
	}
	return spans.Intersect(out, of)
}

// compare holds each tablet against the sums of the log. Where the numbers agree and the hashes do not, one record at least is missing and another one doubled.
func (c *comparison) compare(log map[int32][]stream.PartitionSum) {
	whole := wholeSums{topic: c.job.Topic, known: map[wholeSpan]uint64{}, found: map[soughtSpan]bool{}}
	for _, t := range c.ledgers.Sums {
		row := map[int32]cell{}
		for _, p := range slices.Sorted(maps.Keys(c.starts)) {
			i := slices.IndexFunc(t.GetPartitions(), func(s *rpc.PartitionSum) bool { return s.GetPartition() == p })
			sum := &rpc.PartitionSum{Partition: p, Applied: &rpc.OffsetSet{Watermark: c.starts[p]}}
			if i >= 0 {
				sum = t.GetPartitions()[i]
			}
			x, says := c.cell(p, sum, log[p], whole)
			if says != "" {
				c.differs(fmt.Sprintf("tablet %d, partition %d: %s", t.GetTablet(), p, says), t.GetTablet())
			}
			row[p] = x
		}
		c.cells = append(c.cells, row)
	}
	if n := len(c.ledgers.Sums); n != c.job.Tablets {
		c.differs(fmt.Sprintf("%d of %d tablets have a snapshot", n, c.job.Tablets), c.without()...)
	}
	c.agree()
}

// differs notes what does not agree, and whose it is.
func (c *comparison) differs(says string, tablets ...int32) {
	c.mismatch = cmp.Or(c.mismatch, says)
	if c.mismatched == nil {
		c.mismatched = map[int32]bool{}
	}
	for _, t := range tablets {
		c.mismatched[t] = true
	}
}

// without are the tablets that have no snapshot.
func (c *comparison) without() (out []int32) {
	for t := range int32(c.job.Tablets) {
		if !slices.ContainsFunc(c.ledgers.Sums, func(s *rpc.TabletSums) bool { return s.GetTablet() == t }) {
			out = append(out, t)
		}
	}
	return out
}

// cell compares one tablet's sums of a partition, and says what does not agree.
func (c *comparison) cell(p int32, sum *rpc.PartitionSum, log []stream.PartitionSum, whole wholeSums) (cell, string) {
	x := cell{applied: appliedOf(c.starts[p], sum), trained: int64(sum.GetN()), dead: int64(sum.GetDeadN()), lostOffsets: int64(sum.GetLostOffsets())}
	var want uint64
	var holes int64 // offsets within the log that have no record
	there, cut := spans.Set{}, c.cutOffOf(p, x.applied)
	x.cutOff = cut.Size()
	if len(log) > 0 {
		x.gone = spans.Subtract(spans.Of(spans.Span{Begin: c.starts[p], End: max(c.starts[p], log[0].From)}), x.applied).Size()
	}
	for _, s := range log {
		switch {
		case s.From < s.To && cut.Covers(s.From, s.To): // what was trained there is gone
			x.replaced += s.N
			continue
		case s.From < s.To && !x.applied.Covers(s.From, s.To):
			there.Add(s.From, s.To)
			x.waiting += s.N
			continue
		}
		there.Add(s.From, s.To)
		holes += s.To - s.From - s.N
		x.inLog, want = x.inLog+s.N, want+s.Sum
	}
	gone := spans.Subtract(x.applied, &there)
	x.removed = max(0, gone.Size()-x.lostOffsets)
	counted, have := x.trained+x.dead, sum.GetHash()+sum.GetDeadHash()
	rest := counted - x.inLog // what was counted of the offsets that are gone
	switch {
	case rest < 0:
		x.missing = -rest
		return x, fmt.Sprintf("%d records with hash sum %016x were counted, the log has %d with %016x", counted, have, x.inLog, want)
	case c.compacted && rest > x.removed && rest <= x.removed+holes:
		x.compacted = rest
		return x, ""
	case rest > x.removed:
		if x.repeated = rest - x.removed; c.compacted {
			x.repeated -= holes
		}
		return x, fmt.Sprintf("%d records were counted, the log has %d%s", counted, x.inLog, andRemoved(x.removed))
	case rest < x.removed: // there were holes, or what is missing
		x.unproven, x.uncounted = x.removed, x.removed-rest
		return x, ""
	}
	want += whole.of(p, gone)
	switch lost := c.givenUp(p, gone); {
	case have == want && x.lostOffsets == 0, x.lostOffsets > 0 && whole.hasSpan(p, gone, x.lostOffsets, want-have):
		return x, ""
	case x.lostOffsets > 0 && lost.Size() != x.lostOffsets: // it was in more than one span, and nobody kept in which
		x.unproven = x.removed
		return x, ""
	case x.lostOffsets > 0:
		want -= whole.of(p, lost)
	}
	if have != want && c.compacted && holes > 0 && rest > 0 {
		x.compacted = rest
		return x, ""
	}
	if have != want {
		x.repeated = 1
		if x.removed == 0 { // else what is counted twice may stand for a hole
			x.missing = 1
		}
		return x, fmt.Sprintf("%d records with hash sum %016x were counted, and it should be %016x", counted, have, want)
	}
	return x, ""
}

// givenUp are the offsets of a set that an operator has given up. A tablet may have trained some of them, which another had yet to repair.
func (c *comparison) givenUp(p int32, of *spans.Set) *spans.Set {
	out := &spans.Set{}
	for _, l := range c.job.Lost {
		if l.Partition == p {
			out.Add(l.Begin, l.End)
		}
	}
	return spans.Intersect(out, of)
}

func andRemoved(offsets int64) string {
	if offsets == 0 {
		return ""
	}
	return fmt.Sprintf(", and had at most %d more in offsets that it has no more", offsets)
}

// agree holds tablets that have applied the same offsets against each other: it tells of what the log cannot.
func (c *comparison) agree() {
	type content struct{ n, dead, hash, deadHash uint64 }
	type seen struct {
		content
		tablet int32
	}
	first := map[string]seen{}
	for i, t := range c.ledgers.Sums {
		for _, sum := range t.GetPartitions() {
			p := sum.GetPartition()
			if c.cells[i][p].unproven+c.cells[i][p].compacted == 0 {
				continue // held against the log
			}
			key := fmt.Sprint(p, c.cells[i][p].applied, sum.GetLostOffsets()) // a tablet that had to repair may have lost more
			is := content{sum.GetN(), sum.GetDeadN(), sum.GetHash(), sum.GetDeadHash()}
			was, ok := first[key]
			if !ok {
				first[key] = seen{is, t.GetTablet()}
			} else if was.content != is {
				c.differs(fmt.Sprintf("partition %d: tablets %d and %d have applied the same offsets, and have not counted the same records", p, was.tablet, t.GetTablet()), was.tablet, t.GetTablet())
			}
		}
	}
}

// wholeSums remembers the hash sums of spans of which every offset was a record, and which were looked for: all tablets have the same spans.
type wholeSums struct {
	topic string
	known map[wholeSpan]uint64
	found map[soughtSpan]bool
}

type wholeSpan struct {
	partition int32
	spans.Span
}

// soughtSpan are n consecutive offsets in a span, by their hash sum.
type soughtSpan struct {
	wholeSpan
	n   int64
	sum uint64
}

// of is the hash sum of a set of which every offset was a record.
func (w wholeSums) of(partition int32, set *spans.Set) (sum uint64) {
	for _, sp := range set.Spans() {
		sum += w.sum(partition, sp)
	}
	return sum
}

// hasSpan says whether a set has n consecutive offsets with a hash sum.
func (w wholeSums) hasSpan(partition int32, set *spans.Set, n int64, sum uint64) bool {
	for _, sp := range set.Spans() {
		key := soughtSpan{wholeSpan{partition, sp}, n, sum}
		if _, ok := w.found[key]; !ok {
			w.found[key] = stream.HasSpan(w.topic, partition, sp.Begin, sp.End, n, sum)
		}
		if w.found[key] {
			return true
		}
	}
	return false
}

func (w wholeSums) sum(partition int32, sp spans.Span) uint64 {
	key := wholeSpan{partition, sp}
	if _, ok := w.known[key]; !ok {
		w.known[key] = stream.WholeSum(w.topic, partition, sp.Begin, sp.End)
	}
	return w.known[key]
}

// counts is the comparison over all partitions, where everything is to be trained.
func (c *comparison) counts() Counts {
	out := Counts{Tablets: len(c.cells), Trained: -1, Mismatch: c.mismatch}
	for _, row := range c.cells {
		var all cell
		for _, x := range row {
			all.add(x)
		}
		out.Produced = all.inLog + all.waiting + all.replaced // the same of every tablet
		if out.Trained < 0 || all.trained < out.Trained {
			out.Trained, out.Dead, out.LostOffsets = all.trained, all.dead, all.lostOffsets
		}
		out.Lost, out.Repeated = max(out.Lost, all.missing+all.waiting+all.replaced), max(out.Repeated, all.repeated)
		if all.cutOff > 0 && out.Mismatch == "" {
			out.Mismatch = fmt.Sprintf("the end of the log was cut off below %d offsets that were trained", all.cutOff)
		}
		if all.waiting+all.unproven+all.gone > 0 && out.Mismatch == "" {
			out.Mismatch = fmt.Sprintf("%d records of the log are not trained, and %d offsets that it has no more cannot be told of", all.waiting, all.unproven+all.gone)
		}
	}
	if len(c.cells) != c.job.Tablets {
		out.Lost = out.Produced
	}
	return out
}

func (x *cell) add(y cell) {
	x.inLog += y.inLog
	x.trained += y.trained
	x.dead += y.dead
	x.lostOffsets += y.lostOffsets
	x.missing += y.missing
	x.repeated += y.repeated
	x.removed += y.removed
	x.unproven += y.unproven
	x.uncounted += y.uncounted
	x.waiting += y.waiting
	x.gone += y.gone
	x.compacted += y.compacted
	x.cutOff += y.cutOff
	x.replaced += y.replaced
}
