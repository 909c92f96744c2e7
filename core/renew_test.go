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

// drainNode drains the node that workers are on, with so much time to leave it.
func (r *rig) drainNode(in time.Duration, ids ...backend.ID) {
	r.t.Helper()
	for _, id := range ids {
		if err := r.cluster.SetEnd("ctr", id, r.now.Add(in), backend.EndDrain); err != nil {
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
	if _, err := r.note("worker-1-g1 gave way to worker-3-g1"); err != nil {
		t.Error(err)
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

func atMostThree(text string) string { return strings.Replace(text, "max = 8", "max = 3", 1) }

// Where as many workers run as the job file allows, a successor may be one more for the time of its handover, and there is never another one.
func TestWalltimeAtMostWorkers(t *testing.T) {
	r := newRig(t, rigOptions{change: atMostThree})
	r.started(3)
	r.expire(3*time.Minute, worker(0, 1), worker(1, 1), worker(2, 1))
	least, most := r.pass(3 * time.Minute)
	if least != 3 || most != 4 {
		t.Errorf("at least %d workers trained and at most %d ran; want 3 and 4", least, most)
	}
	r.until("all run again", r.settled(3))
	for _, rank := range []int{0, 1, 2} {
		if strings.Contains(r.live(), worker(rank, 1).String()) {
			t.Errorf("%s was not renewed: %s", worker(rank, 1), r.live())
		}
	}
	if r.s.want.Target != 3 {
		t.Errorf("the target is %d, want 3", r.s.want.Target)
	}
}

// A node is drained: who is on it is replaced at once and not just before the drain's end, one after the other.
func TestDrainedNodeIsLeftAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change func(string) string
		most   int
	}{"room for more": {nil, 5}, "as many as the job file allows": {atMostThree, 4}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{change: c.change})
			r.started(3)
			r.drainNode(time.Hour, worker(0, 1), worker(1, 1))
			least, most := r.pass(2 * time.Minute)
			if least != 3 || most > c.most {
				t.Errorf("at least %d workers trained and at most %d ran; want 3, and %d at most", least, most, c.most)
			}
			for _, rank := range []int{0, 1} {
				if strings.Contains(r.live(), worker(rank, 1).String()) {
					t.Errorf("%s is still on the node that is drained: %s", worker(rank, 1), r.live())
				}
			}
			v := r.s.want.LastRenewal
			if v == nil || v.Cause != backend.EndDrain || !v.Warm || !strings.Contains(v.String(), ", since its node is drained") {
				t.Errorf("the last renewal is %v", v)
			}
		})
	}
}

// A node is drained and there is no place elsewhere: the worker stays until the drain's end, and leaves then, its successor being there or not.
func TestDrainedNodeWithoutAPlaceElsewhere(t *testing.T) {
	r := newRig(t, rigOptions{slots: 3})
	r.started(3)
	r.drainNode(time.Hour, worker(1, 1))
	for range 57 { // minutes
		r.now = r.now.Add(time.Minute - time.Second)
		r.beat()
		if live := r.live(); live != "ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1" {
			t.Fatalf("with time left, live are %s", live)
		}
	}
	if !strings.Contains(r.s.waits(), "worker-3-g1") {
		t.Errorf("it waits for %q, want the successor", r.s.waits())
	}
	least, _ := r.pass(3*time.Minute - 5*time.Second)
	if least != 2 || strings.Contains(r.live(), worker(1, 1).String()) {
		t.Errorf("at least %d workers trained, and live are %s; want that worker-1 has left", least, r.live())
	}
	if v := r.s.want.LastRenewal; v == nil || v.Warm || v.At.After(v.Deadline) {
		t.Errorf("the last renewal is %v", v)
	}
}

// A drain is called off before the successor is ready, or another deadline is set.
func TestDrainIsChanged(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.drainNode(time.Hour, worker(1, 1))
	r.until("a successor is started", func() error {
		if len(r.s.want.Renewals) == 0 {
			return fmt.Errorf("live are %s", r.live())
		}
		return nil
	})
	r.drainNode(30*time.Minute, worker(1, 1))
	r.beats(2)
	if vs := r.s.want.Renewals; len(vs) != 1 || vs[0].Deadline.After(r.now.Add(30*time.Minute)) {
		t.Errorf("renewals %+v, want the new deadline", vs)
	}
	if err := r.cluster.SetEnd("ctr", worker(1, 1), time.Time{}, ""); err != nil {
		t.Fatal(err)
	}
	r.until("the successor has left", func() error {
		if got := r.live(); got != "ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1" || len(r.s.want.Renewals) > 0 {
			return fmt.Errorf("live are %s", got)
		}
		return nil
	})
	if !slices.Equal(r.s.want.Ranks, []int{0, 1, 2}) {
		t.Errorf("wanted are %v", r.s.want.Ranks)
	}
}

