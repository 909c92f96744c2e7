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

// renewed brings a rig to where worker 3 was ready to take over from worker 1, and the chief ended before it could be asked to drain that one: the next chief
// knows the old workers, and not yet the successor.
func renewed(t *testing.T) *rig {
	t.Helper()
	r := renewing(t)
	r.chief.mu.Lock()
	r.chief.drainFails = 1
	r.chief.mu.Unlock()
	r.joinAll()
	r.beat()
	if len(r.s.want.Renewals) > 0 || len(r.s.want.Draining) != 1 {
		t.Fatalf("renewals %+v, draining %+v", r.s.want.Renewals, r.s.want.Draining)
	}
	r.chief.start()
	r.chief.with(func(s *rpc.JobStatus) {
		s.Members = slices.DeleteFunc(s.Members, func(m *rpc.MemberStatus) bool { return m.Rank == 3 })
	})
	return r
}

// A worker is asked to drain only when the one that takes its place is ready with the chief of now.
func TestDrainWaitsForTheSuccessor(t *testing.T) {
	r := renewed(t)
	r.beats(3)
	if got := r.chief.asked(); len(got) > 0 {
		t.Fatalf("asked to drain: %v, and the successor is unknown to the new chief", got)
	}
	r.reopen()
	r.beats(2)
	r.chief.set(3, 1, rpc.MemberState_MEMBER_STATE_JOINING)
	r.beats(2)
	if got := r.chief.asked(); len(got) > 0 {
		t.Fatalf("asked to drain: %v, and the successor is still joining", got)
	}
	r.joinAll()
	r.until("it is done", r.settled(3))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-2-g1 worker-3-g1")
	if got := r.chief.asked(); !slices.Equal(got, []string{"worker-1"}) {
		t.Errorf("asked to drain: %v", got)
	}
}

// It does not wait longer than there is time, nor for a successor that nobody wants any more, nor when the job is stopped.
func TestDrainWaitsForNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*rig)
		want string
	}{
		"its time is up":       {func(r *rig) { r.now = r.s.want.Draining[0].Relief.Latest }, "worker-1"},
		"one worker is wanted": {func(r *rig) { r.order("scale", 1) }, "worker-1"},
		"the job is stopped":   {func(r *rig) { r.order("stop", 0) }, "worker-1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := renewed(t)
			r.beats(2)
			if got := r.chief.asked(); len(got) > 0 {
				t.Fatalf("asked to drain: %v", got)
			}
			c.do(r)
			r.beats(2)
			if got := r.chief.asked(); !slices.Contains(got, c.want) {
				t.Errorf("asked to drain: %v, want %s among them", got, c.want)
			}
		})
	}
}

// What a worker hands over while a chief has just started would have no reader until that has waited for everybody: who leaves, leaves later. A stop waits for nobody.
func TestDrainWaitsForANewChief(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.chief.start()
	r.chief.with(func(s *rpc.JobStatus) { s.InGrace = true })
	r.order("scale", 2)
	r.beats(3)
	if got := r.chief.asked(); len(got) > 0 {
		t.Fatalf("asked to drain: %v, and nobody may take over", got)
	}
	r.chief.with(func(s *rpc.JobStatus) { s.InGrace = false })
	r.until("it has left", r.settled(2))
	r.chief.with(func(s *rpc.JobStatus) { s.InGrace = true })
	r.order("stop", 0)
	r.until("it has stopped", func() error {
		if !r.s.want.Stopped {
			return fmt.Errorf("live are %s", r.live())
		}
		return nil
	})
}

// Where one more worker than wanted is allowed, each renewal waits for the one before to have left, and capacity does not dip.
func TestRenewalWaitsForRoom(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string { return strings.Replace(text, "max = 8", "max = 4", 1) }})
	r.started(3)
	r.chief.mu.Lock()
	r.chief.slow = true
	r.chief.mu.Unlock()
	r.expire(4*time.Minute, worker(0, 1), worker(1, 1), worker(2, 1))
	draining := map[string]int{} // beats
	for end := r.now.Add(4 * time.Minute); r.now.Before(end); {
		for _, name := range r.chief.asked() { // each takes six seconds to leave
			if draining[name]++; draining[name] == 6 {
				var rank int
				if _, err := fmt.Sscanf(name, "worker-%d", &rank); err != nil {
					t.Fatal(err)
				}
				r.chief.set(rank, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
			}
		}
		r.joinAll()
		r.beat()
		training := 0
		for _, st := range r.list() {
			if st.ID.Role != backend.RoleWorker || !st.State.Live() {
				continue
			}
			switch r.chief.member(st.ID.Rank, st.ID.Generation).GetState() {
			case rpc.MemberState_MEMBER_STATE_READY, rpc.MemberState_MEMBER_STATE_DRAINING:
				training++
			}
		}
		if training < 3 {
			t.Fatalf("%d workers train: the backend was asked for %q", training, r.calls())
		}
	}
	if live := r.live(); strings.Contains(live, "worker-0-g1") || strings.Contains(live, "worker-1-g1") || strings.Contains(live, "worker-2-g1") {
		t.Errorf("live are %s", live)
	}
}

