package core

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// tellRestore writes what a parameter server found when it started, as trainer/checkpoint does.
func tellRestore(t *testing.T, j *job.Job, r rpc.RestoreRecord) {
	t.Helper()
	dir := filepath.Join(j.Checkpoint.Dir, j.Name, rpc.RestoreFolder(r.Server))
	raw, err := rpc.EncodeRecord(r)
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d-%010d.json", r.Incarnation, time.Now().UnixNano()%1e10)), raw, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A server that cannot start is why the job is stuck, with its own words, with a scheduler and without; when it is mended nothing is left of it.
func TestServerThatCannotStartIsToldAsIs(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	const why = "tablet 3 had a snapshot and has none now. Bring the files back from a backup"
	r.chief.stop()
	tellRestore(t, r.job, rpc.RestoreRecord{Server: 0, Incarnation: 2, At: r.now, Error: why})
	r.beat()
	v := r.s.View()
	if v.State != StateStuck || v.Stuck != "parameter server 0 cannot start" {
		t.Errorf("the job is %s: %q", v.State, v.Stuck)
	}
	if _, err := r.problem("parameter server 0 cannot start: " + why); err != nil {
		t.Error(err)
	}
	r.mark()
	r.beats(200)  // another process would fare no better
	r.wantCalls() // it is not taken for one that hangs
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil)
	if err != nil || g.State != StateStuck || g.Says != "parameter server 0 cannot start, and no scheduler looks after it" || !strings.Contains(strings.Join(g.Problems, "\n"), why) {
		t.Errorf("without a scheduler: %+v, %v", g, err)
	}
	tellRestore(t, r.job, rpc.RestoreRecord{Server: 0, Incarnation: 3, At: r.now})
	r.open("run")
	r.chief.start()
	r.beats(2)
	if v := r.s.View(); v.State != StateRunning || v.Stuck != "" || len(v.Problems) > 0 {
		t.Errorf("after it was mended the job is %s, %q: %q", v.State, v.Stuck, v.Problems)
	}
	// A stop waits for it, and says so rather than what waits for it in turn.
	r.chief.stop()
	tellRestore(t, r.job, rpc.RestoreRecord{Server: 0, Incarnation: 4, At: r.now, Error: why})
	r.order("stop", 0)
	r.beats(2)
	if w := r.s.View().Waits; !strings.HasPrefix(w, "parameter server 0, which cannot start: the problem says how to mend it, and kale stop -force ctr") {
		t.Errorf("a stop waits for %q", w)
	}
}

// What stands still until a person has done something about it is not mended by more workers: where all partitions stand, nobody is added or let go, and where some
// do, those that move decide.
func TestStandingPartitionsTakeNoWorkers(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.fill(500, func(int) time.Time { return time.Now().Add(-5 * time.Minute) })
	r.now = r.now.Add(-time.Minute) // until it has started: its clock must not be ahead
	r.started(1)
	r.order("auto", 0)
	stands := func(ps ...int32) {
		r.chief.with(func(st *rpc.JobStatus) {
			st.Problems = nil
			for _, p := range ps {
				st.Problems = append(st.Problems, &rpc.PartitionProblem{Partition: p, Kind: rpc.PartitionProblem_KIND_UNDECODABLE, Needed: 0, LogStart: -1, Detail: "a bad record"})
			}
		})
	}
	decided := func() plan.Decision { // by the time of the world: lag is known
		t.Helper()
		for range 4 {
			r.now, r.s.tickAt = time.Now().Add(-time.Second), time.Time{}
			r.beat()
		}
		return r.decision()
	}
	stands(0, 1, 2, 3)
	if d := decided(); d.Target != 1 || d.Kind != plan.KindHold || !strings.Contains(d.Reason, "all partitions stand still") {
		t.Errorf("all stand: %s to %d: %s", d.Kind, d.Target, d.Reason)
	}
	r.chief.with(func(st *rpc.JobStatus) {
		for _, p := range []int{0, 2, 3} {
			st.Partitions[p].Applied = 500
		}
	})
	stands(1)
	if d, o := decided(), r.s.last.Observation; d.Target != 1 || o.BacklogRecords != 0 || o.Lag != 0 || !o.LagKnown || o.Standing != 1 || !strings.Contains(d.Explain(), "standing still") {
		t.Errorf("one stands: to %d, %d wait for %s, known %v: %s\n%s", d.Target, o.BacklogRecords, o.Lag, o.LagKnown, d.Reason, d.Explain())
	}
	if v := r.s.View(); v.Sample.LagRecords == nil || *v.Sample.LagRecords != 500 {
		t.Errorf("people are shown %+v", v.Sample)
	}
	r.chief.with(func(st *rpc.JobStatus) { st.Partitions[2].Applied = 0 })
	if d := decided(); d.Target < 2 {
		t.Errorf("one that moves waits: %s to %d: %s\n%s", d.Kind, d.Target, d.Reason, d.Explain())
	}
}

