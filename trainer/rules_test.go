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

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/kafka"
	"github.com/kale-sched/kale/trainer/ps"
)

// Each test here runs the interleaving that one rule of EXACTLY_ONCE.md is about, against real servers, a real chief and an in-process broker.

// TestRule7PartialOverlap: some tablets already have a part of a batch, cut elsewhere than the worker cuts. They get exactly the rest.
func TestRule7PartialOverlap(t *testing.T) {
	for _, kind := range []string{KindCounting, "deepfm"} {
		t.Run(kind, func(t *testing.T) {
			if kind != KindCounting {
				needONNX(t)
			}
			c := broker(t, 1)
			produce(t, producer(t, c), 0, 200)
			j := startJob(t, jobSpec(t, c, withModel(kind)))
			// Tablets 1 and 6, one on each server, have [10,20) from somebody else; tablet 6 has [100,103) too.
			j.pushForeign(kind, []int32{1, 6}, 10, 20)
			j.pushForeign(kind, []int32{6}, 100, 103)
			j.worker(0, 1)
			ends := map[int32]int64{0: 200}
			j.waitApplied(ends)
			j.checkOnce(readLog(t, c, ends), nil)
			s := j.waitFor("recomputed records", func(s *rpc.JobStatus) bool { return s.GetTotals().GetRecomputedRecords() > 0 })
			// Tablets 1 and 6 lack different spans: a batch over both holes is computed again once for each.
			if got := s.GetTotals().GetRecomputedRecords(); got > 2*200 {
				t.Errorf("%d records were recomputed: more than 200 for each of two different remainders", got)
			}
		})
	}
}

// pushForeign pushes a span to some tablets only, as a worker does that dies between two servers.
func (j *job) pushForeign(kind string, tablets []int32, begin, end int64) {
	j.t.Helper()
	layout, width, _, _, err := stateShape(j.spec)
	if err != nil {
		j.t.Fatal(err)
	}
	cl := ps.NewClient(nil, layout, width, j.servers[0].dial)
	defer func() { _ = cl.Close() }()
	var infos []*rpc.ServerInfo
	for _, s := range j.servers {
		infos = append(infos, &rpc.ServerInfo{Index: int32(s.index), Address: s.addr, Incarnation: s.inc})
	}
	cl.SetServers("t1", j.servers[0].inc, 1, infos)
	part := &rpc.RangePart{Span: &rpc.Span{Begin: begin, End: end}}
	b := &ps.Batch{Member: "stranger", Parts: []*rpc.RangePart{part}, Tablets: tablets, Share: 0.1}
	for o := begin; o < end; o++ {
		h := kafka.RecordHash(testTopic, 0, o)
		part.N++
		part.Hash += h
		if kind == KindCounting {
			b.CountIDs = append(b.CountIDs, h)
		}
	}
	if kind != KindCounting {
		b.Dense = make([]float32, layout.DenseSize())
	}
	if _, err := cl.Push(j.t.Context(), b); err != nil {
		j.t.Fatal(err)
	}
}

// TestRule10ServerForgets: a server acknowledges, dies without a snapshot, and comes back with an older state, or with none. The worker goes on, and what
// was forgotten is read and trained again, once.
func TestRule10ServerForgets(t *testing.T) {
	for _, who := range []int{1, 0} { // server 0 takes the chief with it
		t.Run(fmt.Sprintf("server %d", who), func(t *testing.T) {
			c := broker(t, 2)
			cl := producer(t, c)
			j := startJob(t, jobSpec(t, c))
			j.worker(0, 1)
			j.worker(1, 1)
			produce(t, cl, 0, 300)
			produce(t, cl, 1, 300)
			j.waitApplied(map[int32]int64{0: 200, 1: 200})
			j.servers[who].snapshot()
			produce(t, cl, 0, 300)
			produce(t, cl, 1, 300)
			j.waitApplied(map[int32]int64{0: 500, 1: 500})
			j.allBeat()
			j.allBeat() // the second beat of each says that it has heard the answer to the first
			j.crash(who)
			produce(t, cl, 0, 100)
			ends := map[int32]int64{0: 700, 1: 600}
			j.waitApplied(ends)
			j.checkOnce(readLog(t, c, ends), nil)
			s := j.waitFor("the rollback is told, and made good", func(s *rpc.JobStatus) bool {
				return len(s.GetRollbacks()) == 1 && s.GetRollbacks()[0].GetDoneUnixMs() > 0
			})
			r := s.GetRollbacks()[0]
			if int(r.GetServer()) != who || r.GetOffsets() < 400 || r.GetOffsets() > 800 || r.GetRemaining() != 0 || r.GetSnapshotUnixMs() <= 0 || r.GetSnapshotUnixMs() > r.GetUnixMs() {
				t.Errorf("server %d forgot what it was taught after offsets 200 to 300 of both partitions, up to 500 to 600; told is %v", who, r)
			}
		})
	}
}

