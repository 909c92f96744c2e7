package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

func TestOrdersThatAreRefusedChangeNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	before := *r.s.want
	for _, c := range []struct {
		order Order
		says  string
	}{
		{Order{Kind: "scale", Target: 0}, `scale job "ctr" to 0 workers: the job file allows 1 to 8`},
		{Order{Kind: "scale", Target: 9}, `scale job "ctr" to 9 workers: the job file allows 1 to 8`},
		{Order{Kind: "scale", Target: -1}, "allows 1 to 8"},
		{Order{Kind: "dance"}, "there are scale, auto, pause, resume and stop"},
		{Order{}, "unknown order"},
	} {
		if err := r.s.obey(t.Context(), command{Order: c.order}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.order, err, c.says)
		}
	}
	r.chief.stop()
	for _, kind := range []string{"pause", "resume"} {
		if err := r.s.obey(t.Context(), command{Order: Order{Kind: kind}}); err == nil || !strings.Contains(err.Error(), kind+` job "ctr"`) {
			t.Errorf("%s without a chief: %v", kind, err)
		}
	}
	if r.s.want.Manual != before.Manual || r.s.want.Stopping {
		t.Errorf("the orders left %+v, stopping %v", r.s.want.Manual, r.s.want.Stopping)
	}
}

// An order that is taken while the backend does not answer is followed as soon as it does, and not only when it is time to decide again.
func TestAnOrderIsFollowedWhenTheBackendAnswersAgain(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string { return strings.Replace(text, `tick         = "1s"`, `tick = "1h"`, 1) }})
	r.started(2)
	for range 3 {
		r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "slurmctld does not answer"))
	}
	r.order("scale", 3)
	r.beats(3)
	if r.s.want.Target != 2 {
		t.Fatalf("%d workers are wanted on a look that failed", r.s.want.Target)
	}
	r.beat()
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1")
	r.until("it is followed", r.settled(3))
	if r.s.undecided {
		t.Error("it is still to be followed")
	}
}

func TestPinIsKeptUntilAuto(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.reopen()
	r.beat()
	if d := r.decision(); d.Target != 3 || d.Source != "manual" {
		t.Errorf("after a restart: %d by %q", d.Target, d.Source)
	}
	r.order("auto", 0)
	r.beat()
	if d := r.decision(); d.Source == "manual" {
		t.Errorf("after auto: %+v", d)
	}
}

func TestPauseHoldsTheNumberOfWorkers(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("pause", 0)
	r.order("scale", 4)
	r.beats(3)
	if d := r.decision(); d.Kind != plan.KindHold || d.Target != 2 || !r.s.seen.chief.GetPaused() {
		t.Errorf("while paused: %s at %d, chief paused %v", d.Kind, d.Target, r.s.seen.chief.GetPaused())
	}
	r.order("resume", 0)
	r.until("it goes on", r.settled(4))
	if r.s.seen.chief.GetPaused() {
		t.Error("the chief is still paused")
	}
}

// Observe decides and records, and the backend is only looked at.
func TestObserveTouchesNothing(t *testing.T) {
	r := newRig(t, rigOptions{mode: job.ModeObserve})
	r.beats(4)
	r.observed()
	if d := r.decision(); d.Kind != plan.KindOut || d.Target != 1 || !r.s.last.ObserveOnly {
		t.Errorf("decision %s to %d, observed only %v", d.Kind, d.Target, r.s.last.ObserveOnly)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 3}}); err == nil || !strings.Contains(err.Error(), `autoscale.mode is "observe"`) {
		t.Errorf("scale: %v", err)
	}
}

