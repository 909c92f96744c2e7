package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/stream"
)

// The broker says where it listens, has its topics, keeps them and ends when it is interrupted.
func TestBroker(t *testing.T) {
	s := newShell(t)
	data := filepath.Join(t.TempDir(), "data")
	b := s.start("broker", "-data", data, "-listen", "127.0.0.1:0", "-topic", "clicks:3:retention.ms=3600000", "-json")
	b.eventually("its address", func() bool { return strings.HasSuffix(b.out.String(), "\n") })
	var ready struct{ Addr, Data string }
	if err := json.Unmarshal([]byte(b.out.String()), &ready); err != nil {
		t.Fatal(err)
	}
	r := s.must("produce", "-brokers", ready.Addr, "-topic", "clicks", "-history", "10s", "-duration", "0", "-json")
	var sum produced
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil {
		t.Fatal(err)
	}
	if text := s.must("produce", "-brokers", ready.Addr, "-topic", "clicks", "-duration", "0").out; !strings.HasPrefix(text, "0 records in topic clicks at "+ready.Addr+" after ") {
		t.Errorf("a summary without its broker: %s", text)
	}
	if sum.History == 0 || sum.Live != 0 || len(sum.Partitions) != 3 || sum.Unsettled != 0 {
		t.Errorf("summary %+v", sum)
	}
	b.interrupt()
	if r := b.end(); r.code != exitDone {
		t.Errorf("interrupted, it ends with %d: %s", r.code, r.err)
	}
	if conn, err := net.Dial("tcp", ready.Addr); err == nil {
		conn.Close()
		t.Error("it still listens after its end")
	}

	again := s.start("broker", "-data", data, "-listen", ready.Addr)
	again.eventually("its address", func() bool { return strings.Contains(again.out.String(), ready.Addr) })
	counted, err := stream.LogSum(t.Context(), []kgo.Opt{kgo.SeedBrokers(ready.Addr)}, "clicks", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, p := range counted {
		n += p.N
	}
	if n != sum.History {
		t.Errorf("after a restart the log has %d records, and %d were written", n, sum.History)
	}
	if r := s.run("broker", "-data", data, "-listen", "127.0.0.1:0"); r.code != exitFailed || !strings.Contains(r.err, "another broker") {
		t.Errorf("a second broker on the same folder: %d %s", r.code, r.err)
	}
}

// Interrupted in the middle, produce settles what it sent and still says what it did: the summary counts what is in the log.
func TestProduceInterrupted(t *testing.T) {
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	s := newShell(t)
	b := s.start("produce", "-brokers", addr, "-topic", "clicks", "-peak", "2000", "-from", "12h", "-json")
	count := func() (n int64) {
		sums, err := stream.LogSum(t.Context(), []kgo.Opt{kgo.SeedBrokers(addr)}, "clicks", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range sums {
			n += p.N
		}
		return n
	}
	b.eventually("its first records", func() bool { return count() > 0 })
	b.interrupt()
	r := b.end()
	var sum produced
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil {
		t.Fatalf("%v: %q %s", err, r.out, r.err)
	}
	if n := count(); r.code != exitDone || !sum.Interrupted || sum.Live != n || sum.Unsettled != 0 {
		t.Errorf("exit code %d, summary %+v, and the log has %d records", r.code, sum, n)
	}
}

func TestProduceToNoTopic(t *testing.T) {
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	r := newShell(t).run("produce", "-brokers", addr, "-topic", "clics", "-duration", "1s")
	if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, "clics") {
		t.Errorf("exit code %d, %q, %s", r.code, r.out, r.err)
	}
}

// More hot partitions than there are is a mistake.
func TestMoreHotPartitionsThanThereAre(t *testing.T) {
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 4})
	zeros := filepath.Join(t.TempDir(), "zeros.csv")
	if err := os.WriteFile(zeros, []byte("2026-01-01T00:00:00Z,0\n2026-01-01T00:01:00Z,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := newShell(t).run("produce", "-brokers", addr, "-topic", "clicks", "-curve", zeros, "-peak", "50"); r.code != exitUsage || !strings.Contains(r.err, "is zero throughout") {
		t.Errorf("a curve of zeros with a peak: exit code %d, %s", r.code, r.err)
	}
	if r := newShell(t).run("produce", "-brokers", addr, "-topic", "clicks", "-hot", "50", "-duration", "1s"); r.code != exitUsage || !strings.Contains(r.err, `-hot 50: topic "clicks" has 4 partitions`) {
		t.Errorf("exit code %d, %s%s", r.code, r.out, r.err)
	}
}
