package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
)

// Servers, without which no worker trains, are asked for before workers: a cluster's queue has them in that order.
func TestServersAreAskedForFirst(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.order("scale", 2)
	r.until("the job runs", r.settled(2))
	var asked []string
	for _, c := range r.backend.Calls() {
		if c.Op == fake.OpEnsure {
			roles := map[string]bool{}
			for _, id := range c.IDs {
				roles[id.Role] = true
			}
			if len(roles) > 1 {
				t.Errorf("%v are asked for together", c.IDs)
			}
			asked = append(asked, c.IDs[0].Role)
		}
	}
	if got := strings.Join(asked, " "); got != "ps worker" {
		t.Errorf("asked for are %q", got)
	}
}

// A server that the cluster has no place for gets that of a worker, which trains nothing without it: what waits leaves the queue first, and the last worker stays. No
// number of workers is decided on meanwhile, and all come back once the server has its place.
func TestWorkersMakeWayForAServer(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.order("scale", 4)
	r.until("all run", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1"))
	r.queue(worker(3, 1))
	if err := r.cluster.Exit("ctr", server(1, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.serverIs(1, false, 6)
	r.until("the server has a successor", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1"))
	r.queue(server(1, 2))
	r.beats(2)
	if h := r.s.last.Observation.Hold; h.Unknown || !strings.HasPrefix(h.Reason, "ps-1-g2 has no place ((Resources) needs 3 GPUs, 1 free), so that nothing is trained") {
		t.Errorf("it holds for %+v", h)
	}
	r.mark()
	r.now = r.now.Add(serverPlace / 2)
	r.beats(3)
	r.wantCalls()
	for _, c := range []struct{ live, calls string }{
		{"ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1 worker-2-g1", "release worker-3-g1 forced"},
		{"ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1", "release worker-2-g1 forced"},
		{"ps-0-g1 ps-1-g2 worker-0-g1", "release worker-1-g1 forced"},
		{"ps-0-g1 ps-1-g2 worker-0-g1", ""},
	} {
		if c.live != "ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1" { // what waited leaves, and the first of those that have places with it
			r.now = r.now.Add(serverPlace)
		}
		r.beat()
		r.mustBeLive(c.live)
		if got := strings.Join(r.calls(), ", "); got != c.calls {
			t.Errorf("asked is %q, want %q", got, c.calls)
		}
		r.mark()
	}
	if _, err := r.problem("ps-1-g2 has no place ((Resources) needs 3 GPUs, 1 free), so that nothing is trained"); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"worker-2-g1 gave its place to ps-1-g2, which had none for ", "worker-1-g1 gave its place"} {
		if _, err := r.note(text); err != nil {
			t.Error(err)
		}
	}
	if w := r.s.View().Waits; !strings.Contains(w, "ps-1-g2 to start ((Resources) needs 3 GPUs, 1 free)") || !strings.Contains(w, "worker-1-g2 to start (once ps-1-g2 has a place)") {
		t.Errorf("it waits for %q", w)
	}
	if err := r.cluster.SetState("ctr", server(1, 2), backend.StateRunning, ""); err != nil {
		t.Fatal(err)
	}
	r.until("all are back", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g2 worker-2-g2 worker-3-g2"))
}

// In a queue that has an order only those leave it that are before the server, and come back behind it; a place that would be a stranger's is kept.
func TestWorkersMakeWayInAQueue(t *testing.T) {
	r := newRig(t, rigOptions{})
	if err := r.cluster.SetBeside(true); err != nil {
		t.Fatal(err)
	}
	r.started(2)
	r.order("scale", 4)
	r.until("all run", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1"))
	if err := r.cluster.Exit("ctr", server(1, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.serverIs(1, false, 6)
	r.until("the server has a successor", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1"))
	at := time.Now()
	for i, id := range []backend.ID{worker(2, 1), server(1, 2), worker(3, 1)} {
		r.queue(id)
		if err := r.cluster.SetTimes("ctr", id, at.Add(time.Duration(i)*time.Second), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.cluster.SetBehind("ctr", server(1, 2), true); err != nil {
		t.Fatal(err)
	}
	r.beat()
	r.mark()
	r.now = r.now.Add(serverPlace)
	r.beat()
	r.wantCalls("release worker-2-g1 forced", "ensure worker-2-g2")
	if err := r.cluster.SetTimes("ctr", worker(2, 2), at.Add(time.Minute), time.Time{}); err != nil {
		t.Fatal(err)
	}
	r.queue(worker(2, 2))
	r.mark()
	r.now = r.now.Add(2 * serverPlace)
	r.beats(2)
	r.wantCalls() // the queue's first place is another's
	if err := r.cluster.SetBehind("ctr", server(1, 2), false); err != nil {
		t.Fatal(err)
	}
	r.beat()
	r.wantCalls("release worker-1-g1 forced", "ensure worker-1-g2")
	r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g2 worker-2-g2 worker-3-g1")
}

// A stop does not wait for workers to drain where the chief, which would drain them, has no place.
func TestStopWithoutAPlaceForTheChief(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.stop()
	if err := r.cluster.Exit("ctr", server(0, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.until("the server has a successor", r.isLive("ps-0-g2 ps-1-g1 worker-0-g1 worker-1-g1"))
	r.queue(server(0, 2))
	r.order("stop", 0)
	r.beats(3)
	r.mustBeLive("ps-0-g2 ps-1-g1 worker-0-g1 worker-1-g1")
	r.now = r.now.Add(chiefPlace)
	r.until("no worker is left", func() error {
		if live := r.live(); strings.Contains(live, "worker") {
			return errors.New(live)
		}
		return nil
	})
}
