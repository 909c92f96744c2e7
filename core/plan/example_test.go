package plan_test

import (
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/estimator"
)

// The example of Kale §3.4: a 10-minute plateau of 5 on the way from 4 to 6 is
// shorter than τ, so the job goes to 6 at once.
func ExampleStabilise() {
	fmt.Println(plan.Stabilise([]int{4, 4, 5, 6, 6, 6}, 1, 10*time.Minute, 15*time.Minute))
	// Output:
	// [4 4 6 6 6 6]
}

// A forecast in samples/s becomes workers per step; 500,000 is more than 28
// workers of 16,000 samples/s can train.
func ExampleEq10() {
	m := estimator.Model{Form: estimator.FormAsync, Theta: []float64{1.0 / 16_000, 0, 0}}
	workers, saturated := plan.Eq10([]float64{44_000, 134_000, 500_000}, m, plan.Limits{Min: 2, Max: 28}, 1)
	fmt.Println(workers, saturated)
	// Output:
	// [3 9 28] [false false true]
}

// One decision: the forecast doubles in three minutes, and a worker needs four to
// join, so now is the time.
func ExamplePolicy() {
	p, err := plan.New("kale", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	mean := make(plan.Values, 60)
	for i := range mean {
		mean[i] = 60_000
		if i >= 3 {
			mean[i] = 120_000
		}
	}
	d := p.Decide(plan.Observation{
		Now: now, Interval: time.Minute, Target: 4, Workers: plan.Workers{Running: 4},
		Forecast: plan.Forecast{At: now, Step: time.Minute, Mean: mean, Source: "seasonal", Trusted: true},
		Model:    estimator.Model{Form: estimator.FormAsync, Theta: []float64{1.0 / 16_000, 0, 0}},
		JoinTime: plan.Measured{Value: 4 * time.Minute, Samples: 5},
		Limits:   plan.Limits{Min: 2, Max: 28}, Rho: 1, Tau: 10 * time.Minute,
		Lag: 3 * time.Second, LagKnown: true, MaxLag: 20 * time.Minute,
	})
	fmt.Println(d.Kind, d.Target)
	fmt.Println(d.Reason)
	// Output:
	// out 8
	// the plan needs 8 workers within 5m for a load of 120,000 records/s, and 4 train 64,000 records/s
}
