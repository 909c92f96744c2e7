package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/rpc"
)

func (r *rig) force() {
	r.t.Helper()
	if err := r.s.obey(r.t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		r.t.Fatal(err)
	}
}

// silence has the cluster answer nothing for longer than a test takes, until the scheduler is opened anew.
func (r *rig) silence() {
	for range 1000 {
		r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
	}
}

// silentBeat is one look that the cluster does not answer.
func (r *rig) silentBeat() {
	r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
	r.beat()
}

// While its cluster does not answer, a stop by force takes the places of the job's processes in the checkpoint folder, once more where that failed; a stop in order does
// not, and says what force would do. What the cluster has is released when it answers.
func TestForcedStopWhileTheClusterIsSilent(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	shutOut, refuse := 0, true
	r.s.opt.ShutOut = func(int) error {
		if refuse {
			refuse = false
			return errors.New("the disk is full")
		}
		shutOut++
		return nil
	}
	r.order("stop", 0)
	for began := r.now; r.now.Sub(began) < 2*shutOutUnseenAfter; {
		r.silentBeat()
	}
	if waits := r.s.View().Waits; shutOut != 0 || !refuse || !strings.HasSuffix(waits, "kale stop -force ctr ends without it what can read the checkpoint folder") {
		t.Fatalf("a stop in order has shut out %d times, and waits for %q", shutOut, waits)
	}
	r.force()
	for began := r.now; r.now.Sub(began) < 2*shutOutAfter; {
		r.silentBeat()
	}
	if waits := r.s.View().Waits; shutOut != 1 || !strings.HasSuffix(waits, toldToEnd) {
		t.Fatalf("a stop by force has shut out %d times, and waits for %q", shutOut, waits)
	}
	if live := r.live(); live != "ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1" {
		t.Fatalf("%s is left", live)
	}
	r.until("the job stops", func() error {
		if !r.s.want.Stopped {
			return errors.New(r.s.View().Waits)
		}
		return nil
	})
	r.mustBeLive("")
}

// A stop by force stays one, whoever orders another one after it.
func TestForcedStopStaysOne(t *testing.T) {
	stops := func(r *rig) {
		t.Helper()
		r.until("the job stops", func() error {
			if !r.s.want.Stopped {
				return errors.New("it has not")
			}
			return nil
		})
		if r.chief.snapshots != 0 {
			t.Errorf("it wrote %d snapshots", r.chief.snapshots)
		}
	}
	t.Run("by its scheduler", func(t *testing.T) {
		r := newRig(t, rigOptions{})
		r.started(2)
		r.silentBeat()
		r.force()
		r.silentBeat()
		r.order("stop", 0)
		if r.silentBeat(); !r.s.View().Forced {
			t.Error("the stop is not by force any more")
		}
		stops(r)
	})
	t.Run("of a job without a scheduler", func(t *testing.T) {
		t.Parallel() // it takes killTimeout
		r := newRig(t, rigOptions{})
		r.started(2)
		r.silence()
		if err := r.s.Kill(t.Context()); err == nil || NeedsAPerson(err) {
			t.Fatalf("Kill = %v", err)
		}
		r.stop = true
		r.reopen()
		stops(r)
	})
	t.Run("of a job without a scheduler, before it looks", func(t *testing.T) {
		r := newRig(t, rigOptions{})
		r.started(2)
		r.silence()
		r.stop, r.byForce = true, true
		r.reopen() // it ends before it looks
		r.byForce = false
		r.reopen()
		if !r.s.want.Forced {
			t.Error("the next stop is not by force")
		}
	})
	t.Run("a run after it runs", func(t *testing.T) {
		r := newRig(t, rigOptions{})
		r.started(2)
		r.silentBeat()
		r.force()
		r.reopen()
		if w := r.s.want; w.Stopping || w.Forced {
			t.Errorf("it is being stopped: %v, by force: %v", w.Stopping, w.Forced)
		}
	})
}

// What a stop by force has shut out, and its cluster could not end, ends during the next run: as was wanted, which is no problem. A process that ends so without a stop is
// one.
func TestEndsOfWhatAStopShutOutAreNoProblem(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(*rig)
		told bool
	}{
		"a stop that was cut short": {stop: (*rig).force},
		"a stop":                    {stop: func(r *rig) { r.s.want.LastStop = time.Now(); _ = r.s.save() }},
		"none":                      {stop: func(*rig) {}, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			c.stop(r)
			r.reopen()
			r.beat()
			if err := r.cluster.Exit("ctr", worker(0, 1), rpc.ExitFenced); err != nil {
				t.Fatal(err)
			}
			r.beat()
			told := slices.ContainsFunc(r.s.problems(), func(p string) bool { return strings.HasPrefix(p, "worker-0-g1 has ended") })
			if told != c.told {
				t.Errorf("its end is a problem: %v; problems %q", told, r.s.problems())
			}
			r.until("it is replaced", func() error {
				if live := r.live(); !strings.Contains(live, "worker-0-g2") {
					return errors.New(live)
				}
				return nil
			})
		})
	}
}
