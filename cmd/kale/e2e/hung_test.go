package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// A chief that stands still, which its backend calls running, is ended and started again: training goes on, and every record is trained once.
func TestHungChiefIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{})
	r.run()
	p := r.steadyTraffic(300)
	r.awaitSteady("two workers train", 2)
	r.awaitMore(300)

	before, old := r.chiefIncarnation(), r.process(backend.RoleServer, 0)
	r.signal(old.PID, syscall.SIGSTOP)
	told := ""
	r.await("another chief serves, and the scheduler says why", func() string {
		if v, err := r.view(); err == nil {
			for _, problem := range v.Problems {
				if strings.HasPrefix(problem, old.ID.String()+" has not answered for ") {
					told = problem
				}
			}
		}
		if now := r.chiefIncarnation(); now <= before || told == "" {
			return fmt.Sprintf("its incarnation is %d, before it was %d; told was %q", now, before, told)
		}
		return ""
	})
	if now := r.process(backend.RoleServer, 0); now.ID.Generation != old.ID.Generation+1 {
		r.fatalf("server 0 is %s and was %s", now.ID, old.ID)
	}
	if belongs(old.PID, r.dir) {
		r.fatalf("process %d, which hung, is still there", old.PID)
	}
	r.awaitSteady("two workers train with the new chief", 2)
	r.awaitMore(300)

	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	r.gone()
	r.produced(nil)
	r.exact(600)
}
