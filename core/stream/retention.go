package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cleaner applies retention.ms and retention.bytes as Kafka does, from the front of the log only: what follows a record that is kept is kept.
// kfake's own retention removes everything before any expired batch, however fresh it is, so OpenBroker turns that off (kfakeClean).
type cleaner struct {
	lg      *slog.Logger
	cluster *kfake.Cluster
	cl      *kgo.Client
	adm     *kadm.Client
}

// kfakeClean is how often kfake cleans logs itself, in milliseconds: once in 100 years. Its compaction cannot be had without its retention.
const kfakeClean = "3153600000000"

// fetchBytes bounds one read of the records that retention.bytes removes.
const fetchBytes = 1 << 20

func newCleaner(lg *slog.Logger, cluster *kfake.Cluster, addr string) (*cleaner, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MetadataMinAge(topicPoll))
	if err != nil {
		return nil, fmt.Errorf("make the client that applies retention: %w", err)
	}
	return &cleaner{lg: lg, cluster: cluster, cl: cl, adm: kadm.NewClient(cl)}, nil
}

// run cleans once in each interval until ctx ends.
func (c *cleaner) run(ctx context.Context, interval time.Duration) {
	defer c.cl.Close()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if err := c.clean(ctx, now); err != nil && ctx.Err() == nil {
				c.lg.Warn("embedded broker could not apply retention; it tries again", "after", interval, "error", err)
			}
		}
	}
}

func (c *cleaner) clean(ctx context.Context, now time.Time) error {
	topics, err := c.adm.ListTopics(ctx)
	if err != nil || len(topics) == 0 {
		return err
	}
	configs, err := c.adm.DescribeTopicConfigs(ctx, topics.Names()...)
	if err != nil {
		return err
	}
	var errs []error
	for _, rc := range configs {
		t, ok := topics[rc.Name]
		if err := rc.Err; err == nil && ok {
			errs = append(errs, c.cleanTopic(ctx, t, rc.Configs, now))
		} else if !gone(err) {
			errs = append(errs, fmt.Errorf("ask for the settings of topic %q: %w", rc.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (c *cleaner) cleanTopic(ctx context.Context, t kadm.TopicDetail, configs []kadm.Config, now time.Time) error {
	limits := map[string]int64{"retention.ms": -1, "retention.bytes": -1}
	for _, kv := range configs {
		if kv.Key == "cleanup.policy" && !strings.Contains(kv.MaybeValue(), "delete") {
			return nil
		}
		if _, ok := limits[kv.Key]; ok {
			n, err := strconv.ParseInt(kv.MaybeValue(), 10, 64)
			if err != nil {
				return fmt.Errorf("topic %q: %s is %q, which is not a number", t.Topic, kv.Key, kv.MaybeValue())
			}
			limits[kv.Key] = n
		}
	}
	var errs []error
	if ms := limits["retention.ms"]; ms >= 0 && ms <= now.UnixMilli() {
		errs = append(errs, c.cleanByAge(ctx, t, now.UnixMilli()-ms))
	}
	if limit := limits["retention.bytes"]; limit >= 0 {
		for _, p := range c.cluster.PartitionInfos(t.Topic) {
			errs = append(errs, c.cleanBySize(ctx, t, p, limit))
		}
	}
	return errors.Join(errs...)
}

// cleanByAge removes what is before the first record that is dated oldest or later, in milliseconds since 1970.
func (c *cleaner) cleanByAge(ctx context.Context, t kadm.TopicDetail, oldest int64) error {
	parts := c.cluster.PartitionInfos(t.Topic) // asked before the records are: what comes meanwhile is beyond its ends
	kept, err := c.adm.ListOffsetsAfterMilli(ctx, oldest, t.Topic)
	if err != nil {
		return fmt.Errorf("ask for the oldest records of topic %q that are kept: %w", t.Topic, err)
	}
	var errs []error
	for _, p := range parts {
		first, ok := kept.Lookup(t.Topic, p.Partition)
		switch {
		case !ok || gone(first.Err):
		case first.Err != nil:
			errs = append(errs, fmt.Errorf("ask for the oldest record of topic %q, partition %d, that is kept: %w", t.Topic, p.Partition, first.Err))
		default:
			errs = append(errs, c.removeTo(t.Topic, p, min(first.Offset, p.HighWatermark)))
		}
	}
	return errors.Join(errs...)
}

// cleanBySize removes batches while those that stay have limit bytes or more.
func (c *cleaner) cleanBySize(ctx context.Context, t kadm.TopicDetail, p *kfake.PartitionInfo, limit int64) error {
	excess, next := p.NumBytes-limit, p.LogStartOffset
	for excess > 0 && next < p.HighWatermark {
		batches, err := c.fetch(ctx, t, p.Partition, next)
		if gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read topic %q, partition %d, from offset %d: %w", t.Topic, p.Partition, next, err)
		}
		before := next
		for len(batches) >= batchHeader {
			size := 12 + int64(int32(binary.BigEndian.Uint32(batches[8:])))
			if size > excess {
				return c.removeTo(t.Topic, p, next)
			}
			if size < batchHeader || size > int64(len(batches)) {
				break
			}
			next = int64(binary.BigEndian.Uint64(batches)) + int64(int32(binary.BigEndian.Uint32(batches[23:]))) + 1
			excess, batches = excess-size, batches[size:]
		}
		if next == before {
			return fmt.Errorf("read topic %q, partition %d, from offset %d: there is no whole batch", t.Topic, p.Partition, next)
		}
	}
	return c.removeTo(t.Topic, p, next)
}

// fetch reads record batches from an offset on, as they are in the log.
func (c *cleaner) fetch(ctx context.Context, t kadm.TopicDetail, partition int32, from int64) ([]byte, error) {
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, from, fetchBytes
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = t.Topic, t.ID, []kmsg.FetchRequestTopicPartition{rp}
	req := kmsg.NewFetchRequest()
	req.MaxBytes, req.Topics = fetchBytes, []kmsg.FetchRequestTopic{rt}
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the answer is not about it")
	}
	got := resp.Topics[0].Partitions[0]
	return got.RecordBatches, kerr.ErrorForCode(got.ErrorCode)
}

// removeTo moves the start of a partition's log to an offset; it never moves it back.
func (c *cleaner) removeTo(topic string, p *kfake.PartitionInfo, to int64) error {
	if to <= p.LogStartOffset {
		return nil
	}
	if err := c.cluster.DeleteRecords(topic, p.Partition, to); err != nil && !gone(err) {
		return fmt.Errorf("remove what is before offset %d of topic %q, partition %d: %w", to, topic, p.Partition, err)
	}
	return nil
}

// gone says that a topic was deleted, or records removed, since they were asked for: there is nothing left to clean.
func gone(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.OffsetOutOfRange)
}