// allBeat waits until every member has beaten once more.
func (j *job) allBeat() {
	j.t.Helper()
	from := j.waitFor("a status", func(*rpc.JobStatus) bool { return true }).GetNowUnixMs()
	j.waitFor("every member has beaten", func(s *rpc.JobStatus) bool {
		for _, m := range s.GetMembers() {
			if m.GetLastBeatUnixMs() <= from {
				return false
			}
		}
		return true
	})
}

// TestRule10AcknowledgedIsNotApplied: every server acknowledges, and one dies before the chief has heard of it. Nothing but the worker's own doubt can bring the
// records back: the chief sees that it answers for them.
func TestRule10AcknowledgedIsNotApplied(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.LeaseTimeoutMs = 600_000 })) // no patience runs out in this test
	w, _ := j.gatedWorkerOpen(0)
	produce(t, cl, 0, 16)
	j.waitApplied(map[int32]int64{0: 16})
	j.servers[1].mute.Store(true)
	produce(t, cl, 0, 64)
	eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := 0
		for _, e := range w.ledger.inState(pushed) {
			n += int(e.end - e.begin)
		}
		return n == 64
	}, func() string { return "64 records acknowledged and not confirmed\n" + w.dump() })
	j.crash(1)
	ends := map[int32]int64{0: 80}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// TestRule12DrainHandsOver: a worker drains while records keep coming. It leaves only when nothing is outstanding, and the other one goes on
// where it stopped.
func TestRule12DrainHandsOver(t *testing.T) {
	c := broker(t, 4)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.EmulateStepMs = 5 }))
	w0 := j.worker(0, 1)
	j.waitFor("worker 0 reads all", func(s *rpc.JobStatus) bool {
		return len(s.GetMembers()) == 1 && len(s.GetMembers()[0].GetPartitions()) == testPartitions
	})
	j.worker(1, 1)
	ends := map[int32]int64{}
	for round := range 20 {
		for p := range int32(4) {
			produce(t, cl, p, 100)
			ends[p] += 100
		}
		if round == 10 {
			ch, done, err := j.chief()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ch.Drain(t.Context(), &rpc.DrainRequest{Members: []string{"worker-0"}}); err != nil {
				t.Fatal(err)
			}
			done()
		}
	}
	<-w0.done
	if w0.err != nil {
		t.Fatalf("the drained worker ended with %v", w0.err)
	}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
	for _, m := range j.status().GetMembers() {
		if m.GetMember() == "worker-0" && m.GetState() != rpc.MemberState_MEMBER_STATE_DRAINED {
			t.Errorf("worker-0 is %v", m.GetState())
		}
	}
}

// TestRule12ReceiverDies: one worker reads a hot partition and forwards; its receivers die with what they have accepted.
func TestRule12ReceiverDies(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) {
		s.Worker.EmulateStepMs, s.Worker.Queue, s.Worker.Window = 20, 64, 1<<20
	}))
	j.worker(0, 1)
	j.waitFor("worker 0 reads all", func(s *rpc.JobStatus) bool {
		return len(s.GetMembers()) == 1 && len(s.GetMembers()[0].GetPartitions()) == testPartitions
	})
	// The other may hold some of the empty partitions; partition 0 is hot.
	victim, _ := j.killableWorker(1, 1)
	j.waitFor("worker 1 is ready", func(s *rpc.JobStatus) bool {
		return len(s.GetMembers()) == 2 && s.GetMembers()[1].GetState() == rpc.MemberState_MEMBER_STATE_READY
	})
	produce(t, cl, 0, 4000)
	j.waitFor("chunks are forwarded", func(s *rpc.JobStatus) bool { return s.GetTotals().GetReceivedRecords() > 200 })
	victim()
	ends := map[int32]int64{0: 4000}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// killableWorker starts a worker that the returned function ends at once, without a drain and without a word to anyone.
