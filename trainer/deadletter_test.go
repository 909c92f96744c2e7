package trainer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
)

// TestRule18DeadLetters: records that cannot be decoded are in the dead-letter topic before their offsets are applied, and count as dead.
func TestRule18DeadLetters(t *testing.T) {
	needONNX(t)
	c := broker(t, 1, kfake.SeedTopics(1, "dead"))
	cl := producer(t, c, kgo.ProducerBatchMaxBytes(8<<20), kgo.MaxBufferedRecords(1000))
	values := [][]byte{click(0), []byte("{"), click(1), []byte(`{"click":7}`), nil, click(2)}
	for i, v := range values {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: v}).FirstErr(); err != nil {
			t.Fatal(i, err)
		}
	}
	j := startJob(t, jobSpec(t, c, withModel("lr"), func(s *rpc.TrainSpec) { s.Stream.DeadLetter = "dead" }))
	j.worker(0, 1)
	ends := map[int32]int64{0: int64(len(values))}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), map[int32][]int64{0: {1, 3, 4}})
	got := readDead(t, c, 3)
	for _, o := range []int{1, 3, 4} {
		key := fmt.Sprintf("%s/0/%d", testTopic, o)
		r := got[key]
		if r == nil {
			t.Errorf("no dead letter %s", key)
			continue
		}
		if string(r.Value) != string(values[o]) {
			t.Errorf("dead letter %s holds %q, want %q", key, r.Value, values[o])
		}
		if header(r, "kale-reason") == "" || header(r, "kale-offset") != fmt.Sprint(o) {
			t.Errorf("dead letter %s has headers %v", key, r.Headers)
		}
	}
	if s := j.status(); s.GetDeadRecords() != 3 || s.GetTrainedRecords() != 3 {
		t.Errorf("%d dead, %d trained; want 3 and 3", s.GetDeadRecords(), s.GetTrainedRecords())
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// readDead reads n letters by key.
func readDead(t testing.TB, c *kfake.Cluster, n int) map[string]*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("dead"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	out := map[string]*kgo.Record{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for len(out) < n {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d dead letters of %d arrived", len(out), n)
		}
		f.EachRecord(func(r *kgo.Record) { out[string(r.Key)] = r })
	}
	return out
}

// TestRule18DeadLetterTopicAway: without the dead-letter topic the worker waits and reports; it drops nothing. When the topic is there, it goes on.
func TestRule18DeadLetterTopicAway(t *testing.T) {
	needONNX(t)
	c := broker(t, 1)
	cl := producer(t, c)
	for _, v := range []string{string(click(0)), "junk"} {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	j := startJob(t, jobSpec(t, c, withModel("lr"), func(s *rpc.TrainSpec) { s.Stream.DeadLetter = "dead" }))
	j.worker(0, 1)
	s := j.waitFor("the problem is reported", func(s *rpc.JobStatus) bool {
		return len(s.GetProblems()) == 1 && s.GetProblems()[0].GetKind() == rpc.PartitionProblem_KIND_DEAD_LETTER
	})
	if n := j.applied(s, 0); n > 1 {
		t.Errorf("applied up to %d before the letter was written", n)
	}
	if p := s.GetProblems()[0]; p.GetNeeded() != 1 || !strings.HasPrefix(p.GetDetail(), `topic "clicks": the record at offset 1 cannot be decoded (`) ||
		!strings.HasSuffix(p.GetDetail(), `), and the dead-letter topic "dead", where it belongs, does not exist`) {
		t.Errorf("the problem is at %d: %s", p.GetNeeded(), p.GetDetail())
	}
	if err := c.CreateTopic("dead", 1, nil); err != nil {
		t.Fatal(err)
	}
	j.waitApplied(map[int32]int64{0: 2})
	j.checkOnce(map[int32][]int64{0: {0, 1}}, map[int32][]int64{0: {1}})
	readDead(t, c, 1)
	j.waitFor("the problem is withdrawn", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 0 })
}

// TestRule18DeadLetterTopicCreatedAgain: a dead-letter topic that was deleted and created again is another one for its brokers, and takes letters as the first did.
func TestRule18DeadLetterTopicCreatedAgain(t *testing.T) {
	needONNX(t)
	c := broker(t, 1, kfake.SeedTopics(1, "dead"))
	cl := producer(t, c)
	junk := func() {
		t.Helper()
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: []byte("junk")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	recreate := func() {
		t.Helper()
		if err := c.CreateTopic("dead", 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		if _, err := kadm.NewClient(cl).DeleteTopic(t.Context(), "dead"); err != nil {
			t.Fatal(err)
		}
	}
	junk()
	j := startJob(t, jobSpec(t, c, withModel("lr"), func(s *rpc.TrainSpec) { s.Stream.DeadLetter = "dead" }))
	j.worker(0, 1)
	j.waitApplied(map[int32]int64{0: 1})
	remove()
	junk()
	j.waitFor("the topic is missed", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 1 })
	recreate()
	j.waitApplied(map[int32]int64{0: 2})
	if readDead(t, c, 1)[testTopic+"/0/1"] == nil {
		t.Error("the topic that was created again lacks the letter")
	}
	remove() // and at once there again: nobody missed it
	recreate()
	junk()
	j.waitApplied(map[int32]int64{0: 3})
	j.waitFor("the problem is withdrawn", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 0 })
	j.checkOnce(map[int32][]int64{0: {0, 1, 2}}, map[int32][]int64{0: {0, 1, 2}})
}

// TestRule18DrainWithoutTheDeadLetterTopic: while the dead-letter topic is away its partition stands still and the other goes on, and a worker that is to leave
// leaves; its successor stands there too, and every record is trained once when the topic comes.
func TestRule18DrainWithoutTheDeadLetterTopic(t *testing.T) {
	needONNX(t)
	c := broker(t, 2)
	cl := producer(t, c)
	produce(t, cl, 0, 21)
	for range 3 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: []byte("junk")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce(t, cl, 0, 100)
	produce(t, cl, 1, 50)
	j := startJob(t, jobSpec(t, c, withModel("lr"), func(s *rpc.TrainSpec) {
		s.Stream.DeadLetter, s.GraceMs = "dead", (5 * time.Minute).Milliseconds() // longer than the test waits for the drain
	}))
	stands := func(s *rpc.JobStatus) bool {
		ps := s.GetProblems()
		return len(ps) == 1 && ps[0].GetKind() == rpc.PartitionProblem_KIND_DEAD_LETTER && ps[0].GetPartition() == 0 && ps[0].GetNeeded() == 21 &&
			j.applied(s, 0) == 21 && j.applied(s, 1) == 50
	}
	w := j.worker(0, 1)
	j.waitFor("the partition stands before the record, the other goes on", stands)
	w.cancel()
	eventually(t, func() bool {
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	}, func() string { return "the worker drains" })
	j.worker(0, 2)
	j.waitFor("its successor stands there too", stands)
	if err := c.CreateTopic("dead", 1, nil); err != nil {
		t.Fatal(err)
	}
	ends := map[int32]int64{0: 124, 1: 50}
	j.waitApplied(ends)
	j.waitFor("the problem is withdrawn", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 0 })
	j.checkOnce(readLog(t, c, ends), map[int32][]int64{0: {21, 22, 23}})
	readDead(t, c, 3)
}

