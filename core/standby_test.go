package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// crowded is a rig on a cluster that holds places for successors, whose server 1 ends in an hour.
func crowded(t *testing.T) (r *rig, end time.Time) {
	t.Helper()
	r = newRig(t, rigOptions{})
	if err := r.cluster.SetBeside(true); err != nil {
		t.Fatal(err)
	}
	r.started(2)
	r.serverIs(0, true, 5)
	r.serverIs(1, true, 6)
	end = r.now.Add(time.Hour)
	if err := r.cluster.SetEnd("ctr", server(1, 1), end, backend.EndWalltime); err != nil {
		t.Fatal(err)
	}
	r.beats(3)
	r.now = end.Add(-15 * time.Minute)
	r.beats(3)
	r.wantCalls()
	r.now = end.Add(-7 * time.Minute)
	r.until("its successor is submitted", r.isLive("ps-0-g1 ps-1-g1 ps-1-g2 worker-0-g1 worker-1-g1"))
	r.wantCalls("ensure ps-1-g2")
	r.mark()
	return r, end
}

func (r *rig) waits(waits bool) {
	r.t.Helper()
	state, reason := backend.StateStarting, "it holds its place"
	if waits {
		state, reason = backend.StatePending, "3 jobs are before it"
	}
	if err := r.cluster.SetState("ctr", server(1, 2), state, reason); err != nil {
		r.t.Fatal(err)
	}
}

