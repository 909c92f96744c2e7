package trainer

import (
	"context"
	"fmt"
	"strings"
	"testing"

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

// TestRule12DrainDoesNotLinger: what a draining worker holds is trained at once, however long a batch that is not full waits otherwise.
func TestRule12DrainDoesNotLinger(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.Worker.LingerMs = 3_600_000 }))
	_, w := j.killableWorker(0, 1)
	produce(t, cl, 0, 16) // a chunk
	eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.ledger.len() == 1 && w.unit.Len() == 0
	}, func() string { return "a chunk waits in a batch for more\n" + w.dump() })
	ch, done, err := j.chief()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := ch.Drain(t.Context(), &rpc.DrainRequest{Members: []string{"worker-0"}}); err != nil {
		t.Fatal(err)
	}
	j.waitFor("worker 0 has drained", func(s *rpc.JobStatus) bool {
		return len(s.GetMembers()) == 1 && s.GetMembers()[0].GetState() == rpc.MemberState_MEMBER_STATE_DRAINED
	})
	ends := map[int32]int64{0: 16}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
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
