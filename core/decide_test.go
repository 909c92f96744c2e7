package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/estimator"
)

// A batch that is changed in the file of a job which runs is that of workers to come: what the scheduler knows and decides when it takes the job up is as before,
// what it has measured of the throughput included.
func TestAChangedBatchChangesNoDecision(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("auto", 0)
	for range 5 {
		r.s.learn(estimator.Sample{At: r.now, Workers: 2, Rate: 1500, Saturated: true})
	}
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	taken := func() (plan.Observation, plan.Decision) {
		r.t.Helper()
		r.reopen()
		r.s.seen = r.s.look(t.Context())
		r.s.follow(r.now)
		o := r.s.observe(r.now)
		return o, r.s.policy.Decide(o)
	}
	o, d := taken()
	r.job.Model.Batch, r.job.Workers.Queue = 64, 256
	o2, d2 := taken()
	if diff := cmp.Diff(o, o2, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("the observation (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(d, d2, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("the decision (-before +after):\n%s", diff)
	}
	if got := o2.Model.Throughput(2, 2); got < 1400 || got > 1600 {
		t.Errorf("the model says %v records/s of 2 workers, and 1500 were measured", got)
	}
}
