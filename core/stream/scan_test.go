package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// transaction writes n records in one transaction, and leaves it open where end is nil.
func transaction(t *testing.T, cl *kgo.Client, n int, end *kgo.TransactionEndTry) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		cl.Produce(t.Context(), kgo.StringRecord(fmt.Sprint(i)), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if end != nil {
		if err := cl.EndTransaction(t.Context(), *end); err != nil {
			t.Fatal(err)
		}
	}
}

// The log: offsets 0-2 committed, 3 its marker, 4-8 aborted, 9 its marker, 10-11 committed, 12 marker, 13-16 aborted, 17
// marker, 18-19 in a transaction that is open.
func TestScanTransactions(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, c *kafkatest.Cluster) {
		c.CreateTopics(stream.TopicSpec{Name: "clicks", Partitions: 1})
		cl, err := kgo.NewClient(append(c.Client(), kgo.DefaultProduceTopic("clicks"), kgo.TransactionalID("test"))...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		commit, abort := kgo.TryCommit, kgo.TryAbort
		transaction(t, cl, 3, &commit)
		transaction(t, cl, 5, &abort)
		transaction(t, cl, 2, &commit)
		transaction(t, cl, 4, &abort)
		transaction(t, cl, 2, nil)

		for name, tt := range map[string]struct {
			from, to int64
			want     []int64
		}{
			"all":                         {0, 18, []int64{0, 1, 2, 10, 11}},
			"an end among aborted":        {0, 15, []int64{0, 1, 2, 10, 11}},
			"a start among aborted":       {6, 18, []int64{10, 11}},
			"nothing but aborted":         {13, 17, nil},
			"a marker":                    {3, 4, nil},
			"one record":                  {1, 2, []int64{1}},
			"nothing":                     {5, 5, nil},
			"an end within a transaction": {0, 11, []int64{0, 1, 2, 10}},
		} {
			from, to := map[int32]int64{0: tt.from}, map[int32]int64{0: tt.to}
			var got []int64
			err := stream.Scan(t.Context(), c.Client(), "clicks", from, to, func(r *kgo.Record) error {
				got = append(got, r.Offset)
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			want := stream.PartitionSum{N: int64(len(tt.want)), From: tt.from, To: tt.to, First: -1, Last: -1}
			for _, o := range tt.want {
				want.Sum += stream.RecordHash("clicks", 0, o)
			}
			if len(tt.want) > 0 {
				want.First, want.Last = tt.want[0], tt.want[len(tt.want)-1]
			}
			sums, err := stream.LogSum(t.Context(), c.Client(), "clicks", from, to)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(map[int32]stream.PartitionSum{0: want}, sums); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		sums, err := stream.LogSum(t.Context(), c.Client(), "clicks", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s := sums[0]; s.N != 5 || s.From != 0 || s.To != 18 {
			t.Errorf("the whole log is %+v, want 5 records up to the open transaction at 18", s)
		}
		if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Error(err)
		}
	})
}

func TestScanRefuses(t *testing.T) {
	opts := openBroker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	cl, err := kgo.NewClient(append(opts, kgo.DefaultProduceTopic("clicks"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for range 10 {
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	deleted := kadm.Offsets{}
	deleted.AddOffset("clicks", 0, 4, -1)
	if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	type offsets = map[int32]int64
	for name, tt := range map[string]struct {
		topic    string
		from, to offsets
		want     string
	}{
		"no such topic":        {"clocks", nil, nil, "UNKNOWN_TOPIC_OR_PARTITION"},
		"deleted":              {"clicks", offsets{0: 3}, offsets{0: 10}, "its log starts at 4; what was before is deleted"},
		"not there yet":        {"clicks", offsets{0: 4}, offsets{0: 11}, "its committed log ends at 10"},
		"backwards":            {"clicks", offsets{0: 9}, offsets{0: 8}, "the range is backwards"},
		"no such partition":    {"clicks", offsets{2: 0}, offsets{2: 0}, "it has no partition 2"},
		"a partition in one":   {"clicks", offsets{0: 4, 1: 0}, offsets{0: 4}, "partition 1 is in only one of from and to"},
		"the other way around": {"clicks", offsets{0: 4}, offsets{0: 4, 1: 0}, "partition 1 is in only one of from and to"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stream.LogSum(t.Context(), opts, tt.topic, tt.from, tt.to)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	mine := errors.New("mine")
	n := 0
	err = stream.Scan(t.Context(), opts, "clicks", nil, nil, func(*kgo.Record) error { n++; return mine })
	if !errors.Is(err, mine) || n != 1 {
		t.Errorf("after %d calls: %v; want the function's own error after 1", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stream.Scan(ctx, opts, "clicks", nil, nil, func(*kgo.Record) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

func BenchmarkLogSum(b *testing.B) {
	opts := openBroker(b, stream.TopicSpec{Name: "clicks", Partitions: 8})
	const n = 1_000_000
	if _, err := stream.Produce(b.Context(), nil, stream.ProduceOptions{
		Client: opts, Topic: "clicks", Curve: flat(n/60, 60), Speedup: 60, Until: time.Now(), Seed: 1,
	}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		if _, err := stream.LogSum(b.Context(), opts, "clicks", nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
