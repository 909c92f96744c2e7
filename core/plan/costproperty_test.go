package plan

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// The more records wait, the more workers: never fewer, with an outage and live. That
// holds while the objective is far, and again once it is broken. Between, it need not:
// an outage may be what breaks the objective, and what hurries to keep it has no reason
// to once it is broken.
func TestCostIsMonotoneInTheBacklog(t *testing.T) {
	t.Parallel()
	p := policy(t, "cost")
	rng := rand.New(rand.NewPCG(11, 12))
	for range 12 {
		o := busyMoment(0.6 + rng.Float64())
		o.Target = 6 + rng.IntN(12)
		o.Workers.Running = o.Target
		if rng.IntN(2) == 0 {
			o.RescaleCost, o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
		}
		for _, backlogs := range [][]float64{{0, 1, 3, 6, 10}, {25, 30, 40}} {
			last := 0
			for _, minutes := range backlogs {
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

// Where the load is noise and nothing waits, a rate that has just fallen is no reason
// for more workers: what the forecast says of the next minutes has heeded it.
func TestCostAddsNoWorkersWhereTheRateFell(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(21, 22))
	noise := func() float64 { return 43_000 * rng.ExpFloat64() }
	course := func(n int, soon float64, rate func() float64) Values {
		v, of := make(Values, n), 0.0
		for i := range v {
			if of = soon; i >= 2 {
				if of = v[i-1]; (i-2)%5 == 0 {
					of = rate()
				}
			}
			v[i] = of
		}
		return v
	}
	mean := func() float64 { return 43_000 }
	for _, before := range []float64{35_000, 60_000, 90_000} {
		o := reference()
		o.Target, o.Workers.Running, o.BacklogRecords, o.Lag = 5, 5, 0, 0
		o.RescaleCost = Measured{Value: 6 * time.Minute, Samples: 3}
		o.JoinTime = o.RescaleCost
		const now = 1_600
		o.setRates(before)
		o.Rates.Values[29] = now
		o.setForecast(course(120, now, mean))
		beyond := Forecast{At: o.Now, Step: 15 * time.Minute, Mean: course(24, mean(), mean), Trusted: true}
		for range 32 {
			level := 0.5 + rng.Float64() // which lasts
			row := course(120, now, noise)
			for i := range row {
				row[i] = level * (row[i] + 2*o.Forecast.Mean[i]) / 3
			}
			o.Forecast.Scenarios = append(o.Forecast.Scenarios, row)
			beyond.Scenarios = append(beyond.Scenarios, flat(level*mean(), 24))
		}
		o.Forecast.Beyond = &beyond
		if d := policy(t, "cost").Decide(o); d.Target > 5 {
			t.Errorf("%v records/s until a minute ago, %v now, 43,000 expected, nothing waits: %d workers instead of 5\n%s", before, now, d.Target, d.Explain())
		}
	}
}
