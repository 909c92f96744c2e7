package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

const (
	scanParallel   = 4
	scanFetchBytes = 4 << 20
	scanWait       = 500 * time.Millisecond
	scanTries      = 60 // of one fetch, with scanPause between: a broker's restart takes seconds
	scanPause      = 500 * time.Millisecond
)

// PartitionSum describes the records of one partition in a range of offsets.
type PartitionSum struct {
	N    int64  // records, not offsets: gaps, control records and aborted transactions do not count
	Sum  uint64 // Σ RecordHash, modulo 2^64
	From int64  // the range: [From, To)
	To   int64
	// First and Last are the offsets of the first and last record in it; -1 where there is none.
	First, Last int64
}

// LogSum counts and sums the committed records of a topic, partition by partition, from one set of offsets to another
// (exclusive). A nil from means the start of the log, a nil to its last stable offset as it is now; a map that is not
// nil chooses the partitions, and both must name the same.
func LogSum(ctx context.Context, opts []kgo.Opt, topic string, from, to map[int32]int64) (map[int32]PartitionSum, error) {
	ranges, cl, err := openScan(ctx, opts, topic, from, to)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	cuts := make(map[int32][]int64, len(ranges))
	for _, r := range ranges {
		cuts[r.partition] = []int64{r.from, r.to}
	}
	sums, err := sumRanges(ctx, cl, topic, ranges, cuts, nil)
	if err != nil {
		return nil, err
	}
	out := make(map[int32]PartitionSum, len(ranges))
	for p, parts := range sums {
		out[p] = parts[0]
	}
	return out, nil
}

// LogSums is LogSum for consecutive ranges of each partition: the i-th sum is that of [cuts[i], cuts[i+1]). The cuts of a partition, two at least, ascend;
// equal ones have an empty range between them. progress, unless nil, is told of how many offsets the sums have got through; calls of it do not overlap.
func LogSums(ctx context.Context, opts []kgo.Opt, topic string, cuts map[int32][]int64, progress func(done, all int64)) (map[int32][]PartitionSum, error) {
	from, to := map[int32]int64{}, map[int32]int64{}
	for p, c := range cuts {
		from[p], to[p] = c[0], c[len(c)-1]
	}
	ranges, cl, err := openScan(ctx, opts, topic, from, to)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return sumRanges(ctx, cl, topic, ranges, cuts, progress)
}

