package core

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

func TestScaleOutIsDoneWhenTheNewWorkersTrain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.produce(0, 10)
	r.chief.with(func(s *rpc.JobStatus) { s.Partitions[0].End = 10 }) // a backlog
	r.order("scale", 4)
	r.beat()
	r.wantCalls("ensure worker-2-g1", "ensure worker-3-g1")
	began := r.s.want.Rescale.Decided

	for _, step := range []struct {
		what string
		do   func()
	}{
		{"nobody has joined", func() {}},
		{"one is joining", func() { r.chief.set(2, 1, rpc.MemberState_MEMBER_STATE_JOINING) }},
		{"only one is ready", func() { r.chief.join(2, 1) }},
		{"one has not trained although its partition has a backlog", func() {
			r.chief.set(3, 1, rpc.MemberState_MEMBER_STATE_READY)
			r.chief.with(func(*rpc.JobStatus) { r.chief.find(3, 1).Partitions = []int32{0} })
		}},
	} {
		step.do()
		r.beat()
		if r.s.want.Rescale == nil {
			t.Fatalf("the rescale is closed while %s", step.what)
		}
		if v := r.s.View(); v.Rescale == nil || v.Rescale.To != 4 {
			t.Errorf("the view has the rescale %+v while %s", v.Rescale, step.what)
		}
	}
	at := func(after time.Duration) int64 { return began.Add(after).UnixMilli() }
	r.chief.with(func(*rpc.JobStatus) {
		m := r.chief.find(2, 1)
		m.StartedUnixMs, m.JoinedUnixMs, m.ReadyUnixMs, m.FirstTrainedUnixMs = at(100*time.Millisecond), at(200*time.Millisecond), at(300*time.Millisecond), at(400*time.Millisecond)
		m = r.chief.find(3, 1)
		m.StartedUnixMs, m.JoinedUnixMs, m.ReadyUnixMs, m.FirstTrainedUnixMs = at(200*time.Millisecond), at(700*time.Millisecond), at(1000*time.Millisecond), at(2345*time.Millisecond)
	})
	r.now = r.now.Add(time.Hour) // however late it is looked
	r.beat()
	if r.s.want.Rescale != nil {
		t.Fatal("the rescale is not closed although all new workers train")
	}
	all := r.rescales()
	got := all[len(all)-1]
	if got.Kind != plan.KindOut || got.From != 2 || got.To != 4 || got.Aborted || !got.Decided.Equal(began) || got.FirstTrained.IsZero() {
		t.Errorf("recorded %+v", got)
	}
	took := got.Done.Sub(began)
	if off := took - 2345*time.Millisecond; off.Abs() > time.Millisecond { // the chief's moments are whole milliseconds
		t.Errorf("it took %v, want 2.345 s", took)
	}
	if want := []time.Duration{took}; !slices.Equal(r.s.want.Joins, want) {
		t.Errorf("join times %v, want %v: the first start is not one", r.s.want.Joins, want)
	}
	v := r.s.View()
	if v.Join.Samples != 1 || v.Join.Value != took {
		t.Errorf("the view's join time is %+v", v.Join)
	}
	near := func(got, want time.Duration) bool { return (got - want).Abs() <= time.Millisecond }
	j := v.LastJoin
	if j == nil || j.Worker != "worker-3" || !j.Decided.Equal(began) || !near(j.Placed, 200*time.Millisecond) || !near(j.Started, 500*time.Millisecond) || !near(j.Ready, 300*time.Millisecond) || !near(j.First, 1345*time.Millisecond) {
		t.Errorf("the last join divides into %v", j)
	}
	if v.LastRescale == nil || !v.LastRescale.Done.Equal(got.Done) {
		t.Errorf("the view's last rescale is %+v", v.LastRescale)
	}
}