// Where a deadline comes to light when it is over (an end that was moved, a process that may be warned of it at any moment), the worker is not made to leave before
// its successor is ready: the cluster will see to that.
func TestDeadlineThatIsOver(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.expire(-time.Minute, worker(1, 1))
	r.beats(20)
	if got := r.chief.asked(); len(got) > 0 {
		t.Fatalf("asked to drain: %v, and nobody is ready to take over", got)
	}
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1")
	r.joinAll()
	r.until("it is renewed", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-2-g1 worker-3-g1"))
}

// A parameter server waits until no worker hands over, for as long as it has the time.
func TestServerWaitsForHandOver(t *testing.T) {
	for name, comes := range map[string]bool{"the successor comes": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			r := renewing(t)
			r.serverIs(0, true, 5)
			r.serverIs(1, true, 6)
			r.expire(24*time.Second, server(1, 1))
			var due, latest time.Time
			for r.s.want.ServerRenewal == nil {
				if due.IsZero() {
					terms, starts := r.s.walltimes(r.now)
					due, latest = starts[server(1, 0)], starts[server(1, 0)].Add(terms[0].lead/3)
				} else if comes && r.now.After(due) {
					r.joinAll()
				}
				r.beat()
				if r.now.After(latest.Add(time.Second)) {
					t.Fatal("the server waits for too long")
				}
			}
			handsOver := len(r.s.want.Renewals)+len(r.s.want.Draining) > 0
			if handsOver == comes || handsOver && r.now.Before(latest) || r.now.Before(due) {
				t.Errorf("the server's renewal began %v after it was due, %v before its latest; renewals %+v, draining %+v",
					r.now.Sub(due), latest.Sub(r.now), r.s.want.Renewals, r.s.want.Draining)
			}
		})
	}
}

// While a server is replaced no renewal of a worker begins, nor does one end, until the worker's time is up.
func TestWorkerWaitsForServer(t *testing.T) {
	r := expiring(t)
	r.chief.mu.Lock()
	r.chief.hold = make(chan struct{}) // the server's snapshot takes its time
	r.chief.mu.Unlock()
	defer close(r.chief.hold)
	r.until("it is due", func() error {
		if r.s.want.ServerRenewal == nil {
			return errors.New("not yet")
		}
		return nil
	})
	r.expire(30*time.Second, worker(0, 1))
	terms, starts := r.s.walltimes(r.now)
	late := false
	for r.now.Add(time.Second).Before(terms[0].last()) {
		r.beat()
		late = late || r.now.After(starts[worker(0, 0)])
		if r.s.handsOver() {
			t.Fatalf("%v before its time is up a worker is replaced: renewals %+v, draining %+v", terms[0].last().Sub(r.now), r.s.want.Renewals, r.s.want.Draining)
		}
	}
	if v := r.s.want.ServerRenewal; !late || v == nil || !v.Released.IsZero() {
		t.Fatalf("the server's renewal did not take that long: %+v", v)
	}
	r.beats(2)
	if !r.s.handsOver() {
		t.Error("the worker's time is up and it is not replaced")
	}
}

// world is a rig whose chief keeps time by the rig's clock and forgets its members when server 0 is replaced: they register with the next one a while after.
type world struct {
	*rig
	serving  uint64 // generation of the server 0 whose chief it is
	started  map[backend.ID]time.Time
	up       map[int]uint64 // servers that the chief knows, by generation
	walltime time.Duration
	first    time.Duration // by how much longer the first workers may run
	settled  bool          // two workers were ready with this chief
}

const (
	worldStart  = 2 * time.Second // of a process
	worldRejoin = 4 * time.Second // of workers with a new chief, and a second more for each rank
)

// fine makes what renewals take as short as it is here, as if that had been measured: they are cut as fine as can be.
func (w *world) fine() {
	w.s.want.Joins, w.s.want.Drains, w.s.want.ServerPauses = []time.Duration{worldStart}, []time.Duration{time.Second}, []time.Duration{worldStart + 2*time.Second}
}

