package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// RequestTimeout bounds one request with its retries, so that a broker that is away is known to be away within it.
const RequestTimeout = 10 * time.Second

var (
	// ErrNoTopic says that the topic does not exist.
	ErrNoTopic = errors.New("the topic does not exist")
	// ErrRecreated says that the topic is no longer the one that was observed: it was deleted and created again, so
	// that its offsets mean other records.
	ErrRecreated = errors.New("the topic was deleted and created again")
)

// ClientOptions say which topic of which cluster to watch.
type ClientOptions struct {
	Brokers []string  // host:port seeds; may be empty where Opts name them
	Topic   string    // its name
	Opts    []kgo.Opt // TLS, SASL, client id
}

// Client asks a Kafka cluster about one topic. It is safe for concurrent use. Every method makes requests, blocks until
// they are answered or RequestTimeout has passed, and changes nothing at the broker. They return when their context ends,
// whatever the brokers do.
type Client struct {
	topic   string
	brokers []string
	cl      *kgo.Client
	adm     *kadm.Client
	contact contact

	mu sync.Mutex
	id kadm.TopicID // of the topic first seen; zero before
}

// NewClient makes a client; it does not connect yet.
func NewClient(o ClientOptions) (*Client, error) {
	if o.Topic == "" {
		return nil, errors.New("watch traffic: no topic is named")
	}
	c := &Client{topic: o.Topic, brokers: o.Brokers}
	opts := []kgo.Opt{
		kgo.WithHooks(&c.contact),
		kgo.AlwaysRetryEOF(), // a broker that is killed looks like one that wants SASL, which is not retried otherwise
		kgo.RetryTimeout(RequestTimeout),
		kgo.MetadataMinAge(time.Second),
		kgo.RetryBackoffFn(func(tries int) time.Duration {
			return min(50*time.Millisecond<<min(tries, 4), 500*time.Millisecond)
		}),
	}
	if len(o.Brokers) > 0 {
		opts = append(opts, kgo.SeedBrokers(o.Brokers...))
	}
	cl, err := kgo.NewClient(append(opts, o.Opts...)...)
	if err != nil {
		return nil, fmt.Errorf("watch traffic of topic %q: %w", o.Topic, err)
	}
	c.cl, c.adm = cl, kadm.NewClient(cl)
	if len(c.brokers) == 0 { // they are in the options
		c.brokers, _ = cl.OptValue(kgo.SeedBrokers).([]string)
	}
	return c, nil
}

// Close ends the client's connections.
func (c *Client) Close() { c.cl.Close() }

// Info is what a topic is.
type Info struct {
	Exists     bool
	Name       string
	ID         [16]byte
	Partitions int

	// The settings below are known only where the broker lets this client read them; else ConfigErr says why not.
	ConfigErr       error
	CleanupPolicy   string        // such as delete, compact or compact,delete
	Retention       time.Duration // how long records stay; negative means for ever
	RetentionBytes  int64         // per partition; negative means no limit
	TimestampType   string        // CreateTime or LogAppendTime
	MaxMessageBytes int
}

// Compacted says that the topic's cleanup removes records from its middle, which online training cannot accept.
func (i Info) Compacted() bool {
	return slices.Contains(strings.Split(strings.ReplaceAll(i.CleanupPolicy, " ", ""), ","), "compact")
}

// Topic describes the topic. That it does not exist is no error: Exists is false then.
func (c *Client) Topic(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	info := Info{Name: c.topic}
	td, err := within(ctx, c, func(ctx context.Context) (kadm.TopicDetails, error) { return c.adm.ListTopics(ctx, c.topic) })
	if err != nil {
		return info, fmt.Errorf("ask the brokers for topic %q: %w", c.topic, err)
	}
	t := td[c.topic]
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return info, nil
	case t.Err != nil:
		return info, fmt.Errorf("ask the brokers for topic %q: %w", c.topic, t.Err)
	}
	info.Exists, info.ID, info.Partitions = true, t.ID, len(t.Partitions)
	rcs, err := within(ctx, c, func(ctx context.Context) (kadm.ResourceConfigs, error) {
		return c.adm.DescribeTopicConfigs(ctx, c.topic)
	})
	if err == nil {
		var rc kadm.ResourceConfig
		if rc, err = rcs.On(c.topic, nil); err == nil {
			err = rc.Err
		}
		info.readConfig(rc.Configs)
	}
	info.ConfigErr = err
	return info, nil
}

