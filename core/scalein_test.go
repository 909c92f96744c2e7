package core

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// How long a scale-in took does not depend on when it was looked.
func TestScaleInIsDoneWhenTheLastHasHandedOver(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.order("scale", 1)
	r.beat()
	decided := r.s.want.Rescale.Decided
	r.chief.with(func(*rpc.JobStatus) {
		r.chief.find(1, 1).DrainedUnixMs = decided.Add(700 * time.Millisecond).UnixMilli()
		r.chief.find(2, 1).DrainedUnixMs = decided.Add(900 * time.Millisecond).UnixMilli()
	})
	r.now = r.now.Add(30 * time.Second)
	r.until("it is done", r.settled(1))
	all := r.rescales()
	if got := all[len(all)-1]; got.Kind != plan.KindIn || (got.Done.Sub(decided)-900*time.Millisecond).Abs() > time.Millisecond || got.Join != nil {
		t.Errorf("recorded %+v, want done after 900 ms", got)
	}
}

func TestScaleInDrainsTheHighestRanksFirst(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(4)
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
	r.order("scale", 2)
	r.beats(3)
	if got, want := r.chief.asked(), []string{"worker-2", "worker-3"}; !slices.Equal(got, want) {
		t.Fatalf("asked to drain: %q, want %q", got, want)
	}
	r.wantCalls() // nothing is released before it is drained
	r.chief.set(3, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	r.beat()
	r.wantCalls("release worker-3-g1 drained")
	r.beats(2)
	r.wantCalls("release worker-3-g1 drained")
	if r.s.want.Rescale == nil {
		t.Fatal("the rescale is closed while a worker drains")
	}
	r.chief.set(2, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	r.until("it is done", r.settled(2))
	r.wantCalls("release worker-3-g1 drained", "release worker-2-g1 drained")
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1")
	all := r.rescales()
	if got := all[len(all)-1]; got.Kind != plan.KindIn || got.From != 4 || got.To != 2 || got.Aborted || !got.FirstTrained.IsZero() {
		t.Errorf("recorded %+v", got)
	}
}

// Of a worker that has not joined nothing is lost by its release, and nothing says so.
func TestScaleInReleasesByForceWhatNeverJoined(t *testing.T) {
	r := newRig(t, rigOptions{})
	var warned []string
	r.s.lg = slog.New(warnings{seen: &warned})
	r.started(1)
	r.order("scale", 2)
	r.beat()
	r.until("the allocation is there", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1"))
	r.s.want.Rescale = nil // it would wait for the worker that does not join
	r.mark()
	r.order("scale", 1)
	r.beats(2)
	r.wantCalls("release worker-1-g1 forced")
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
	if len(warned) > 0 {
		t.Errorf("warnings: %q", warned)
	}
}

// A chief that has just taken over does not know yet who is alive.
func TestScaleInWaitsForMembersToRegisterWithANewChief(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.with(func(s *rpc.JobStatus) {
		s.Members = slices.DeleteFunc(s.Members, func(m *rpc.MemberStatus) bool { return m.Rank == 1 })
		s.InGrace = true
	})
	r.order("scale", 1)
	r.beats(3)
	r.wantCalls()
	r.chief.with(func(s *rpc.JobStatus) {
		s.InGrace, s.StartedUnixMs, s.NowUnixMs = false, 1000, 1000+leaseTimeout.Milliseconds()-1
	})
	r.beats(3)
	r.wantCalls()
	r.chief.with(func(s *rpc.JobStatus) { s.NowUnixMs++ })
	r.beat()
	r.wantCalls("release worker-1-g1 forced")
}

func TestScaleInReleasesByForceAfterTheDrainTimeout(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
	r.order("scale", 1)
	r.beat()
	asked := r.now
	r.now = asked.Add(drainTimeout - time.Second)
	r.beat()
	r.wantCalls()
	r.beat()
	r.wantCalls("release worker-1-g1 forced")
}

// A worker is not released because the chief that should drain it was away; when it is back the worker has all its time again.
func TestScaleInWaitsForTheChief(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
	r.order("scale", 1)
	r.beat()
	r.chief.stop()
	r.now = r.now.Add(10 * drainTimeout)
	r.beats(3)
	r.wantCalls()
	r.chief.start()
	r.beat()
	r.now = r.now.Add(drainTimeout - 2*time.Second)
	r.beat()
	r.wantCalls()
	r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	r.beat()
	r.wantCalls("release worker-1-g1 drained")
}

func TestScaleInAsksAgainWhenTheChiefDidNotHear(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.with(func(*rpc.JobStatus) { r.chief.drainFails = 2 })
	r.order("scale", 1)
	r.beats(2)
	if asked := r.chief.asked(); len(asked) > 0 {
		t.Fatalf("asked %q", asked)
	}
	r.until("the worker leaves", r.settled(1))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
}

// A release that the backend did not hear of is not taken for done.
func TestReleaseThatFailedIsTriedAgain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("scale", 1)
	r.backend.FailNext("release", backend.Errorf(backend.Unavailable, "scripted"))
	r.until("the worker leaves", r.settled(1))
	r.wantCalls("release worker-1-g1 drained", "release worker-1-g1 drained")
}

// A worker that was released and takes its time is not released again, and the rescale waits until it is gone.
func TestReleasedWorkerIsLeftToEnd(t *testing.T) {
	r := newRig(t, rigOptions{trainer: "stubborn"})
	r.started(2)
	r.order("scale", 1)
	r.beats(5)
	r.wantCalls("release worker-1-g1 drained")
	if r.s.want.Rescale == nil {
		t.Error("the rescale is closed while the worker is there")
	}
	if err := r.cluster.SetState("ctr", worker(1, 1), backend.StateRunning, ""); err != nil { // the cluster forgot it
		t.Fatal(err)
	}
	r.beat()
	r.wantCalls("release worker-1-g1 drained", "release worker-1-g1 drained")
	if err := r.cluster.Reap("ctr", worker(1, 1)); err != nil {
		t.Fatal(err)
	}
	r.until("it is gone", r.settled(1))
}

// A rank that is wanted again while its worker still drains waits for it: a new generation would end the old one by force.
func TestRankThatComesBackWaitsForItsDrain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
	r.order("scale", 1)
	r.beat()
	r.s.want.Rescale = nil // so that the next order need not wait
	r.order("scale", 2)
	r.beats(2)
	r.wantCalls()
	r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	r.until("the rank is back", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g2"))
	r.wantCalls("release worker-1-g1 drained", "ensure worker-1-g2")
}
