package doctor

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func port(t *testing.T, addr string) int {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port
}

// Workers use the address that a broker tells them, so that one has to answer; a seed that does not is only worth knowing where another does.
func TestBrokers(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	up := c.ListenAddrs()[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := l.Addr().(*net.TCPAddr) // nobody listens there once it is closed
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	if got := says(patient(t, up).brokers(t.Context())); !slices.Equal(got, []string{"ok broker 0", "ok broker 1"}) {
		t.Errorf("all is well: %q", got)
	}
	if got := says(patient(t, down.String(), up).brokers(t.Context())); !slices.Equal(got, []string{"warn broker address " + down.String(), "ok broker 0", "ok broker 1"}) {
		t.Errorf("one of two addresses: %q", got)
	}
	got := patient(t, down.String()).brokers(t.Context())
	if !slices.Equal(says(got), []string{"fail broker address " + down.String()}) || !strings.Contains(got[0].Says, "connection refused") || !strings.Contains(got[0].Do, "ctr.hcl:4:") {
		t.Errorf("nobody there: %+v", got)
	}

	c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for id, number := range []int{port(t, up), down.Port} {
			b := kmsg.NewMetadataResponseBroker()
			b.NodeID, b.Host, b.Port = int32(id), "127.0.0.1", int32(number)
			resp.Brokers = append(resp.Brokers, b)
		}
		return resp, nil, true
	})
	got = patient(t, up).brokers(t.Context())
	if !slices.Equal(says(got), []string{"ok broker 0", "fail broker 1"}) || !strings.Contains(got[1].Says, down.String()) || !strings.Contains(got[1].Do, "advertised.listeners") {
		t.Errorf("an advertised address that does not answer: %+v", got)
	}
}

// Brokers that go away between two questions are away: who may do without them is to know it.
func TestBrokersThatGoAwayBetweenQuestions(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "clicks", "dead"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, topic := range req.(*kmsg.MetadataRequest).Topics {
			if topic.Topic != nil && *topic.Topic == "dead" {
				return nil, errors.New("it is gone"), true
			}
		}
		return nil, nil, false
	})
	j := patient(t, c.ListenAddrs()[0]).Job
	j.Stream.DeadLetter = "dead"
	info, diags, err := CheckTopics(t.Context(), j)
	if err != nil || info.Err == nil || !info.Exists || len(diags) != 1 || !strings.Contains(diags.Error(), `Cannot ask the brokers about topic "dead"`) {
		t.Errorf("%+v, %v, %v", info, diags, err)
	}
}

// A dead-letter topic that may not be written would stop a partition at the first bad record.
func TestDeadLetter(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "clicks", "dead"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := patient(t, c.ListenAddrs()[0])
	try := func() Finding { return p.deadLetter(t.Context())[0] }
	if f := try(); f.State != Warn || !strings.Contains(f.Do, "dead_letter") {
		t.Errorf("none: %+v", f)
	}
	p.Job.Stream.DeadLetter = "dad"
	if f := try(); f.State != Fail || !strings.Contains(f.Do, `Did you mean "dead"?`) {
		t.Errorf("one that does not exist: %+v", f)
	}
	p.Job.Stream.DeadLetter = "dead"
	if f := try(); f.State != OK {
		t.Errorf("one that is there: %+v", f)
	}
	for operations, want := range map[int32]State{1<<3 | 1<<4: OK, 1 << 3: Fail, operationsMute: OK} {
		c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if !req.(*kmsg.MetadataRequest).IncludeTopicAuthorizedOperations {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.MetadataResponse)
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.AuthorizedOperations = &p.Job.Stream.DeadLetter, operations
			resp.Topics = append(resp.Topics, topic)
			b := kmsg.NewMetadataResponseBroker()
			b.Host, b.Port = "127.0.0.1", int32(port(t, c.ListenAddrs()[0]))
			resp.Brokers = append(resp.Brokers, b)
			return resp, nil, true
		})
		if f := try(); f.State != want {
			t.Errorf("operations %b: %+v, want %s", operations, f, want)
		}
	}
}

// Clocks that are behind show in what enters meanwhile: a newest record that is old may only be the last of a while.
func TestRecordsClockBehind(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "clicks"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("clicks"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	const behind = 2 * time.Minute
	write := func() {
		if err := cl.ProduceSync(context.Background(), &kgo.Record{Value: []byte("{}"), Timestamp: time.Now().Add(-behind)}).FirstErr(); err != nil {
			t.Error(err)
		}
	}
	write()
	p := patient(t, c.ListenAddrs()[0])
	judged := func() Finding { return p.recordsClock(t.Context(), time.Now().Add(-behind).UnixNano())[0] }
	if f := judged(); f.State != OK {
		t.Errorf("a topic at rest: %+v", f)
	}
	over := make(chan struct{})
	var writes sync.WaitGroup
	writes.Go(func() { // ends when the test does
		for {
			select {
			case <-over:
				return
			default:
				write()
			}
		}
	})
	defer func() { close(over); writes.Wait() }()
	f := judged()
	for deadline := time.Now().Add(time.Minute); f.State != Warn && time.Now().Before(deadline); {
		f = judged()
	}
	if f.State != Warn || !strings.Contains(f.Says, "behind this machine's clock when they enter") || !strings.Contains(f.Do, "NTP") {
		t.Errorf("records that enter: %+v", f)
	}
}

// A single record that is dated ahead of those after it is found, wherever it is, and named.
func TestARecordOfTomorrow(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "clicks"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("clicks"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	now := time.Now().Truncate(time.Millisecond)
	tomorrow := now.Add(24 * time.Hour)
	for _, at := range []time.Time{now, now, tomorrow, now, now} {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: []byte(`{"click":1}`), Timestamp: at}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	fs := patient(t, c.ListenAddrs()[0]).recordsClock(t.Context(), tomorrow.UnixNano()) // the newest date of a sample, which is no sign of a wrong clock
	if len(fs) != 2 || fs[0].State != OK || fs[1].State != Warn || fs[1].Check != "records' clock" ||
		!strings.Contains(fs[1].Says, "the record at offset 2 of partition 0 is dated "+tomorrow.UTC().Format(time.RFC3339)+", ahead of this machine's clock by ") || !strings.Contains(fs[1].Do, "LogAppendTime") {
		t.Errorf("%+v", fs)
	}
}