func (j *job) killableWorker(rank int, generation uint64) (kill func(), w *worker) {
	j.t.Helper()
	w, err := newWorker(testLogger(j.t, fmt.Sprint("worker", rank)), j.spec, WorkerOptions{Rank: rank, Generation: generation, Listen: "127.0.0.1:0"}, j.servers[0].store.Chief)
	if err != nil {
		j.t.Fatal(err)
	}
	began := make(chan struct{})
	w.onStart = func() { close(began) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.run(context.Background())
	}()
	<-began
	kill = func() { w.end(context.Canceled); <-done }
	j.t.Cleanup(kill)
	return kill, w
}

// TestRule3WorkerRegistersAgain: the chief dies; the same worker process registers with its successor, with its leases, and drops nothing. (With a fresh
// chief that did not wait for it, its partitions would be leased twice; tablets refuse the doubles.)
func TestRule3WorkerRegistersAgain(t *testing.T) {
	c := broker(t, 2)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c))
	w, _ := j.gatedWorkerOpen(0)
	produce(t, cl, 0, 100)
	j.waitApplied(map[int32]int64{0: 100})
	j.servers[0].snapshot()
	before := j.status()
	w.mu.Lock()
	lease := w.leases[0]
	w.mu.Unlock()
	j.crash(0)
	produce(t, cl, 0, 100)
	produce(t, cl, 1, 100)
	ends := map[int32]int64{0: 200, 1: 100}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
	after := j.status()
	if after.GetChief() <= before.GetChief() {
		t.Errorf("chief %d after %d", after.GetChief(), before.GetChief())
	}
	if got := after.GetMembers()[0]; got.GetStartedUnixMs() != before.GetMembers()[0].GetStartedUnixMs() {
		t.Errorf("another process registered: %v", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases[0] != lease || lease.released || lease.epoch.GetChief() != before.GetChief() {
		t.Errorf("partition 0 was let go and taken again: %+v", w.leases[0])
	}
}

// TestExpelledSessionStartsAnew: the chief gives the session up, as after a SIGSTOP past the lease. The worker drops everything and joins again.
func TestExpelledSessionStartsAnew(t *testing.T) {
	c := broker(t, 2)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.EmulateStepMs = 10 }))
	j.worker(0, 1)
	produce(t, cl, 0, 1000)
	s := j.waitFor("something trained", func(s *rpc.JobStatus) bool { return s.GetTrainedRecords() > 100 })
	session := func(s *rpc.JobStatus) int64 { return s.GetMembers()[0].GetJoinedUnixMs() }
	old := session(s)
	ch, done, err := j.chief()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	// Somebody registers under its name: the chief expels the session that it knew.
	if _, err := ch.Join(t.Context(), &rpc.JoinRequest{Member: "worker-0", Generation: 1, Address: "127.0.0.1:1", StartedUnixMs: s.GetMembers()[0].GetStartedUnixMs()}); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 1, 500)
	ends := map[int32]int64{0: 1000, 1: 500}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
	if got := session(j.status()); got <= old {
		t.Errorf("joined at %d, before at %d", got, old)
	}
}

// TestOlderGenerationEnds: a newer process has this worker's place; the older one ends with an error that says so, instead of fighting for it.
func TestOlderGenerationEnds(t *testing.T) {
	c := broker(t, 1)
	j := startJob(t, jobSpec(t, c))
	j.worker(0, 2)
	j.waitFor("generation 2", func(s *rpc.JobStatus) bool { return len(s.GetMembers()) == 1 })
	old := j.worker(0, 1)
	<-old.done
	if old.err == nil || !strings.Contains(old.err.Error(), "newer process") {
		t.Errorf("the older generation ended with %v", old.err)
	}
	old.err = nil
}

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

