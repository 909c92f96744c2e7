package replay

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// byCohorts is a second, simple implementation of the queue: every second's arrivals are a cohort, served first come, first served in steps of a second.
func byCohorts(rates []float64, step int, serve func(second int) float64) (lags map[int]float64, oldest []int) {
	type cohort struct {
		born int
		n    float64
	}
	var waiting []cohort
	lags = map[int]float64{}
	for s := range len(rates) * step {
		waiting = append(waiting, cohort{s, rates[s/step]})
		can := serve(s)
		for len(waiting) > 0 && can > 0 {
			n := min(can, waiting[0].n)
			lags[s-waiting[0].born] += n
			can -= n
			if waiting[0].n -= n; waiting[0].n < 1e-9 {
				waiting = waiting[1:]
			}
		}
		age := 0
		if len(waiting) > 0 {
			age = s + 1 - waiting[0].born
		}
		oldest = append(oldest, age)
	}
	return lags, oldest
}

// The exact queue agrees with the simple one to its resolution of a second, under random loads and capacities.
func TestQueueAgainstCohorts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		const step, bins = 60, 90
		rates, capacity := make([]float64, bins), make([]float64, bins)
		for i := range rates {
			rates[i], capacity[i] = 50+100*rng.Float64(), 20+180*rng.Float64()
			if rng.IntN(6) == 0 {
				capacity[i] = 0
			}
			if rng.IntN(12) == 0 {
				rates[i] = 0
			}
		}
		want, oldest := byCohorts(rates, step, func(s int) float64 { return capacity[s/step] })
		q := queue{a: newArrivals(step, rates)}
		for i := range capacity {
			q.advance(float64(i+1)*step, capacity[i])
			if got, want := q.lag(), float64(oldest[(i+1)*step-1]); math.Abs(got-want) > 1.5+5/max(rates[i], 1) && rates[i] > 0 {
				t.Fatalf("round %d: after minute %d the oldest waits for %.2f s, by cohorts %.0f s", round, i+1, got, want)
			}
		}
		total, sum := 0.0, 0.0
		for lag, n := range want {
			total, sum = total+n, sum+n*float64(lag)
		}
		if got := q.lags.total(); math.Abs(got-total) > 300 {
			t.Fatalf("round %d: %.0f samples were served, by cohorts %.0f", round, got, total)
		}
		if got := q.lags.mean(func(s float64) float64 { return s }); math.Abs(got-sum/total) > 1.5 {
			t.Fatalf("round %d: the mean lag is %.2f s, by cohorts %.2f s", round, got, sum/total)
		}
		for _, p := range []float64{0.5, 0.99} {
			if got, want := q.lags.quantile(p), cohortQuantile(want, p); math.Abs(got-want) > 2 {
				t.Fatalf("round %d: p%.0f of the lag is %.2f s, by cohorts %.0f s", round, 100*p, got, want)
			}
		}
	}
}

func cohortQuantile(lags map[int]float64, p float64) float64 {
	var keys []int
	total := 0.0
	for k, n := range lags {
		keys, total = append(keys, k), total+n
	}
	slices.Sort(keys)
	sum := 0.0
	for _, k := range keys {
		if sum += lags[k]; sum >= p*total {
			return float64(k)
		}
	}
	return 0
}

// A burst whose lags can be computed by hand: 100/s arrive for a minute and nothing is served, then 200/s are served.
func TestQueueByHand(t *testing.T) {
	q := queue{a: newArrivals(60, []float64{100, 100, 100})}
	if busy := q.advance(60, 0); busy != 0 || q.lag() != 60 || q.backlog() != 6000 {
		t.Fatalf("after a minute without service: busy %v, lag %v, backlog %v", busy, q.lag(), q.backlog())
	}
	if busy := q.advance(90, 200); busy != 30 || !near(q.lag(), 30, 1e-9) || !near(q.backlog(), 3000, 1e-9) {
		t.Fatalf("half way: busy %v, lag %v, backlog %v; 200/s work 100/s off", busy, q.lag(), q.backlog())
	}
	// Empty at 120, then the arrivals keep it busy for half of the time.
	if busy := q.advance(180, 200); !near(busy, 30+30, 1e-9) || q.lag() != 0 {
		t.Fatalf("at the end: busy %v, lag %v", busy, q.lag())
	}
	// 12,000 samples waited between 60 s and nothing, evenly; 6,000 not at all.
	if got := q.lags.zero; !near(got, 6000, 1e-9) {
		t.Errorf("%v samples did not wait, want 6000", got)
	}
	if got := q.lags.quantile(0.5); !near(got, 15, 0.02) { // the 3,000th of those that waited
		t.Errorf("the median lag is %v s, want 15", got)
	}
	if q.lags.max != 60 {
		t.Errorf("the longest lag is %v s, want 60", q.lags.max)
	}
}

// What still waits at the end counts at its age then: 100/s arrive for a minute and nothing is served; then 50/s of 200/s are, for half a minute.
func TestQueueLeaves(t *testing.T) {
	q := queue{a: newArrivals(30, []float64{100, 100, 200})}
	q.advance(60, 0)
	q.advance(90, 50)
	served := q.lags.total() // 1,500, of the first 15 s
	q.leave()
	if !near(served, 1500, 1e-9) || !near(q.lags.total(), 12_000, 1e-9) || q.backlog() > slack {
		t.Fatalf("%v samples were served, and %v are counted in all of 12,000; %v wait", served, q.lags.total(), q.backlog())
	}
	// 1,500 were 60 to 75 s old; of those that wait the oldest is 75 s, 4,500 are 30 to 75 s and 6,000 up to 30 s.
	if mean := q.lags.mean(func(s float64) float64 { return s }); !near(mean, (1500*67.5+4500*52.5+6000*15)/12_000, 0.01) || q.lags.max != 75 {
		t.Errorf("the mean lag is %v s, the longest %v", mean, q.lags.max)
	}
	if half := q.lags.quantile(0.5); !near(half, 30, 0.01) {
		t.Errorf("the median lag is %v s, want 30", half)
	}
	before := q.lags.total()
	if q.leave(); q.lags.total() != before {
		t.Error("without a backlog something is counted")
	}
}