func (i *Info) readConfig(configs []kadm.Config) {
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return -1
		}
		return n
	}
	i.Retention, i.RetentionBytes = -1, -1
	for _, kv := range configs {
		switch kv.Key {
		case "cleanup.policy":
			i.CleanupPolicy = kv.MaybeValue()
		case "retention.ms":
			if ms := number(kv.MaybeValue()); ms >= 0 && ms < int64(1<<62/time.Millisecond) {
				i.Retention = time.Duration(ms) * time.Millisecond
			}
		case "retention.bytes":
			i.RetentionBytes = number(kv.MaybeValue())
		case "message.timestamp.type":
			i.TimestampType = kv.MaybeValue()
		case "max.message.bytes":
			i.MaxMessageBytes = int(number(kv.MaybeValue()))
		}
	}
}

// Ends is the last stable offset of every partition: the offset after the last record that a reader of committed
// records can see. It is all or nothing: an error where one partition's is not known. ErrNoTopic and ErrRecreated are
// told apart by errors.Is; after ErrRecreated this client goes on refusing.
func (c *Client) Ends(ctx context.Context) (map[int32]int64, error) {
	return c.offsets(ctx, "last stable offsets", atEnd)
}

// Starts is the first offset that each partition still holds, with the rules of Ends.
func (c *Client) Starts(ctx context.Context) (map[int32]int64, error) {
	return c.offsets(ctx, "first offsets", atStart)
}

// At is the offset of the first record of each partition that is as late as a time, by its timestamp, and the end where none is; with the rules of Ends.
func (c *Client) At(ctx context.Context, t time.Time) (map[int32]int64, error) {
	ends, err := c.Ends(ctx)
	if err != nil {
		return nil, err
	}
	at, err := c.offsets(ctx, "offsets at a time", t.UnixMilli())
	if err != nil {
		return nil, err
	}
	for p, o := range at {
		if o < 0 {
			at[p] = ends[p]
		}
	}
	return at, nil
}

// Committed is what a group has committed of the topic, by partition: only of those of which it has.
func (c *Client) Committed(ctx context.Context, group string) (map[int32]int64, error) {
	got, err := within(ctx, c, func(ctx context.Context) (kadm.OffsetResponses, error) { return c.adm.FetchOffsets(ctx, group) })
	if err == nil {
		err = got.Error()
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return map[int32]int64{}, nil // it has committed nothing yet
	}
	if err != nil {
		return nil, fmt.Errorf("read what group %q has committed: %w", group, err)
	}
	out := map[int32]int64{}
	for p, o := range got[c.topic] {
		if o.At >= 0 {
			out[p] = o.At
		}
	}
	return out, nil
}

// Held is how many offsets the topic holds from a time on, by its records' timestamps: of all that it holds at the zero time.
func (c *Client) Held(ctx context.Context, since time.Time) (records int64, err error) {
	ends, err := c.Ends(ctx)
	if err != nil {
		return 0, err
	}
	at := int64(atStart)
	if !since.IsZero() {
		at = since.UnixMilli()
	}
	begin, err := c.offsets(ctx, "offsets at a time", at)
	if err != nil {
		return 0, err
	}
	for p, end := range ends {
		if b, ok := begin[p]; ok && b >= 0 && b < end { // -1: no record is as late
			records += end - b
		}
	}
	return records, nil
}