// A topic that was created again is that, and not unknown, though its end offsets do not go with those before; so is a partition that stands at a record.
func TestStuckIsNotUnknown(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	is := func(state State, stuck string) {
		t.Helper()
		r.beat()
		if v := r.s.View(); v.State != state || v.Stuck != stuck {
			t.Errorf("the job is %s: %q, want %s: %q", v.State, v.Stuck, state, stuck)
		}
	}
	say := func(ps ...*rpc.PartitionProblem) { r.chief.with(func(st *rpc.JobStatus) { st.Problems = ps }) }
	bad := func(p int32) *rpc.PartitionProblem {
		return &rpc.PartitionProblem{Partition: p, Kind: rpc.PartitionProblem_KIND_UNDECODABLE, Needed: 21, LogStart: -1, Detail: "a bad record"}
	}
	is(StateRunning, "")
	say(&rpc.PartitionProblem{Partition: 1, Kind: rpc.PartitionProblem_KIND_UNREACHABLE, Detail: "no broker answers"})
	is(StateRunning, "")
	say(bad(2))
	is(StateStuck, "partition 2 stands still")
	say(bad(2), bad(1), bad(2))
	is(StateStuck, "partitions 1–2 stand still")
	say(bad(0), bad(1), bad(2), bad(3))
	is(StateStuck, "all partitions stand still")
	say()
	is(StateRunning, "")

	r.produce(0, 10)
	is(StateRunning, "")
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.DeleteTopics(t.Context(), rigTopic); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopics(t.Context(), rigPartitions, 1, nil, rigTopic); err != nil {
		t.Fatal(err)
	}
	say(bad(2), &rpc.PartitionProblem{Partition: -1, Kind: rpc.PartitionProblem_KIND_RECREATED, Detail: "another topic: start a new job"})
	is(StateStuck, "the topic was deleted or created again")
	if v := r.s.View(); v.Sample.Unknown == "" || !slices.Equal(v.Problems, []string{"another topic: start a new job"}) { // the cause once
		t.Errorf("unknown is %q, the problems are %q", v.Sample.Unknown, v.Problems)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil)
	if err != nil || g.State != StateStuck || g.Stuck != "the topic was deleted or created again" {
		t.Errorf("without a scheduler: %+v, %v", g, err)
	}
	r.open("run")
}

// A job that stops because its topic is another one now cannot be run again as it is: that is told from the stop on.
func TestStopOfAnotherTopic(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) {
		s.Problems = []*rpc.PartitionProblem{{Partition: -1, Kind: rpc.PartitionProblem_KIND_RECREATED, Detail: "another topic: start a new job"}}
	})
	r.beats(2)
	r.order("stop", 0)
	if v := r.s.View(); v.State != StateStopping || v.Stuck != "the topic was deleted or created again" {
		t.Errorf("%s: %q", v.State, v.Stuck)
	}
}

// Partitions that are added are told of for a day, by the scheduler that saw it and by those after it.
func TestGrownTopicIsNoted(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if n := r.s.View().Notes; len(n) > 0 {
		t.Errorf("notes %v before anything happened", n)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).UpdatePartitions(t.Context(), rigPartitions+2, rigTopic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the scheduler sees the new partitions", func() error {
		if r.beat(); len(r.s.seen.ends) != rigPartitions+2 {
			return fmt.Errorf("it sees %d", len(r.s.seen.ends))
		}
		return nil
	})
	want := []Note{{At: r.s.want.Growth.At, Text: "the topic grew from 4 to 6 partitions; the new ones are trained from offset 0 on"}}
	r.reopen()
	r.beat()
	got := r.s.View().Notes
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if got := notes(want[0].At.Add(25*time.Hour), nil, nil, r.s.want); len(got) > 0 {
		t.Errorf("a day later: %v", got)
	}
}
