package core

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/traffic"
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
	r.now = time.Now() // what the brokers are asked from here on is asked after it
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

// TestHistoryEndsWithWhatWasRead: a decision that falls just after a bin's edge, when the brokers were last asked just before it, goes by the bins that were read whole. The one that was not
// was unknown, so that the forecast began without the newest there is.
func TestHistoryEndsWithWhatWasRead(t *testing.T) {
	j := &job.Job{}
	j.Forecast.Interval, j.Forecast.History = time.Second, time.Minute
	s := &Scheduler{job: j, arrivals: traffic.NewArrivals(traffic.ArrivalsOptions{Keep: time.Minute, Step: time.Second, Fine: time.Minute, MaxGap: 3 * time.Second})}
	began := time.Date(2026, 11, 28, 18, 23, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	for k := range 100 {
		if err := s.arrivals.Observe(at(time.Duration(k)*250*time.Millisecond), map[int32]int64{0: int64(100 * k)}); err != nil {
			t.Fatal(err)
		}
	} // the last time at 24.75 s
	for _, c := range []struct{ now, end time.Duration }{
		{24750 * time.Millisecond, 24 * time.Second},
		{25*time.Second + 200*time.Microsecond, 24 * time.Second}, // the bin that ends at 25 s is still to come
		{25749 * time.Millisecond, 24 * time.Second},
		{27 * time.Second, 27 * time.Second}, // an outage is none of this: its bins are unknown
	} {
		h := s.history(at(c.now))
		if !h.End().Equal(at(c.end)) {
			t.Errorf("decided at %v, the history ends at %v, want %v", c.now, h.End().Sub(began), c.end)
		}
		if last := h.Values[len(h.Values)-1]; (c.now < 27*time.Second) != (last == 400) || c.now == 27*time.Second && !math.IsNaN(last) {
			t.Errorf("decided at %v, the last bin has %v records/s", c.now, last)
		}
	}
}
