package traffic

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Kept is what a topic's configuration lets its brokers remove, and how much they keep now.
type Kept struct {
	Info
	// Bytes is how large each partition's log is, where a broker says, and Offsets how many it holds. They are asked for only where RetentionBytes is a limit.
	Bytes, Offsets map[int32]int64
}

// Kept asks how long, and how much of it, the topic is kept.
func (c *Client) Kept(ctx context.Context) (Kept, error) {
	info, err := c.Topic(ctx)
	if err == nil {
		err = info.ConfigErr
	}
	k := Kept{Info: info}
	if err != nil || !info.Exists || info.RetentionBytes < 0 {
		return k, err
	}
	starts, err := c.Starts(ctx)
	if err != nil {
		return k, err
	}
	ends, err := c.Ends(ctx)
	if err != nil {
		return k, err
	}
	topic, all := make(kadm.TopicsSet), []int32{}
	k.Bytes, k.Offsets = map[int32]int64{}, map[int32]int64{}
	for p, end := range ends {
		all, k.Offsets[p] = append(all, p), end-starts[p]
	}
	topic.Add(c.topic, all...)
	dirs, err := within(ctx, c, func(ctx context.Context) (kadm.DescribedAllLogDirs, error) {
		return c.adm.DescribeAllLogDirs(ctx, topic)
	})
	if err != nil {
		return k, fmt.Errorf("ask the brokers how large topic %q is: %w", c.topic, err)
	}
	for _, broker := range dirs {
		broker.EachPartition(func(d kadm.DescribedLogDirPartition) {
			if d.Topic == c.topic && !d.IsFuture {
				k.Bytes[d.Partition] = max(k.Bytes[d.Partition], d.Size)
			}
		})
	}
	return k, nil
}
