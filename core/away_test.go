package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// What was given up with its node, which is still away, does not hold up a stop, whether it drains, is by force or is the command's own. What it leaves there it names.
func TestStopDoesNotWaitForNodesThatAreAway(t *testing.T) {
	for _, how := range []string{"stop", "stop by force", "kill"} {
		t.Run(how, func(t *testing.T) {
			r, shutOut := newRig(t, rigOptions{}), 0
			r.started(2)
			r.beats(2)
			r.lose(worker(1, 1), server(1, 1))
			r.until("their successors run", func() error { return r.isLive("ps-0-g1 ps-1-g1 ps-1-g2 worker-0-g1 worker-1-g1 worker-1-g2")() })
			r.joinAll()
			r.serverIs(1, true, 2)
			r.beats(2)
			for _, sv := range r.s.View().Servers {
				if known := sv.Up != nil; known != (sv.ID != "ps-1-g1") {
					t.Errorf("what the chief says is shown of %s: %v", sv.ID, known)
				}
			}
			switch how {
			case "stop":
				r.order("stop", 0)
				for rank, generation := range []uint64{1, 2} {
					r.chief.set(rank, generation, rpc.MemberState_MEMBER_STATE_DRAINED)
				}
				began := r.now
				eventually(t, "the job stops", func() error {
					if r.beat(); !r.s.want.Stopped {
						return fmt.Errorf("it waits for %q", r.s.View().Waits)
					}
					return nil
				})
				if took := r.now.Sub(began); took >= awayAfter {
					t.Errorf("it took %v", took)
				}
				if r.chief.snapshots != 1 {
					t.Errorf("%d snapshots were written", r.chief.snapshots)
				}
			case "kill":
				r.s.opt.ShutOut = func(int) error { shutOut++; return nil }
				if err := r.s.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			default:
				r.s.opt.ShutOut = func(int) error { shutOut++; return nil }
				if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the job stops", func() error {
					if r.beat(); !r.s.want.Stopped {
						return fmt.Errorf("problems %q", r.s.View().Problems)
					}
					return nil
				})
			}
			if by := how != "stop"; by != (shutOut == 1) {
				t.Errorf("what is left was shut out %d times", shutOut)
			}
			const left = " ps-1-g1, worker-1-g1 may still have run: node fake did not answer the cluster, which ends what is left there when it is back; what can read the checkpoint folder there ends by itself"
			if got := r.s.LeftAway(); !strings.HasSuffix(got, left) || !strings.HasPrefix(got, "at ") {
				t.Errorf("it leaves %q, want at a time %q", got, left)
			}
			if live := r.live(); live != "ps-1-g1 worker-1-g1" {
				t.Errorf("live after the stop: %s", live)
			}
		})
	}
}

// stopAway stops a job some of whose nodes go away, and gives how long that took and what the stop waited for.
func (r *rig) stopAway() (took time.Duration, waits []string) {
	r.t.Helper()
	began := r.now
	r.s.stopSince = began // the rig has a clock of its own
	r.until("the job stops", func() error {
		if r.s.want.Stopped {
			return nil
		}
		v := r.s.View()
		if v == nil {
			return errors.New("it has not looked yet")
		}
		w := v.Waits
		if !slices.Contains(waits, w) {
			waits = append(waits, w)
		}
		return fmt.Errorf("it waits for %q", w)
	})
	return r.now.Sub(began), waits
}