// A job that runs is seen as it is, also in the middle of a rescale that another mode has begun.
func TestObserveOfAJobThatRuns(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.order("auto", 0)
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
	r.s.aim(r.now, plan.Decision{Kind: plan.KindIn, Target: 2})
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	r.job.Autoscale.Mode = job.ModeObserve
	for _, again := range []func(){r.reopen, r.forget} {
		again()
		r.beats(3)
		r.observed()
		if r.s.seen.chiefErr != nil {
			t.Fatal(r.s.seen.chiefErr)
		}
		if o := r.s.last.Observation; o.Workers.Running < 2 || o.Target != o.Workers.Running || o.Action.Kind != "" {
			t.Errorf("observed: target %d, %+v, action %+v", o.Target, o.Workers, o.Action)
		}
	}
	if asked := r.chief.asked(); len(asked) > 0 {
		t.Errorf("asked to drain: %q", asked)
	}
}

func (r *rig) observed() {
	r.t.Helper()
	for _, c := range r.backend.Calls() {
		if !slices.Contains([]fake.Op{fake.OpConfigure, fake.OpPlan, fake.OpList, fake.OpInventory, fake.OpLogs}, c.Op) {
			r.t.Errorf("observe mode called %s %v", c.Op, c.IDs)
		}
	}
}

// The paper's pause-and-restart: everybody leaves before the first of the new number starts.
func TestRestartModeDrainsAllAndStartsTheNewNumber(t *testing.T) {
	for _, to := range []int{4, 1} {
		t.Run(fmt.Sprint(to), func(t *testing.T) {
			m := &mortal{}
			r := newRig(t, rigOptions{mode: job.ModeRestart, wrap: func(b backend.Backend) backend.Backend { m.Backend = b; return m }})
			m.before = r.mustBeSaved
			r.started(2)
			r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
			r.order("scale", to)
			r.beats(3)
			r.wantCalls()
			if o := r.s.last.Observation; o.Target != to {
				t.Errorf("while everybody leaves the target in force is %d, want %d", o.Target, to)
			}
			r.reopen() // in the middle
			r.beat()
			r.s.tickAt = r.now.Add(time.Hour) // so that no decision saves what the rest must
			r.chief.set(0, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
			r.beats(2)
			r.wantCalls("release worker-0-g1 drained")
			r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
			r.until("the new number runs", r.settled(to))
			want := []string{"release worker-0-g1 drained", "release worker-1-g1 drained", "ensure worker-0-g2", "ensure worker-1-g2", "ensure worker-2-g1", "ensure worker-3-g1"}
			r.wantCalls(want[:2+to]...)
			all := r.rescales()
			if got := all[len(all)-1]; got.From != 2 || got.To != to || got.Aborted {
				t.Errorf("recorded %+v", got)
			}
		})
	}
}

func TestStopDrainsSnapshotsAndReleases(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	hold := make(chan struct{})
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow, r.chief.hold = true, hold })
	r.order("stop", 0)
	r.beats(3)
	r.wantCalls()
	r.chief.with(func(*rpc.JobStatus) {
		if r.chief.requested > 0 {
			t.Error("the last snapshot was asked for while workers train")
		}
	})
	for rank := range 2 {
		r.chief.set(rank, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	}
	r.beats(5)
	r.wantCalls("release worker-0-g1 drained", "release worker-1-g1 drained") // the servers stay until the snapshot is written
	if v := r.s.View(); !v.Stopping || v.Stopped {
		t.Errorf("stopping %v, stopped %v", v.Stopping, v.Stopped)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 3}}); err == nil || !strings.Contains(err.Error(), "being stopped") {
		t.Errorf("scale while it stops: %v", err)
	}
	close(hold)
	eventually(t, "the job stops", func() error {
		if r.beat(); !r.s.want.Stopped {
			return errors.New("it does not")
		}
		return nil
	})
	r.wantCalls("release worker-0-g1 drained", "release worker-1-g1 drained", "release ps-0-g1 drained", "release ps-1-g1 drained")
	if r.chief.snapshots != 1 {
		t.Errorf("%d snapshots were written", r.chief.snapshots)
	}
	if v := r.s.View(); v.Stopping || !v.Stopped || len(v.Problems) > 0 {
		t.Errorf("stopping %v, stopped %v, problems %q", v.Stopping, v.Stopped, v.Problems)
	}
}