// TestRule18WithoutATopicThePartitionStops: a record that cannot be decoded is not applied, what precedes it is trained, another partition goes
// on, and the problem names the record. A drain ends. Started again with a dead-letter topic, the job goes on from there, every record once.
func TestRule18WithoutATopicThePartitionStops(t *testing.T) {
	needONNX(t)
	c := broker(t, 2, kfake.SeedTopics(1, "dead"))
	cl := producer(t, c)
	produce(t, cl, 0, 21)
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: []byte("junk")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 0, 100)
	produce(t, cl, 1, 50)
	spec := jobSpec(t, c, withModel("lr"))
	j := startJob(t, spec)
	stopped := func(s *rpc.JobStatus) bool {
		ps := s.GetProblems()
		return len(ps) == 1 && ps[0].GetKind() == rpc.PartitionProblem_KIND_UNDECODABLE && ps[0].GetPartition() == 0 && ps[0].GetNeeded() == 21 &&
			strings.Contains(ps[0].GetDetail(), testTopic) && j.applied(s, 0) == 21 && j.applied(s, 1) == 50
	}
	w := j.worker(0, 1)
	j.waitFor("the partition stops before the record, the other goes on", stopped)
	if err := w.stop(); err != nil {
		t.Fatalf("the worker does not drain: %v", err)
	}
	w = j.worker(0, 2)
	if s := j.waitFor("its successor stops there too", stopped); s.GetDeadRecords() != 0 {
		t.Errorf("%d records are counted as dead", s.GetDeadRecords())
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	spec.Stream.DeadLetter = "dead"
	j.worker(0, 3)
	ends := map[int32]int64{0: 122, 1: 50}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), map[int32][]int64{0: {21}})
	readDead(t, c, 1)
}