// A worker whose node goes away while a stop ends it holds the stop up for a moment, whether it has drained or was expelled, as one that died there was: what it does
// changes nothing more. The next stop does not wait for it again.
func TestStopWaitsForANodeThatIsAwayForAWhile(t *testing.T) {
	for name, c := range map[string]struct {
		state rpc.MemberState
		least time.Duration
	}{
		"it has drained":       {rpc.MemberState_MEMBER_STATE_DRAINED, awayDrained},
		"it has been expelled": {rpc.MemberState_MEMBER_STATE_EXPELLED, awayDrained},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(1)
			r.beats(2)
			r.order("stop", 0)
			r.chief.set(0, 1, c.state)
			if err := r.cluster.SetAway("ctr", worker(0, 1), true); err != nil {
				t.Fatal(err)
			}
			took, waits := r.stopAway()
			if took < c.least-time.Second || took > c.least+10*time.Second {
				t.Errorf("it took %v, want about %v", took, c.least)
			}
			if !slices.Contains(waits, "worker-0-g1 to end (node fake does not answer the cluster)") {
				t.Errorf("it waited for %q", waits)
			}
			left := r.s.LeftAway()
			if !strings.Contains(left, " worker-0-g1 may still have run: ") {
				t.Errorf("it leaves %q", left)
			}
			r.reopen()
			r.s.want.Stopping = true
			took, _ = r.stopAway()
			if took > 2*time.Second {
				t.Errorf("a later stop took %v", took)
			}
			if got := r.s.LeftAway(); got != left {
				t.Errorf("a later stop says %q, want %q", got, left)
			}
			notes := 0
			for _, n := range r.s.want.HandOvers {
				if strings.Contains(n.Text, "may still have run") {
					notes++
				}
			}
			if notes != 1 {
				t.Errorf("%d notes of it, want 1", notes)
			}
			if err := r.cluster.SetAway("ctr", worker(0, 1), false); err != nil {
				t.Fatal(err)
			}
			r.reopen()
			r.s.want.Stopping = true
			if r.stopAway(); r.s.LeftAway() != "" {
				t.Errorf("a stop after everything has ended says %q", r.s.LeftAway())
			}
		})
	}
}

// Servers that do not end, as under a dead daemon, are shut out, once more where that failed, and a stop waits for those on a node that is away a little longer than that.
func TestStopShutsServersOut(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beats(2)
	var at []time.Time
	refuse := true
	r.s.opt.ShutOut = func(servers int) error {
		if servers != r.s.job.Servers.Count {
			t.Errorf("%d servers are shut out, want %d", servers, r.s.job.Servers.Count)
		}
		at = append(at, r.now)
		if refuse {
			refuse = false
			return errors.New("the disk is full")
		}
		return nil
	}
	r.order("stop", 0)
	r.chief.set(0, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	r.until("the worker has gone", func() error {
		if live := r.live(); strings.Contains(live, "worker") {
			return errors.New(live)
		}
		return nil
	})
	if err := r.cluster.SetAway("ctr", server(1, 1), true); err != nil {
		t.Fatal(err)
	}
	r.until("the servers are told to end", func() error {
		if r.s.serversTold.IsZero() {
			return errors.New("they are not")
		}
		return nil
	})
	told := r.s.serversTold
	r.until("they are shut out, or the job has stopped", func() error {
		if len(at) < 1 && !r.s.want.Stopped {
			return fmt.Errorf("it waits for %q", r.s.View().Waits)
		}
		return nil
	})
	r.stopAway()
	if len(at) != 2 || at[0].Sub(told) < shutOutAfter || at[0].Sub(told) > shutOutAfter+5*time.Second {
		t.Errorf("they were told to end at %v and shut out at %v", told, at)
	}
	if took := r.now.Sub(told); took < awayServer || took > awayServer+5*time.Second {
		t.Errorf("the stop ended %v after it had told them, want about %v", took, awayServer)
	}
	if left := r.s.LeftAway(); !strings.Contains(left, " ps-1-g1 may still have run: ") {
		t.Errorf("it leaves %q", left)
	}
}

func TestLeavingWorkerOnANodeThatIsAway(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.beats(2)
	r.order("scale", 1)
	if err := r.cluster.SetAway("ctr", worker(1, 1), true); err != nil {
		t.Fatal(err)
	}
	r.hang(worker(1, 1))
	r.until("the rescale is over", func() error {
		if len(r.s.want.Draining) > 0 || r.s.want.Rescale != nil {
			return fmt.Errorf("it waits for %q", r.s.View().Waits)
		}
		return nil
	})
}

// lose takes a node away with what runs there, until that is given up.
func (r *rig) lose(ids ...backend.ID) {
	r.t.Helper()
	for _, id := range ids {
		if err := r.cluster.SetAway("ctr", id, true); err != nil {
			r.t.Fatal(err)
		}
		r.hang(id)
	}
	for _, id := range ids {
		r.untilReplaced(id)
	}
}