// live lets a second pass, and says which workers train: they are ready, or drain, with the chief of now.
func (w *world) live() (ready, all []string) {
	w.t.Helper()
	w.beat()
	for _, st := range w.list() {
		if !st.State.Live() {
			delete(w.started, st.ID)
			continue
		}
		if w.started[st.ID].IsZero() {
			w.started[st.ID] = w.now
			if err := w.cluster.SetTimes(w.job.Name, st.ID, w.now, w.now); err != nil {
				w.t.Fatal(err)
			}
			if err := w.cluster.SetDeadline(w.job.Name, st.ID, w.now.Add(w.limit(st.ID))); err != nil {
				w.t.Fatal(err)
			}
			continue
		}
		if age := w.now.Sub(w.started[st.ID]); age > w.limit(st.ID) {
			w.t.Errorf("%s is ended by its walltime", st.ID)
			continue
		} else if age < worldStart {
			continue
		}
		w.arrive(st.ID)
	}
	w.chief.with(func(s *rpc.JobStatus) {
		s.NowUnixMs = w.now.UnixMilli()
		s.InGrace = s.NowUnixMs-s.StartedUnixMs < leaseTimeout.Milliseconds()
		for _, m := range s.Members {
			all = append(all, fmt.Sprintf("%s-g%d %v", m.Member, m.Generation, m.State))
			if m.State == rpc.MemberState_MEMBER_STATE_READY || m.State == rpc.MemberState_MEMBER_STATE_DRAINING {
				ready = append(ready, m.Member)
			}
		}
	})
	return ready, all
}

// limit is how long a process may run.
func (w *world) limit(id backend.ID) time.Duration {
	if id.Role == backend.RoleWorker && id.Generation == 1 && id.Rank < 2 {
		return w.walltime + w.first
	}
	return w.walltime
}

// arrive makes the chief know a process that has started.
func (w *world) arrive(id backend.ID) {
	if id.Role == backend.RoleServer {
		if id.Rank == 0 && w.serving != id.Generation {
			w.serving, w.settled = id.Generation, false
			w.chief.start()
			w.chief.with(func(s *rpc.JobStatus) { s.Members, s.StartedUnixMs = nil, w.now.UnixMilli() })
		}
		if w.up[id.Rank] != id.Generation {
			w.up[id.Rank] = id.Generation
			w.serverIs(id.Rank, true, 1000*uint64(id.Rank)+id.Generation)
		}
		return
	}
	var since time.Duration
	w.chief.with(func(s *rpc.JobStatus) { since = w.now.Sub(time.UnixMilli(s.StartedUnixMs)) })
	if since >= worldRejoin+time.Duration(id.Rank)*time.Second {
		w.chief.join(id.Rank, id.Generation)
	}
}

// Where everything ends after two and a half minutes, for five minutes: servers and workers are renewed in time, never both at once, and as long as one chief
// serves no fewer than the wanted workers train.
func TestRenewalsOfWorkersAndServersDoNotMeet(t *testing.T) {
	for _, c := range []struct {
		max   int           // workers: room for one more, or for many
		first time.Duration // by how much longer the first workers may run
	}{{3, 0}, {8, 0}, {8, -6 * time.Second}} {
		t.Run(fmt.Sprint(c.max, c.first), func(t *testing.T) {
			r := newRig(t, rigOptions{change: func(text string) string { return strings.Replace(text, "max = 8", fmt.Sprintf("max = %d", c.max), 1) }})
			w := &world{rig: r, started: map[backend.ID]time.Time{}, up: map[int]uint64{}, walltime: 150 * time.Second, first: c.first}
			w.fine()
			r.order("scale", 2)
			for range 5 * 60 {
				ready, all := w.live()
				if len(ready) >= 2 {
					w.settled = true
				}
				if w.settled && len(ready) < 2 {
					t.Fatalf("at %v two do not train: %q, live %s, renewals %+v, server %+v", r.now, all, r.live(), r.s.want.Renewals, r.s.want.ServerRenewal)
				}
				if v := r.s.want.ServerRenewal; v != nil && len(r.s.want.Renewals) > 0 {
					t.Fatalf("server %d is renewed while workers hand over: %+v", v.Index, r.s.want.Renewals)
				}
			}
			if n := r.s.want.Servers[0] + r.s.want.Servers[1]; n < 2+2*2 {
				t.Errorf("servers were renewed %d times", n)
			}
		})
	}
}