// Where the job file allows no more workers and one more has no place either, the old one drains just before its time is up.
func TestWalltimeWithoutRoom(t *testing.T) {
	r := newRig(t, rigOptions{change: atMostThree, slots: 3})
	r.started(3)
	r.expire(4*time.Minute, worker(0, 1), worker(1, 1), worker(2, 1))
	least, most := r.pass(4 * time.Minute)
	if least != 2 || most != 3 {
		t.Errorf("at least %d workers trained and at most %d ran; want 2 and 3", least, most)
	}
	r.until("all run again", r.settled(3))
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
	if v := r.s.want.Renewals[0]; len(r.s.want.Renewals) != 1 || v != (renewal{1, 1, 3, v.Deadline, backend.EndWalltime, v.Due}) {
		t.Fatalf("renewals %+v, want that of worker-1 by worker-3", r.s.want.Renewals)
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

// A worker whose successor waits for a place gives its own up early only for others that follow: else it stays until it has to leave, since somebody else's job may
// be the next in the cluster's queue.
func TestAWorkerKeepsItsPlaceWhileNoOtherFollows(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.expire(2*time.Minute, worker(0, 1))
	r.until("its successor is wanted", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1"))
	r.queue(worker(2, 1))
	v := r.s.want.Renewals[0]
	for r.beat(); r.now.Before(r.s.latestLeave(v).Add(-2 * time.Second)); r.beat() {
		if len(r.s.want.Renewals) != 1 || len(r.s.want.Draining) > 0 {
			t.Fatalf("it leaves %v before its end, %v before it has to", v.Deadline.Sub(r.now), r.s.latestLeave(v).Sub(r.now))
		}
	}
	if !r.now.After(v.Due) {
		t.Fatalf("at %v nobody had been due, which is at %v", r.now, v.Due)
	}
	r.beats(3)
	if len(r.s.want.Renewals) > 0 {
		t.Errorf("it has not left %v before its end", v.Deadline.Sub(r.now))
	}
}

// Where others are before the successor in the cluster's queue, what a worker gives up is theirs: it stays until it has to leave, whoever follows.
func TestAWorkerKeepsItsPlaceWhileOthersAreBeforeItsSuccessor(t *testing.T) {
	for _, behind := range []bool{false, true} {
		r := newRig(t, rigOptions{})
		r.started(2)
		r.expire(2*time.Minute, worker(0, 1), worker(1, 1))
		r.until("a successor is wanted", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1"))
		r.queue(worker(2, 1))
		if err := r.cluster.SetBehind("ctr", worker(2, 1), behind); err != nil {
			t.Fatal(err)
		}
		v := r.s.want.Renewals[0]
		left := false
		for r.beat(); r.now.Before(r.s.latestLeave(v).Add(-2 * time.Second)); r.beat() {
			left = left || r.s.leaving(worker(v.Rank, v.Generation))
		}
		if left == behind {
			t.Errorf("others are before its successor: %v; it has left early: %v", behind, left)
		}
	}
}

// A worker that the cluster asks to end, in time for a drain, trains on until it is asked where its successor is not ready, whether that has a place or not, and also
// on a node that is drained, if its walltime ends first.
func TestAWorkerWithoutASuccessorTrainsUntilItIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		waits, drained bool
	}{"no place": {waits: true}, "not ready": {}, "on a drained node": {waits: true, drained: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			if r.expire(90*time.Second, worker(0, 1)); c.drained {
				r.drainNode(90*time.Second, worker(0, 1)) // as of a walltime that ends before the drain
			}
			if err := r.cluster.SetAsks("ctr", worker(0, 1)); err != nil {
				t.Fatal(err)
			}
			r.until("its successor is wanted", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1"))
			if c.waits {
				r.queue(worker(2, 1))
			}
			v := r.s.want.Renewals[0]
			for r.beat(); r.now.Before(v.Deadline.Add(time.Minute)); r.beat() {
				if len(r.s.want.Draining) > 0 {
					t.Fatalf("it leaves %v before the deadline", v.Deadline.Sub(r.now))
				}
			}
			if err := r.cluster.SetState("ctr", worker(0, 1), backend.StateFailed, "Slurm asked it to stop"); err != nil { // when it has drained
				t.Fatal(err)
			}
			r.beats(2)
			if len(r.s.want.Renewals) > 0 || !slices.Equal(r.s.want.Ranks, []int{1, 2}) {
				t.Errorf("after its end wanted are %v, and renewed %v", r.s.want.Ranks, r.s.want.Renewals)
			}
			if p := r.s.problems(); slices.ContainsFunc(p, func(p string) bool { return strings.Contains(p, "worker-0-g1 has ended") }) {
				t.Errorf("problems: %q", p)
			}
			says := r.s.want.LastRenewal.String()
			if blamed := strings.Contains(says, "drain of its node") || strings.Contains(says, "drained") != c.drained; blamed {
				t.Errorf("what became of it: %s", says)
			}
		})
	}
}