// TestRule16RetentionOvertakes: retention removes records before they are trained. The partition stops and says so; nothing is skipped until somebody
// gives the span up, which is counted.
func TestRule16RetentionOvertakes(t *testing.T) {
	for _, policy := range []string{"stop", "skip"} {
		t.Run(policy, func(t *testing.T) {
			c := broker(t, 2)
			cl := producer(t, c)
			produce(t, cl, 0, 100)
			produce(t, cl, 1, 20)
			if err := c.DeleteRecords(testTopic, 0, 40); err != nil {
				t.Fatal(err)
			}
			j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Stream.OnLost = policy }))
			j.worker(0, 1)
			if policy == "stop" {
				s := j.waitFor("the loss is reported", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 1 })
				p := s.GetProblems()[0]
				if p.GetKind() != rpc.PartitionProblem_KIND_LOST || p.GetPartition() != 0 || p.GetNeeded() != 0 || p.GetLogStart() != 40 {
					t.Fatalf("problem: %v", p)
				}
				j.waitApplied(map[int32]int64{1: 20}) // the other partition is not held up
				if got := j.status().GetPartitions()[0]; got.GetApplied() != 0 || got.GetFrontier() != 0 {
					t.Fatalf("records were skipped without being asked: %v", got)
				}
				ch, done, err := j.chief()
				if err != nil {
					t.Fatal(err)
				}
				defer done()
				if _, err := ch.MarkLost(t.Context(), &rpc.MarkLostRequest{Span: &rpc.Span{Partition: 0, Begin: 0, End: 40}}); err != nil {
					t.Fatal(err)
				}
			}
			ends := map[int32]int64{0: 100, 1: 20}
			j.waitApplied(ends)
			j.checkOnce(readLog(t, c, ends), nil)
			s := j.waitFor("the loss is counted and the problem gone", func(s *rpc.JobStatus) bool {
				return s.GetLostOffsets() == 40 && len(s.GetProblems()) == 0
			})
			if got := s.GetTrainedRecords(); got != 80 {
				t.Errorf("%d records trained, want 80", got)
			}
		})
	}
}

// TestRule16RetentionOvertakesRepair: what a restored server forgot is not in the log any more. It is reported and, when given up, counted; the rest of the
// span is repaired.
func TestRule16RetentionOvertakesRepair(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c))
	j.worker(0, 1)
	produce(t, cl, 0, 100)
	j.waitApplied(map[int32]int64{0: 100})
	if err := c.DeleteRecords(testTopic, 0, 60); err != nil {
		t.Fatal(err)
	}
	j.crash(1) // it never wrote a snapshot
	j.waitFor("the loss is reported", func(s *rpc.JobStatus) bool {
		return len(s.GetProblems()) == 1 && s.GetProblems()[0].GetKind() == rpc.PartitionProblem_KIND_LOST && s.GetProblems()[0].GetLogStart() == 60
	})
	ch, done, err := j.chief()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := ch.MarkLost(t.Context(), &rpc.MarkLostRequest{Span: &rpc.Span{Partition: 0, Begin: 0, End: 60}}); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 0, 50)
	j.waitApplied(map[int32]int64{0: 150})
	for _, tb := range j.sums() {
		p := tb.GetPartitions()[0]
		n, lost := uint64(150), uint64(0) // the tablets of server 0 had trained what is gone
		if tb.GetTablet() >= 4 {
			n, lost = 90, 60
		}
		if p.GetN() != n || p.GetLostOffsets() != lost {
			t.Errorf("tablet %d: %d trained, %d lost; want %d and %d", tb.GetTablet(), p.GetN(), p.GetLostOffsets(), n, lost)
		}
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	if s.GetPartitions()[0].GetApplied() != 0 {
		t.Errorf("applied up to %d before the letter was written", s.GetPartitions()[0].GetApplied())
	}
	if err := c.CreateTopic("dead", 1, nil); err != nil {
		t.Fatal(err)
	}
	j.waitApplied(map[int32]int64{0: 2})
	j.checkOnce(map[int32][]int64{0: {0, 1}}, map[int32][]int64{0: {1}})
	readDead(t, c, 1)
	j.waitFor("the problem is withdrawn", func(s *rpc.JobStatus) bool { return len(s.GetProblems()) == 0 })
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
