package core

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

// What was to be written while the brokers stood still is written at once when they go on. Neither the silence nor the burst is the traffic: no forecast is made of
// them, and no worker is let go, until the traffic shows again as it is.
func TestOutageOfTheBrokersIsNoTraffic(t *testing.T) {
	r := newRig(t, rigOptions{change: longHistory})
	r.steadyTraffic()
	r.started(3)
	const perSecond = 10 // in each partition
	first := time.Now().Truncate(time.Second)
	o := traffic.BackfillOptions{Step: time.Second, From: first.Add(-230 * time.Second), To: first.Add(-60 * time.Second)}
	r.s.arrivals = traffic.NewArrivals(traffic.ArrivalsOptions{Keep: time.Hour, Step: time.Second, Fine: time.Minute})
	if _, err := traffic.Backfill(t.Context(), r.s.kafka, r.s.arrivals, o); err != nil {
		t.Fatal(err)
	}
	at, ends := r.s.arrivals.Ends()
	chief := r.s.seen.chief
	seen := func(after time.Duration, err error) time.Time {
		t.Helper()
		n := *r.s.seen
		n.at, n.ends, n.endsErr, n.chief, n.behind = at.Add(after), ends, err, chief, behind{next: ends}
		r.s.seen = &n
		r.s.follow(n.at)
		return n.at
	}
	grow := func(records int64) {
		for p := range ends {
			ends[p] += records
		}
	}
	for i := range 10 {
		grow(perSecond)
		if f := r.s.observe(seen(time.Duration(i+1)*time.Second, nil)).Forecast; !f.Trusted {
			t.Fatalf("before the outage: %s", f.Reason)
		}
	}
	for i := 13; i < 25; i += 3 {
		seen(time.Duration(i)*time.Second, errors.New("the brokers accept connections and do not answer"))
	}
	var doubted, trusted int
	for i := 25; i < 60; i++ {
		if i == 27 {
			grow(16 * perSecond) // the burst
		}
		grow(perSecond)
		now := seen(time.Duration(i)*time.Second, nil)
		obs := r.s.observe(now)
		for j, v := range obs.Rates.Values {
			if known := !math.IsNaN(v); known && math.Abs(v-rigPartitions*perSecond) > 1e-6 {
				t.Fatalf("%d s: of the bin at %s it is held that %v records/s arrived", i, obs.Rates.Start.Add(time.Duration(j)*obs.Rates.Step), v)
			}
		}
		if obs.Forecast.Trusted {
			trusted++
			for _, v := range obs.Forecast.Mean {
				if math.Abs(v-rigPartitions*perSecond) > 0.1*rigPartitions*perSecond {
					t.Fatalf("%d s: a forecast of %v is trusted", i, obs.Forecast.Mean)
				}
			}
			continue
		}
		doubted++
		if trusted > 0 || !strings.HasPrefix(obs.Forecast.Reason, "the brokers did not answer from ") {
			t.Fatalf("%d s, trusted before %d times: %s", i, trusted, obs.Forecast.Reason)
		}
		if d := r.s.policy.Decide(obs); d.Kind == plan.KindIn {
			t.Fatalf("%d s: %s", i, d.Reason)
		}
	}
	if doubted < 15 || trusted == 0 {
		t.Errorf("after the outage the forecast was doubted %d times and trusted %d times", doubted, trusted)
	}
}

// A scheduler that was itself suspended misses one answer; that is no outage.
func TestOneMissingAnswerIsNoOutage(t *testing.T) {
	at := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	var o outages
	for _, c := range []struct {
		after time.Duration
		err   error
	}{{0, nil}, {time.Minute, context.DeadlineExceeded}, {65 * time.Second, nil}} {
		o.heard(at.Add(c.after), c.err, time.Second, time.Minute)
	}
	if why := o.doubt(at.Add(66*time.Second), time.Second); why != "" {
		t.Error(why)
	}
}

// That brokers answer no worker is told where they answer the scheduler; where they do not, that is told, and it is one thing.
func TestBrokersThatAnswerNobodyAreToldOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	const says = "no broker of [b:1] has answered"
	r.chief.with(func(s *rpc.JobStatus) {
		s.Problems = []*rpc.PartitionProblem{{Partition: 1, Kind: rpc.PartitionProblem_KIND_UNREACHABLE, Detail: says + " for 4s"}}
	})
	told := func() bool {
		_, err := r.problem(says)
		return err == nil
	}
	if r.beat(); !told() {
		t.Errorf("of a worker that is cut off: problems %q", r.s.View().Problems)
	}
	r.s.outages.heard(time.Now(), errors.New("the brokers do not answer"), time.Minute, time.Hour)
	if r.beat(); told() {
		t.Errorf("of brokers that have just begun to answer again: problems %q", r.s.View().Problems)
	}
	r.s.outages.missed = time.Now().Add(-reconnecting)
	if r.beat(); !told() {
		t.Errorf("of a worker that is still cut off: problems %q", r.s.View().Problems)
	}
}