// What kept the new worker from training, other than its own start, is no part of the time that a worker takes to join.
func TestHinderedRescaleIsNoJoinTime(t *testing.T) {
	bad := func(p int32) *rpc.PartitionProblem {
		return &rpc.PartitionProblem{Partition: p, Kind: rpc.PartitionProblem_KIND_UNDECODABLE, Needed: 21, LogStart: -1, Detail: "a bad record"}
	}
	for name, c := range map[string]struct {
		hinders  func(*rpc.JobStatus)
		hindered bool
	}{
		"nothing":                              {func(*rpc.JobStatus) {}, false},
		"all partitions stand still":           {func(st *rpc.JobStatus) { st.Problems = []*rpc.PartitionProblem{bad(0), bad(1), bad(2), bad(3)} }, true},
		"the new worker's partition does":      {func(st *rpc.JobStatus) { st.Problems = []*rpc.PartitionProblem{bad(0)} }, true},
		"one that others have stands still":    {func(st *rpc.JobStatus) { st.Problems = []*rpc.PartitionProblem{bad(1)} }, false},
		"training is paused":                   {func(st *rpc.JobStatus) { st.Paused = true }, true},
		"a parameter server is not heard from": {func(st *rpc.JobStatus) { st.Servers[1].Info.Up = false }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(1)
			r.beat() // the scheduler has seen that it trains
			r.chief.with(func(st *rpc.JobStatus) { st.Partitions[0].End = 10 })
			r.order("scale", 2)
			r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_READY)
			r.chief.with(func(st *rpc.JobStatus) { r.chief.find(1, 1).Partitions = []int32{0}; c.hinders(st) })
			r.beat()
			if r.s.want.Rescale == nil {
				t.Fatal("the rescale is closed although the new worker has not trained")
			}
			r.chief.with(func(st *rpc.JobStatus) {
				st.Problems, st.Paused, st.Servers[1].Info.Up = nil, false, true
				r.chief.find(1, 1).FirstTrainedUnixMs = r.s.want.Rescale.Decided.Add(33 * time.Second).UnixMilli()
			})
			r.now = r.now.Add(time.Minute)
			r.beat()
			if r.s.want.Rescale != nil {
				t.Fatal("the rescale is not closed although the new worker trains")
			}
			all := r.rescales()
			if got := all[len(all)-1]; got.Aborted || got.Hindered != c.hindered || len(r.s.want.Joins) == 0 != c.hindered || (r.s.want.LastJoin == nil) != c.hindered {
				t.Errorf("recorded %+v, join times %v, the last %v", got, r.s.want.Joins, r.s.want.LastJoin)
			}
		})
	}
}

// A worker beyond the partitions trains only what others have no room for, which may be nothing for ever.
func TestScaleOutIsDoneWithWorkersThatGetNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) { s.Partitions[0].End = 10 })
	r.order("scale", 2)
	r.beat()
	r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_READY)
	r.chief.with(func(s *rpc.JobStatus) {
		s.NowUnixMs = 1_000_000
		r.chief.find(1, 1).ReadyUnixMs = s.NowUnixMs - idleJoin.Milliseconds() + 1
	})
	r.beat()
	if r.s.want.Rescale == nil {
		t.Fatal("closed at once: the worker may be about to get a partition")
	}
	r.chief.with(func(s *rpc.JobStatus) { s.NowUnixMs++ })
	r.beat()
	if r.s.want.Rescale != nil {
		t.Fatal("a worker that gets nothing keeps the rescale under way")
	}
}

// A look between two arrivals finds no backlog: a new worker must have trained all the same, or the join time would end when it was ready.
func TestScaleOutWaitsForTheNextRecord(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.produce(0, 100)
	ends, err := r.s.kafka.Ends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 { // ten records a second until now
		ends[0] = int64(2 * i)
		if err := r.s.arrivals.Observe(time.Now().Add(time.Duration(i-50)*200*time.Millisecond), ends); err != nil {
			t.Fatal(err)
		}
	}
	r.started(1)
	r.produce(0, 10) // between every two looks, however slow the machine
	r.beat()
	if rate, known := r.s.arrivals.Rate(r.s.seen.at, time.Second); !known || rate <= 0 {
		t.Fatalf("the arrival rate is %v, known: %v", rate, known)
	}
	r.order("scale", 2)
	r.produce(0, 10)
	r.beat()
	r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_READY)
	r.chief.with(func(*rpc.JobStatus) { r.chief.find(1, 1).Partitions = []int32{0} })
	r.produce(0, 10)
	r.beat()
	if r.s.want.Rescale == nil {
		t.Fatal("the rescale is closed although the new worker has not trained, and records arrive")
	}
	r.chief.with(func(*rpc.JobStatus) { r.chief.find(1, 1).FirstTrainedUnixMs = time.Now().UnixMilli() })
	r.beat()
	all := r.rescales()
	if got := all[len(all)-1]; r.s.want.Rescale != nil || got.FirstTrained.IsZero() {
		t.Errorf("under way %v, recorded %+v", r.s.want.Rescale, got)
	}
}

func TestScaleOutMayGrowWhileUnderWay(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `mode         =`, `policy = "static"`+"\n"+`mode         =`, 1)
	}})
	r.s.job.Workers.Max = 2 // the policy always wants all
	r.s.policy = mustPolicy(t, 2)
	r.until("the job runs", r.settled(2))
	r.s.job.Workers.Max = 6
	r.s.policy = mustPolicy(t, 3)
	r.beat()
	r.isRescale(2, 3)
	r.s.policy = mustPolicy(t, 5)
	r.beat()
	r.isRescale(3, 5)
	r.s.policy = mustPolicy(t, 4)
	r.beat()
	r.isRescale(3, 5) // but it may not shrink
	if d := r.decision(); d.Kind != plan.KindHold {
		t.Errorf("decision %s: %s", d.Kind, d.Reason)
	}
	all := r.rescales()
	if got := all[len(all)-1]; got.To != 3 || !got.Aborted {
		t.Errorf("the rescale that grew is recorded as %+v", got)
	}
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1 worker-4-g1")
	if len(r.s.want.Joins) > 0 {
		t.Errorf("a rescale that was not completed gave the join times %v", r.s.want.Joins)
	}
}

