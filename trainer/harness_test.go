package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/kafka"
)

const testTopic = "clicks"

// broker starts an in-process Kafka with one topic.
func broker(t testing.TB, partitions int32, more ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, testTopic)}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// producer returns a client that writes to explicit partitions.
func producer(t testing.TB, c *kfake.Cluster, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// click is a record of the test jobs.
func click(i int) []byte {
	return fmt.Appendf(nil, `{"click":%d,"user":"u%d","item":%d,"price":%.2f,"junk":[1,{"a":null}]}`, i%3/2, i%97, i%31, float64(i%10)/10)
}

// produce writes n clicks to a partition.
func produce(t testing.TB, cl *kgo.Client, partition int32, n int) {
	t.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: testTopic, Partition: partition, Value: click(i)})
	}
	if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// jobSpec is a small job on the broker's topic.
func jobSpec(t testing.TB, c *kfake.Cluster, change ...func(*rpc.TrainSpec)) *rpc.TrainSpec {
	t.Helper()
	spec := &rpc.TrainSpec{
		Job: "test", Fingerprint: "f", Token: "secret", CheckpointDir: t.TempDir(),
		Stream:   &rpc.StreamSpec{Brokers: c.ListenAddrs(), Topic: testTopic, Start: "earliest", OnLost: "stop"},
		Features: &rpc.FeatureSpec{Format: "json", Label: "click", Sparse: []string{"user", "item"}, Dense: []string{"price"}},
		Model:    &rpc.ModelSpec{Kind: KindCounting, EmbeddingDim: 4, Hidden: []int32{8}, Batch: 64, Optimiser: "adagrad", LearningRate: 0.05},
		Servers:  2, Tablets: 8, SnapshotEveryMs: 200, SnapshotKeep: 2,
		Worker:         &rpc.WorkerSpec{Chunk: 16, Queue: 256, Window: 4096, LingerMs: 10, Threads: 1, Forward: "advanced", Device: "cpu"},
		LeaseTimeoutMs: 1500, BeatMs: 20, GraceMs: 1500,
	}
	for _, f := range change {
		f(spec)
	}
	return spec
}

func withModel(kind string) func(*rpc.TrainSpec) {
	return func(s *rpc.TrainSpec) { s.Model.Kind = kind }
}

// needONNX skips tests that train a network where ONNX Runtime is not installed.
func needONNX(t testing.TB) {
	t.Helper()
	if _, err := onnx.Locate(); err != nil {
		t.Skipf("needs ONNX Runtime: run `make deps`: %v", err)
	}
}

// testLogger logs to the test when -v is given and KALE_TEST_LOG is set, and nowhere otherwise.
func testLogger(t testing.TB, who string) *slog.Logger {
	if os.Getenv("KALE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil)).With("test", t.Name(), "who", who)
}

// process is a goroutine that stands for a process.
type process struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (p *process) stop() error {
	p.cancel()
	<-p.done
	return p.err
}

func start(t testing.TB, f func(context.Context) error) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = f(ctx)
	}()
	t.Cleanup(func() {
		if err := p.stop(); err != nil && !errors.Is(err, ErrFenced) {
			t.Logf("a process ended with %v", err)
		}
	})
	return p
}

// job is a whole job inside the test: real servers with the real chief, real workers.
type job struct {
	t       testing.TB
	spec    *rpc.TrainSpec
	servers []*testServer
}

func startJob(t testing.TB, spec *rpc.TrainSpec) *job {
	t.Helper()
	j := &job{t: t, spec: spec}
	for i := range int(spec.GetServers()) {
		j.servers = append(j.servers, startServer(t, spec, i))
	}
	return j
}

// crash kills server i without a last snapshot, and starts its successor.
func (j *job) crash(i int) {
	j.t.Helper()
	j.servers[i].kill()
	j.servers[i] = startServer(j.t, j.spec, i)
}

func (j *job) worker(rank int, generation uint64) *process {
	spec := proto.Clone(j.spec).(*rpc.TrainSpec)
	return start(j.t, func(ctx context.Context) error {
		return RunWorker(ctx, testLogger(j.t, fmt.Sprint("worker", rank)), spec, WorkerOptions{Rank: rank, Generation: generation, Listen: "127.0.0.1:0"})
	})
}

// chief returns a client of the newest chief.
func (j *job) chief() (rpc.ChiefClient, func(), error) {
	at, err := checkpoint.Attach(j.spec.GetCheckpointDir(), j.spec.GetJob()).Chief()
	if err != nil {
		return nil, nil, err
	}
	conn, err := dialPeer(at.Address, j.spec.GetToken())
	if err != nil {
		return nil, nil, err
	}
	return rpc.NewChiefClient(conn), func() { _ = conn.Close() }, nil
}

