package plan

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// late is a job that decides each second, whose forecast reaches half a minute, and that holds a worker of 600 records/s where so many arrive, as expected but for a noise.
func late(rate, noise float64, most int, lead time.Duration, backlog float64) Observation {
	o := reference()
	o.Interval, o.MaxLag, o.Tau = time.Second, 5*time.Second, 3*time.Second
	o.CooldownOut, o.CooldownIn = time.Second, 6*time.Second
	o.Model, o.Limits = estimatorPerWorker(600), Limits{Min: 1, Max: most}
	o.Target, o.Workers.Running = 1, 1
	o.JoinTime, o.RescaleCost = Measured{Value: lead, Samples: 1}, Measured{Samples: 3}
	o.BacklogRecords, o.Lag = int64(backlog), time.Duration(backlog/rate*float64(time.Second))
	o.setRates(rate)
	r := rand.New(rand.NewPCG(1, 2))
	o.Forecast = Forecast{At: o.Now, Step: time.Second, Mean: flat(rate, 30), Calibrated: true, Trusted: true}
	for range 32 {
		row := flat(rate, 30)
		for i := range row {
			row[i] *= 1 + noise*r.NormFloat64()
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
				o := late(1000, 0.07, most, lead, backlog)
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
			}
		}
	}
}

// On a view of half a minute a change has a price that its savings can pay: of six workers, of which two train what comes on the whole, not all are held for ever, and they do not come and go with each jump.
func TestCostOnAShortView(t *testing.T) {
	for _, c := range []struct {
		sigma, most float64 // deviation of the logarithm, and GPUs held as a mean
		changes     int
	}{{0.1, 2.1, 2}, {0.4, 3.5, 30}, {0.6, 3.5, 30}} {
		p, o := NewSuccession(policy(t, "cost")), late(1000, 0.07, 7, 600*time.Millisecond, 0)
		o.Target, o.Workers.Running = 6, 6
		r := rand.New(rand.NewPCG(5, 6))
		draw := func() float64 { return 1000 * math.Exp(c.sigma*r.NormFloat64()-c.sigma*c.sigma/2) }
		const steps, each = 600, 3 // s, and for how long a jump lasts
		backlog, rate, held, over, changes := 0.0, 0.0, 0, 0, 0
		past := flat(1000, 30)
		for i := range steps {
			if i%each == 0 {
				rate = draw()
			}
			backlog = math.Max(0, backlog+rate-600*float64(o.Target))
			past = append(past[1:], rate)
			o.Rates = Series{Start: o.Now.Add(-30 * time.Second), Step: time.Second, Values: past}
			o.Forecast = Forecast{At: o.Now, Step: time.Second, Mean: flat(1000, 30), Calibrated: true}
			for range 32 {
				row := flat(0, 30)
				for k := range row {
					if row[k] = draw(); k%each != 0 {
						row[k] = row[k-1]
					}
				}
				o.Forecast.Scenarios = append(o.Forecast.Scenarios, row)
			}
			o.BacklogRecords, o.Lag = int64(backlog), time.Duration(backlog/1000*float64(time.Second))
			if o.Lag > o.MaxLag {
				over++
			}
			d := p.Decide(o)
			if d.Target != o.Target {
				changes++
			}
			o.Target, o.Workers.Running = d.Target, d.Target
			held += d.Target
			o.Now = o.Now.Add(o.Interval)
		}
		if mean := float64(held) / steps; mean > c.most || changes > c.changes || over > steps/50 {
			t.Errorf("deviation %g: %.2f workers are held, %d changes, over the objective for %d of %d s", c.sigma, mean, changes, over, steps)
		}
	}
}

// Where a load just fills some number of workers, others are let go too: it is not put off again and again until it is known better, and what was let go does not come back.
func TestCostDoesNotPutOffAScaleIn(t *testing.T) {
	for _, per := range []float64{395, 398, 400.5, 401, 405, 415, 430, 600} {
		for _, noise := range []float64{0.02, 0.07} {
			for _, from := range []int{7, 5} {
				o := late(1200, noise, 7, 600*time.Millisecond, 300)
				o.Model = estimatorPerWorker(per)
				o.Target, o.Workers.Running = from, from
				p, held := NewSuccession(policy(t, "cost")), []int{}
				for range 60 {
					o.setRates(1200)
					o.Forecast.At = o.Now
					d := p.Decide(o)
					if n := d.Target; n > o.Target {
						t.Errorf("%g records/s a worker, noise %g, from %d: back to %d\n%s", per, noise, from, n, d.Explain())
					}
					o.Target, o.Workers.Running = d.Target, d.Target
					held = append(held, d.Target)
					o.Now = o.Now.Add(o.Interval)
				}
				if need := int(math.Ceil(1200 / per)); held[8] > need+1 || held[59] > need+1 || per*float64(held[59]) < 1200 {
					t.Errorf("%g records/s a worker, noise %g: %d suffice, and there are %v", per, noise, need, held)
				}
			}
		}
	}
}
