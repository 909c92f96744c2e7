package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
)

// A chief that stands still, which its backend calls running, is ended and started again: training goes on, and every record is trained once.
func TestHungChiefIsReplaced(t *testing.T) {
	t.Parallel()
	r, p := training(t)

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

	r.finish(p, nil, 600)
}

// A stop without a scheduler, beside a chief that stands still, says until when it waits for it, and ends; every record is trained once.
func TestStopBesideAHungChief(t *testing.T) {
	t.Parallel()
	r, p := training(t)
	chief := r.process(backend.RoleServer, 0)
	r.killScheduler()
	r.signal(chief.PID, syscall.SIGSTOP)
	stop := r.child("stop", r.name())
	says := fmt.Sprintf("%s, which has not answered for ", chief.ID)
	r.await("it says what it waits for", func() string {
		if told := stop.err.String(); !strings.Contains(told, says) || !strings.Contains(told, " (after 30s it is ended by force and started again)") {
			return "it says " + told
		}
		return ""
	})
	if code := stop.wait(r); code != 0 {
		r.fatalf("exit code %d: %s", code, stop.err.String())
	}
	r.gone()
	r.run()
	r.awaitSteady("two workers train again", 2)
	r.finish(p, nil, 600)
}
