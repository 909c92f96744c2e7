package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// atMost is a condition: as many workers as can be placed are wanted, and the reason is the backend's.
func (r *rig) atMost(n int) func() error {
	return func() error {
		r.joinAll()
		h := r.s.want.Ceiling
		if h == nil || h.Max != n || r.s.want.Target != n || len(r.s.want.Draining) > 0 {
			return fmt.Errorf("ceiling %+v, target %d, draining %+v", h, r.s.want.Target, r.s.want.Draining)
		}
		return nil
	}
}

// Workers that find no place lower the target to what runs, with the backend's reason in the decision and in the status, until there is room.
func TestShortageLowersTheTarget(t *testing.T) {
	r := newRig(t, rigOptions{slots: 3})
	r.started(2)
	r.order("scale", 5)
	r.beat()
	r.joinAll()
	r.beats(3)
	if h := r.s.want.Ceiling; h != nil || r.s.want.Target != 5 {
		t.Fatalf("after seconds there is a ceiling: %+v, target %d", h, r.s.want.Target)
	}
	r.now = r.now.Add(r.job.Autoscale.PlaceTimeout)
	r.until("three are wanted", r.atMost(3))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1")
	d := r.s.lastChange.Decision
	if want := "needs 1 slots, 0 free"; d.Kind != plan.KindIn || d.Target != 3 || !strings.Contains(d.Reason, want) {
		t.Errorf("the decision is %s to %d: %q, want to 3 because it %s", d.Kind, d.Target, d.Reason, want)
	}
	for _, text := range []string{"no place for more than 3 workers", "needs 1 slots, 0 free"} {
		if _, err := r.problem(text); err != nil {
			t.Error(err)
		}
	}
	all := r.rescales()
	if !strings.Contains(fmt.Sprint(all), "2 workers had no place for 10m") {
		t.Errorf("rescales %+v", all)
	}
	r.mark()
	r.beats(5)
	r.wantCalls() // nothing is tried in between
	r.reopen()    // nor does a restart forget
	r.beats(3)
	r.wantCalls()

	first := r.s.want.Ceiling
	r.now = first.Until
	r.beats(2)
	if r.s.want.Target != 5 {
		t.Fatalf("the target is %d when more are to be tried again", r.s.want.Target)
	}
	r.now = r.now.Add(r.job.Autoscale.PlaceTimeout)
	r.until("three are wanted again", r.atMost(3))
	if h := r.s.want.Ceiling; h.Tries != 1 || h.Until.Sub(h.Since) != 2*r.job.Autoscale.PlaceTimeout {
		t.Errorf("after a second try in vain: %+v", h)
	}

	if err := r.cluster.SetSlots(9); err != nil {
		t.Fatal(err)
	}
	r.until("there is room", r.settled(5))
	if p, err := r.problem("no place"); err == nil {
		t.Errorf("it still says %q", p)
	}
	r.now = r.now.Add(2 * r.job.Autoscale.PlaceTimeout)
	r.beats(2)
	if h := r.s.want.Ceiling; h != nil {
		t.Errorf("the shortage is not over: %+v", h)
	}
}

// What a cluster keeps in its queue is given up like what it refuses; as few as the job file allows stay wanted.
func TestShortageOfAQueue(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string { return strings.Replace(text, "min = 1", "min = 2", 1) }})
	r.started(2)
	r.order("scale", 4)
	r.until("they are queued", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1"))
	r.queue(worker(2, 1))
	r.queue(worker(3, 1))
	r.beat()
	r.now = r.now.Add(r.job.Autoscale.PlaceTimeout)
	r.until("two are wanted", r.atMost(2))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1")
	if reason := r.s.lastChange.Decision.Reason; !strings.Contains(reason, "(Resources) needs 3 GPUs, 1 free") {
		t.Errorf("reason %q", reason)
	}
	r.queue(worker(1, 1)) // preempted, and back in the queue
	for range 5 {
		r.now = r.now.Add(r.job.Autoscale.PlaceTimeout)
		r.beats(3)
		if !slices.Contains(r.s.want.Ranks, 0) || r.s.want.Target < 2 {
			t.Fatalf("wanted are %v, and the job file's least is 2", r.s.want.Ranks)
		}
	}
}

