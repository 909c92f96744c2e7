package e2e_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// What happens to a topic beside records: each case has a topic of its own on one broker, embedded and real.
func TestTopics(t *testing.T) {
	brokers(t, func(t *testing.T, kafka *kafkatest.Cluster) {
		for name, test := range map[string]func(t *testing.T, r *rig, o options){
			"DeadLetters":         deadLetters,
			"PartitionsAdded":     partitionsAdded,
			"RecreatedTopicStops": recreatedTopicStops,
			"RetentionOvertakes":  retentionOvertakes,
			"ControlRecords":      controlRecords,
		} {
			t.Run(name, func(t *testing.T) {
				o := options{min: 2, max: 2, topic: strings.ToLower(name)}
				if name == "DeadLetters" { // the counting model decodes nothing
					library(t)
					o.model = job.ModelLR
				}
				test(t, newRig(t, kafka, o), o)
			})
		}
	})
}

// Records that cannot be decoded end up in the dead-letter topic and are counted, once each, also when they are read again because a server was killed;
// the others train.
func deadLetters(t *testing.T, r *rig, _ options) {
	garbage := [][]byte{[]byte("no JSON"), []byte(`{"user":"u1"}`), []byte(`{"click":1,"user":`), {0xff, 0xfe, 0}, {}, []byte(`{"click":7}`)}
	extra, want := map[int32]int64{}, map[string]bool{}
	write := func() {
		for p := range int32(partitions) {
			for _, offset := range r.put(r.topic, p, len(garbage), func(i int) []byte { return garbage[i] }) {
				want[r.key(p, offset)] = true
				extra[p]++
			}
		}
	}
	r.run()
	p := r.steadyTraffic(400)
	r.awaitSteady("the job trains", 2)
	r.awaitMore(300)
	write()
	r.awaitTrained("the first bad records are behind it")
	r.kill9(backend.RoleServer, 1)
	r.awaitSteady("it trains after server 1 was killed", 2)
	write()
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.await("the scheduler has counted the dead letters", func() string {
		if v, err := r.view(); err != nil || v.Dead == nil || *v.Dead != uint64(len(want)) {
			return fmt.Sprintf("not %d of them: %+v (%v)", len(want), v, err)
		}
		return ""
	})
	r.stop()
	r.gone()
	r.produced(extra)
	r.exact(400)
	if c := r.audit(); c.Dead != int64(len(want)) {
		r.fatalf("the tablets have counted %d dead letters of %d", c.Dead, len(want))
	}
	have := map[string]bool{}
	for _, rec := range r.read(r.dead) {
		have[string(rec.Key)] = true
	}
	if !maps.Equal(have, want) {
		r.fatalf("the dead-letter topic has %d keys, want these %d: %v", len(have), len(want), want)
	}
}

// Partitions that are added while the job runs are trained from their first record on.
func partitionsAdded(t *testing.T, r *rig, _ options) {
	r.run()
	p := r.steadyTraffic(400)
	r.awaitSteady("the job trains", 2)
	r.awaitMore(300)
	adm := r.admin()
	defer adm.Close()
	resp, err := adm.CreatePartitions(t.Context(), 2, r.topic)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		r.fatalf("add partitions: %v", err)
	}
	// Before the job can have noticed them.
	extra := map[int32]int64{}
	for _, id := range []int32{partitions, partitions + 1} {
		extra[id] = int64(len(r.put(r.topic, id, 300, click)))
	}
	r.awaitTrained("the added partitions are trained")
	r.awaitSteady("the job trains", 2)
	r.awaitMore(300)
	r.finish(p, extra, 1000)
	_, pinned, err := audit.Frozen(r.stores())
	if err != nil {
		r.fatalf("%v", err)
	}
	for id := range extra {
		if start, ok := pinned.Starts[id]; !ok || start != 0 {
			r.fatalf("partition %d starts at %d (known: %v), want 0", id, start, ok)
		}
	}
}

// A topic that is deleted and created again is another topic: the job stops and says so, and trains nothing of it, though it has records where the old one
// was read to.
func recreatedTopicStops(t *testing.T, r *rig, _ options) {
	r.run()
	p := r.steadyTraffic(400)
	r.awaitSteady("the job trains", 2)
	r.awaitMore(300)
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	old := r.logSums(nil)
	adm := r.admin()
	defer adm.Close()
	resp, err := adm.DeleteTopics(t.Context(), r.topic)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		r.fatalf("delete the topic: %v", err)
	}
	r.kafka.CreateTopics(stream.TopicSpec{Name: r.topic, Partitions: partitions})
	for id, s := range old {
		r.put(r.topic, id, int(s.To)+500, click)
	}
	// A worker that starts now has never seen the old topic.
	r.kill9(backend.RoleWorker, 0)
	r.kill9(backend.RoleWorker, 1)
	r.await("the job says that the topic is another one", func() string {
		v, err := r.view()
		if err != nil {
			return err.Error()
		}
		if all := strings.Join(v.Problems, "\n"); !strings.Contains(all, "deleted or created again") {
			return fmt.Sprintf("its problems are %q", v.Problems)
		}
		return ""
	})
	r.awaitBeats(40)
	r.stop()
	r.gone()
	r.trainedAre(old)
}

// awaitBeats waits until every worker has reported n times more.
func (r *rig) awaitBeats(n int) {
	r.t.Helper()
	seen := map[string]map[int64]bool{}
	r.await(fmt.Sprintf("%d more reports of each worker", n), func() string {
		st, err := r.chief()
		if err != nil {
			return err.Error()
		}
		for _, m := range st.GetMembers() {
			if seen[m.GetMember()] == nil {
				seen[m.GetMember()] = map[int64]bool{}
			}
			seen[m.GetMember()][m.GetLastBeatUnixMs()] = true
		}
		for name, at := range seen {
			if len(at) <= n {
				return fmt.Sprintf("%s has reported %d times", name, len(at))
			}
		}
		return ""
	})
}

