package plan

import (
	"math"
	"testing"
	"time"
)

// fifo is what a course costs by lag and risk with f samples/s trained all the time, in GPU-hours: the age of
// the oldest record that waits, second by second, from what had arrived and what had been trained.
func fifo(rates []float64, step, f float64, c costRate, maxLag float64) (cost, oldest float64) {
	arrived, trained, head := 0.0, 0.0, 0.0 // head: when the oldest record that waits arrived, s
	for t := 0.0; t < float64(len(rates))*step; t++ {
		arrived += rates[int(t/step)]
		trained = min(trained+f, arrived)
		age := 0.0
		if trained < arrived-1 {
			for upTo := upToBy(rates, step, head); upTo < trained; upTo += rates[int(head/step)] {
				head++
			}
			age = t - head
		} else {
			head = t
		}
		cost += c.at(age / maxLag)
		oldest = max(oldest, age)
	}
	return cost, oldest
}

// upToBy is what had arrived at a time.
func upToBy(rates []float64, step, at float64) (sum float64) {
	for i := 0; float64(i)*step < at; i++ {
		sum += rates[i] * min(step, at-float64(i)*step)
	}
	return sum
}

// The records of a burst are as old as the burst is long ago, however many they are: where workers train all of
// them within the objective there is no violation to be paid for, though the same number of records at the mean
// rate would have come in over a time much longer than the objective.
func TestCostAgesABurstByItsOwnArrivals(t *testing.T) {
	const base, burst, workers = 80_000.0, 640_000.0, 10
	for _, length := range []int{5, 8} { // minutes; the first is worked off within the objective, the second is not
		o := reference()
		o.BacklogRecords, o.Lag = 0, 0
		o.Target, o.Workers.Running, o.Limits = workers, workers, Limits{Min: workers, Max: workers}
		o.RescaleCost = Measured{Value: 6 * time.Minute, Samples: 3}
		o.JoinTime = o.RescaleCost
		o.setRates(base)
		mean := flat(0, 120)
		f := Forecast{At: o.Now, Step: time.Minute, Source: "seasonal", Trusted: true, Calibrated: true}
		for k := range 32 {
			row := flat(base, 120)
			for i := range row { // what is certain has no classes
				row[i] *= 1 + 0.02*math.Sin(float64(7*k*k+13*i*(k+1)))
			}
			for i := 30; k%12 == 5 && i < 30+length; i++ { // in three of them
				row[i] = burst
			}
			f.Scenarios = append(f.Scenarios, row)
			for i := range row {
				mean[i] += row[i] / 32
			}
		}
		f.Mean = mean
		o.Forecast = f

		p := cost{lag: 12, over: 60, price: 0.5}
		s := &sheet{o: &o, current: workers, curve: curve(o.Model, o.Limits, o.Servers)}
		g := new(program)
		p.prepare(s, g)
		g.solve()
		got := g.now(s)[0] - workers*2 // two hours of GPUs

		want, oldest := 0.0, 0.0
		for k, row := range f.Scenarios {
			cost, age := fifo(row, 60, linear.Throughput(workers, 2), g.lagCost, g.maxLag)
			want, oldest = want+cost/32, max(oldest, age)
			walked := g.walkOne(k, 0, 0, 0, nil)
			if got := walked.lag + walked.risk; math.Abs(got-cost) > 0.2*cost+0.01 || age < riskFrom*g.maxLag && walked.risk > 0 {
				t.Errorf("a burst of %d min: told as lag %.3f and risk %.3f, record by record it is %.3f (oldest %.0f s)", length, walked.lag, walked.risk, cost, age)
			}
		}
		if within := oldest < riskFrom*g.maxLag; within != (length == 5) {
			t.Fatalf("the test's own burst of %d min leads to a lag of %.0f s", length, oldest)
		}
		// Longer bursts depend on how long their class lasts, which is another matter.
		if length == 5 && math.Abs(got-want) > 0.35*want {
			t.Errorf("a burst of %d min: expected to cost %.3f GPU-hours of lag and risk; record by record it is %.3f (oldest %.0f s)", length, got, want, oldest)
		}
	}
}

// Workers that are added train once they have joined, and those before train alone until then: what waits by then is worked off after it, and not before.
// Reference: the backlog second by second, with a certain load, whose oldest record is as old as the backlog took to arrive.
func TestCostCountsTheLeadOfALiveRescale(t *testing.T) {
	const load, from, lead = 173_000.0, 7, 240.0
	for _, to := range []int{11, 12, 14} {
		o := reference() // its workers take four minutes to join
		o.BacklogRecords, o.Lag = 0, 0
		o.setRates(load)
		o.setForecast(flat(load, 120))
		p := cost{lag: 12, over: 60, price: 50} // so that they stay
		s := &sheet{o: &o, current: from, curve: curve(o.Model, o.Limits, o.Servers)}
		g := new(program)
		p.prepare(s, g)
		g.workers, g.f = []int{from, to}, []float64{s.capacity(from), s.capacity(to)}
		g.solve()
		got := g.now(s)[1]

		want, backlog := p.price+2*float64(to), 0.0 // two hours of GPUs
		for at := 0.0; at < 7200; at++ {
			f := g.f[1]
			if at < lead {
				f = g.f[0]
			}
			backlog = max(backlog+load-f, 0)
			want += g.lagCost.at(backlog / load / g.maxLag)
		}
		if lag := want - p.price - 2*float64(to); math.Abs(got-want) > 0.35*lag {
			t.Errorf("from %d to %d workers: %.3f GPU-hours, second by second %.3f, of which lag %.3f", from, to, got, want, lag)
		}
	}
}

// In a step that is longer than the lead workers are no sooner there than the lead allows: adding them costs its lag besides its price. If it did not, it
// would seem to pay to wait for such a step.
func TestCostOfALeadWithinAStep(t *testing.T) {
	o := reference()
	o.BacklogRecords, o.Lag = 0, 0
	o.RescaleCost, o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
	o.setRates(173_000)
	o.setForecast(flat(173_000, 120))
	p := cost{lag: 12, over: 60, price: 0.5}
	s := &sheet{o: &o, current: 7, curve: curve(o.Model, o.Limits, o.Servers)}
	g := new(program)
	p.prepare(s, g)
	g.workers, g.f = []int{7, 11}, []float64{s.capacity(7), s.capacity(11)}
	g.solve()
	const j = nearSteps + 1
	more := g.at(j, 0).cost[2][0] - g.at(j, 1).cost[2][0] - p.price
	// By hand: of 61,000 records/s short 2.4 million wait after 40 s, for 14 s; 11 workers train them at 3,000/s more than come, in 813 s.
	const by = 0.5 * (40 + 813) * 14.1 / 1200 * 12 / 3600
	if more < 0.7*by || more > 4*by { // between two ages the cost lies on a straight line, which is above
		t.Errorf("added in a step of five minutes workers cost %.4f GPU-hours more than there before; the lag of their lead alone is %.4f", more, by)
	}
}