// A worker that ends again and again is no shortage, and one whose predecessor still drains neither.
func TestACrashIsNoShortage(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	for range 4 {
		if err := r.cluster.Exit("ctr", worker(2, r.s.want.Workers[2]), 1); err != nil {
			t.Fatal(err)
		}
		r.now = r.now.Add(r.job.Autoscale.PlaceTimeout)
		r.beats(3)
	}
	if h := r.s.want.Ceiling; h != nil || r.s.want.Target != 3 {
		t.Errorf("ceiling %+v, target %d", h, r.s.want.Target)
	}
}

// The wait in the queue is part of the lead that the policy plans with, and not counted twice.
func TestQueueWaitIsPartOfTheLead(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	base := r.s.joinTime().Value
	r.order("scale", 3)
	r.until("it runs", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1"))
	started := r.s.started.Add(time.Hour)
	if err := r.cluster.SetTimes("ctr", worker(2, 1), started.Add(-40*time.Second), started); err != nil {
		t.Fatal(err)
	}
	r.until("it is done", r.settled(3))
	r.beats(2)
	if got := r.s.queueWait(); got != 40*time.Second {
		t.Errorf("the measured wait is %v", got)
	}
	if n := len(r.s.want.Waits); n != 1 {
		t.Errorf("one wait was counted %d times", n)
	}
	if join := median(r.s.want.Joins); r.s.joinTime().Value != join+40*time.Second || join > base {
		t.Errorf("the lead is %v, joins without the queue take %v", r.s.joinTime(), join)
	}
	if got := r.s.last.Observation.JoinTime; got.Value < 40*time.Second || got.Queue != 40*time.Second {
		t.Errorf("the policy plans with %+v", got)
	}
	ran := r.now.Truncate(time.Millisecond)
	r.s.seen.member(2, 1).StartedUnixMs = ran.UnixMilli()
	for placed, queued := range map[time.Duration]time.Duration{time.Minute: 40 * time.Second, 30 * time.Second: 30 * time.Second} { // clocks differ
		j := r.s.slowestJoin(&Rescale{Ranks: []int{2}, Decided: ran.Add(-placed)}, ran.Add(time.Minute))
		if want := fmt.Sprintf("placed %s (%s of it in the cluster's queue)", job.Length(placed), job.Length(queued)); j.Queued != queued || !strings.Contains(j.String(), want) {
			t.Errorf("of a join that was placed in %v: %v, %v in the queue; want %q", placed, j, j.Queued, want)
		}
	}
	if err := r.cluster.SetQueueWait(3 * time.Minute); err != nil {
		t.Fatal(err)
	}
	r.beats(2)
	if got := r.s.queueWait(); got != 3*time.Minute {
		t.Errorf("the cluster says 3m, and %v counts", got)
	}
}

// queued is a rig that falls behind, with two workers wanted of which one has waited in the queue for as long as that may be.
func queued(t *testing.T, behind bool, o rigOptions) *rig {
	t.Helper()
	r := newRig(t, o)
	if behind {
		r.fill(50, func(int) time.Time { return r.now.Add(-time.Hour) })
	}
	r.started(1)
	r.order("scale", 2)
	r.until("it is queued", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1"))
	r.queue(worker(1, 1))
	r.beat()
	r.mark()
	r.now = r.now.Add(r.job.Autoscale.PlaceTimeout)
	r.beatNow()
	if h := r.s.want.Ceiling; h == nil || h.Max != 1 {
		t.Fatalf("the ceiling is %+v", h)
	}
	return r
}

// beatNow is a beat at which the brokers are looked at by the rig's clock, so that lag is known however far that is ahead.
func (r *rig) beatNow() {
	r.t.Helper()
	r.now = r.now.Add(time.Second)
	r.s.seen = r.s.look(r.t.Context())
	r.s.seen.at = r.now
	r.lost = r.s.step(r.t.Context(), r.now)
}

func (r *rig) queue(id backend.ID) {
	r.t.Helper()
	if err := r.cluster.SetState("ctr", id, backend.StatePending, "(Resources) needs 3 GPUs, 1 free"); err != nil {
		r.t.Fatal(err)
	}
}

// While lag is over its objective, what waits keeps its place in the queue; when it has started, the shortage is over and nobody leaves because of it.
func TestAShortageEndsWhenWhatWaitedStarts(t *testing.T) {
	r := queued(t, true, rigOptions{})
	for range 3 {
		r.beatNow()
	}
	if r.s.want.Target != 2 {
		t.Errorf("with lag over its objective %d workers are wanted, of 2", r.s.want.Target)
	}
	const short = "; 1 has a place, and 1 waits for one: (Resources) needs 3 GPUs, 1 free"
	if v := r.s.View(); !strings.HasSuffix(v.Decision.Decision.Reason, short) {
		t.Errorf("decided: %s", v.Decision.Decision.Reason)
	}
	if v := r.s.View(); v.LastRescale.Unfinished == "" || v.LastRescale.CameAbout {
		t.Errorf("the last rescale, while its worker waits, is %+v", v.LastRescale)
	}
	if err := r.cluster.SetState("ctr", worker(1, 1), backend.StateRunning, ""); err != nil {
		t.Fatal(err)
	}
	r.until("both train", r.settled(2))
	r.beats(3)
	if h := r.s.want.Ceiling; h != nil && h.Max > 0 || r.s.want.Target != 2 {
		t.Errorf("ceiling %+v, target %d", h, r.s.want.Target)
	}
	if last := r.s.View().LastRescale; last.To != 2 || !last.CameAbout {
		t.Errorf("the last rescale, which has come about after all, is %+v", last)
	}
	if reason := r.s.View().Decision.Decision.Reason; strings.Contains(reason, "place") {
		t.Errorf("decided, when all have a place: %s", reason)
	}
	r.wantCalls()
}

// fitting is a backend whose word counts on whether more could be placed now.
type fitting struct {
	backend.Backend
	fits bool
}

func (f *fitting) Plan(_ context.Context, _ string, ws []backend.Workload) (backend.Report, error) {
	var report backend.Report
	for _, w := range ws {
		report.Placements = append(report.Placements, backend.Placement{ID: w.ID, Fits: f.fits, Reason: "3 jobs are before it"})
	}
	return report, nil
}

// What waits in a queue keeps its turn there however long that takes, and a device that is free for others who wait is no room.
func TestWhatQueuesKeepsItsTurn(t *testing.T) {
	f := &fitting{}
	r := newRig(t, rigOptions{slots: 16, wrap: func(b backend.Backend) backend.Backend { f.Backend = b; return f }})
	if err := r.cluster.SetBeside(true); err != nil {
		t.Fatal(err)
	}
	r.started(1)
	r.order("scale", 3)
	r.until("they are queued", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1"))
	r.queue(worker(1, 1))
	r.queue(worker(2, 1))
	r.beat()
	r.mark()
	r.now = r.now.Add(r.job.Autoscale.PlaceTimeout)
	r.beats(3)
	h := r.s.want.Ceiling
	if h == nil || h.Max != 1 || r.s.want.Target != 3 {
		t.Fatalf("ceiling %+v, target %d", h, r.s.want.Target)
	}
	if err := r.cluster.SetSlots(20); err != nil { // others are before them
		t.Fatal(err)
	}
	r.beats(5)
	r.wantCalls()
	if got := r.s.want.Ceiling; got == nil || got.Max != 1 || !got.Until.Equal(h.Until) {
		t.Errorf("the ceiling was %+v and is %+v", h, got)
	}
	if err := r.cluster.SetState("ctr", worker(1, 1), backend.StateRunning, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.SetState("ctr", worker(2, 1), backend.StateRunning, ""); err != nil {
		t.Fatal(err)
	}
	r.until("all train", r.settled(3))
	r.wantCalls()
}

// On a cluster with a queue that has no place for more, a worker's successor queues before the worker has to leave, whoever else waits, and the worker stays until
// then.
func TestSuccessorOfAWorkerQueuesOnAFullCluster(t *testing.T) {
	r := newRig(t, rigOptions{})
	if err := r.cluster.SetBeside(true); err != nil {
		t.Fatal(err)
	}
	r.started(2)
	r.order("scale", 3)
	r.until("it is queued", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1"))
	r.queue(worker(2, 1))
	r.beat()
	r.now = r.now.Add(r.job.Autoscale.PlaceTimeout)
	r.beats(2)
	if h := r.s.want.Ceiling; h == nil || h.Max != 2 {
		t.Fatalf("the ceiling is %+v", h)
	}
	r.mark()
	end := r.now.Add(4 * time.Minute)
	r.expire(4*time.Minute, worker(0, 1))
	for r.now.Before(end.Add(-30 * time.Second)) {
		r.beat()
		if live := r.live(); !strings.Contains(live, "worker-0-g1") {
			t.Fatalf("%v before its end live are %s", end.Sub(r.now), live)
		}
		if strings.Contains(r.live(), "worker-3-g1") {
			r.queue(worker(3, 1))
			if err := r.cluster.SetBehind("ctr", worker(3, 1), true); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.wantCalls("ensure worker-3-g1")
}

// Room of any kind ends a shortage, not only devices.
func TestRoomOfAnyKindEndsAShortage(t *testing.T) {
	f := &fitting{fits: true}
	r := queued(t, false, rigOptions{wrap: func(b backend.Backend) backend.Backend { f.Backend = b; return f }})
	r.until("one is wanted", r.atMost(1))
	f.fits = false
	r.beats(2)
	f.fits = true
	r.until("there is room", r.settled(2))
}

// A place that seemed free and was not given says nothing.
func TestAPlaceThatIsNotGivenIsNoRoom(t *testing.T) {
	f := &fitting{fits: true}
	r := queued(t, false, rigOptions{wrap: func(b backend.Backend) backend.Backend { f.Backend = b; return f }})
	r.until("one is wanted", r.atMost(1))
	r.mark()
	r.beats(5)
	r.wantCalls()
}

// A node that the backend keeps the job off is named while that lasts, to who looks at the job and to who plans it, with the reason and the end.
func TestExcludedNodesAreNamed(t *testing.T) {
	r := newRig(t, rigOptions{slots: 8})
	r.started(1)
	if err := r.cluster.SetTimes("ctr", worker(0, 1), r.now, r.now); err != nil { // a cluster with a queue
		t.Fatal(err)
	}
	until := time.Date(2026, 5, 1, 9, 30, 0, 0, time.Local)
	if err := r.cluster.SetExcluded(backend.Exclusion{Job: "ctr", Node: "n3", Reason: "2 processes failed there", Until: until}, backend.Exclusion{Job: "other", Node: "n4"}); err != nil {
		t.Fatal(err)
	}
	const says = "nothing more is started on node n3 until 09:30:00: 2 processes failed there"
	r.until("it is said", func() error {
		_, err := r.problem(says)
		return err
	})
	if diags, err := PlacementDiagnostics(t.Context(), r.options("run")); err != nil || len(diags) == 0 || diags[0].Summary != "Node n3 is left out" || !strings.Contains(diags[0].Detail, says) {
		t.Errorf("PlacementDiagnostics = %v, %v", diags, err)
	}
	if err := errors.Join(r.cluster.SetExcluded(), r.cluster.SetFaults("2 GPUs of n3 are lost: reconfigure")); err != nil {
		t.Fatal(err)
	}
	r.until("a fault of the cluster is said", func() error {
		_, err := r.problem("2 GPUs of n3 are lost: reconfigure")
		return err
	})
	if diags, err := PlacementDiagnostics(t.Context(), r.options("run")); err != nil || len(diags) == 0 || diags[0].Detail != "2 GPUs of n3 are lost: reconfigure." {
		t.Errorf("PlacementDiagnostics = %v, %v", diags, err)
	}
	if err := r.cluster.SetFaults(); err != nil {
		t.Fatal(err)
	}
	r.until("it is said no more", func() error {
		if p, err := r.problem("n3"); err == nil {
			return errors.New(p)
		}
		return nil
	})
}

// It is not said that there is no place for more than a worker where there is none for one.
func TestShortageOfTheFirstWorker(t *testing.T) {
	h := &Ceiling{Max: 2, Reason: "needs 1 GPU, 0 free"} // workers.min
	for _, tt := range []struct {
		waiting int
		says    string
	}{{2, "no place for a single worker: needs"}, {1, "no place for more than 1 worker: needs"}, {0, "no place for more than 2 workers: needs"}} {
		if got := h.words(2, tt.waiting); !strings.Contains(got, tt.says) {
			t.Errorf("while %d wait it says %q, want %q", tt.waiting, got, tt.says)
		}
	}
}

// The cluster is asked for room no more often than it has to be.
func TestRoomIsAskedForNowAndThen(t *testing.T) {
	var a roomAsk
	asked := 0
	ask := func() *room {
		asked++
		return &room{why: strings.Repeat("x", asked)}
	}
	for _, c := range []struct {
		every time.Duration
		want  string
	}{{time.Hour, "x"}, {time.Hour, "x"}, {0, "xx"}, {time.Hour, "xx"}} {
		if got := a.lately(c.every, ask); got.why != c.want {
			t.Errorf("every %v: the answer is number %d, want %d", c.every, len(got.why), len(c.want))
		}
	}
}
