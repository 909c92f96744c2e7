package core

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// What the backend refuses outright is said with its cause, and uses no generation up.
func TestCannotStartWhatIsRefused(t *testing.T) {
	r := newRig(t, rigOptions{trainer: "nonsense"})
	r.order("scale", 2)
	r.beats(10)
	v := r.s.View()
	if v.State != StateCannotStart || !strings.Contains(v.Cause, `ps-0-g1 is not started: `) || !strings.Contains(v.Cause, `the fake has no program "nonsense"`) {
		t.Errorf("%s: %q", v.State, v.Cause)
	}
	for _, gens := range []map[int]uint64{r.s.want.Servers, r.s.want.Workers} {
		for rank, g := range gens {
			if g != 1 {
				t.Errorf("rank %d is at generation %d", rank, g)
			}
		}
	}
}

// A refusal that the backend lists too, as a process that never started, uses none up either; one that did start and ended does.
func TestRefusedProcessThatIsListed(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.s.deny(worker(1, 1), backend.Errorf(backend.Unauthorised, "not you"), r.now)
	r.s.want.Ranks, r.s.want.Target, r.s.want.Workers[1] = []int{0, 1}, 2, 1
	r.s.seen.list = append(r.s.seen.list, backend.Status{ID: worker(1, 1), State: backend.StateFailed})
	if ws, changed := r.s.missing(r.now); len(ws) != 1 || ws[0].ID != worker(1, 1) || changed {
		t.Errorf("missing are %v, changed %v", ws, changed)
	}
	r.s.seen.list[len(r.s.seen.list)-1].Started = r.now
	if ws, changed := r.s.missing(r.now); len(ws) != 1 || ws[0].ID != worker(1, 2) || !changed {
		t.Errorf("after it has run, missing are %v, changed %v", ws, changed)
	}
}

// A process that ends again and again before anybody trains is no start; what waits for room is one.
func TestCannotStartWhatCrashes(t *testing.T) {
	r := newRig(t, rigOptions{slots: 1})
	r.order("scale", 2)
	r.beats(2)
	if v := r.s.View(); v.State != StateStarting || v.Cause != "" {
		t.Errorf("while a worker waits for room: %s: %q", v.State, v.Cause)
	}
	r.crashes()
	if v := r.s.View(); v.State != StateCannotStart || !strings.Contains(v.Cause, "ps-0-g3 has ended 3×: ended with code 3") {
		t.Errorf("%s: %q", v.State, v.Cause)
	}
	r.joinAll()
	r.beat()
	if v := r.s.View(); v.State != StateRunning || v.Cause != "" {
		t.Errorf("once a worker trains: %s: %q", v.State, v.Cause)
	}
}

func (r *rig) crashes() { r.crash(0) }

// crash ends a server with code 3 as often as a crash loop takes, and waits each time until it is tried again.
func (r *rig) crash(index int) {
	r.t.Helper()
	for g := uint64(1); g <= crashLoop; g++ {
		if err := r.cluster.Exit("ctr", server(index, g), 3); err != nil {
			r.t.Fatal(err)
		}
		r.until("it is tried again", func() error {
			if r.cluster.Starts("ctr", server(index, g+1)) != 1 {
				return context.DeadlineExceeded
			}
			return nil
		})
	}
}

// A job whose servers do not all stay up trains nothing, whoever else answers.
func TestAServerThatCrashesIsNotRunning(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(st *rpc.JobStatus) { st.Servers[1].Info.Up = false })
	r.crash(1)
	if v := r.s.View(); v.State != StateCannotStart || !strings.Contains(v.Cause, "ps-1-g3 has ended 3×: ended with code 3") {
		t.Errorf("%s: %q", v.State, v.Cause)
	}
	r.joinAll()
	r.until("it is up", func() error {
		if v := r.s.View(); v.State != StateRunning || v.Cause != "" {
			return fmt.Errorf("%s: %q", v.State, v.Cause)
		}
		return nil
	})
}

// Of a job that has trained, a chief that is silent since its server ends again and again is no riddle.
func TestAChiefThatCrashesIsNotUnknown(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.stop()
	r.beat()
	if v := r.s.View(); v.State != StateUnknown {
		t.Errorf("when the chief is silent: %s", v.State)
	}
	r.crashes()
	if v := r.s.View(); v.State != StateCannotStart || !strings.Contains(v.Cause, "ps-0-g3 has ended 3×: ended with code 3") {
		t.Errorf("%s: %q", v.State, v.Cause)
	}
	if d := r.decision(); d.Kind != plan.KindHold {
		t.Errorf("decision %s: %s", d.Kind, d.Reason)
	}
}

// A start that was sent is waited for, for a while, by a scheduler that ends.
func TestLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := lingering(parent, time.Minute)
		defer cancel()
		end()
		time.Sleep(lingerFor - time.Millisecond)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("it ended too soon")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it did not end")
		}
		late, cancel := lingering(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Second + time.Millisecond)
		if late.Err() == nil {
			t.Error("its timeout did not end it")
		}
	})
}

// interrupting is a backend whose scheduler is asked to end while it starts something.
type interrupting struct {
	backend.Backend
	end context.CancelFunc
}

func (b *interrupting) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	b.end()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return b.Backend.Ensure(ctx, job, ws)
}

func TestStartUnderWayIsFinished(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	r := newRig(t, rigOptions{wrap: func(b backend.Backend) backend.Backend { return &interrupting{Backend: b, end: end} }})
	r.order("scale", 1)
	if err := r.s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
	if r.s.ensureErr != nil {
		t.Error(r.s.ensureErr)
	}
}

// A scheduler that begins while its backend shows it nothing says how many workers are wanted, and why none is asked for: it holds none.
func TestBeginningWithABackendThatIsBlocked(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.backend.FailNext(fake.OpList, backend.Errorf(backend.Blocked, "put the folder back"))
	r.beat()
	d := r.decision()
	if d.Target != 0 || !strings.HasPrefix(d.Reason, "no worker is asked for yet, though 1 is wanted: ") || !strings.Contains(d.Reason, "put the folder back") {
		t.Errorf("%d: %s", d.Target, d.Reason)
	}
	r.wantCalls()
	r.beats(2)
	if d := r.decision(); d.Target < 1 {
		t.Errorf("when it answers: %d, %s", d.Target, d.Reason)
	}
}