// A job that was stopped can be run again: its silence while it starts is a start.
func TestStoppedJobStartsAgain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("stop", 0)
	r.stops()
	r.chief.stop()
	r.reopen()
	r.beats(2)
	r.mustBeLive("ps-0-g2 ps-1-g2 worker-0-g2 worker-1-g2") // the pin of 2 is kept
	if o := r.s.last.Observation; o.Hold.Unknown || o.Workers.Unknown > 0 {
		t.Errorf("hold %+v, workers %+v", o.Hold, o.Workers)
	}
	r.until("it runs", r.settled(2))
}

// stops beats until the job has stopped; the snapshot is written by another goroutine.
func (r *rig) stops() {
	r.t.Helper()
	eventually(r.t, "the job stops", func() error {
		if r.beat(); !r.s.want.Stopped {
			return fmt.Errorf("problems %q", r.s.View().Problems)
		}
		return nil
	})
	if live := r.live(); live != "" {
		r.t.Errorf("live after the stop: %s", live)
	}
}

// A stop needs the servers until they have written the last snapshot: when one cannot start meanwhile, why is shown, and nothing is claimed of what only the
// chief knows.
func TestStopSaysWhyItsChiefDoesNotStart(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.fill(50, func(int) time.Time { return r.now.Add(-time.Minute) })
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) {
		for _, p := range s.Partitions {
			p.Applied = 50
		}
	})
	r.beat()
	r.chief.stop()
	r.order("stop", 0)
	if err := r.cluster.Print("ctr", server(0, 1), "no space left on device\n"); err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.Exit("ctr", server(0, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.until("the cause is shown", func() error {
		_, err := r.problem("no space left on device")
		return err
	})
	r.beats(3) // another one is started, and is not the chief yet
	if _, err := r.problem("ps-0-g1 has ended 1×"); err != nil {
		t.Error(err)
	}
	if s := r.s.View().Sample; s.Lag != nil || s.LagRecords != nil || !strings.HasPrefix(s.LagUnknown, "what is trained is unknown") {
		t.Errorf("lag %v, %v records: %q; the chief had trained all", s.Lag, s.LagRecords, s.LagUnknown)
	}
	r.chief.start()
	r.joinAll()
	r.stops()
	if ps := r.s.View().Problems; len(ps) > 0 {
		t.Errorf("problems of a job that has stopped: %q", ps)
	}
}

func TestStopWhenNothingRuns(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.order("stop", 0)
	r.beat()
	if !r.s.want.Stopped {
		t.Error("not stopped")
	}
	r.wantCalls()
}

// A stop of a job whose chief never came up must not wait for it.
func TestStopBeforeTheChiefWasThere(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.beats(2)
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
	r.order("stop", 0)
	r.stops()
}

// What ended with its machine, or by itself, was never released, and is given up when the job is stopped, by force too: nothing is kept for one that is taken up again.
func TestStopReleasesWhatHadEnded(t *testing.T) {
	for _, how := range []string{"stop", "stop by force", "kill"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			for _, st := range r.list() {
				state, why := backend.StateFailed, "the machine went down"
				if st.ID == worker(1, 1) {
					state, why = backend.StateExited, "it ended with code 0: done"
				}
				if err := r.cluster.SetState(r.job.Name, st.ID, state, why); err != nil {
					t.Fatal(err)
				}
			}
			r.mark()
			switch how {
			case "kill":
				if err := r.s.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			case "stop":
				r.order("stop", 0)
				r.stops()
			default:
				if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
					t.Fatal(err)
				}
				r.stops()
			}
			r.wantCalls("release ps-0-g1 forced", "release ps-1-g1 forced", "release worker-0-g1 forced", "release worker-1-g1 forced")
		})
	}
}

// A stop whose scheduler died goes on when the job is opened to be stopped; opened to be run, it runs.
func TestStopInterrupted(t *testing.T) {
	for name, run := range map[string]bool{"and gone on with": false, "and run again": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			hold := make(chan struct{})
			r.chief.with(func(*rpc.JobStatus) { r.chief.hold = hold })
			r.order("stop", 0)
			r.beats(4)
			r.mustBeLive("ps-0-g1 ps-1-g1")
			r.reopen()
			close(hold)
			if run {
				r.until("it runs", r.settled(2))
				r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g2 worker-1-g2")
				return
			}
			r.s.want.Stopping = true // as Run does with Options.Stop
			r.stops()
		})
	}
}

