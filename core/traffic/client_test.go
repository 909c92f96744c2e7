package traffic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// The same tests run against kfake and against real Kafka, the latter where it can be run.
func TestBrokers(t *testing.T) {
	for kind, start := range map[string]func(t *testing.T) []string{
		"kfake": func(t *testing.T) []string { return fake(t) },
		"kafka": func(t *testing.T) []string { return kafkatest.Start(t, kafkatest.Options{}).Brokers() },
	} {
		t.Run(kind, func(t *testing.T) {
			brokers := start(t)
			t.Run("Topic", func(t *testing.T) { testTopic(t, brokers) })
			t.Run("Kept", func(t *testing.T) { testKept(t, brokers) })
			t.Run("EndsAndStarts", func(t *testing.T) { testEndsAndStarts(t, brokers) })
			t.Run("Stamps", func(t *testing.T) { testStamps(t, brokers) })
			t.Run("Held", func(t *testing.T) { testHeld(t, brokers) })
			t.Run("Recreated", func(t *testing.T) { testRecreated(t, brokers) })
			t.Run("Backfill", func(t *testing.T) { testBackfill(t, brokers) })
			t.Run("Skew", func(t *testing.T) { testSkew(t, brokers) })
			t.Run("Ahead", func(t *testing.T) { testAhead(t, brokers) })
		})
	}
}

// eventually repeats what brokers do a little after they say that it is done.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

func fake(t testing.TB) []string {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k.ListenAddrs()
}

// topic is a topic under test, with a client that watches it and one that writes.
type topic struct {
	t     testing.TB
	name  string
	watch *Client
	kc    *kgo.Client
	adm   *kadm.Client
}

