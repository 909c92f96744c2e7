package e2e_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// The whole machine goes down: scheduler, plugin, supervisors, servers, workers and broker at once. When it is up again, `kale run` with the same job
// file is all that is needed, and no record is lost or trained twice.
func TestPowerFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{})
	r.run()
	p := r.steadyTraffic(800)
	r.awaitSteady("the job trains", 2)
	r.snapshot()
	r.awaitMore(800)
	for _, when := range []string{"first", "second"} {
		r.killScheduler() // first, for it would start the others again
		for left := processes(r.dir); len(left) > 0; left = processes(r.dir) {
			for pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL) // children die with their supervisors
			}
		}
		r.kafka.Kill9()
		r.kafka.Restart()
		r.run()
		r.awaitSteady(fmt.Sprintf("it trains after the %s power failure", when), 2)
		r.awaitMore(800)
	}
	r.finish(p, nil, 2400)
}