func sumRanges(ctx context.Context, cl *kgo.Client, topic string, ranges []scanRange, cuts map[int32][]int64, progress func(done, all int64)) (map[int32][]PartitionSum, error) {
	out := make(map[int32][]PartitionSum, len(ranges))
	hashers := make(map[int32]*hasher, len(ranges))
	reached := make(map[int32]int64, len(ranges))
	var done, all int64
	for _, r := range ranges {
		c := cuts[r.partition]
		parts := make([]PartitionSum, len(c)-1)
		for i := range parts {
			parts[i] = PartitionSum{From: c[i], To: c[i+1], First: -1, Last: -1}
		}
		out[r.partition], hashers[r.partition], reached[r.partition] = parts, newHasher(topic), r.from
		all += r.to - r.from
	}
	var mu sync.Mutex // guards done and reached, and orders the calls of progress
	err := scanRanges(ctx, cl, topic, ranges, func(partition int32, recs []*kgo.Record) error {
		h, parts := hashers[partition], out[partition] // one goroutine per partition
		i, _ := slices.BinarySearchFunc(parts, recs[0].Offset, func(s PartitionSum, at int64) int {
			if s.To <= at {
				return -1
			}
			return 1
		})
		for _, rec := range recs {
			for rec.Offset >= parts[i].To {
				i++
			}
			s := &parts[i]
			if s.N == 0 {
				s.First = rec.Offset
			}
			s.N++
			s.Sum += h.sum(partition, rec.Offset)
			s.Last = rec.Offset
		}
		mu.Lock()
		defer mu.Unlock()
		next := recs[len(recs)-1].Offset + 1
		done, reached[partition] = done+next-reached[partition], next
		if progress != nil {
			progress(done, all)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// WholeSum is Σ RecordHash of a partition whose offsets in [from, to) were all records.
func WholeSum(topic string, partition int32, from, to int64) (sum uint64) {
	h := newHasher(topic)
	for o := from; o < to; o++ {
		sum += h.sum(partition, o)
	}
	return sum
}

// HasSpan says whether some n consecutive offsets in [from, to) have the sum of hashes that WholeSum gives of them.
func HasSpan(topic string, partition int32, from, to, n int64, sum uint64) bool {
	if n > to-from {
		return false
	}
	have, h := WholeSum(topic, partition, from, from+n), newHasher(topic)
	for o := from; have != sum; o++ {
		if o+n >= to {
			return false
		}
		have += h.sum(partition, o+n) - h.sum(partition, o)
	}
	return true
}

// Extent is where the log of a topic begins and ends now.
type Extent struct {
	// ID is the topic's, as kadm writes it: another one of the same name has another. That of a broker before Kafka 3.1 is all zero bytes.
	ID kadm.TopicID
	// Start and End are the first offset and the last stable one of each partition.
	Start, End map[int32]int64
}

// ExtentOf asks the brokers for a topic's extent.
func ExtentOf(ctx context.Context, opts []kgo.Opt, topic string) (Extent, error) {
	e := Extent{Start: map[int32]int64{}, End: map[int32]int64{}}
	ranges, cl, err := openScan(ctx, opts, topic, nil, nil)
	if err != nil {
		return e, err
	}
	defer cl.Close()
	for _, r := range ranges {
		e.Start[r.partition], e.End[r.partition] = r.from, r.to
	}
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err == nil {
		err = topics[topic].Err
	}
	if err != nil {
		return e, fmt.Errorf("read topic %q: ask for its id: %w", topic, err)
	}
	e.ID = topics[topic].ID
	return e, nil
}

// Scan calls fn with every committed record of a topic from one set of offsets to another (exclusive), as [LogSum] takes
// them: one call at a time, in order of offset within a partition, in no order between partitions. The record is fn's to
// keep. An error of fn ends the scan and is returned as it is. Control records and aborted transactions are left out.
// It survives a restart of the broker.
func Scan(ctx context.Context, opts []kgo.Opt, topic string, from, to map[int32]int64, fn func(rec *kgo.Record) error) error {
	ranges, cl, err := openScan(ctx, opts, topic, from, to)
	if err != nil {
		return err
	}
	defer cl.Close()
	var mu sync.Mutex
	return scanRanges(ctx, cl, topic, ranges, func(_ int32, recs []*kgo.Record) error {
		mu.Lock()
		defer mu.Unlock()
		for _, rec := range recs {
			if err := fn(rec); err != nil {
				return err
			}
		}
		return nil
	})
}

type scanRange struct {
	partition int32
	from, to  int64
}

// openScan resolves and checks the ranges. The client is the caller's to close.
func openScan(ctx context.Context, opts []kgo.Opt, topic string, from, to map[int32]int64) (_ []scanRange, _ *kgo.Client, err error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.AlwaysRetryEOF()}, opts...)...)
	if err != nil {
		return nil, nil, fmt.Errorf("read topic %q: %w", topic, err)
	}
	defer func() {
		if err != nil {
			cl.Close()
		}
	}()
	adm := kadm.NewClient(cl)
	starts, err := listed(adm.ListStartOffsets(ctx, topic))
	if err != nil {
		return nil, nil, fmt.Errorf("read topic %q: ask for its start: %w", topic, err)
	}
	ends, err := listed(adm.ListCommittedOffsets(ctx, topic))
	if err != nil {
		return nil, nil, fmt.Errorf("read topic %q: ask for its end: %w", topic, err)
	}
	ranges, err := resolveRanges(topic, starts[topic], ends[topic], from, to)
	return ranges, cl, err
}

func listed(l kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	if err != nil {
		return nil, err
	}
	return l, l.Error()
}

// resolveRanges checks the asked ranges against the log's.
func resolveRanges(topic string, starts, ends map[int32]kadm.ListedOffset, from, to map[int32]int64) ([]scanRange, error) {
	var out []scanRange
	for p, end := range ends {
		start := starts[p].Offset
		r := scanRange{partition: p, from: start, to: end.Offset}
		f, inFrom := from[p]
		t, inTo := to[p]
		switch {
		case from != nil && to != nil && inFrom != inTo:
			return nil, fmt.Errorf("read topic %q: partition %d is in only one of from and to", topic, p)
		case from != nil && !inFrom, to != nil && !inTo:
			continue
		}
		if inFrom {
			r.from = f
		}
		if inTo {
			r.to = t
		}
		switch {
		case r.from > r.to:
			return nil, fmt.Errorf("read topic %q: partition %d from %d to %d: the range is backwards", topic, p, r.from, r.to)
		case r.from < r.to && r.from < start:
			return nil, fmt.Errorf("read topic %q: partition %d from %d: its log starts at %d; what was before is deleted", topic, p, r.from, start)
		case r.to > end.Offset:
			return nil, fmt.Errorf("read topic %q: partition %d to %d: its committed log ends at %d", topic, p, r.to, end.Offset)
		}
		out = append(out, r)
	}
	for _, asked := range []map[int32]int64{from, to} {
		for p := range asked {
			if _, ok := ends[p]; !ok {
				return nil, fmt.Errorf("read topic %q: it has no partition %d", topic, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b scanRange) int { return int(a.partition - b.partition) })
	return out, nil
}

// scanRanges reads the ranges, a few partitions at a time, and calls fn with runs of records in order of offset. Calls
// for one partition do not overlap; those for two may.
func scanRanges(ctx context.Context, cl *kgo.Client, topic string, ranges []scanRange, fn func(partition int32, recs []*kgo.Record) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scanParallel)
	for _, r := range ranges {
		g.Go(func() error {
			s := &partitionScan{cl: cl, topic: topic, scanRange: r, at: r.from, decompress: kgo.DefaultDecompressor()}
			for s.at < s.to {
				recs, err := s.next(ctx)
				if err != nil {
					return fmt.Errorf("read topic %q, partition %d, at offset %d: %w", topic, r.partition, s.at, err)
				}
				if len(recs) == 0 {
					continue
				}
				if err := fn(r.partition, recs); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// partitionScan fetches one partition by hand, not as a consumer: only so does it learn the offset after a run of
// records that are not delivered (control records, aborted transactions) at the end of its range.
type partitionScan struct {
	scanRange
	cl         *kgo.Client
	topic      string
	at         int64
	leader     int32
	topicID    [16]byte
	found      bool // leader and topicID are known
	decompress kgo.Decompressor
}

// next fetches the run of records at s.at and moves on. It returns none, without error, where the run had none to
// deliver. What a restart of the broker or a new leader brings is retried.
func (s *partitionScan) next(ctx context.Context) ([]*kgo.Record, error) {
	var last error
	for range scanTries {
		recs, err := s.fetch(ctx)
		if err == nil {
			return recs, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var ke *kerr.Error
		if errors.As(err, &ke) && !ke.Retriable {
			return nil, err
		}
		last, s.found = err, false
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(scanPause):
		}
	}
	return nil, last
}

func (s *partitionScan) locate(ctx context.Context) error {
	m, err := kadm.NewClient(s.cl).Metadata(ctx, s.topic)
	if err != nil {
		return err
	}
	t := m.Topics[s.topic]
	if t.Err != nil {
		return t.Err
	}
	p, ok := t.Partitions[s.partition]
	if !ok {
		return kerr.UnknownTopicOrPartition
	}
	if p.Err != nil {
		return p.Err
	}
	s.leader, s.topicID, s.found = p.Leader, t.ID, true
	return nil
}

func (s *partitionScan) fetch(ctx context.Context) ([]*kgo.Record, error) {
	if !s.found {
		if err := s.locate(ctx); err != nil {
			return nil, err
		}
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(scanWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = scanFetchBytes
	req.IsolationLevel = 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = s.topic, s.topicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = s.partition, s.at, scanFetchBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	raw, err := s.cl.Broker(int(s.leader)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the broker's answer to a fetch does not name the partition")
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: s.at, IsolationLevel: kgo.ReadCommitted(), Topic: s.topic, Partition: s.partition,
	}, &resp.Topics[0].Partitions[0], s.decompress, nil)
	if fp.Err != nil {
		return nil, fp.Err
	}
	s.at = max(s.at, next)
	recs := fp.Records
	for len(recs) > 0 && recs[len(recs)-1].Offset >= s.to {
		recs = recs[:len(recs)-1]
	}
	return recs, nil
}
