package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

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

// A stop of a job one of whose servers cannot start says which, and what does without it: nothing is drained without. Where no chief has led the job since its last snapshot,
// nothing was trained that is not in that, and nothing is waited for.
func TestStopWhereAServerCannotStart(t *testing.T) {
	trouble := rpc.RestoreRecord{Server: 0, Incarnation: 9, Error: "damaged checkpoint file"}
	t.Run("what was trained is in the memory of others", func(t *testing.T) {
		r := newRig(t, rigOptions{})
		r.started(2)
		r.chief.stop()
		tellRestore(t, r.job, trouble)
		r.order("stop", 0)
		r.beats(3)
		const want = "parameter server 0, which cannot start: the problem says how to mend it, and kale stop -force ctr ends the job without it; then for worker-0-g1 to drain; worker-1-g1 to drain"
		if v := r.s.View(); !v.Stopping || !strings.HasPrefix(v.Waits, want) {
			t.Errorf("waits for %q, want %q", v.Waits, want)
		}
		if _, err := r.problem("parameter server 0 cannot start: damaged checkpoint file"); err != nil {
			t.Error(err)
		}
	})
	t.Run("nothing was trained", func(t *testing.T) {
		r := stoppedAfter(t, 4000)
		was := *r.s.want.Totals
		r.chief.stop()
		r.open("run")
		r.beats(2)
		tellRestore(t, r.job, trouble)
		r.order("stop", 0)
		r.stops()
		if got := *r.s.want.Totals; !got.Final || got.Trained != was.Trained {
			t.Errorf("totals %+v, and were %+v", got, was)
		}
	})
	t.Run("another chief has led it since", func(t *testing.T) {
		r := stoppedAfter(t, 4000)
		r.chief.stop()
		r.open("run")
		r.beats(2)
		r.chief.start()
		r.chief.stop() // nobody has heard it
		tellRestore(t, r.job, trouble)
		r.order("stop", 0)
		r.beats(3)
		if v := r.s.View(); !v.Stopping || !strings.HasPrefix(v.Waits, "parameter server 0, which cannot start") {
			t.Errorf("waits for %q", v.Waits)
		}
	})
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

// Where the backend cannot list what runs until a person has done something about it, a stop by force has it end what cannot be listed; one that drains waits.
func TestForceEndsWhatCannotBeListed(t *testing.T) {
	for _, how := range []string{"stop", "stop by force", "kill"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			before := len(r.backend.Calls())
			away := func() { r.backend.FailNext(fake.OpList, backend.Errorf(backend.Blocked, "its folder was moved")) }
			if how == "kill" {
				away()
				if err := r.s.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: how == "stop by force"}}); err != nil {
					t.Fatal(err)
				}
				away() // at the look, and when it is asked for all that there is
				away()
				r.beat()
			}
			ended := slices.ContainsFunc(r.backend.Calls()[before:], func(c fake.Call) bool {
				return c.Op == fake.OpRelease && len(c.IDs) == 0 && c.How == backend.Forced
			})
			if want := how != "stop"; ended != want || r.s.want.Stopped != want {
				t.Errorf("it is told to end what cannot be listed: %v; the job has stopped: %v; want %v", ended, r.s.want.Stopped, want)
			}
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

// When its time is up, a release by force does not count what it could not see.
func TestForceCountsNothingUnseen(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r.backend.PartialNext(worker(0, 1), server(0, 1))
	err := r.s.Kill(over)
	if err == nil || !strings.Contains(err.Error(), "what is left is not known") || strings.Contains(err.Error(), " 0 ") {
		t.Errorf("Kill: %v", err)
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
	waits("the backend, which does not answer (the problem says why); kale stop -force ctr ends without it what can read the checkpoint folder")
	r.chief.serverUp(1)
	close(hold)
	r.stops()
}

// A disk may be so full that not even what is wanted can be saved any more: nothing is decided then, but the job can be stopped, since some room is kept for that.
func TestStopWhereNothingCanBeSaved(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.state, "state.db")
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("kale", r.state, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted here, to fill it: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(r.state, unix.MNT_DETACH) }) // before the scheduler is closed
	if err := os.WriteFile(file, was, 0o600); err != nil {
		t.Fatal(err)
	}
	r.open("run")
	r.beats(3)
	f, err := os.Create(filepath.Join(r.state, "fills"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	full := func() { // what is free within the file
		for i := 0; r.s.save() == nil; i++ {
			_ = r.s.store.Append(state.Samples, r.now, make([]byte, 1024)) // when it is full too, the next save tells
			r.s.want.LastCheckpoint = strings.Repeat("x", 100*i)
			if i > 1000 {
				t.Fatal("the disk does not get full")
			}
		}
	}
	full()
	r.beats(3)
	if _, err := r.problem("cannot be saved"); err != nil {
		t.Fatal(err)
	}
	full() // a look may have freed a page
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 3}}); err == nil {
		t.Error("another order is taken, though it cannot be saved")
	}
	r.order("stop", 0)
	r.until("it has stopped", func() error {
		if !r.s.want.Stopped || r.s.unsaved != nil {
			return fmt.Errorf("live are %q, unsaved: %w", r.live(), r.s.unsaved)
		}
		return nil
	})
	r.mustBeLive("")
	if err := r.s.Close(); err != nil {
		t.Error(err)
	}
	if w := r.wanted(); !w.Stopped {
		t.Errorf("it is not known any more that it has stopped: %+v", w)
	}
}