// KnownSince is from when on the topic's records tell of all its arrivals: the first record of all where nothing was deleted yet, else the
// last moment at which a partition from which something was deleted begins. It is zero where the topic holds no record. It relies on the
// records' timestamps.
func (c *Client) KnownSince(ctx context.Context) (time.Time, error) {
	since, err := within(ctx, c, c.knownSince)
	if err != nil {
		return time.Time{}, fmt.Errorf("find the oldest records of topic %q: %w", c.topic, err)
	}
	return since, nil
}

func (c *Client) knownSince(ctx context.Context) (time.Time, error) {
	parts, err := c.partitions(ctx)
	if err != nil {
		return time.Time{}, err
	}
	starts, err := c.list(ctx, parts, atStart)
	if err != nil {
		return time.Time{}, err
	}
	firsts, err := c.list(ctx, parts, 0)
	if err != nil {
		return time.Time{}, err
	}
	var since, deleted time.Time
	for p, l := range firsts {
		if l.stamp < 0 {
			continue
		}
		at := time.UnixMilli(l.stamp)
		if since.IsZero() || at.Before(since) {
			since = at
		}
		if starts[p].offset > 0 && at.After(deleted) {
			deleted = at
		}
	}
	if deleted.After(since) {
		since = deleted
	}
	return since, nil
}

// Special timestamps of ListOffsets (Kafka's protocol).
const (
	atEnd   = -1
	atStart = -2
)

func (c *Client) offsets(ctx context.Context, what string, at int64) (map[int32]int64, error) {
	listed, err := within(ctx, c, func(ctx context.Context) (map[int32]listedOffset, error) {
		parts, err := c.partitions(ctx)
		if err != nil {
			return nil, err
		}
		return c.list(ctx, parts, at)
	})
	if err != nil {
		return nil, fmt.Errorf("read the %s of topic %q: %w", what, c.topic, err)
	}
	out := make(map[int32]int64, len(listed))
	for p, l := range listed {
		out[p] = l.offset
	}
	return out, nil
}

// partitions asks for the topic's partitions and makes sure that it is still the same topic.
func (c *Client) partitions(ctx context.Context) ([]int32, error) {
	t, err := c.same(ctx)
	if err != nil {
		return nil, err
	}
	return t.Partitions.Numbers(), nil
}

// same asks for the topic, and makes sure that it is the one that was seen first.
func (c *Client) same(ctx context.Context) (kadm.TopicDetail, error) {
	var none kadm.TopicDetail
	td, err := c.adm.ListTopics(ctx, c.topic)
	if err != nil {
		return none, err
	}
	t := td[c.topic]
	if t.Err != nil {
		return none, gone(t.Err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == (kadm.TopicID{}) {
		c.id = t.ID
	}
	if t.ID != c.id {
		return none, ErrRecreated
	}
	return t, nil
}

// gone is ErrNoTopic for what brokers answer to a question about a topic that was deleted since its partitions were asked for, else err.
func gone(err error) error {
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return ErrNoTopic
	}
	return err
}

// listedOffset is an answer of ListOffsets. By timestamp, offset is -1 where no record is as late as that.
type listedOffset struct {
	offset int64
	stamp  int64 // milliseconds, of the record at offset where one was asked by timestamp; else -1
}

// list asks, in one request per broker, for every partition's offset at a timestamp (milliseconds, or a special one)
// as a reader of committed records sees it.
func (c *Client) list(ctx context.Context, parts []int32, at int64) (map[int32]listedOffset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = 1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = c.topic
	for _, p := range parts {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, at
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	out := make(map[int32]listedOffset, len(parts))
	for _, shard := range c.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, gone(shard.Err)
		}
		for _, rt := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, rp := range rt.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					return nil, fmt.Errorf("partition %d: %w", rp.Partition, gone(err))
				}
				out[rp.Partition] = listedOffset{offset: rp.Offset, stamp: rp.Timestamp}
			}
		}
	}
	if len(out) != len(parts) {
		return nil, fmt.Errorf("the brokers answered for %d of %d partitions", len(out), len(parts))
	}
	return out, nil
}