// status asks the chief, nil when it does not answer.
func (j *job) status() *rpc.JobStatus {
	c, done, err := j.chief()
	if err != nil {
		return nil
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, err := c.Status(ctx, &rpc.StatusRequest{})
	if err != nil {
		return nil
	}
	return s
}

// waitFor polls the chief's status until ok.
func (j *job) waitFor(what string, ok func(*rpc.JobStatus) bool) *rpc.JobStatus {
	j.t.Helper()
	var last *rpc.JobStatus
	eventually(j.t, func() bool {
		if s := j.status(); s != nil {
			last = s
			return ok(s)
		}
		return false
	}, func() string {
		b, _ := json.MarshalIndent(last, "", " ")
		return fmt.Sprintf("%s\nlast status: %s", what, b)
	})
	return last
}

// eventually fails the test when ok does not come true within two minutes; it is a bound for broken code, not a measurement.
func eventually(t testing.TB, ok func() bool, what func() string) {
	t.Helper()
	within(t, 2*time.Minute, ok, what)
}

func within(t testing.TB, bound time.Duration, ok func() bool, what func() string) {
	t.Helper()
	deadline := time.Now().Add(bound)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// waitApplied waits until each partition is applied up to the given end.
func (j *job) waitApplied(ends map[int32]int64) {
	j.t.Helper()
	j.waitFor(fmt.Sprintf("applied %v", ends), func(s *rpc.JobStatus) bool {
		for _, p := range s.GetPartitions() {
			if p.GetApplied() < ends[p.GetPartition()] {
				return false
			}
		}
		return len(s.GetPartitions()) >= len(ends)
	})
}

// log is what the broker holds, read committed: the records that must be trained once.
func readLog(t testing.TB, c *kfake.Cluster, ends map[int32]int64) map[int32][]int64 {
	t.Helper()
	opts, err := kafka.Opts(&rpc.StreamSpec{Brokers: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	parts := map[int32]kgo.Offset{}
	for p := range ends {
		parts[p] = kgo.NewOffset().AtStart()
	}
	cl, err := kgo.NewClient(append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{testTopic: parts}))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	out, next := map[int32][]int64{}, map[int32]int64{}
	left := func() bool {
		for p, e := range ends {
			if next[p] < e {
				return true
			}
		}
		return false
	}
	for left() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		f := cl.PollFetches(ctx)
		cancel()
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() && r.Offset < ends[r.Partition] {
				out[r.Partition] = append(out[r.Partition], r.Offset)
			}
		})
	}
	return out
}

// sums asks the chief for every tablet's record sums.
func (j *job) sums() []*rpc.TabletSums {
	j.t.Helper()
	c, done, err := j.chief()
	if err != nil {
		j.t.Fatal(err)
	}
	defer done()
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Minute)
	defer cancel()
	r, err := c.Sums(ctx, &rpc.SumsRequest{})
	if err != nil {
		j.t.Fatal(err)
	}
	return r.GetTablets()
}

// checkOnce compares every tablet's sums with what the log holds: each record once, dead ones apart (rule 19).
func (j *job) checkOnce(log map[int32][]int64, dead map[int32][]int64) {
	j.t.Helper()
	for _, d := range j.differences(log, dead) {
		j.t.Error(d)
	}
}

// differences lists where the tablets' sums are not those of the log.
func (j *job) differences(log map[int32][]int64, dead map[int32][]int64) (out []string) {
	j.t.Helper()
	tablets := j.sums()
	if len(tablets) != int(j.spec.GetTablets()) {
		out = append(out, fmt.Sprintf("sums of %d tablets, want %d", len(tablets), j.spec.GetTablets()))
	}
	wants := map[int32]*rpc.PartitionSum{}
	for p, offsets := range log {
		want := &rpc.PartitionSum{Partition: p}
		for _, o := range offsets {
			if slices.Contains(dead[p], o) {
				want.DeadN++
				want.DeadHash += kafka.RecordHash(testTopic, p, o)
			} else {
				want.N++
				want.Hash += kafka.RecordHash(testTopic, p, o)
			}
		}
		wants[p] = want
	}
	for _, tb := range tablets {
		got := map[int32]*rpc.PartitionSum{}
		for _, p := range tb.GetPartitions() {
			got[p.GetPartition()] = p
		}
		for p, want := range wants {
			g := got[p]
			if g.GetN() != want.N || g.GetHash() != want.Hash || g.GetDeadN() != want.DeadN || g.GetDeadHash() != want.DeadHash {
				out = append(out, fmt.Sprintf("tablet %d, partition %d: n %d hash %x dead %d/%x, want n %d hash %x dead %d/%x", tb.GetTablet(), p,
					g.GetN(), g.GetHash(), g.GetDeadN(), g.GetDeadHash(), want.N, want.Hash, want.DeadN, want.DeadHash))
			}
		}
	}
	return out
}

// dump renders what a worker answers for, for the message of a test that waits in vain.
func (w *worker) dump() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := fmt.Sprintf("%s: queued %d, away %d, accepting %v, full %v, repair waits %v, draining %v", w.name, w.unit.Queued(), w.unit.Away(), w.accepting, w.sourceFull, w.repairWaits, w.draining)
	for _, e := range w.ledger.inState(toRead, queued, forwarded, pushed) {
		holder, _ := w.unit.Holder(e.id)
		out += fmt.Sprintf("\n  %d: partition %d [%d,%d) %s received %v trained %v holder %q", e.id, e.partition, e.begin, e.end,
			[...]string{"to read", "queued", "forwarded", "pushed", "halted"}[e.state], e.from != nil, e.trained, holder)
	}
	return out
}
