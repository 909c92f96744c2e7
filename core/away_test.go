package core

import (
	"fmt"
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
			r := newRig(t, rigOptions{})
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
				if err := r.s.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			default:
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
			const left = "ps-1-g1, worker-1-g1 may still run: node fake does not answer the cluster, which ends what is left there when it is back; the next run shuts it out"
			if got := r.s.LeftAway(); got != left {
				t.Errorf("it leaves %q, want %q", got, left)
			}
			if live := r.live(); live != "ps-1-g1 worker-1-g1" {
				t.Errorf("live after the stop: %s", live)
			}
		})
	}
}

// A process whose node goes away while a stop ends it holds the stop up for as long as any silent one is waited for, and no longer; so does a worker that leaves.
func TestStopWaitsForANodeThatIsAwayForAWhile(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beats(2)
	r.s.want.Snapshotted = true // so far it has come
	r.order("stop", 0)
	r.chief.set(0, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	if err := r.cluster.SetAway("ctr", worker(0, 1), true); err != nil {
		t.Fatal(err)
	}
	began := r.now
	r.s.stopSince = began // the rig has a clock of its own
	r.until("the job stops", func() error {
		if !r.s.want.Stopped {
			return fmt.Errorf("it waits for %q", r.s.View().Waits)
		}
		return nil
	})
	if took := r.now.Sub(began); took < awayAfter-time.Second || took > awayAfter+10*time.Second {
		t.Errorf("it took %v, want about %v", took, awayAfter)
	}
	if !strings.HasPrefix(r.s.LeftAway(), "worker-0-g1 may still run: ") {
		t.Errorf("it leaves %q", r.s.LeftAway())
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