// trainedAre checks that every tablet has trained exactly the records of the given sums.
func (r *rig) trainedAre(want map[int32]stream.PartitionSum) {
	r.t.Helper()
	frozen, pinned, err := audit.Frozen(r.stores())
	if err != nil {
		r.fatalf("%v", err)
	}
	tablets := frozen.Sums()
	if len(tablets) != pinned.Tablets {
		r.fatalf("%d of %d tablets have a snapshot", len(tablets), pinned.Tablets)
	}
	for _, tablet := range tablets {
		have := map[int32]*rpc.PartitionSum{}
		for _, p := range tablet.GetPartitions() {
			have[p.GetPartition()] = p
		}
		for id, s := range want {
			if p := have[id]; p.GetN() != uint64(s.N) || p.GetHash() != s.Sum || p.GetDeadN() != 0 {
				r.t.Errorf("tablet %d, partition %d: it has trained %d records with hash sum %016x and %d dead ones; want %d with %016x",
					tablet.GetTablet(), id, p.GetN(), p.GetHash(), p.GetDeadN(), s.N, s.Sum)
			}
		}
	}
}

// Retention removes records that were not trained yet. With on_lost = "stop" the partition stands still, the others train on, and the operator reads why;
// when he accepts the loss (on_lost = "skip") and runs the scheduler anew, exactly the removed offsets are counted as lost, and everything else is trained.
func retentionOvertakes(t *testing.T, r *rig, o options) {
	r.run()
	p := r.steadyTraffic(400)
	r.awaitSteady("the job trains", 2)
	r.awaitMore(300)
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	trained := r.logSums(nil)

	const victim, waiting, removed = 3, 500, 200
	for id := range int32(partitions) {
		r.put(r.topic, id, waiting, click)
	}
	before := r.logSums(nil)
	from := trained[victim].To
	lostSum := r.logSums(map[int32]int64{victim: from + removed})[victim].Sum - r.logSums(map[int32]int64{victim: from})[victim].Sum
	adm := r.admin()
	defer adm.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset(r.topic, victim, from+removed, -1)
	resp, err := adm.DeleteRecords(t.Context(), offsets)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		r.fatalf("delete records: %v", err)
	}

	r.run()
	r.await("the scheduler reports the loss", func() string {
		v, err := r.view()
		if err != nil {
			return err.Error()
		}
		want := fmt.Sprintf("partition %d: retention removed untrained offsets (%d when training stopped there", victim, removed)
		if all := strings.Join(v.Problems, "\n"); !strings.Contains(all, want) {
			return fmt.Sprintf("want %q, its problems are %q", want, v.Problems)
		}
		return ""
	})
	ends, err := r.ends()
	if err != nil {
		r.fatalf("%v", err)
	}
	delete(ends, victim)
	r.await("the other partitions are trained", func() string { return r.untrained(ends) })
	r.awaitBeats(40)
	if st, err := r.chief(); err != nil || applied(st)[victim] != from {
		r.fatalf("partition %d is trained to %d (%v); it was to stand still at %d", victim, applied(st)[victim], err, from)
	}
	r.interrupt()

	o.onLost = job.OnLostSkip
	r.write(o)
	r.run()
	p = r.steadyTraffic(400)
	r.awaitSteady("the loss is accepted, and the job trains", 2)
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.await("the scheduler has counted the loss", func() string {
		if v, err := r.view(); err != nil || v.Lost == nil || *v.Lost != removed {
			return fmt.Sprintf("not %d offsets: %+v (%v)", removed, v, err)
		}
		return ""
	})
	r.stop()
	r.gone()
	want := map[int32]stream.PartitionSum{}
	for id, s := range before {
		rest, err := stream.LogSum(t.Context(), r.kafka.Client(), r.topic, map[int32]int64{id: s.To}, nil)
		if err != nil {
			r.fatalf("%v", err)
		}
		s.N, s.Sum = s.N+rest[id].N, s.Sum+rest[id].Sum
		if id == victim {
			s.N, s.Sum = s.N-removed, s.Sum-lostSum
		}
		want[id] = s
	}
	r.trainedAre(want)
	r.lostAre(victim, removed)
}

// lostAre checks that every tablet has counted n lost offsets of one partition, and none of another.
func (r *rig) lostAre(partition int32, n uint64) {
	r.t.Helper()
	frozen, _, err := audit.Frozen(r.stores())
	if err != nil {
		r.fatalf("%v", err)
	}
	for _, tablet := range frozen.Sums() {
		for _, p := range tablet.GetPartitions() {
			want := uint64(0)
			if p.GetPartition() == partition {
				want = n
			}
			if p.GetLostOffsets() != want {
				r.t.Errorf("tablet %d, partition %d: %d lost offsets, want %d", tablet.GetTablet(), p.GetPartition(), p.GetLostOffsets(), want)
			}
		}
	}
}

// controlRecords: transactions leave offsets without records (markers), and aborted ones records that do not count. Neither stops a watermark, and only
// committed records train.
func controlRecords(t *testing.T, r *rig, _ options) {
	r.run()
	p := r.steadyTraffic(300)
	r.awaitSteady("the job trains", 2)
	r.awaitMore(300)
	extra := map[int32]int64{}
	for i := range 6 {
		id := int32(i % partitions)
		if r.transaction(id, 40, i%2 == 0) {
			extra[id] += 40
		}
	}
	r.endTraffic(p)
	r.awaitTrained("everything is trained, to the last marker")
	r.stop()
	r.gone()
	r.produced(extra)
	r.exact(300)
}
