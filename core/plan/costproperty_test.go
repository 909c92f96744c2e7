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
		for _, backlogs := range [][]float64{{0, 1, 3, 6, 10}, {25, 30, 40, 60, 120, 600, 2_880}} {
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

// noisyFall is a moment at which nothing waits and a rate of noise, 43,000 records/s in the mean, has just fallen from before to 1,600: the forecast holds
// that for two minutes and returns to the mean.
func noisyFall(before float64, live bool) Observation {
	rng := rand.New(rand.NewPCG(21, 22))
	const now, mean = 1_600.0, 43_000.0
	o := reference()
	o.Target, o.Workers.Running, o.BacklogRecords, o.Lag = 5, 5, 0, 0
	o.RescaleCost = Measured{Value: 6 * time.Minute, Samples: 3}
	o.JoinTime = o.RescaleCost
	if live {
		o.RescaleCost, o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
	}
	o.setRates(before)
	o.Rates.Values[29] = now
	o.setForecast(stepAt(now, mean, 2, 120))
	o.Forecast.Beyond = &Forecast{At: o.Now, Step: 15 * time.Minute, Mean: flat(mean, 24), Trusted: true}
	for range 32 {
		level := 0.5 + rng.Float64() // which lasts
		row, noise := flat(level*now, 120), 0.0
		for i := 2; i < len(row); i++ {
			if (i-2)%5 == 0 {
				noise = mean * rng.ExpFloat64()
			}
			row[i] = level * (noise + 2*mean) / 3
		}
		o.Forecast.Scenarios = append(o.Forecast.Scenarios, row)
		o.Forecast.Beyond.Scenarios = append(o.Forecast.Beyond.Scenarios, flat(level*mean, 24))
	}
	return o
}

// Where the load is noise and nothing waits, a rate that has just fallen is no reason
// for more workers: what the forecast says of the next minutes has heeded it.
func TestCostAddsNoWorkersWhereTheRateFell(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		for _, before := range []float64{35_000, 60_000, 90_000} {
			o := noisyFall(before, live)
			if d := policy(t, "cost").Decide(o); d.Target > 5 {
				t.Errorf("outage %v, %v records/s until a minute ago: %d workers instead of 5\n%s", o.RescaleCost.Value, before, d.Target, d.Explain())
			}
		}
	}
}

// What the last minutes were off by moves the forecast no further than its own
// scenarios go, and not at all where a rescale has to pay for hours.
func TestCostHeedsNoMoreThanScenariosSay(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		o := noisyFall(90_000, live)
		s := &sheet{o: &o, current: o.Target, curve: curve(o.Model, o.Limits, o.Servers)}
		v, most := s.look(0), 0.0
		first, second := (2*1_600+3*43_000)/5.0, 43_000.0
		for _, row := range o.Forecast.Scenarios {
			most = max(most, (2*row[0]+3*row[2])/5/first)
		}
		after := v.mean[nearSteps]
		if live && (after <= second || after > most*second) || !live && after != second {
			t.Errorf("live %v: %.0f records/s after five minutes, %.0f by the forecast, whose highest scenario begins %.1f times as high", live, after, second, most)
		}
	}
}
