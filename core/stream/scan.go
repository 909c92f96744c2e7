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
	out := make(map[int32]PartitionSum, len(ranges))
	hashers := make(map[int32]*hasher, len(ranges))
	for _, r := range ranges {
		out[r.partition] = PartitionSum{From: r.from, To: r.to, First: -1, Last: -1}
		hashers[r.partition] = newHasher(topic)
	}
	var mu sync.Mutex
	err = scanRanges(ctx, cl, topic, ranges, func(partition int32, recs []*kgo.Record) error {
		h := hashers[partition] // one goroutine per partition
		sum := uint64(0)
		for _, rec := range recs {
			sum += h.sum(partition, rec.Offset)
		}
		mu.Lock()
		defer mu.Unlock()
		s := out[partition]
		if s.N == 0 {
			s.First = recs[0].Offset
		}
		s.N += int64(len(recs))
		s.Sum += sum
		s.Last = recs[len(recs)-1].Offset
		out[partition] = s
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
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