func mustPolicy(t *testing.T, workers int) plan.Policy {
	t.Helper()
	p, err := plan.New("static", plan.Params{"workers": float64(workers)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (r *rig) isRescale(from, to int) {
	r.t.Helper()
	if got := r.s.want.Rescale; got == nil || got.From != from || got.To != to || r.s.want.Target != to {
		r.t.Fatalf("rescale %+v, target %d; want %d to %d", got, r.s.want.Target, from, to)
	}
}

// A rescale that cannot be completed must not keep everybody from deciding otherwise.
func TestRescaleThatCannotBeCompletedIsGivenUp(t *testing.T) {
	r := newRig(t, rigOptions{slots: 3, change: func(text string) string { // longer than this test's clock goes
		return strings.Replace(text, `tick         = "1s"`, "tick = \"1s\"\nplace_timeout = \"30d\"", 1)
	}})
	r.started(2)
	r.order("scale", 5)
	r.beat()
	r.joinAll()
	r.beats(3)
	if _, err := r.problem("worker-4-g1 is not started"); err != nil {
		t.Error(err)
	}
	r.now = r.now.Add(rescaleTimeout)
	r.beat()
	if r.s.want.Rescale != nil || r.s.want.Target != 5 {
		t.Fatalf("rescale %+v, target %d", r.s.want.Rescale, r.s.want.Target)
	}
	all := r.rescales()
	if got := all[len(all)-1]; !got.Aborted || got.Unfinished != "worker 3, which is not ready" {
		t.Errorf("recorded %+v", got)
	}
	r.order("scale", 3)
	r.until("another number is taken", r.settled(3))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1")
}

// A person's order takes the place of a rescale under way at once. Of those that are then too many the first to go are those that wait for a place, then
// those that do not train yet.
func TestOrderDoesNotWaitForARescale(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("scale", 6)
	r.beats(2)
	for _, rank := range []int{2, 5} {
		if err := r.cluster.SetState("ctr", worker(rank, 1), backend.StatePending, "the queue is long"); err != nil {
			t.Fatal(err)
		}
	}
	r.chief.join(3, 1)
	r.beat()
	if r.s.want.Rescale == nil {
		t.Fatal("the scale-out is over, and should wait")
	}
	r.mark()
	step := func(order, seconds int, ranks []int, calls ...string) {
		t.Helper()
		r.order("scale", order)
		r.beats(seconds)
		if !slices.Equal(r.s.want.Ranks, ranks) {
			t.Errorf("after the order of %d the wanted are %v, want %v", order, r.s.want.Ranks, ranks)
		}
		r.wantCalls(calls...)
		r.mark()
	}
	step(4, 1, []int{0, 1, 3, 4}, "release worker-2-g1 forced", "release worker-5-g1 forced")
	step(3, 1, []int{0, 1, 3}, "release worker-4-g1 forced")
	step(6, 2, []int{0, 1, 2, 3, 4, 5}, "ensure worker-2-g2", "ensure worker-5-g2", "ensure worker-4-g2") // the fourth is just leaving
	step(7, 1, []int{0, 1, 2, 3, 4, 5, 6}, "ensure worker-6-g1")
	r.until("it is done", r.settled(7))
	if rs := r.rescales(); len(rs) != 6 || !rs[1].Aborted || rs[5].Aborted || rs[5].To != 7 {
		t.Errorf("recorded %+v", rs)
	}
}

// A worker that waits in the cluster's queue holds nothing: it is taken back though the chief cannot be asked, and that is worth no warning.
func TestPendingWorkerIsTakenBackWithoutTheChief(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.order("scale", 2)
	r.beat()
	if err := r.cluster.SetState("ctr", worker(1, 1), backend.StatePending, "the queue is long"); err != nil {
		t.Fatal(err)
	}
	r.beat()
	r.mark()
	r.order("scale", 1)
	r.s.seen = r.s.look(t.Context())
	if err := r.s.decide(r.now); err != nil {
		t.Fatal(err)
	}
	r.chief.stop()
	r.s.seen = r.s.look(t.Context())
	var warned []string
	r.s.lg = slog.New(warnings{seen: &warned})
	if err := r.s.act(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	r.wantCalls("release worker-1-g1 forced")
	if len(warned) > 0 {
		t.Errorf("warnings: %q", warned)
	}
}