// A snapshot that fails is tried again and shown, and what the stop needs is repaired meanwhile.
func TestStopWaitsForItsSnapshot(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(*rpc.JobStatus) { r.chief.snapshotErr = status.Error(codes.Internal, "the disk is full") })
	r.order("stop", 0)
	eventually(t, "the failure is shown", func() error {
		r.beat()
		_, err := r.problem("the last snapshot is not written yet")
		return err
	})
	r.mustBeLive("ps-0-g1 ps-1-g1")
	if err := r.cluster.Exit("ctr", server(1, 1), 137); err != nil {
		t.Fatal(err)
	}
	r.until("a server that ends is needed for it", r.isLive("ps-0-g1 ps-1-g2"))
	r.chief.with(func(*rpc.JobStatus) { r.chief.snapshotErr = nil })
	r.stops()
}

// A backend that cannot end what is to end is what a stop waits for, and it is said why.
func TestStopSaysWhyNothingIsReleased(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.backend.FailNext(fake.OpRelease, backend.Errorf(backend.Blocked, "release worker-0-g1: no space left on device"))
	r.order("stop", 0)
	eventually(t, "the failure is shown", func() error {
		r.beat()
		_, err := r.problem("the backend ends nothing: release worker-0-g1: no space left on device")
		return err
	})
	r.stops()
}

func TestForcedStopWaitsForNothing(t *testing.T) {
	r := newRig(t, rigOptions{trainer: "stubborn"})
	r.started(2)
	r.chief.stop()
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		t.Fatal(err)
	}
	if r.reopen(); r.s.want.Forced {
		t.Error("the force outlives the scheduler that was told of it")
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		t.Fatal(err)
	}
	r.beat()
	if !r.s.want.Stopped || r.live() != "" {
		t.Errorf("stopped %v, live %q", r.s.want.Stopped, r.live())
	}
}

