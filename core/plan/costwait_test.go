package plan

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// late is a job that decides each second, whose forecast reaches half a minute, and that holds a worker of 600 records/s where 1,000 arrive.
func late(most int, lead time.Duration, backlog float64) Observation {
	o := reference()
	o.Interval, o.MaxLag, o.Tau = time.Second, 5*time.Second, 3*time.Second
	o.CooldownOut, o.CooldownIn = time.Second, 6*time.Second
	o.Model, o.Limits = estimatorPerWorker(600), Limits{Min: 1, Max: most}
	o.Target, o.Workers.Running = 1, 1
	o.JoinTime, o.RescaleCost = Measured{Value: lead, Samples: 1}, Measured{Samples: 3}
	o.BacklogRecords, o.Lag = int64(backlog), time.Duration(backlog/1000*float64(time.Second))
	o.setRates(1000)
	r := rand.New(rand.NewPCG(1, 2))
	o.Forecast = Forecast{At: o.Now, Step: time.Second, Mean: flat(1000, 30), Calibrated: true, Trusted: true}
	for range 32 {
		row := flat(1000, 30)
		for i := range row {
			row[i] *= 1 + 0.07*r.NormFloat64()
		}
		o.Forecast.Scenarios = append(o.Forecast.Scenarios, row)
	}
	return o
}

// Who is late, and falls further behind, adds workers now: a plan that adds them with its next step, and at each step again, never does.
func TestCostDoesNotPutOffWhatIsNeeded(t *testing.T) {
	for _, most := range []int{2, 3, 7} {
		for _, lead := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 4500 * time.Millisecond, 7500 * time.Millisecond, 13 * time.Second, 25 * time.Second} {
			for _, backlog := range []float64{0, 2000, 6000, 15_000, 30_000, 60_000, 100_000} {
				o := late(most, lead, backlog)
				p, waited := NewSuccession(policy(t, "cost")), 0
				for d := p.Decide(o); d.Target < 2; d = p.Decide(o) {
					if waited++; waited > 12 {
						t.Errorf("at most %d workers, lead %v, %v records waiting: after %d decisions it has %d workers for 1,000 records/s, of which one trains 600\n%s", most, lead, backlog, waited, d.Target, d.Explain())
						break
					}
					o.Now = o.Now.Add(o.Interval)
					o.setRates(1000)
					o.Forecast.At = o.Now
					o.BacklogRecords += 400
					o.Lag = time.Duration(math.Round(float64(o.BacklogRecords) / 1000 * float64(time.Second)))
				}
				t.Logf("at most %d, lead %v, %v waiting: %d", most, lead, backlog, waited)
			}
		}
	}
}
