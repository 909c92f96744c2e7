package trainer

import (
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kale-sched/kale/core/rpc"
)

// TestWaitsForTheChief: a worker that is started before there is a chief waits, and joins when there is one.
func TestWaitsForTheChief(t *testing.T) {
	c := broker(t, 1)
	produce(t, producer(t, c), 0, 100)
	early := &job{t: t, spec: jobSpec(t, c)}
	early.worker(0, 1)
	j := startJob(t, early.spec)
	ends := map[int32]int64{0: 100}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// TestLeavesWithoutAChief: asked to end before it has ever joined, a worker leaves at once: nobody knows of it.
func TestLeavesWithoutAChief(t *testing.T) {
	c := broker(t, 1)
	j := &job{t: t, spec: jobSpec(t, c, func(s *rpc.TrainSpec) { s.GraceMs = 3_600_000 })}
	if err := j.worker(0, 1).stop(); err != nil {
		t.Error(err)
	}
}

// TestRule16AddedPartition: a partition is added to the topic while the job runs; all of its records are trained.
func TestRule16AddedPartition(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c)) // the test's chief has pinned eight partitions at 0 beforehand
	j.worker(0, 1)
	produce(t, cl, 0, 50)
	j.waitApplied(map[int32]int64{0: 50})
	if _, err := kadm.NewClient(cl).CreatePartitions(t.Context(), 2, testTopic); err != nil {
		t.Fatal(err)
	}
	fresh := producer(t, c)
	produce(t, fresh, 2, 70)
	ends := map[int32]int64{0: 50, 2: 70}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// TestPauseStopsFetchingOnly: paused, nothing is fetched, and nobody leaves; resumed, everything is trained.
func TestPauseStopsFetchingOnly(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c))
	w, _ := j.gatedWorkerOpen(0)
	produce(t, cl, 0, 100)
	j.waitApplied(map[int32]int64{0: 100})
	pause := func(p bool) {
		t.Helper()
		ch, done, err := j.chief()
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if _, err := ch.Pause(t.Context(), &rpc.PauseRequest{Paused: p}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.paused == p }, func() string { return "the directive" })
	}
	pause(true)
	produce(t, cl, 0, 100)
	beats := j.status().GetMembers()[0].GetLastBeatUnixMs()
	s := j.waitFor("some beats", func(s *rpc.JobStatus) bool { return s.GetMembers()[0].GetLastBeatUnixMs() > beats+300 })
	if got := s.GetPartitions()[0]; got.GetFrontier() != 100 {
		t.Errorf("paused, and the frontier is %d", got.GetFrontier())
	}
	if got := s.GetMembers()[0]; got.GetState() != rpc.MemberState_MEMBER_STATE_READY || len(got.GetPartitions()) != testPartitions {
		t.Errorf("paused, and the member is %v", got)
	}
	pause(false)
	ends := map[int32]int64{0: 200}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// TestBrokerRestarts: the broker dies and comes back with its log on the same address. The worker reports it meanwhile, and goes on where it was.
func TestBrokerRestarts(t *testing.T) {
	dir := t.TempDir()
	open := func(port int) *kfake.Cluster {
		t.Helper()
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, testTopic), kfake.DataDir(dir), kfake.SyncWrites(), kfake.Ports(port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	c := open(0)
	_, text, err := net.SplitHostPort(c.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	produce(t, producer(t, c), 0, 100)
	j := startJob(t, jobSpec(t, c))
	j.worker(0, 1)
	j.waitApplied(map[int32]int64{0: 100})
	c.Close()
	j.waitFor("the outage is reported", func(s *rpc.JobStatus) bool {
		return len(s.GetProblems()) > 0 && s.GetProblems()[0].GetKind() == rpc.PartitionProblem_KIND_UNREACHABLE
	})
	c = open(port)
	produce(t, producer(t, c), 0, 100)
	ends := map[int32]int64{0: 200}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
	j.waitFor("the problem is withdrawn", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 0 })
}
