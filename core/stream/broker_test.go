package stream_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kale-sched/kale/core/stream"
)

func TestOpenBrokerErrors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() }) // nothing is lost with it
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	used := t.TempDir()
	b, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{DataDir: used})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "meta.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	topic := func(n int) []stream.TopicSpec { return []stream.TopicSpec{{Name: "t", Partitions: n}} }
	for name, tt := range map[string]struct {
		o    stream.BrokerOptions
		want []string
	}{
		"a port in use":         {stream.BrokerOptions{Addr: ln.Addr().String()}, []string{ln.Addr().String() + " is in use", "choose another port"}},
		"a folder that is none": {stream.BrokerOptions{DataDir: filepath.Join(file, "x")}, []string{"create the embedded broker's data folder", "choose a folder that you may write"}},
		"a folder in use":       {stream.BrokerOptions{DataDir: used}, []string{used, "used by another broker"}},
		"a damaged folder":      {stream.BrokerOptions{DataDir: foreign}, []string{foreign, "read meta.json"}},
		"no port":               {stream.BrokerOptions{Addr: "localhost"}, []string{`"localhost": want host:port`}},
		"a bad port":            {stream.BrokerOptions{Addr: "localhost:http"}, []string{"a number from 0 to 65535"}},
		"every address":         {stream.BrokerOptions{Addr: "0.0.0.0:0"}, []string{"name one address"}},
		"no partitions":         {stream.BrokerOptions{Topics: topic(0)}, []string{`topic "t" has 0 partitions`}},
		"a topic twice":         {stream.BrokerOptions{Topics: append(topic(1), topic(1)...)}, []string{`topic "t" is named twice`}},
		"a nameless topic":      {stream.BrokerOptions{Topics: []stream.TopicSpec{{Partitions: 1}}}, []string{"a topic without a name"}},
		"a bad topic name":      {stream.BrokerOptions{Topics: []stream.TopicSpec{{Name: "a b", Partitions: 1}}}, []string{`topic "a b": a name has 1 to 249 letters`}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := stream.OpenBroker(t.Context(), nil, tt.o)
			if err == nil {
				b.Close()
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

// A broker opened again on the same folder has its topics, settings and records, and takes more partitions; asked for fewer, it keeps those that it has.
func TestOpenBrokerAgain(t *testing.T) {
	dir := t.TempDir()
	open := func(addr string, partitions int) (*stream.Broker, error) {
		return stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Addr: addr, DataDir: dir, Topics: []stream.TopicSpec{
			{Name: "clicks", Partitions: partitions, Config: map[string]string{"retention.ms": "123456789"}},
		}})
	}
	b, err := open("", 2)
	if err != nil {
		t.Fatal(err)
	}
	addr := b.Addr()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("clicks"), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.Close()
	b.Close()
	if b, err = open(addr, 3); err != nil {
		t.Fatal(err)
	}
	if b.Addr() != addr {
		t.Errorf("it is at %s, want %s again", b.Addr(), addr)
	}
	sums, err := stream.LogSum(t.Context(), []kgo.Opt{kgo.SeedBrokers(addr)}, "clicks", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := sums[0].N + sums[1].N + sums[2].N; n != 1 || len(sums) != 3 {
		t.Errorf("%d records in %d partitions, want 1 in 3", n, len(sums))
	}
	rcs, err := kadm.NewClient(cl).DescribeTopicConfigs(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, kv := range rcs[0].Configs {
		if kv.Key == "retention.ms" {
			got = kv.MaybeValue()
		}
	}
	if diff := cmp.Diff("123456789", got); diff != "" {
		t.Errorf("retention.ms: %s", diff)
	}
	b.Close()
	if b, err = open(addr, 1); err != nil {
		t.Fatalf("with fewer partitions than the topic has it does not start: %v", err)
	}
	defer b.Close()
	few := []stream.TopicSpec{{Name: "clicks", Partitions: 1}}
	err = stream.EnsureTopics(t.Context(), []kgo.Opt{kgo.SeedBrokers(addr)}, few)
	if want := `create topic "clicks" with 1 partitions: it exists with 3 partitions, which cannot be made fewer: ask for 3, or use another topic`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

// A broker behind a proxy sends its clients to the proxy.
func TestBrokerAdvertises(t *testing.T) {
	const proxy = "127.0.0.7:19092"
	b, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Advertise: proxy})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.Addr() == proxy {
		t.Fatalf("it says that it listens on %s", b.Addr())
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if n := resp.Brokers; len(n) != 1 || fmt.Sprintf("%s:%d", n[0].Host, n[0].Port) != proxy {
		t.Errorf("clients are told of %+v, want %s", n, proxy)
	}
	if _, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Advertise: "nowhere"}); err == nil {
		t.Error("an advertised address without a port was taken")
	}
}

// What is beyond a topic's retention is removed, as Kafka does, from the front of the log only: a record with an old timestamp behind fresh ones takes none of
// them with it.
func TestRetentionRemoves(t *testing.T) {
	settings := func(key, value string) map[string]string { return map[string]string{key: value} }
	b, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Clean: 20 * time.Millisecond, Topics: []stream.TopicSpec{
		{Name: "short", Partitions: 1, Config: settings("retention.ms", "60000")},
		{Name: "long", Partitions: 1, Config: settings("retention.ms", "7200000")},
		{Name: "default", Partitions: 1},
		{Name: "small", Partitions: 1, Config: settings("retention.bytes", "1000")},
		{Name: "ever", Partitions: 1, Config: settings("retention.ms", "-1")},
		{Name: "compact", Partitions: 1, Config: settings("cleanup.policy", "compact")},
		{Name: "first", Partitions: 1},
		{Name: "second", Partitions: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	// Each record is a batch of its own.
	produce := func(topic string, ages ...time.Duration) {
		t.Helper()
		for _, age := range ages {
			r := &kgo.Record{Topic: topic, Value: make([]byte, 300), Timestamp: time.Now().Add(-age)}
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := func(topic string) int64 {
		t.Helper()
		got, err := kadm.NewClient(cl).ListStartOffsets(t.Context(), topic)
		if err == nil {
			err = got.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		o, _ := got.Lookup(topic, 0)
		return o.Offset
	}
	const old = 240 * time.Hour
	produce("short", time.Hour)
	produce("long", time.Hour)
	produce("default", old, old, 0, 0, old, 0, old)
	produce("small", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	produce("ever", old)
	produce("compact", old)
	// Once what came second is removed, all topics were looked at since what came first was.
	for _, topic := range []string{"first", "second"} {
		produce(topic, old)
		for deadline := time.Now().Add(time.Minute); start(topic) == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nothing was removed within a minute")
			}
		}
	}
	got := map[string]int64{}
	for _, topic := range []string{"short", "long", "default", "small", "ever", "compact"} {
		got[topic] = start(topic)
	}
	// A batch is 300 bytes and its headers, so that three are the fewest with 1000 bytes.
	want := map[string]int64{"short": 1, "long": 0, "default": 2, "small": 7, "ever": 0, "compact": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("where the logs begin, want (-), got (+): %s", diff)
	}
}