// A server's successor waits in the cluster's queue beside it, and the server gives its place up when the successor has its own.
func TestServerHasASuccessorBesideIt(t *testing.T) {
	r, end := crowded(t)
	r.waits(true)
	r.now = end.Add(-40 * time.Second)
	r.until("the server is due", func() error {
		if r.s.want.ServerRenewal == nil {
			return errors.New("it is not")
		}
		return nil
	})
	r.beats(20)
	r.mustBeLive("ps-0-g1 ps-1-g1 ps-1-g2 worker-0-g1 worker-1-g1")
	if w := r.s.View().Waits; !strings.Contains(w, "a place for the successor of ps-1") || !strings.Contains(w, "3 jobs are before it") || r.s.serverAway() {
		t.Fatalf("it waits for %q", w)
	}
	if v := r.s.View(); len(v.Servers) != 3 || len(v.Serving()) != 2 || !v.Servers[2].Beside || v.Servers[2].Up != nil || v.Servers[2].Reason == "" {
		t.Errorf("shown are the servers %+v", v.Servers)
	}
	r.waits(false)
	r.until("it has taken over", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1"))
	r.wantCalls("release ps-1-g1 drained")
	r.serverIs(1, true, 9)
	r.beats(2)
	if _, err := r.note("ps-1 before its walltime could end it"); err != nil {
		t.Error(err)
	}
	if n := r.cluster.Starts("ctr", server(1, 2)); n != 1 || len(r.s.View().Problems) > 0 {
		t.Errorf("it was started %d times; problems %q", n, r.s.View().Problems)
	}
}

// Where the server is ended before its successor has a place, the successor keeps its turn in the queue: nothing is submitted anew, and it is no trouble.
func TestServerEndsBeforeItsSuccessorHasAPlace(t *testing.T) {
	r, end := crowded(t)
	r.waits(true)
	r.now = end.Add(-time.Second)
	r.beats(20)
	if err := r.cluster.Exit("ctr", server(1, 1), 0); err != nil {
		t.Fatal(err)
	}
	r.serverIs(1, false, 6)
	r.beats(5)
	r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")
	if w := r.s.View().Waits; !strings.Contains(w, "ps-1-g2 to start (3 jobs are before it)") {
		t.Errorf("it waits for %q", w)
	}
	r.waits(false)
	r.serverIs(1, true, 9)
	r.beats(3)
	r.wantCalls()
	if v := r.s.View().ServerRenewal; v == nil || v.Done.IsZero() || v.Paused <= 0 || v.Paused > time.Hour || len(r.s.View().Problems) > 0 {
		t.Errorf("renewal %+v, problems %q", v, r.s.View().Problems)
	}
}

// A scheduler that finds a server with its successor, with its state or without, lets the server work on.
func TestSuccessorIsNoServerYet(t *testing.T) {
	for name, again := range map[string]func(*rig){"taken up": (*rig).reopen, "without its state": (*rig).forget} {
		t.Run(name, func(t *testing.T) {
			r, _ := crowded(t)
			again(r)
			r.beats(5)
			r.mustBeLive("ps-0-g1 ps-1-g1 ps-1-g2 worker-0-g1 worker-1-g1")
			if g := r.s.want.Servers[1]; g != 1 || len(r.s.View().Problems) > 0 {
				t.Errorf("generation %d is wanted; problems %q", g, r.s.View().Problems)
			}
		})
	}
}

// A server that may go on after all needs no successor; and when it must leave again, the next one has a generation of its own.
func TestSuccessorIsNotNeeded(t *testing.T) {
	r, end := crowded(t)
	if err := r.cluster.SetEnd("ctr", server(1, 1), time.Time{}, ""); err != nil {
		t.Fatal(err)
	}
	r.until("its place is given up", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1"))
	r.wantCalls("release ps-1-g2 forced")
	if err := r.cluster.SetEnd("ctr", server(1, 1), end, backend.EndWalltime); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(time.Minute)
	r.until("another one is submitted", r.isLive("ps-0-g1 ps-1-g1 ps-1-g3 worker-0-g1 worker-1-g1"))
}

// One that fails while it waits is followed by another, and the server does not notice.
func TestSuccessorFails(t *testing.T) {
	r, _ := crowded(t)
	if err := r.cluster.Exit("ctr", server(1, 2), 1); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(time.Minute)
	r.until("another one is submitted", r.isLive("ps-0-g1 ps-1-g1 ps-1-g3 worker-0-g1 worker-1-g1"))
	if p := r.s.View().Problems; len(p) > 0 {
		t.Errorf("problems %q", p)
	}
}

// A successor whose node is drained while it holds its place there gives that up for another one: the server would have to move twice.
func TestSuccessorLeavesADrainedNode(t *testing.T) {
	r, end := crowded(t)
	r.waits(false)
	if err := r.cluster.SetEnd("ctr", server(1, 2), end.Add(time.Hour), backend.EndDrain); err != nil {
		t.Fatal(err)
	}
	r.until("there is another one", r.isLive("ps-0-g1 ps-1-g1 ps-1-g3 worker-0-g1 worker-1-g1"))
	r.wantCalls("release ps-1-g2 forced", "ensure ps-1-g3")
}

// What a stop released, successors too, has a generation that is not used again: a backend would refuse it.
func TestStopPassesTheGenerationOfASuccessor(t *testing.T) {
	r, _ := crowded(t)
	r.order("stop", 0)
	r.until("it has stopped", func() error {
		if !r.s.want.Stopped {
			return fmt.Errorf("live are %s", r.live())
		}
		return nil
	})
	if got := r.s.want.Servers[1]; got != 3 {
		t.Errorf("ps-1 is started again with generation %d, and ps-1-g2 was released", got)
	}
	if got := r.s.want.Servers[0]; got != 2 {
		t.Errorf("ps-0 is started again with generation %d, want 2", got)
	}
}

func TestKillPassesTheGenerationOfASuccessor(t *testing.T) {
	r, _ := crowded(t)
	if err := r.s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.s.want.Servers[1]; got != 3 {
		t.Errorf("ps-1 is started again with generation %d, and ps-1-g2 was released", got)
	}
}

// A generation of a server that another has replaced, and that still lives on a node that is away, is shown as that, without what the chief says of its successor.
func TestReplacedServerIsShownAsThat(t *testing.T) {
	for _, state := range []backend.State{backend.StateStopping, backend.StateUnknown, backend.StateFailed} {
		r := newRig(t, rigOptions{})
		r.started(1)
		r.serverIs(1, true, 9)
		r.s.want.Servers[1] = 2
		if err := r.cluster.SetState("ctr", server(1, 1), state, "its node is away"); err != nil {
			t.Fatal(err)
		}
		r.s.seen = r.s.look(t.Context())
		v := r.s.picture(r.now, r.s.sample(r.now))
		got := v.Servers[slices.IndexFunc(v.Servers, func(s ServerView) bool { return s.ID == "ps-1-g1" })]
		if !got.Replaced || got.Up != nil || got.Rows != nil || got.Reason != "ps-1-g2 replaces it; its node is away" || len(v.Serving()) != len(v.Servers)-1 {
			t.Errorf("%s: it is shown as %+v, and serving are %+v", state, got, v.Serving())
		}
	}
}