// A stop that needs a server which waits in its cluster's queue says so, and does without the last snapshot after a while: what the server's process before trained it
// has kept, and nothing was trained since.
func TestStopDoesNotWaitForAPlace(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.order("pause", 0)
	r.beats(2)
	if err := errors.Join(r.cluster.SetState("ctr", server(0, 1), backend.StatePending, "nothing that it fits on is free"), r.cluster.SetTimes("ctr", server(0, 1), r.now, time.Time{})); err != nil {
		t.Fatal(err)
	}
	r.chief.stop()
	r.order("stop", 0)
	began := r.now
	if err := r.cluster.Exit("ctr", worker(0, 1), 0); err != nil {
		t.Fatal(err)
	}
	r.beats(5)
	if w := r.s.View().Waits; !strings.Contains(w, "a place for ps-0-g1 (nothing that it fits on is free), which the last snapshot needs") {
		t.Errorf("it waits for %q", w)
	}
	r.until("it has stopped", func() error {
		if !r.s.want.Stopped {
			return fmt.Errorf("live are %s, it waits for %q", r.live(), r.s.View().Waits)
		}
		return nil
	})
	if took := r.now.Sub(began); took < chiefPlace || took > 2*chiefPlace {
		t.Errorf("it took %v", took)
	}
	if n := r.chief.written(); n != 0 {
		t.Errorf("%d snapshots were written", n)
	}
	const says = " the last snapshot was not written: ps-0-g1, which it needs, had no place for 30s (nothing that it fits on is free); the job goes on from what its servers had written last"
	is := func(when string, want bool) {
		t.Helper()
		if got := r.s.Unwritten(); strings.HasSuffix(got, says) != want || (got != "") != want {
			t.Errorf("%s it says %q; want %v", when, got, want)
		}
	}
	is("after the stop", true)
	r.reopen()
	is("opened again, as by a later stop,", true)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := GlanceAt(t.Context(), r.state, "ctr", nil)
	if err != nil || !strings.HasSuffix(g.Unwritten, says) {
		t.Errorf("a glance says %q, %v", g.Unwritten, err)
	}
}

// A stop that what its cluster has suspended holds up names that first.
func TestStopNamesWhatStandsStill(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.beats(2)
	if err := r.cluster.SetState("ctr", server(1, 1), backend.StateStarting, "the cluster has suspended it"); err != nil {
		t.Fatal(err)
	}
	r.order("stop", 0)
	r.beats(2)
	if w := r.s.View().Waits; !strings.HasPrefix(w, "ps-1-g1, which stands still (the cluster has suspended it); then for worker-0-g1 to drain") {
		t.Errorf("it waits for %q", w)
	}
}

// A rescale that a stop cuts short has not come about: it is recorded as given up.
func TestStopGivesUpARescale(t *testing.T) {
	for _, force := range []bool{false, true} {
		r := newRig(t, rigOptions{})
		r.started(1)
		before := len(r.rescales())
		r.order("scale", 3)
		r.beats(2)
		if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: force}}); err != nil {
			t.Fatal(err)
		}
		r.chief.set(0, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
		eventually(t, "the job stops", func() error {
			if r.beat(); !r.s.want.Stopped {
				return fmt.Errorf("it waits for %q", r.s.View().Waits)
			}
			return nil
		})
		all := r.rescales()
		if len(all) != before+1 {
			t.Fatalf("force %v: rescales %+v, want one more than %d", force, all, before)
		}
		if last := all[len(all)-1]; last.To != 3 || !last.Aborted || last.Unfinished != "the job was stopped" {
			t.Errorf("force %v: the last rescale is %+v", force, last)
		}
	}
}

// A worker that has left is known by its rank, for its log.
func TestWorkersThatHaveLeftAreKnown(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("scale", 1)
	r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	r.until("it has left", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1"))
	r.beat()
	if left := r.s.View().Left; !slices.Equal(left, []string{"worker-1-g1"}) {
		t.Errorf("%q have left", left)
	}
}

// What kale doctor tries nodes with belongs to no scheduler: a stop neither waits for it nor ends it, by force or not.
func TestStopLeavesProbesAlone(t *testing.T) {
	for _, how := range []string{"stop", "stop by force", "kill"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			probe := backend.ID{Role: RoleProbe, Rank: 7, Generation: 1}
			if st, err := r.backend.Ensure(t.Context(), r.job.Name, []backend.Workload{{ID: probe, Argv: []string{r.s.opt.Trainer, "probe"}}}); err != nil || len(st) != 1 || !st[0].State.Live() {
				t.Fatal(st, err)
			}
			switch how {
			case "kill":
				if err := r.s.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			case "stop":
				for rank := range 2 {
					r.chief.set(rank, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
				}
				r.order("stop", 0)
			default:
				if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
					t.Fatal(err)
				}
			}
			if how != "kill" {
				eventually(t, "the job stops", func() error {
					if r.beat(); !r.s.want.Stopped {
						return errors.New(r.s.waits())
					}
					return nil
				})
			}
			list, _, err := r.backend.List(t.Context(), r.job.Name)
			if live := slices.DeleteFunc(slices.Clone(list), func(st backend.Status) bool { return !st.State.Live() }); err != nil || len(live) != 1 || live[0].ID != probe {
				t.Errorf("what lives is %v (%v), want the probe alone; of %v", live, err, list)
			}
		})
	}
}
