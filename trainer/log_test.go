package trainer

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// TestRule15Transactions: committed and aborted transactions, with control records between the records and at the very end. Progress reaches the last
// stable offset; aborted records are never trained.
func TestRule15Transactions(t *testing.T) {
	c := broker(t, 1)
	plain := producer(t, c)
	tx := producer(t, c, kgo.TransactionalID("tx"))
	transact := func(n int, how kgo.TransactionEndTry) {
		t.Helper()
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, tx, 0, n)
		if err := tx.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	j := startJob(t, jobSpec(t, c))
	j.worker(0, 1)
	produce(t, plain, 0, 10)
	transact(20, kgo.TryCommit)
	transact(33, kgo.TryAbort)
	produce(t, plain, 0, 5)
	transact(1, kgo.TryCommit)
	transact(7, kgo.TryAbort) // the log ends with an aborted transaction and its marker
	end := lastStable(t, plain)[0]
	if end != 10+20+1+33+1+5+1+1+7+1 {
		t.Fatalf("the log ends at %d", end)
	}
	ends := map[int32]int64{0: end}
	j.waitApplied(ends)
	log := readLog(t, c, ends)
	if n := len(log[0]); n != 36 {
		t.Fatalf("the log holds %d committed records, want 36", n)
	}
	j.checkOnce(log, nil)
}

// lastStable lists the last stable offset of every partition.
func lastStable(t testing.TB, cl *kgo.Client) map[int32]int64 {
	t.Helper()
	l, err := kadm.NewClient(cl).ListCommittedOffsets(t.Context(), testTopic)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int32]int64{}
	l.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	return out
}

// TestRule17RecreatedTopic: the topic is deleted and created again. Its records have other meanings under the same offsets: none is trained.
func TestRule17RecreatedTopic(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c))
	j.worker(0, 1)
	produce(t, cl, 0, 50)
	j.waitApplied(map[int32]int64{0: 50})
	if err := c.DeleteTopic(testTopic); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(testTopic, 1, nil); err != nil {
		t.Fatal(err)
	}
	fresh := producer(t, c)
	produce(t, fresh, 0, 80)
	j.waitFor("the new topic is refused", func(s *rpc.JobStatus) bool {
		return len(s.GetProblems()) > 0 && s.GetProblems()[0].GetKind() == rpc.PartitionProblem_KIND_RECREATED
	})
	if got := j.status().GetTrainedRecords(); got != 50 {
		t.Errorf("%d records trained, want the old topic's 50", got)
	}
}

// TestRule17TruncatedLog: the broker comes back with an older copy of its data. The log ends below what was read, which is told as that, and nothing more is trained
// under the offsets that are trained already, also once the log has grown past them.
func TestRule17TruncatedLog(t *testing.T) {
	data, old := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "old")
	var port int
	open := func() *kfake.Cluster {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, testTopic), kfake.DataDir(data), kfake.SyncWrites(), kfake.Ports(port))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open()
	_, text, err := net.SplitHostPort(c.ListenAddrs()[0])
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	produce(t, producer(t, c), 0, 30)
	c.Close()
	if err := os.CopyFS(old, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	c = open()
	j := &job{t: t, spec: jobSpec(t, c, func(s *rpc.TrainSpec) { s.Servers, s.Stream.Start = 1, "earliest" })}
	ps := j.server(0)
	w := j.worker(0, 1)
	produce(t, producer(t, c), 0, 20)
	j.waitApplied(map[int32]int64{0: 50})
	c.Close()
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	c = open()
	t.Cleanup(c.Close)
	cut := func(s *rpc.JobStatus) bool {
		p := s.GetProblems()
		return len(p) == 1 && p[0].GetKind() == rpc.PartitionProblem_KIND_TRUNCATED && p[0].GetPartition() == 0 && p[0].GetNeeded() == 50 && p[0].GetLogStart() == 30
	}
	j.waitFor("it is told that the log was cut", cut)
	produce(t, producer(t, c), 0, 40)
	time.Sleep(3 * time.Second) // in which a worker fetches many times
	if s := j.status(); !cut(s) || s.GetTrainedRecords() != 50 {
		t.Errorf("past that: %d records trained, want the old log's 50; problems %v", s.GetTrainedRecords(), s.GetProblems())
	}
	// That is kept: the log itself does not tell any more.
	kept := func(s *rpc.JobStatus) bool {
		c := s.GetCutOff()
		return len(c) == 1 && c[0].GetPartition() == 0 && c[0].GetBegin() == 30 && c[0].GetEnd() == 50
	}
	if s := j.status(); !kept(s) {
		t.Errorf("it says %v of what was cut off", s.GetCutOff())
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	was := j.status().GetChief()
	if err := ps.stop(); err != nil {
		t.Fatal(err)
	}
	j.server(0)
	j.waitFor("the next chief knows", func(s *rpc.JobStatus) bool { return s.GetChief() > was && kept(s) && len(s.GetProblems()) == 0 })
	store, err := checkpoint.Open(j.spec.GetCheckpointDir(), j.spec.GetJob())
	if err != nil {
		t.Fatal(err)
	}
	if state, err := store.LoadJob(); err != nil || len(state.CutOff) != 1 || state.CutOff[0].Seen.IsZero() {
		t.Errorf("in the job's state: %+v, %v; want one, with its time", state.CutOff, err)
	}
}