// The loop itself: orders from other goroutines, a stop that ends Run, and Do after that.
func TestRun(t *testing.T) {
	r := newRig(t, rigOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- r.s.Run(ctx) }()
	order := func(o Order) {
		t.Helper()
		if err := r.s.Do(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	order(Order{Kind: "scale", Target: 3})
	eventually(t, "the view shows three workers that train", func() error {
		r.joinAll()
		if v := r.s.View(); v == nil || v.Sample.Running != 3 || v.Rescale != nil {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if err := r.s.Do(ctx, Order{Kind: "scale", Target: 99}); err == nil || errors.Is(err, ErrNotRunning) {
		t.Errorf("an order that is refused: %v", err)
	}
	order(Order{Kind: "stop"})
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if v := r.s.View(); !v.Stopped || r.live() != "" {
		t.Errorf("stopped %v, live %q", v.Stopped, r.live())
	}
	if err := r.s.Do(t.Context(), Order{Kind: "auto"}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("an order after the end: %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	hold := make(chan struct{}) // never let go: a snapshot under way must not keep Run
	r.chief.with(func(*rpc.JobStatus) { r.chief.hold = hold })
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.s.Run(ctx) }()
	if err := r.s.Do(ctx, Order{Kind: "stop"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the workers are gone", r.isLive("ps-0-g1 ps-1-g1"))
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	r.mustBeLive("ps-0-g1 ps-1-g1") // training would go on
}

// A broker that does not answer makes the back-fill last for minutes. Orders are taken meanwhile, and a stop does not wait for its end.
func TestOrdersAreTakenDuringTheBackfill(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() }) // nothing was written to it
	answers := r.s.kafka
	if r.s.kafka, err = traffic.NewClient(traffic.ClientOptions{Brokers: []string{mute.Addr().String()}, Topic: rigTopic}); err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	ctx, cancel := context.WithTimeout(t.Context(), backfillTimeout/2)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- r.s.Run(ctx) }()
	for _, o := range []Order{{Kind: "scale", Target: 2}, {Kind: "stop"}} {
		if err := r.s.Do(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if w := r.s.want; w.Manual.Target != 2 || !w.Stopping {
		t.Errorf("pinned to %d, stopping %v", w.Manual.Target, w.Stopping)
	}
}

// What a stop waits for is named: who is silent, who has yet to write, and a backend that does not answer.
func TestStopSaysWhatItWaitsFor(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beats(2)
	hold := make(chan struct{})
	r.chief.with(func(*rpc.JobStatus) { r.chief.hold = hold })
	waits := func(want string) {
		t.Helper()
		if got := r.s.View().Waits; got != want {
			t.Errorf("waits for %q, want %q", got, want)
		}
	}
	r.order("stop", 0)
	r.beats(3)
	waits("the last snapshot")
	r.chief.with(func(st *rpc.JobStatus) { st.Servers[0].Metrics.LastSnapshotUnixMs = time.Now().UnixMilli() })
	r.beat()
	waits("the last snapshot, which ps-1 has yet to write")
	r.hang(server(1, 1))
	r.beats(5)
	waits("the last snapshot, which ps-1 has yet to write; and for ps-1-g1, which has not answered for 10s (after 30s it is ended by force and started again)")
	r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
	r.beat()
	waits("the backend, which does not answer: scripted (unavailable)")
	r.chief.serverUp(1)
	close(hold)
	r.stops()
}

// Who gave an order and went away must not find it carried out later.
func TestOrderThatComesTooLateIsNotCarriedOut(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	for _, kind := range []string{"scale", "stop", "auto"} {
		o := Order{Kind: kind, Target: 4, Until: time.Now().Add(-time.Second)}
		if err := r.s.obey(t.Context(), command{Order: o}); err == nil || !strings.Contains(err.Error(), "the order comes too late") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if w := r.s.want; w.Manual.Target != 2 || !w.Manual.Pinned || w.Stopping {
		t.Errorf("the orders left %+v, stopping %v", w.Manual, w.Stopping)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 4, Until: time.Now().Add(time.Hour)}}); err != nil || r.s.want.Manual.Target != 4 {
		t.Errorf("in time: %v, %+v", err, r.s.want.Manual)
	}
}

// More workers do not bring a parameter server back: the number stays, but for an order.
func TestServerThatIsDownHoldsTheNumberOfWorkers(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("auto", 0)
	r.hang(server(1, 1))
	r.beats(2)
	if d := r.decision(); d.Kind != plan.KindHold || !strings.Contains(d.Reason, "parameter server 1 is down") {
		t.Errorf("decided %s: %s", d.Kind, d.Reason)
	}
	r.order("scale", 4)
	r.beat()
	if d := r.decision(); d.Target != 4 || d.Source != "manual" {
		t.Errorf("an order gives %d by %q: %s", d.Target, d.Source, d.Reason)
	}
}

// Who pauses a job and asks what it does is told, though no look has been made since.
func TestPauseShowsAtOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beat()
	if v := r.s.View(); v.State != StateRunning || !v.PausedSince.IsZero() {
		t.Fatalf("%s, paused since %v", v.State, v.PausedSince)
	}
	before := time.Now()
	r.order("pause", 0)
	v := r.s.View()
	if v.State != StatePaused || !v.Manual.Paused || v.PausedSince.Before(before.Add(-time.Second)) {
		t.Errorf("%s, paused %v since %v", v.State, v.Manual.Paused, v.PausedSince)
	}
	r.order("pause", 0)
	r.beat()
	if again := r.s.View(); again.State != StatePaused || !again.PausedSince.Equal(v.PausedSince) {
		t.Errorf("paused once more: %s since %v, want since %v", again.State, again.PausedSince, v.PausedSince)
	}
	r.order("resume", 0)
	if v := r.s.View(); v.State != StateRunning || !v.PausedSince.IsZero() {
		t.Errorf("%s, paused since %v", v.State, v.PausedSince)
	}
}
