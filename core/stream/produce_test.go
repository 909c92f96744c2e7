package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kale-sched/kale/core/stream"
	"github.com/twmb/franz-go/pkg/kgo"
)

func openBroker(t testing.TB, topics ...stream.TopicSpec) []kgo.Opt {
	t.Helper()
	b, err := stream.OpenBroker(context.Background(), nil, stream.BrokerOptions{DataDir: t.TempDir(), Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return []kgo.Opt{kgo.SeedBrokers(b.Brokers()...)}
}

func flat(rate float64, bins int) stream.Curve {
	c := stream.Curve{Start: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), Step: time.Minute}
	for range bins {
		c.Rates = append(c.Rates, rate)
	}
	return c
}

func TestProduceHistory(t *testing.T) {
	opts := openBroker(t, stream.TopicSpec{Name: "clicks", Partitions: 4})
	week := stream.SyntheticWeek(1).ScaleTo(500)
	until := time.Now().Add(-time.Minute).Truncate(time.Second)
	o := stream.ProduceOptions{
		Client: opts, Topic: "clicks", Curve: week, Speedup: 720, From: -24 * time.Hour, Duration: 2 * time.Minute,
		Until: until, Seed: 5, Drift: stream.DefaultDrift,
	}
	got, err := stream.Produce(t.Context(), nil, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(week.Total(-24*time.Hour, 0) / 720); got.Total != want || got.Unsettled != 0 {
		t.Errorf("%d records acknowledged and %d unsettled; the curve's integral is %d", got.Total, got.Unsettled, want)
	}
	sums, err := stream.LogSum(t.Context(), opts, "clicks", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for p, s := range sums {
		if s.N != got.Acked[p] {
			t.Errorf("partition %d holds %d records, %d were acknowledged", p, s.N, got.Acked[p])
		}
	}
	users := map[string]int32{}
	last := map[int32]time.Time{}
	err = stream.Scan(t.Context(), opts, "clicks", nil, nil, func(r *kgo.Record) error {
		var v struct {
			Click *int
			User  string
		}
		if err := json.Unmarshal(r.Value, &v); err != nil {
			return err
		}
		if v.Click == nil || v.User != string(r.Key) {
			t.Fatalf("record %s under key %s: want a label and the user as key", r.Value, r.Key)
		}
		if p, ok := users[v.User]; ok && p != r.Partition {
			t.Fatalf("user %s is in partitions %d and %d", v.User, p, r.Partition)
		}
		users[v.User] = r.Partition
		if r.Timestamp.Before(last[r.Partition]) || r.Timestamp.Before(until.Add(-2*time.Minute)) || r.Timestamp.After(until) {
			t.Fatalf("timestamp %s after %s: want them in order within the two minutes before %s", r.Timestamp, last[r.Partition], until)
		}
		last[r.Partition] = r.Timestamp
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestProduceLiveFollowsTheCurve(t *testing.T) {
	t.Parallel()
	opts := openBroker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	c := flat(0, 2)
	c.Rates[0], c.Rates[1] = 3000, 1000
	var progress atomic.Int64
	got, err := stream.Produce(t.Context(), nil, stream.ProduceOptions{
		Client: opts, Topic: "clicks", Curve: c, Speedup: 60, Seed: 1,
		Progress: func(p stream.ProduceProgress) { progress.Store(p.Acked) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Total != 4000 {
		t.Errorf("%d records acknowledged, want 3000 in the first second and 1000 in the second", got.Total)
	}
	if progress.Load() != got.Total {
		t.Errorf("the last progress says %d acknowledged, the result %d", progress.Load(), got.Total)
	}
	if got.Elapsed < 2*time.Second {
		t.Errorf("two minutes at 60 times their pace took %v, less than 2 s", got.Elapsed)
	}
	var first, last time.Time
	err = stream.Scan(t.Context(), opts, "clicks", nil, nil, func(r *kgo.Record) error {
		if first.IsZero() || r.Timestamp.Before(first) {
			first = r.Timestamp
		}
		if r.Timestamp.After(last) {
			last = r.Timestamp
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := last.Sub(first); d < time.Second { // a machine that is busy may begin late
		t.Errorf("the records' timestamps span %v, want about the two seconds of playing", d)
	}
}

// Partitions that are added while it plays get records, and all are counted.
func TestProducePartitionsAdded(t *testing.T) {
	t.Parallel()
	opts := openBroker(t, stream.TopicSpec{Name: "clicks", Partitions: 1})
	grown := false
	got, err := stream.Produce(t.Context(), nil, stream.ProduceOptions{
		Client: opts, Topic: "clicks", Curve: flat(1000, 5), Speedup: 60,
		Progress: func(stream.ProduceProgress) {
			if !grown {
				grown = true
				if err := stream.EnsureTopics(t.Context(), opts, []stream.TopicSpec{{Name: "clicks", Partitions: 3}}); err != nil {
					t.Error(err)
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Total != 5000 || got.Acked[1] == 0 || got.Acked[2] == 0 {
		t.Errorf("acknowledged by partition: %v; want 5000 in all, and some in each of the three", got.Acked)
	}
}

func TestProduceSkew(t *testing.T) {
	opts := openBroker(t, stream.TopicSpec{Name: "clicks", Partitions: 8})
	got, err := stream.Produce(t.Context(), nil, stream.ProduceOptions{
		Client: opts, Topic: "clicks", Curve: flat(20000, 1), Speedup: 60, Until: time.Now(), Skew: 0.4, HotPartitions: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(8) {
		want := 0.6 / 8
		if p < 2 {
			want += 0.4 / 2
		}
		if share := float64(got.Acked[p]) / float64(got.Total); math.Abs(share-want) > 0.02 {
			t.Errorf("partition %d has %.3f of the records, want %.3f", p, share, want)
		}
	}
}

func TestProduceStopsWithItsContext(t *testing.T) {
	t.Parallel()
	opts := openBroker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	ctx, cancel := context.WithCancel(t.Context())
	got, err := stream.Produce(ctx, nil, stream.ProduceOptions{
		Client: opts, Topic: "clicks", Curve: flat(5000, 1),
		Progress: func(stream.ProduceProgress) { cancel() },
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that the context was cancelled", err)
	}
	sums, err := stream.LogSum(t.Context(), opts, "clicks", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for p, s := range sums {
		if s.N != got.Acked[p] {
			t.Errorf("partition %d holds %d records, %d were acknowledged", p, s.N, got.Acked[p])
		}
	}
	if got.Unsettled != 0 || got.Total == 0 {
		t.Errorf("%d acknowledged, %d unsettled; want some, and none", got.Total, got.Unsettled)
	}
}

func TestProduceErrors(t *testing.T) {
	opts := openBroker(t, stream.TopicSpec{Name: "clicks", Partitions: 1})
	good := stream.ProduceOptions{Client: opts, Topic: "clicks", Curve: flat(10, 1), Speedup: 60}
	for name, tt := range map[string]struct {
		change func(*stream.ProduceOptions)
		want   string
	}{
		"no topic":     {func(o *stream.ProduceOptions) { o.Topic = "" }, "produce: no topic"},
		"absent topic": {func(o *stream.ProduceOptions) { o.Topic = "clocks" }, `produce to "clocks": the broker says UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition.; create the topic first, or check its name`},
		"skew":         {func(o *stream.ProduceOptions) { o.Skew = 1.5 }, `produce to "clicks": a skew of 1.5; it is a share, from 0 to 1`},
		"speedup":      {func(o *stream.ProduceOptions) { o.Speedup = -1 }, `produce to "clicks": a speed-up of -1; it must be above 0`},
		"format":       {func(o *stream.ProduceOptions) { o.Format = "avro" }, `produce to "clicks": record format "avro": want "json" or "example"`},
		"no curve":     {func(o *stream.ProduceOptions) { o.Curve = stream.Curve{} }, `produce to "clicks": curve: a bin of 0s; it must be longer than 0`},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			tt.change(&o)
			_, err := stream.Produce(t.Context(), nil, o)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// BenchmarkProduceHistory writes history into an embedded broker in the same process.
func BenchmarkProduceHistory(b *testing.B) {
	opts := openBroker(b, stream.TopicSpec{Name: "clicks", Partitions: 8})
	const n = 1_000_000
	b.ResetTimer()
	for i := range b.N {
		got, err := stream.Produce(b.Context(), nil, stream.ProduceOptions{
			Client: opts, Topic: "clicks", Curve: flat(n/60, 60), Speedup: 60, Until: time.Now(), Seed: uint64(i), Drift: 0.25,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(got.Total)/got.Elapsed.Seconds(), "records/s")
	}
}
