package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// expire gives workers a walltime that ends so much after the rig's clock.
func (r *rig) expire(in time.Duration, ids ...backend.ID) {
	r.t.Helper()
	for _, id := range ids {
		if err := r.cluster.SetDeadline("ctr", id, r.now.Add(in)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.beat()
}

// pass lets the time pass, second by second, with workers that join as soon as they run, and the cluster ending what has outlived its walltime. It returns the
// least number of workers that trained at any time, and the most processes of workers.
func (r *rig) pass(d time.Duration) (leastTraining, mostHeld int) {
	r.t.Helper()
	leastTraining = 1 << 20
	for end := r.now.Add(d); r.now.Before(end); {
		r.joinAll()
		r.beat()
		training, held := 0, 0
		for _, st := range r.list() {
			if st.ID.Role != backend.RoleWorker || !st.State.Live() {
				continue
			}
			held++
			if !st.Deadline.IsZero() && r.now.After(st.Deadline) {
				r.t.Errorf("%s has outlived its walltime", st.ID)
			}
			if m := r.chief.member(st.ID.Rank, st.ID.Generation); m.GetState() == rpc.MemberState_MEMBER_STATE_READY {
				training++
			}
		}
		leastTraining, mostHeld = min(leastTraining, training), max(mostHeld, held)
	}
	return leastTraining, mostHeld
}

// A warm successor under a fresh rank takes over before the walltime ends: capacity does not dip, nothing is decided, and the old one drains.
func TestWalltimeIsRenewedWarm(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.expire(10*time.Minute, worker(1, 1))
	for range 8 { // minutes
		r.now = r.now.Add(time.Minute - time.Second)
		r.beat()
	}
	r.wantCalls()
	least, most := r.pass(2 * time.Minute)
	if least != 3 || most != 4 {
		t.Errorf("at least %d workers trained and at most %d ran; want 3 and 4", least, most)
	}
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-2-g1 worker-3-g1")
	r.wantCalls("ensure worker-3-g1", "release worker-1-g1 drained")
	if got := r.chief.asked(); !slices.Equal(got, []string{"worker-1"}) {
		t.Errorf("asked to drain: %v", got)
	}
	if !slices.Equal(r.s.want.Ranks, []int{0, 2, 3}) || r.s.want.Target != 3 || len(r.s.want.Renewals) > 0 {
		t.Errorf("wanted are %+v", r.s.want)
	}
}

// Workers that were started together do not renew together.
func TestRenewalsAreStaggered(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(6)
	var all []backend.ID
	for rank := range 6 {
		all = append(all, worker(rank, 1))
	}
	r.expire(2*time.Minute, all...)
	least, most := r.pass(2 * time.Minute)
	if least != 6 || most > 8 {
		t.Errorf("at least %d workers trained and at most %d ran; want 6, and 8 at most", least, most)
	}
	for _, id := range all {
		if strings.Contains(r.live(), id.String()) {
			t.Errorf("%s was not renewed: %s", id, r.live())
		}
	}
}

// Where the job file allows no more workers, the old one drains just before its time is up, and the next of its rank starts when it is gone.
func TestWalltimeWithoutRoom(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string { return strings.Replace(text, "max = 8", "max = 3", 1) }})
	r.started(3)
	r.expire(2*time.Minute, worker(0, 1), worker(1, 1), worker(2, 1))
	least, most := r.pass(2 * time.Minute)
	if least != 2 || most != 3 {
		t.Errorf("at least %d workers trained and at most %d ran; want 2 and 3", least, most)
	}
	r.until("all run again", r.settled(3))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g2 worker-1-g2 worker-2-g2")
	for _, call := range r.calls() {
		if strings.HasSuffix(call, "forced") {
			t.Errorf("the backend was asked for %q", call)
		}
	}
}

// A successor that finds no place takes over when the old worker has to leave, and is placed when that has gone.
func TestSuccessorWithoutAPlace(t *testing.T) {
	r := newRig(t, rigOptions{slots: 3})
	r.started(3)
	r.expire(2*time.Minute, worker(1, 1))
	least, most := r.pass(2 * time.Minute)
	if least != 2 || most != 3 {
		t.Errorf("at least %d workers trained and at most %d ran; want 2 and 3", least, most)
	}
	r.until("all run again", r.settled(3))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-2-g1 worker-3-g1")
}