func newTopic(t testing.TB, brokers []string, name string, partitions int32, config map[string]*string) *topic {
	t.Helper()
	kc, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(name), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kc.Close)
	w, err := NewClient(ClientOptions{Brokers: brokers, Topic: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	out := &topic{t: t, name: name, watch: w, kc: kc, adm: kadm.NewClient(kc)}
	if _, err := out.adm.CreateTopic(context.Background(), partitions, 1, config, name); err != nil {
		t.Fatal(err)
	}
	eventually(t, "topic "+name, func() bool {
		info, err := w.Topic(context.Background())
		return err == nil && info.Partitions == int(partitions)
	})
	return out
}

// write writes n records of 100 bytes and one timestamp.
func (x *topic) write(partition int32, n int, at time.Time) {
	x.t.Helper()
	for range n {
		x.kc.Produce(context.Background(), &kgo.Record{Partition: partition, Value: make([]byte, 100), Timestamp: at}, func(_ *kgo.Record, err error) {
			if err != nil {
				x.t.Error(err)
			}
		})
	}
}

func (x *topic) flush() {
	x.t.Helper()
	if err := x.kc.Flush(context.Background()); err != nil {
		x.t.Fatal(err)
	}
}

func (x *topic) deleteBefore(partition int32, offset int64) {
	x.t.Helper()
	o := kadm.Offsets{}
	o.AddOffset(x.name, partition, offset, -1)
	r, err := x.adm.DeleteRecords(context.Background(), o)
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

func ptr(s string) *string { return &s }

func testKept(t *testing.T, brokers []string) {
	x := newTopic(t, brokers, "kept", 2, map[string]*string{"retention.ms": ptr("60000"), "retention.bytes": ptr("1000000")})
	x.write(1, 50, time.Now())
	x.flush()
	x.deleteBefore(1, 10)
	got, err := x.watch.Kept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Retention != time.Minute || got.RetentionBytes != 1_000_000 || got.Offsets[0] != 0 || got.Offsets[1] != 40 || got.Bytes[1] <= 0 {
		t.Errorf("%+v", got)
	}
	none := newTopic(t, brokers, "kept-for-ever", 1, map[string]*string{"retention.ms": ptr("-1"), "retention.bytes": ptr("-1")})
	if got, err := none.watch.Kept(t.Context()); err != nil || got.Retention >= 0 || got.RetentionBytes >= 0 || got.Bytes != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func testTopic(t *testing.T, brokers []string) {
	x := newTopic(t, brokers, "described", 3, map[string]*string{"retention.ms": ptr("3600000"), "cleanup.policy": ptr("compact,delete")})
	got, err := x.watch.Topic(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.ID == ([16]byte{}) {
		t.Error("the topic has no id")
	}
	got.ID = [16]byte{}
	want := Info{Exists: true, Name: "described", Partitions: 3, CleanupPolicy: "compact,delete", Retention: time.Hour,
		RetentionBytes: -1, TimestampType: "CreateTime", MaxMessageBytes: 1048588}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !got.Compacted() || (Info{CleanupPolicy: "delete"}).Compacted() {
		t.Error("Compacted is wrong about compact,delete or delete")
	}
	absent, err := NewClient(ClientOptions{Brokers: brokers, Topic: "clocks"})
	if err != nil {
		t.Fatal(err)
	}
	defer absent.Close()
	info, err := absent.Topic(t.Context())
	if err != nil || info.Exists {
		t.Errorf("a topic that does not exist: %+v, %v", info, err)
	}
	if _, err := absent.Ends(t.Context()); !errors.Is(err, ErrNoTopic) {
		t.Errorf("ends of a topic that does not exist: %v, want ErrNoTopic", err)
	}
}

// What a topic holds from a time on, where some partitions have nothing as late, and some records are gone.
func testHeld(t *testing.T, brokers []string) {
	x := newTopic(t, brokers, "held", 3, nil)
	now := time.Now()
	x.write(0, 5, now.Add(-2*time.Hour))
	x.write(1, 4, now.Add(-2*time.Hour))
	x.flush()
	x.write(0, 7, now)
	x.flush()
	x.deleteBefore(1, 1)
	for since, want := range map[time.Time]int64{{}: 15, now.Add(-3 * time.Hour): 15, now.Add(-time.Hour): 7, now.Add(time.Hour): 0} {
		if got, err := x.watch.Held(t.Context(), since); err != nil || got != want {
			t.Errorf("since %v: %d records, %v; want %d", since, got, err, want)
		}
	}
}

// When a record entered, also one of a partition whose first records are gone; what holds none is said, and does not hide the others.
func testStamps(t *testing.T, brokers []string) {
	x := newTopic(t, brokers, "stamps", 4, nil)
	at := func(minutes int) time.Time { return t0.Add(time.Duration(minutes) * time.Minute) }
	for i := range 5 {
		x.write(0, 1, at(i))
		x.write(1, 1, at(10+i))
		x.write(2, 1, at(20+i))
		x.flush()
	}
	x.deleteBefore(1, 2)
	big := make([]byte, 40<<10) // more than is asked for
	for p := range int32(3) {
		x.kc.Produce(t.Context(), &kgo.Record{Partition: p, Value: big, Timestamp: at(30)}, nil)
	}
	x.flush()
	got, err := x.watch.Stamps(t.Context(), map[int32]int64{0: 5, 1: 5, 2: 5})
	if diff := cmp.Diff(map[int32]time.Time{0: at(30), 1: at(30), 2: at(30)}, got, cmpopts.EquateApproxTime(0)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got, err = x.watch.Stamps(t.Context(), map[int32]int64{0: 0, 2: 3})
	if diff := cmp.Diff(map[int32]time.Time{0: at(0), 2: at(23)}, got, cmpopts.EquateApproxTime(0)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got, err = x.watch.Stamps(t.Context(), map[int32]int64{0: 4, 1: 1, 2: 6, 3: 0})
	if diff := cmp.Diff(map[int32]time.Time{0: at(4)}, got, cmpopts.EquateApproxTime(0)); diff != "" {
		t.Error(diff)
	}
	if want := "partition 1, offset 1: the topic does not hold it any more"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
	if _, err = x.watch.Stamps(t.Context(), map[int32]int64{3: 0}); err == nil || !strings.Contains(err.Error(), "partition 3, offset 0: no record is there yet") {
		t.Errorf("an empty partition: %v", err)
	}
	late, err := x.watch.At(t.Context(), at(12))
	if diff := cmp.Diff(map[int32]int64{0: 5, 1: 2, 2: 0, 3: 0}, late); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// A broker that closes connections may want TLS, as franz-go says, but not one that has answered before.
func TestClosedConnectionsAreNoLackOfTLS(t *testing.T) {
	brokers := fake(t)
	c, err := NewClient(ClientOptions{Brokers: brokers, Topic: "clicks"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	closed := fmt.Errorf("ask: %w", new(kgo.ErrFirstReadEOF))
	if got := c.silence(closed); !errors.Is(got, closed) {
		t.Errorf("before an answer: %v", got)
	}
	if _, err := c.Topic(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := c.silence(closed).Error(), "the brokers at "+brokers[0]+" accept connections and close them at once"; got != want {
		t.Errorf("after an answer: %q, want %q", got, want)
	}
}

// TestMuteBroker: one that accepts connections and never answers does not hold a question beyond its context, and is said to be that.
func TestMuteBroker(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }() // nothing was written to it
	c, err := NewClient(ClientOptions{Brokers: []string{mute.Addr().String()}, Topic: "clicks"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := "the brokers at " + mute.Addr().String() + " accept connections and do not answer"
	for name, ask := range map[string]func(context.Context) error{
		"ends":   func(ctx context.Context) error { _, err := c.Ends(ctx); return err },
		"topic":  func(ctx context.Context) error { _, err := c.Topic(ctx); return err },
		"oldest": func(ctx context.Context) error { _, err := c.KnownSince(ctx); return err },
		"past": func(ctx context.Context) error {
			_, err := Backfill(ctx, c, NewArrivals(ArrivalsOptions{}), BackfillOptions{From: t0, To: t0.Add(time.Hour)})
			return err
		},
		"stamps": func(ctx context.Context) error { _, err := c.Stamps(ctx, map[int32]int64{0: 0}); return err },
	} {
		eventually(t, name+" say who does not answer", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := ask(ctx)
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
}

func testEndsAndStarts(t *testing.T, brokers []string) {
	x := newTopic(t, brokers, "growing", 2, nil)
	ends := func() map[int32]int64 {
		t.Helper()
		got, err := x.watch.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff(map[int32]int64{0: 0, 1: 0}, ends()); diff != "" {
		t.Errorf("an empty topic: %s", diff)
	}
	x.write(0, 7, time.Now())
	x.write(1, 2, time.Now())
	x.flush()
	if diff := cmp.Diff(map[int32]int64{0: 7, 1: 2}, ends()); diff != "" {
		t.Error(diff)
	}
	x.deleteBefore(0, 3)
	starts, err := x.watch.Starts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int32]int64{0: 3, 1: 0}, starts); diff != "" {
		t.Errorf("starts: %s", diff)
	}

	// A transaction counts when it is committed, with its marker.
	tx, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic("growing"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := tx.ProduceSync(t.Context(), &kgo.Record{Partition: 0, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int32]int64{0: 7, 1: 2}, ends()); diff != "" {
		t.Errorf("with an open transaction: %s", diff)
	}
	if err := tx.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the marker of the committed transaction", func() bool { return cmp.Equal(map[int32]int64{0: 9, 1: 2}, ends()) })

	if _, err := x.adm.UpdatePartitions(t.Context(), 3, "growing"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the added partition", func() bool { return cmp.Equal(map[int32]int64{0: 9, 1: 2, 2: 0}, ends()) })
}

func testRecreated(t *testing.T, brokers []string) {
	x := newTopic(t, brokers, "recreated", 1, nil)
	if _, err := x.watch.Ends(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.adm.DeleteTopic(t.Context(), "recreated"); err != nil {
		t.Fatal(err)
	}
	says := func(want error) func() bool {
		return func() bool {
			_, err := x.watch.Ends(t.Context())
			return errors.Is(err, want)
		}
	}
	eventually(t, "ErrNoTopic for a deleted topic", says(ErrNoTopic))
	if _, err := x.adm.CreateTopic(t.Context(), 1, 1, nil, "recreated"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ErrRecreated for a topic that was created again", says(ErrRecreated))
}

// A broker that is away is an error within a bounded time, and never zeros.
func TestNoBroker(t *testing.T) {
	c, err := NewClient(ClientOptions{Brokers: []string{"127.0.0.1:1"}, Topic: "clicks", Opts: []kgo.Opt{kgo.RetryTimeout(300 * time.Millisecond)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if ends, err := c.Ends(t.Context()); err == nil {
		t.Errorf("without a broker the ends are %v", ends)
	}
	if _, err := c.Topic(t.Context()); err == nil {
		t.Error("without a broker the topic is described")
	}
	if _, err := Backfill(t.Context(), c, NewArrivals(ArrivalsOptions{}), BackfillOptions{From: t0, To: t0.Add(time.Hour)}); err == nil {
		t.Error("without a broker there is a history")
	}
	if _, err := NewClient(ClientOptions{Brokers: []string{"x:1"}}); err == nil {
		t.Error("a client without a topic is made")
	}
}

func testBackfill(t *testing.T, brokers []string) {
	now := time.Now().Truncate(time.Minute)
	minute := func(m int) time.Time { return now.Add(time.Duration(m-100) * time.Minute) }

	x := newTopic(t, brokers, "past", 2, nil)
	for m := 10; m < 100; m++ { // nothing in the first ten minutes, and a lull from 40 to 60
		if m < 40 || m >= 60 {
			x.write(0, m, minute(m).Add(20*time.Second))
		}
		if m >= 20 {
			x.write(1, 5, minute(m).Add(40*time.Second))
		}
	}
	x.flush()
	var want []float64
	for m := range 100 {
		per := 0.0
		if m >= 10 && (m < 40 || m >= 60) {
			per += float64(m)
		}
		if m >= 20 {
			per += 5
		}
		if m < 11 { // the bin in which the first record came begins before it
			per = math.NaN()
		}
		want = append(want, per/60)
	}
	fill := func(o BackfillOptions) (*Arrivals, Backfilled) {
		t.Helper()
		a := NewArrivals(ArrivalsOptions{})
		o.From, o.To = minute(0), minute(100)
		b, err := Backfill(t.Context(), x.watch, a, o)
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	steps, last := 0, 0
	a, b := fill(BackfillOptions{Progress: func(done, total int) {
		if total != 101 || done < last {
			t.Errorf("progress goes from %d to %d of %d, want up to 101", last, done, total)
		}
		last = done
		steps++
	}})
	if last != 101 || steps < 2 {
		t.Errorf("progress ended at %d after %d calls, want 101", last, steps)
	}
	if !b.KnownFrom.Equal(minute(11)) {
		t.Errorf("known from minute %v, want 11", b.KnownFrom.Sub(minute(0)).Minutes())
	}
	near := []cmp.Option{cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)}
	if diff := cmp.Diff(want, a.Series(time.Minute, minute(0), minute(100)), near...); diff != "" {
		t.Errorf("rates: %s", diff)
	}
	if at, ok := a.EnteredAt(0, 10); !ok || at.Before(minute(11)) || at.After(minute(12)) {
		t.Errorf("the first record of minute 11 entered at minute %v, %v", at.Sub(minute(0)).Minutes(), ok)
	}

	// Retention has deleted the first half hour of partition 0: not known, rather than zero.
	before := int64(0)
	for m := 10; m < 30; m++ {
		before += int64(m)
	}
	since := func(want int) {
		t.Helper()
		if got, err := x.watch.KnownSince(t.Context()); err != nil || got.Before(minute(want)) || !got.Before(minute(want+1)) {
			t.Errorf("known since minute %v, %v; want %d", got.Sub(minute(0)).Minutes(), err, want)
		}
	}
	since(10)
	x.deleteBefore(0, before)
	since(30)
	for m := range 31 {
		want[m] = math.NaN()
	}
	a, b = fill(BackfillOptions{Parallel: 1})
	if diff := cmp.Diff(want, a.Series(time.Minute, minute(0), minute(100)), near...); diff != "" {
		t.Errorf("rates after retention: %s", diff)
	}
	if !b.KnownFrom.Equal(minute(31)) {
		t.Errorf("known from minute %v, want 31", b.KnownFrom.Sub(minute(0)).Minutes())
	}

	// Live observations go on from there.
	ends, err := x.watch.Ends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Observe(minute(101), ends); err != nil {
		t.Fatal(err)
	}
	if r, known := a.Rate(minute(101), time.Minute); !known || r != 0 {
		t.Errorf("in the minute after the last record the rate is %v, %v; want 0", r, known)
	}
	records, oldest, known := a.Lag(minute(101), map[int32]int64{0: ends[0], 1: ends[1] - 10})
	if records != 10 || !known || oldest < 2*time.Minute || oldest > 3*time.Minute {
		t.Errorf("lag: %d records, %v, %v; want the 10 of the last two minutes", records, oldest, known)
	}
}

func TestBackfillOfNothing(t *testing.T) {
	x := newTopic(t, fake(t), "clicks", 2, nil)
	if got, err := x.watch.KnownSince(t.Context()); err != nil || !got.IsZero() {
		t.Errorf("an empty topic is known since %v, %v", got, err)
	}
	a := NewArrivals(ArrivalsOptions{})
	b, err := Backfill(t.Context(), x.watch, a, BackfillOptions{From: t0, To: t0.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if !b.KnownFrom.IsZero() || b.Samples != 0 {
		t.Errorf("an empty topic has a history: %+v", b)
	}
	if _, err := Backfill(t.Context(), x.watch, a, BackfillOptions{From: t0, To: t0}); err == nil {
		t.Error("no time at all gave no error")
	}
	if _, err := Backfill(t.Context(), x.watch, a, BackfillOptions{From: t0, To: t0.Add(time.Hour), Step: 10 * time.Minute}); err == nil {
		t.Error("steps longer than MaxGap gave no error")
	}
	if _, err := Backfill(t.Context(), x.watch, a, BackfillOptions{From: t0, To: t0.AddDate(1, 0, 0), Step: time.Second}); err == nil {
		t.Error("a year of seconds gave no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Backfill(ctx, x.watch, a, BackfillOptions{From: t0, To: t0.Add(time.Hour)}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

// Three days in steps of a minute, 8 partitions, 130 records a minute and partition.
func BenchmarkBackfillThreeDays(b *testing.B) {
	for name, brokers := range map[string]func() []string{
		"kfake": func() []string { return fake(b) },
		"kafka": func() []string { return kafkatest.Start(b, kafkatest.Options{}).Brokers() },
	} {
		b.Run(name, func(b *testing.B) {
			x := newTopic(b, brokers(), "clicks", 8, nil)
			now := time.Now()
			const minutes = 3 * 24 * 60
			for m := range minutes {
				for p := range int32(8) {
					x.write(p, 130, now.Add(time.Duration(m-minutes)*time.Minute))
				}
			}
			x.flush()
			b.ResetTimer()
			for range b.N {
				r, err := Backfill(b.Context(), x.watch, NewArrivals(ArrivalsOptions{}), BackfillOptions{From: now.Add(-3 * 24 * time.Hour), To: now})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.Requests), "requests")
			}
		})
	}
}
