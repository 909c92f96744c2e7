package core

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// What partitions stand at is told after a stop too, with a chief or without, until they have come past it.
func TestStandingOutlivesTheStop(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	bad := func(partition int32, needed int64, detail string) *rpc.PartitionProblem {
		return &rpc.PartitionProblem{Partition: partition, Kind: rpc.PartitionProblem_KIND_UNDECODABLE, Needed: needed, LogStart: -1, Detail: detail}
	}
	problems := func(ps ...*rpc.PartitionProblem) { r.chief.with(func(st *rpc.JobStatus) { st.Problems = ps }) }
	stop := func() {
		t.Helper()
		r.order("stop", 0)
		r.beat()
		problems() // the workers that told of them leave
		r.until("the job has stopped", func() error {
			if !r.s.want.Stopped {
				return errors.New("not yet")
			}
			return nil
		})
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	says := func(what string, want ...string) {
		t.Helper()
		g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, g.Problems); diff != "" {
			t.Errorf("%s, %s: the problems (-want +got):\n%s", what, g.State, diff)
		}
	}
	const standsAt = "records that cannot be decoded stop partition 2, and nothing of that is lost. Partition 2 of "
	const advice = `. To do without such records, set on_undecodable = "skip" in the stream block; then run the job again. To keep them, name a topic for them in stream.dead_letter; then run the job again`

	problems(bad(2, 21, "the record at offset 21 is no JSON"), &rpc.PartitionProblem{Partition: 1, Kind: rpc.PartitionProblem_KIND_UNREACHABLE, Detail: "no broker answers"})
	r.beat()
	problems() // its worker is replaced, and the next has not come that far
	r.beat()
	stop()
	says("after a stop", standsAt+"the record at offset 21 is no JSON"+advice)

	r.open("run")
	r.started(1)
	second := bad(2, 40, "another record")
	r.chief.with(func(st *rpc.JobStatus) { st.Partitions[2].Applied, st.Problems = 40, []*rpc.PartitionProblem{second} })
	r.beat()
	stop()
	says("past the first, at a second", standsAt+"another record"+advice)

	r.open("run")
	r.started(1)
	r.chief.with(func(st *rpc.JobStatus) { st.Partitions[2].Applied = 41 })
	r.beat()
	stop()
	says("past both")
	r.open("run")
	r.started(1)
	problems(&rpc.PartitionProblem{Partition: -1, Kind: rpc.PartitionProblem_KIND_RECREATED, Detail: "the topic has another id"})
	r.beat()
	stop()
	if g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil); err != nil || g.State != StateStopped || g.Stuck != "the topic was deleted or created again" || len(g.Problems) != 1 {
		t.Errorf("of another topic: %s, stuck %q, problems %q, %v", g.State, g.Stuck, g.Problems, err)
	}
}

// Of a record that its dead-letter topic does not take, what helps is said: while the job runs, and when it does not.
func TestADeadLetterTopicThatTakesNothingIsToldOf(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	p := &rpc.PartitionProblem{Partition: 2, Kind: rpc.PartitionProblem_KIND_DEAD_LETTER, Needed: 21, LogStart: -1, Detail: "the record at offset 21 is no JSON"}
	r.chief.with(func(st *rpc.JobStatus) { st.Problems = []*rpc.PartitionProblem{p} })
	r.beat()
	const text = "records that cannot be decoded stop partition 2, and nothing of that is lost. Partition 2 of the record at offset 21 is no JSON. Create or mend that topic (stream.dead_letter); then "
	if v := r.s.View(); len(v.Problems) != 1 || v.Problems[0] != text+"training goes on there by itself" || v.Stuck != "partition 2 stands still" {
		t.Errorf("while it runs: %q, %q", v.Problems, v.Stuck)
	}
	if got := standingWords([]*rpc.PartitionProblem{p}); len(got) != 1 || got[0] != text+"run the job again" {
		t.Errorf("after a stop: %q", got)
	}
}