// renewing brings a rig to where worker 1 of 3 is being renewed by worker 3, which runs and is not ready.
func renewing(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, rigOptions{})
	r.started(3)
	r.expire(time.Minute, worker(1, 1))
	for range 60 {
		if len(r.s.want.Renewals) > 0 {
			break
		}
		r.beat()
	}
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1")
	if want := []renewal{{1, 1, 3, r.s.want.Renewals[0].Deadline}}; !slices.Equal(r.s.want.Renewals, want) {
		t.Fatalf("renewals %+v, want %+v", r.s.want.Renewals, want)
	}
	if w := r.s.workers(); w.Running != 3 || w.Pending != 0 {
		t.Errorf("a successor counts as one of the workers: %+v", w)
	}
	return r
}

func TestRenewalInTheMiddle(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*rig) error
		want string
		n    int
	}{
		"the scheduler restarts":        {func(r *rig) error { r.reopen(); return nil }, "worker-0-g1 worker-2-g1 worker-3-g1", 3},
		"the old worker ends":           {func(r *rig) error { return r.cluster.Exit("ctr", worker(1, 1), 1) }, "worker-0-g1 worker-2-g1 worker-3-g1", 3},
		"the successor ends":            {func(r *rig) error { return r.cluster.Exit("ctr", worker(3, 1), 1) }, "worker-0-g1 worker-2-g1 worker-3-g2", 3},
		"fewer are wanted":              {func(r *rig) error { r.order("scale", 2); return nil }, "worker-0-g1 worker-2-g1", 2},
		"fewer are wanted, it is ready": {func(r *rig) error { r.joinAll(); r.order("scale", 2); return nil }, "", 2},
		"more are wanted":               {func(r *rig) error { r.order("scale", 4); return nil }, "worker-0-g1 worker-1-g2 worker-2-g1 worker-3-g1", 4},
		"the chief is new":              {func(r *rig) error { r.chief.start(); return nil }, "worker-0-g1 worker-2-g1 worker-3-g1", 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := renewing(t)
			if err := c.do(r); err != nil {
				t.Fatal(err)
			}
			r.until("it is done", func() error {
				if err := r.settled(c.n)(); err != nil {
					return err
				}
				if len(r.s.want.Renewals) > 0 {
					return fmt.Errorf("renewals %+v", r.s.want.Renewals)
				}
				return nil
			})
			r.beats(3)
			if got := r.live(); c.want != "" && got != "ps-0-g1 ps-1-g1 "+c.want {
				t.Errorf("live are %s, want %s", got, c.want)
			}
			if n := strings.Count(r.live(), "worker"); n != c.n {
				t.Errorf("live are %s, want %d workers", r.live(), c.n)
			}
		})
	}
}

// A stop takes successors with it.
func TestStopDuringARenewal(t *testing.T) {
	r := renewing(t)
	r.order("stop", 0)
	r.until("it has stopped", func() error {
		if !r.s.want.Stopped {
			return fmt.Errorf("live are %s", r.live())
		}
		return nil
	})
	r.mustBeLive("")
}

// A walltime that is shorter than what a renewal is thought to take does not make workers follow each other without end.
func TestShortWalltimeDoesNotChurn(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	for range 200 {
		for _, st := range r.list() { // the cluster gives everybody 20 s
			if st.ID.Role == backend.RoleWorker && st.Deadline.IsZero() {
				if err := r.cluster.SetTimes("ctr", st.ID, r.now, r.now); err != nil {
					t.Fatal(err)
				}
				if err := r.cluster.SetDeadline("ctr", st.ID, r.now.Add(20*time.Second)); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.joinAll()
		r.beat()
	}
	started := 0
	for _, call := range r.calls() {
		if strings.HasPrefix(call, "ensure worker") {
			started++
		}
	}
	if started < 2*200/20 || started > 3*2*200/20 {
		t.Errorf("in 200 s two workers of 20 s were followed by %d others", started)
	}
}
