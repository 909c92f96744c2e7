package plan

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// The more records wait, the more workers: never fewer, with an outage and live.
func TestCostIsMonotoneInTheBacklog(t *testing.T) {
	t.Parallel()
	p := policy(t, "cost")
	rng := rand.New(rand.NewPCG(11, 12))
	for range 6 {
		o := busyMoment(0.6 + rng.Float64())
		o.Target = 6 + rng.IntN(12)
		o.Workers.Running = o.Target
		if rng.IntN(2) == 0 {
			o.RescaleCost, o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
		}
		last := 0
		for _, minutes := range []float64{0, 1, 3, 6, 10, 15, 25} {
			rate := o.Forecast.Mean[0]
			o.Lag, o.BacklogRecords = time.Duration(minutes*float64(time.Minute)), int64(60*minutes*rate)
			// A scale-in is not allowed with a lag over the objective; what is wanted is what is asked for here.
			d := p.Decide(o)
			want, _ := d.Term("wanted")
			if int(want.Value) < last {
				t.Errorf("outage %v, %d workers: %v wanted with %v min of backlog, %d with less", o.RescaleCost.Value, o.Target, want.Value, minutes, last)
			}
			last = int(want.Value)
		}
	}
}

// Beyond the peak of F a worker more trains less, and none is taken: not for the load, and not for a backlog.
func TestCostTakesNoWorkerThatTrainsNothing(t *testing.T) {
	t.Parallel()
	// Reference: Kale §3.3, the synchronous fit on A10: the peak is at 10 workers.
	a10 := estimator.Model{Form: estimator.FormSync, Batch: 16384, Theta: []float64{0.00035, 2.5726, 0.9824, 0.02786}}
	for _, live := range []bool{false, true} {
		for _, minutes := range []int{0, 10, 30} {
			o := busyMoment(0.2) // far more than the 30,005 samples/s of the peak
			o.Model, o.Target, o.Workers.Running = a10, 9, 9
			o.Lag, o.BacklogRecords = time.Duration(minutes)*time.Minute, int64(60*minutes)*30_000
			if live {
				o.RescaleCost, o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
			}
			if d := policy(t, "cost").Decide(o); d.Target > 10 {
				t.Errorf("live %v, %d min of backlog: %d workers, F has its peak at 10\n%s", live, minutes, d.Target, d.Explain())
			}
		}
	}
}
