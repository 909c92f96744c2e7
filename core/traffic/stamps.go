package traffic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// stampBytes is how much of a partition is asked for to see one record: brokers send at least one whole batch.
const stampBytes = 16 << 10

// stampRequests is how many partitions are asked for at a time.
const stampRequests = 8

// LastStamps are the timestamps of the records with which the partitions end, and those ends. One that is missing tells nothing.
func (c *Client) LastStamps(ctx context.Context) (stamps map[int32]time.Time, ends map[int32]int64, err error) {
	if ends, err = c.Ends(ctx); err != nil {
		return nil, nil, err
	}
	last := map[int32]int64{}
	for p, end := range ends {
		if end > 0 {
			last[p] = end - 1
		}
	}
	stamps, _ = c.Stamps(ctx, last)
	return stamps, ends, nil
}

// Stamps is the timestamp of the record at an offset of each partition given or, where that holds none, of the next one that a reader of committed records sees.
// What holds no such record yet, or not any more, is missing from the answer, and the error says why; of the others the answer counts all the same.
func (c *Client) Stamps(ctx context.Context, at map[int32]int64) (map[int32]time.Time, error) {
	if len(at) == 0 {
		return nil, nil
	}
	type answer struct {
		stamps map[int32]time.Time
		failed error
	}
	a, err := within(ctx, c, func(ctx context.Context) (a answer, err error) {
		a.stamps, a.failed, err = c.stamps(ctx, at)
		return a, err
	})
	if err = errors.Join(a.failed, err); err != nil {
		err = fmt.Errorf("look up when records of topic %q entered: %w", c.topic, err)
	}
	return a.stamps, err
}

// stamps asks for each partition by itself: of several in one request a broker need send a batch of the first only. failed is why some are missing.
func (c *Client) stamps(ctx context.Context, at map[int32]int64) (out map[int32]time.Time, failed, err error) {
	t, err := c.same(ctx)
	if err != nil {
		return nil, nil, err
	}
	parts := slices.Sorted(maps.Keys(at))
	stamps, misses := make([]time.Time, len(parts)), make([]error, len(parts))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(stampRequests)
	for i, p := range parts {
		g.Go(func() (err error) {
			stamps[i], misses[i], err = c.stamp(ctx, t, p, at[p])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	out = map[int32]time.Time{}
	for i, p := range parts {
		if misses[i] == nil {
			out[p] = stamps[i]
		} else if failed == nil { // one reason will do
			failed = fmt.Errorf("partition %d, offset %d: %w", p, at[p], misses[i])
		}
	}
	return out, failed, nil
}

// stamp asks the leader of a partition for the record at an offset. miss is why there is none, err that nobody can be asked.
func (c *Client) stamp(ctx context.Context, t kadm.TopicDetail, p int32, offset int64) (at time.Time, miss, err error) {
	d, ok := t.Partitions[p]
	if !ok || d.Leader < 0 {
		return at, errors.New("it has no leader"), nil
	}
	resp, err := c.cl.Broker(int(d.Leader)).RetriableRequest(ctx, fetchOne(t, p, offset))
	if err != nil {
		return at, nil, err
	}
	fetch, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return at, nil, fmt.Errorf("a broker answered a fetch with a %T", resp)
	}
	if err := kerr.ErrorForCode(fetch.ErrorCode); err != nil {
		return at, err, nil
	}
	if len(fetch.Topics) != 1 || len(fetch.Topics[0].Partitions) != 1 {
		return at, errors.New("the broker left it out of its answer"), nil
	}
	at, miss = firstStamp(c.topic, &fetch.Topics[0].Partitions[0], offset)
	return at, miss, nil
}

func fetchOne(t kadm.TopicDetail, p int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.IsolationLevel = -1, 0, 0, 1
	req.MaxBytes, req.SessionEpoch = stampBytes, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.Topic, t.ID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, offset, stampBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func firstStamp(topic string, rp *kmsg.FetchResponseTopicPartition, offset int64) (time.Time, error) {
	f, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: offset, Topic: topic, Partition: rp.Partition, IsolationLevel: kgo.ReadCommitted(),
	}, rp, kgo.DefaultDecompressor(), nil)
	switch {
	case errors.Is(f.Err, kerr.OffsetOutOfRange):
		return time.Time{}, errors.New("the topic does not hold it any more")
	case len(f.Records) > 0:
		return f.Records[0].Timestamp, nil
	case f.Err != nil:
		return time.Time{}, f.Err
	}
	return time.Time{}, errors.New("no record is there yet")
}