// TestRule18Skip: with on_undecodable = "skip" the record is counted as dead, and the partition goes on.
func TestRule18Skip(t *testing.T) {
	needONNX(t)
	c := broker(t, 1)
	cl := producer(t, c)
	for _, v := range []string{string(click(0)), "junk", string(click(1))} {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	j := startJob(t, jobSpec(t, c, withModel("lr"), func(s *rpc.TrainSpec) { s.Stream.OnUndecodable = "skip" }))
	j.worker(0, 1)
	j.waitApplied(map[int32]int64{0: 3})
	j.checkOnce(map[int32][]int64{0: {0, 1, 2}}, map[int32][]int64{0: {1}})
}

// TestRule18SkipLater: a partition that stands still at such a record goes on when the chief is told to skip them.
func TestRule18SkipLater(t *testing.T) {
	needONNX(t)
	c := broker(t, 1)
	cl := producer(t, c)
	produce(t, cl, 0, 21)
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: []byte("junk")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 0, 100)
	j := startJob(t, jobSpec(t, c, withModel("lr")))
	j.worker(0, 1)
	j.waitFor("the partition stands still at the record", func(s *rpc.JobStatus) bool {
		ps := s.GetProblems()
		return len(ps) == 1 && ps[0].GetKind() == rpc.PartitionProblem_KIND_UNDECODABLE && j.applied(s, 0) == 21
	})
	ch, done, err := j.chief()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	p := &rpc.Policies{OnLost: "stop", OnUndecodable: "skip"}
	if _, err := ch.SetPolicies(t.Context(), &rpc.SetPoliciesRequest{Policies: p}); err != nil {
		t.Fatal(err)
	}
	if got := j.status().GetPolicies(); !proto.Equal(got, p) {
		t.Errorf("the chief says %v, want %v", got, p)
	}
	j.waitApplied(map[int32]int64{0: 122})
	j.waitFor("the problem is gone", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 0 })
	j.checkOnce(readLog(t, c, map[int32]int64{0: 122}), map[int32][]int64{0: {21}})
}

// applied is a partition's watermark.
func (j *job) applied(s *rpc.JobStatus, partition int32) int64 {
	for _, p := range s.GetPartitions() {
		if p.GetPartition() == partition {
			return p.GetApplied()
		}
	}
	return -1
}

// TestRule18LargeLetterIsAPointer: a record that the dead-letter topic cannot take is set aside as a pointer to it.
func TestRule18LargeLetterIsAPointer(t *testing.T) {
	needONNX(t)
	c := broker(t, 1, kfake.SeedTopics(1, "dead"))
	cl := producer(t, c, kgo.ProducerBatchMaxBytes(4<<20))
	big := []byte(strings.Repeat("x", 3<<20))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: big}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	j := startJob(t, jobSpec(t, c, withModel("lr"), func(s *rpc.TrainSpec) { s.Stream.DeadLetter = "dead" }))
	j.worker(0, 1)
	j.waitApplied(map[int32]int64{0: 1})
	r := readDead(t, c, 1)[testTopic+"/0/0"]
	if r == nil || len(r.Value) != 0 || header(r, "kale-omitted-bytes") != fmt.Sprint(len(big)) {
		t.Errorf("letter: %v", r)
	}
}