// A gradient that is not finite is told with where it is and what helps, and the job is stuck; after a stop it is known still.
func TestAnAbsurdGradientIsToldOf(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	p := &rpc.PartitionProblem{Partition: 2, Kind: rpc.PartitionProblem_KIND_GRADIENT, Needed: 21, LogStart: -1,
		Detail: `topic "clicks": with the record at offset 21, of the batch's offsets 16 to 31, the gradient is not finite or beyond ±1e+18`}
	r.chief.with(func(st *rpc.JobStatus) { st.Problems = []*rpc.PartitionProblem{p} })
	r.beat()
	const text = `gradients that are not finite stop partition 2, and nothing of that is lost. Partition 2 of topic "clicks": with the record at offset 21, of the batch's offsets 16 to 31, the gradient ` +
		`is not finite or beyond ±1e+18. The model's weights have grown too far, by too high a learning rate as a rule: lower it (learning_rate in model.optimiser); then `
	const more = "run the job again, which tries that record again. Where it stands still there all the same, the weights are past mending: begin a new job (another checkpoint.dir)"
	v := r.s.View()
	if want := text + strings.Replace(more, "run the job", "stop the job and run it", 1); len(v.Problems) != 1 || v.Problems[0] != want || v.Stuck != "partition 2 stands still" || v.State != StateStuck {
		t.Errorf("while it runs it is %s: %q, %q", v.State, v.Problems, v.Stuck)
	}
	if got := standingWords([]*rpc.PartitionProblem{p}); len(got) != 1 || got[0] != text+more {
		t.Errorf("after a stop: %q", got)
	}
	if diags := standingDiagnostics(r.job, &Wanted{Standing: []*rpc.PartitionProblem{p}}); len(diags) != 1 || !strings.HasPrefix(diags[0].Detail, "Gradients that are not finite stop partition 2") {
		t.Errorf("before it runs again: %v", diags)
	}
}

// What a changed job file says of records that cannot be trained holds once a scheduler takes the job up, of a chief that is replaced too.
func TestPoliciesOfAChangedFileAreTakenUp(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	lost := &rpc.PartitionProblem{Partition: 2, Kind: rpc.PartitionProblem_KIND_LOST, Needed: 10, LogStart: 40}
	r.chief.with(func(st *rpc.JobStatus) { st.Problems = []*rpc.PartitionProblem{lost} })
	r.beat()
	if _, err := r.problem("partition 2: retention removed untrained offsets (30 when training stopped there, and more since); training stands still there until you accept the loss: first let the topic keep its records for longer (retention.ms, retention.bytes), then " +
		`set on_lost = "skip" in the stream block; then Ctrl-C and kale run again (training goes on)`); err != nil {
		t.Error(err)
	}
	was := policies(r.job)
	holds := func(want *rpc.Policies) {
		t.Helper()
		r.beats(2)
		r.chief.with(func(st *rpc.JobStatus) {
			if !proto.Equal(st.Policies, want) {
				t.Errorf("the chief goes by %v, want %v", st.Policies, want)
			}
		})
	}
	holds(was)
	r.job.Stream.OnLost, r.job.Stream.OnUndecodable = job.OnLostSkip, job.OnLostSkip
	r.reopen()
	skip := &rpc.Policies{OnLost: "skip", OnUndecodable: "skip"}
	holds(skip)
	r.chief.with(func(st *rpc.JobStatus) { st.Policies = was }) // its successor begins with what the processes were started with
	holds(skip)
}

// Mode observe touches nothing: the chief is not told what the changed file says of such records. The run, its status and a look at the file say so, with what
// the chief goes on with.
func TestObserveTellsNobodyOfChangedPolicies(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beat()
	was := policies(r.job)
	r.job.Stream.OnLost, r.job.Autoscale.Mode = job.OnLostSkip, job.ModeObserve
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	diags := NotTakenUp(t.Context(), nil, r.job, r.wanted(), nil)
	if len(diags) != 1 || *diags[0].Subject != r.job.Range("stream.on_lost") || !strings.Contains(diags[0].Detail, `stream.on_lost: What runs goes on with "stop"; autoscale.mode is "observe", which changes nothing.`) {
		t.Errorf("the file: %v", diags)
	}
	r.open("run")
	r.beats(2)
	r.chief.with(func(st *rpc.JobStatus) {
		if !proto.Equal(st.Policies, was) {
			t.Errorf("the chief was told %v", st.Policies)
		}
	})
	if _, err := r.problem(`stream.on_lost is "skip" in the job file, and what runs goes on with "stop": autoscale.mode is "observe", which changes nothing`); err != nil {
		t.Error(err)
	}
	r.job.Autoscale.Mode = job.ModeLive
	r.reopen()
	r.beats(2)
	if diags := NotTakenUp(t.Context(), nil, r.job, (*Wanted)(r.s.want), nil); len(diags) > 0 || len(r.s.View().Problems) > 0 {
		t.Errorf("in mode live: %v, %q", diags, r.s.View().Problems)
	}
}
