package e2e_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// Rescales are interrupted at their most delicate moments: the scheduler, the chief and a leaving worker are killed in the middle of one. Each rescale
// comes to its end all the same, and every record is trained once.
func TestKillsInMidRescale(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 4})
	r.run()
	p := r.steadyTraffic(800)
	r.awaitSteady("four workers train", 4)
	r.awaitMore(400)

	r.scale(1)
	r.killScheduler()
	r.run()
	r.rescaledTo("one worker is left, though the scheduler was killed in the middle", 1)

	r.scale(3)
	r.await("new workers are being started", func() string {
		if st := r.process(backend.RoleWorker, 2); st.PID == 0 {
			return fmt.Sprintf("worker 2 is %s", st.State)
		}
		return ""
	})
	r.kill9(backend.RoleServer, 0)
	r.killScheduler()
	r.run()
	r.rescaledTo("three workers train, though chief and scheduler were killed in the middle", 3)

	r.scale(1)
	for rank := 1; rank <= 2; rank++ {
		if st := r.process(backend.RoleWorker, rank); st.PID > 0 && belongs(st.PID, r.dir) {
			_ = syscall.Kill(st.PID, syscall.SIGKILL) // it may have drained already
		}
	}
	r.rescaledTo("one worker is left, though the others were killed while they drained", 1)

	r.scale(4)
	r.scale(2)
	r.kill9(backend.RoleServer, 1)
	r.rescaledTo("two workers train, after an order on the heels of another", 2)

	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.killScheduler()
	r.stop() // without a scheduler
	r.gone()
	r.produced(nil)
	r.exact(2000)
}

// rescaledTo waits until n workers train in order and the backend has no others.
func (r *rig) rescaledTo(what string, n int) {
	r.t.Helper()
	r.awaitSteady(what, n)
	r.await("no other worker is left", func() string {
		live := 0
		for _, st := range r.list() {
			if st.ID.Role == backend.RoleWorker && st.State.Live() {
				live++
			}
		}
		v, err := r.view()
		switch {
		case live != n:
			return fmt.Sprintf("%d workers live", live)
		case err != nil:
			return err.Error()
		case v.Rescale != nil || v.Sample.Target != n:
			return fmt.Sprintf("the scheduler's target is %d, and its rescale %+v", v.Sample.Target, v.Rescale)
		}
		return ""
	})
	st, err := r.chief()
	if err != nil {
		r.fatalf("%v", err)
	}
	ready := 0
	for _, m := range st.GetMembers() {
		if m.GetState() == rpc.MemberState_MEMBER_STATE_READY { // whoever they are: of those that leave, the first are those that have not come yet
			ready++
		}
	}
	if ready != n {
		r.fatalf("%d members are ready, want %d: %v", ready, n, st.GetMembers())
	}
	r.awaitMore(400)
}
