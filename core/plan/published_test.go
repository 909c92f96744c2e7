package plan

import (
	"math"
	"testing"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// What is expected here follows from the published rules, reckoned by hand: 16,000 records/s for each worker, one decision a minute.

// alone is a policy that is ruled by its own machinery only.
func alone(t *testing.T, name string, params Params) Policy {
	t.Helper()
	all := Params{"guard": 0}
	for k, v := range params {
		all[k] = v
	}
	p, err := New(name, all)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// held puts w trained-in workers in force.
func (o *Observation) held(w int) { o.Target, o.Workers = w, Workers{Running: w} }

// turn is a policy's decisions, one after the other, each of which is carried out at once.
type turns struct {
	t    *testing.T
	s    *Succession
	o    Observation
	n    int
	last Decision
}

func inTurns(t *testing.T, p Policy, workers int) *turns {
	o := reference()
	o.held(workers)
	return &turns{t: t, s: NewSuccession(p), o: o}
}

// want decides once, and lets an interval pass.
func (d *turns) want(want int, why string) {
	d.t.Helper()
	d.n++
	d.last = d.s.Decide(d.o)
	if d.last.Target != want {
		d.t.Errorf("decision %d (%s): %d workers, want %d\n%s", d.n, why, d.last.Target, want, d.last.Explain())
	}
	d.o.held(want)
	d.o.Now = d.o.Now.Add(d.o.Interval)
}

// trains is what the members did, and what waits.
func (o *Observation) trains(rate, busy float64, backlog int64) {
	o.Flow = Flow{Known: true, Trained: rate, Busy: busy}
	o.BacklogRecords = backlog
}

// atOnce are Flink's numbers for a decision on one observation, without waiting.
func atOnce(more Params) Params {
	all := Params{"window": 0, "stabilisation": 0, "down_interval": 0}
	for k, v := range more {
		all[k] = v
	}
	return all
}

// While a job catches up, and only then, the observed rate counts where that by the busy share is more than 15 % above it.
//
// 7 workers train 100,000 records/s. They act below backlog/1,800 s + 100,000/1.0, and want backlog/1,800 s + 100,000 · 300/1,800 + 100,000/0.7.
func TestFlinkBelievesTheObservedRate(t *testing.T) {
	for name, c := range map[string]struct {
		busy    float64
		backlog int64
		want    int
	}{
		"14 % above":                {0.88, 6_000_000, 7},  // 113,636 is no less than 3,333 + 100,000
		"16 % above":                {0.86, 6_000_000, 12}, // 100,000 is; (3,333 + 16,667 + 142,857) / 100,000 × 7 = 11.4
		"25 % above":                {0.80, 6_000_000, 12}, //
		"25 % above, 29 s behind":   {0.80, 2_900_000, 7},  // 125,000 is no less than 1,611 + 100,000
		"25 % above, 31 s behind":   {0.80, 3_100_000, 12}, // 100,000 is less than 1,722 + 100,000; (1,722 + 16,667 + 142,857) / 100,000 × 7 = 11.3
		"all busy, nothing waiting": {1.00, 0, 7},          // 100,000 is no less than 100,000
	} {
		o := reference()
		o.trains(100_000, c.busy, c.backlog)
		if d := alone(t, "flink", atOnce(nil)).Decide(o); d.Target != c.want {
			t.Errorf("%s: %d workers, want %d\n%s", name, d.Target, c.want, d.Explain())
		}
	}
}

// While what waits is worth more than 5 min of input, a job acts below u = 1 and not above anything.
func TestFlinkBacklogged(t *testing.T) {
	for name, c := range map[string]struct {
		trained       float64
		before, after int64 // records that wait, a minute apart
		boundary      float64
		want          int
	}{
		// What waits grows by −80,000/s: input is 20,000 of 100,000 trained. Above 20,000/0.4 + 20,000 · 300/1,800 + backlog/1,800 it acts, and wants
		// 20,000/0.7 + 3,333 + 3,222 = 35,127: 0.351 of 7, and no fewer than 0.4 of them.
		"290 s behind": {100_000, 5_800_000 + 4_800_000, 5_800_000, 0.3, 3},
		"310 s behind": {100_000, 6_200_000 + 4_800_000, 6_200_000, 0.3, 7},
		// Input is 100,000 of 130,000 trained. At 0.8 it acts below 125,000 + 29,000,000/1,800 = 141,111, and wants 142,857 + 16,667 + 16,111 = 175,635:
		// 1.351 × 7 = 9.5. At 1 it acts below 100,000 + 31,000,000/1,800 = 117,222.
		"290 s behind, near": {130_000, 29_000_000 + 1_800_000, 29_000_000, 0.1, 10},
		"310 s behind, near": {130_000, 31_000_000 + 1_800_000, 31_000_000, 0.1, 7},
	} {
		d := inTurns(t, alone(t, "flink", atOnce(Params{"window": 1, "boundary": c.boundary})), 7)
		d.o.trains(c.trained, 1, c.before)
		d.want(7, name+": the window is not full")
		d.o.trains(c.trained, 1, c.after)
		d.want(c.want, name)
	}
}

// A restart costs what is set, or what was measured.
//
// 7 workers train 100,000 records/s and are busy all the time; with bounds at 0.6 and 0.8 that is too little. Needed are 100,000/0.7 and 100,000 · restart/1,800 s.
func TestFlinkRestart(t *testing.T) {
	for minutes, want := range map[float64]int{
		5: 12, // (142,857 + 16,667) / 100,000 × 7 = 11.2
		1: 11, // (142,857 + 3,333) / 100,000 × 7 = 10.2
		0: 13, // 10 min, as measured: (142,857 + 33,333) / 100,000 × 7 = 12.3
	} {
		o := reference()
		o.RescaleCost = Measured{Value: 10 * time.Minute, Samples: 3}
		o.trains(100_000, 1, 0)
		if d := alone(t, "flink", atOnce(Params{"boundary": 0.1, "restart": minutes})).Decide(o); d.Target != want {
			t.Errorf("restart %g min: %d workers, want %d\n%s", minutes, d.Target, want, d.Explain())
		}
	}
}

// The restart counts for the bound above which workers go, and not for that below which they come; and no more than max_down of them go at once.
func TestFlinkBounds(t *testing.T) {
	for name, c := range map[string]struct {
		trained, busy float64
		current, want int
	}{
		// Above 40,000/0.4 + 40,000 · 300/1,800 = 106,667 it acts, and wants 40,000/0.7 + 6,667 = 63,810.
		"below the upper bound": {40_000, 0.380, 10, 10}, // 105,263
		"above the upper bound": {40_000, 0.370, 10, 6},  // 108,108: 0.590 × 10 = 5.9
		// Below 160,000/1.0 it acts.
		"above the lower bound": {160_000, 0.98, 10, 10}, // 163,265
		"most that go at once":  {16_000, 0.05, 20, 8},   // 320,000 for 25,524: 0.08 × 20 = 1.6, and no fewer than 0.4 × 20
	} {
		o := reference()
		o.held(c.current)
		o.trains(c.trained, c.busy, 0)
		if d := alone(t, "flink", atOnce(nil)).Decide(o); d.Target != c.want {
			t.Errorf("%s: %d workers, want %d\n%s", name, d.Target, c.want, d.Explain())
		}
	}
}

// After a rescale nothing is measured for the stabilisation, and then until the window is full; and a scale-in waits for an hour, and takes the largest wish meanwhile.
func TestFlinkWaits(t *testing.T) {
	d := inTurns(t, alone(t, "flink", Params{"window": 3, "stabilisation": 2, "down_interval": 6}), 20)
	d.o.Workers = Workers{Running: 18, Pending: 2}
	d.o.trains(320_000, 1, 0)
	d.want(20, "a rescale is not complete")
	d.o.trains(80_000, 0.25, 0)
	for range 4 {
		d.want(20, "1 to 4 min after: stabilising for 2, then the window of 3 is not full")
	}
	d.want(20, "5 min after: a scale-in is wanted first") // (80,000/0.7 + 80,000 · 300/1,800) / 320,000 × 20 = 7.98, and no fewer than 0.4 × 20
	d.o.trains(128_000, 0.4, 0)
	d.want(20, "6 min after") // the mean is of 3 × 80,000 and 128,000: (92,000/0.7 + 15,333) / 320,000 × 20 = 9.2
	d.o.trains(80_000, 0.25, 0)
	for range 4 {
		d.want(20, "7 to 10 min after")
	}
	d.want(10, "11 min after, and 6 from the first wish: the largest, though 8 would do now")
}

// A scale-in that is no longer wanted is forgotten: the next waits its whole time.
func TestFlinkForgetsAScaleIn(t *testing.T) {
	d := inTurns(t, alone(t, "flink", atOnce(Params{"down_interval": 3})), 20)
	in, stay := func() { d.o.trains(80_000, 0.25, 0) }, func() { d.o.trains(200_000, 0.7, 0) } // 285,714 is between 200,000/1.0 and 200,000/0.4
	in()
	d.want(20, "wanted first")
	d.want(20, "1 min after")
	stay()
	d.want(20, "within its bounds")
	in()
	for range 3 {
		d.want(20, "wanted anew")
	}
	d.want(8, "3 min after that")
}

// Workers that are not ready count as busy for a scale-in and as idle for a scale-out, and where that turns the direction, or comes near the target, nothing changes.
func TestHPAWorkersNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		running, pending int
		busy, target     float64
		want             int
	}{
		"in, of those that are ready":       {7, 0, 0.50, 0.8, 5},  // 0.5/0.8 × 7 = 4.4
		"in, 2 count as busy":               {5, 2, 0.50, 0.8, 6},  // (5 × 0.5 + 2)/0.8 = 5.6
		"in, near the target with them":     {5, 2, 0.70, 0.8, 7},  // (5 × 0.7 + 2)/7/0.8 = 0.98
		"in, and they turn it":              {2, 5, 0.60, 0.8, 7},  // (2 × 0.6 + 5)/7/0.8 = 1.11
		"out, of those that are ready":      {7, 0, 1.00, 0.8, 9},  // 1/0.8 × 7 = 8.75
		"out, near the target with one":     {7, 1, 1.00, 0.8, 8},  // 7/8/0.8 = 1.09
		"out, and they turn it":             {5, 2, 1.00, 0.8, 7},  // 5/7/0.8 = 0.89
		"out, and they are turned well off": {3, 4, 1.00, 0.8, 7},  // 3/7/0.8 = 0.54
		"out, and enough of it remains":     {6, 1, 1.00, 0.5, 12}, // 6/0.5
		"none is ready":                     {0, 7, 0.10, 0.8, 7},
		"9 % off":                           {7, 0, 0.875, 0.8, 7}, // 1.094
		"11 % off":                          {7, 0, 0.89, 0.8, 8},  // 1.1125 × 7 = 7.8
		"9 % below":                         {7, 0, 0.73, 0.8, 7},  // 0.9125; × 7 = 6.4
		"11 % below":                        {7, 0, 0.71, 0.8, 7},  // 0.8875 × 7 = 6.2
		"15 % below":                        {7, 0, 0.68, 0.8, 6},  // 0.85 × 7 = 5.95
	} {
		o := reference()
		o.Target, o.Workers = c.running+c.pending, Workers{Running: c.running, Pending: c.pending}
		o.Utilisation, o.UtilKnown = c.busy, true
		if d := alone(t, "hpa", Params{"target": c.target, "down_window": 0}).Decide(o); d.Target != c.want {
			t.Errorf("%s: %d workers, want %d\n%s", name, d.Target, c.want, d.Explain())
		}
	}
	o := reference()
	o.Workers, o.Utilisation, o.UtilKnown = Workers{}, 0.1, true
	if d := alone(t, "hpa", Params{"down_window": 0}).Decide(o); d.Target != 7 {
		t.Errorf("none is there: %d workers, want 7\n%s", d.Target, d.Explain())
	}
}

// In 15 s there come no more than 4 workers or as many as there are, whichever is more; there go as many as are not wanted.
func TestHPARates(t *testing.T) {
	for _, c := range []struct {
		current  int
		interval time.Duration
		busy     float64
		want     int
	}{
		{7, 15 * time.Second, 1, 14},
		{3, 15 * time.Second, 1, 7},
		{2, 15 * time.Second, 1, 6},
		{2, 30 * time.Second, 1, 12},
		{3, 30 * time.Second, 1, 14},
		{6, 30 * time.Second, 1, 24},
		{2, time.Minute, 1, 28},      // 6, 12, 24, 48, and 28 are allowed
		{28, 15 * time.Second, 0, 2}, // and 2 are the least
	} {
		o := reference()
		o.held(c.current)
		o.Interval = c.interval
		o.Utilisation, o.UtilKnown = c.busy, true
		if d := alone(t, "hpa", Params{"target": 0.02, "down_window": 0}).Decide(o); d.Target != c.want {
			t.Errorf("%d workers, %s: %d workers, want %d\n%s", c.current, c.interval, d.Target, c.want, d.Explain())
		}
	}
}

// A scale-out waits until all wishes of up_window are for more, and takes the smallest; a scale-in the largest of down_window. KEDA's go through the same.
func TestStabilisationWindows(t *testing.T) {
	for name, wish := range map[string]func(o *Observation, w int){
		"hpa":  func(o *Observation, w int) { o.Utilisation, o.UtilKnown = 0.5*float64(w)/float64(o.Target), true },
		"keda": func(o *Observation, w int) { o.BacklogRecords = int64(w) * 100_000 },
	} {
		params := Params{"up_window": 3, "down_window": 4}
		if name == "hpa" {
			params["target"] = 0.5
		} else {
			params["lag_threshold"] = 100_000
		}
		d := inTurns(t, alone(t, name, params), 7)
		for _, step := range []struct{ wish, want int }{
			{7, 7},
			{14, 7}, {10, 7}, {12, 7}, // the 7 counts for 3 min more
			{14, 10},           // 14, 10, 12, 14
			{14, 10}, {14, 12}, // 10, 12, 14, 14; 12, 14, 14, 14
			{4, 12}, {6, 12}, {4, 12}, {4, 12}, // 14 counts for 4 min more: no fewer than that, and no more than the smallest of 3
			{4, 6}, {4, 6}, // 4, 6, 4, 4, 4; 6, 4, 4, 4, 4
			{4, 4},
		} {
			wish(&d.o, step.wish)
			d.want(step.want, name)
		}
	}
}

// KEDA wants a worker for each so many records, and no more than there are partitions unless idle ones are allowed.
func TestKEDAPartitions(t *testing.T) {
	for _, c := range []struct {
		backlog    int64
		partitions int
		idle       float64
		want       int
	}{
		{1_200_000, 8, 0, 8},
		{1_200_000, 8, 1, 12},
		{1_200_000, 0, 0, 12}, // nobody knows how many there are
		{1_200_000, 64, 0, 12},
		{1_210_000, 64, 0, 13}, // rounded up
		{750_000, 64, 0, 7},    // 1.07: within the tolerance
		{780_000, 64, 0, 8},    // 1.11
	} {
		o := reference()
		o.BacklogRecords, o.Partitions = c.backlog, c.partitions
		if d := alone(t, "keda", Params{"lag_threshold": 100_000, "allow_idle": c.idle}).Decide(o); d.Target != c.want {
			t.Errorf("%d records, %d partitions, allow_idle %g: %d workers, want %d\n%s", c.backlog, c.partitions, c.idle, d.Target, c.want, d.Explain())
		}
	}
}

// Autopilot puts off a change of less than a twentieth of the workers, and never more than doubles them.
func TestAutopilotChanges(t *testing.T) {
	for _, c := range []struct{ current, usage, want int }{
		{20, 21, 21}, // 1 is no less than 0.05 × 20
		{21, 22, 21}, // and less than 0.05 × 21
		{25, 26, 25},
		{25, 27, 27},
		{21, 20, 21},
		{4, 10, 8},
		{5, 10, 10},
		{2, 28, 4},
	} {
		o := reference()
		o.held(c.current)
		o.setRates(16_000 * float64(c.usage))
		if d := alone(t, "autopilot", Params{"target": 1, "demand": 1, "defer": 0}).Decide(o); d.Target != c.want {
			t.Errorf("%d workers, a usage of %d: %d workers, want %d\n%s", c.current, c.usage, d.Target, c.want, d.Explain())
		}
	}
}

// Autopilot takes the statistic of the averages over 5 min, adds the margin, and aims at r* of it.
func TestAutopilotStatistic(t *testing.T) {
	for name, c := range map[string]struct {
		params Params
		want   int
	}{
		"the largest":  {Params{"percentile": 1}, 20},
		"the median":   {Params{"percentile": 0.5}, 10}, // of 6, 8, 10, 12 and 20
		"a margin":     {Params{"percentile": 0.5, "margin": 0.15}, 12},
		"r*":           {Params{"percentile": 0.5, "target": 0.8}, 13}, // 12.5
		"the last two": {Params{"percentile": 1, "window": 60}, 20},
	} {
		params := Params{"target": 1, "demand": 1, "defer": 0, "window": 60}
		for k, v := range c.params {
			params[k] = v
		}
		o := reference()
		s := NewSuccession(alone(t, "autopilot", params))
		var d Decision
		for _, usage := range []float64{6, 20, 8, 12, 10} {
			for minute := range 5 {
				o.held(10)
				o.setRates(16_000 * (usage + float64(minute) - 2)) // usage is the mean of 5 min
				d = s.Decide(o)
				o.Now = o.Now.Add(o.Interval)
			}
		}
		if d.Target != c.want {
			t.Errorf("%s: %d workers, want %d\n%s", name, d.Target, c.want, d.Explain())
		}
	}
}

// Madu takes capacity for proportional to the workers, by least squares through the origin.
//
// F(w) = w/(1/30,000 + w/60,000) is 20,000, 30,000, 36,000 and 40,000: c = (1·20 + 2·30 + 3·36 + 4·40)/(1 + 4 + 9 + 16) thousand = 11,600. At 80 % of it
// 28,500 records/s need 3.07 workers; with the mean for each worker, 126,000/10 = 12,600, they would need 2.8.
func TestMaduFitsThroughTheOrigin(t *testing.T) {
	o := reference()
	o.held(2)
	o.Limits = Limits{Min: 1, Max: 4}
	o.Model = estimator.Model{Form: estimator.FormAsync, Theta: []float64{1.0 / 30_000, 0, 1.0 / 60_000}}
	o.setForecast(flat(28_500, 60))
	d := alone(t, "madu", nil).Decide(o)
	if c, _ := d.Term("per worker"); d.Target != 4 || c.Value < 11_599 || c.Value > 11_601 {
		t.Errorf("%d workers, want 4, with 11,600 for each\n%s", d.Target, d.Explain())
	}
}

// Madu plans for μ + z·σ at u*, for as long as until the next plan's workers would train, and keeps to a plan until the next.
func TestMaduPlans(t *testing.T) {
	plan := func(z float64, mean Values) *turns {
		d := inTurns(t, alone(t, "madu", Params{"z": z}), 7)
		d.o.setForecast(mean)
		d.o.Forecast.Lower, d.o.Forecast.Upper = flat(0, len(mean)), flat(0, len(mean))
		for i, v := range mean { // σ = 10,000: 10 % and 90 % lie 1.2816 of it off
			d.o.Forecast.Lower[i], d.o.Forecast.Upper[i] = v-12_816, v+12_816
		}
		return d
	}
	plan(1.28, flat(100_000, 60)).want(9, "μ + 1.28 σ")                 // 112,800/12,800 = 8.8
	plan(3, flat(100_000, 60)).want(11, "μ + 3 σ")                      // 130,000/12,800 = 10.2
	plan(0, flat(100_000, 60)).want(8, "μ")                             // 100,000/12,800 = 7.8
	plan(0, stepAt(100_000, 200_000, 34, 60)).want(16, "within 35 min") // join 4, tick 1, plan 30; 200,000/12,800 = 15.6
	plan(0, stepAt(100_000, 200_000, 36, 60)).want(8, "after 35 min")
	d := plan(0, flat(100_000, 60))
	d.want(8, "planned")
	d.o.setForecast(flat(200_000, 120))
	for range 29 {
		d.want(8, "the plan of the last 29 min")
	}
	d.want(16, "30 min after: the next")
}

// The quantile policy looks ahead for its horizon, and no less far than the lead.
func TestQuantileLooksBeyondTheLead(t *testing.T) {
	for _, c := range []struct {
		horizon float64 // minutes
		step    int     // the minute in which the load doubles
		want    int
	}{
		{1, 4, 13}, // the lead is the join of 4 min and a minute: 200,000/16,000 = 12.5
		{1, 6, 7},
		{20, 19, 13},
		{20, 21, 7},
	} {
		o := reference()
		o.setForecast(stepAt(100_000, 200_000, c.step, 60))
		if d := alone(t, "quantile", Params{"horizon": c.horizon}).Decide(o); d.Target != c.want {
			t.Errorf("horizon %g min, the load doubles in minute %d: %d workers, want %d\n%s", c.horizon, c.step, d.Target, c.want, d.Explain())
		}
	}
}

// The quantile policy carries the largest load of the window, but for a risk ε.
func TestQuantileRisk(t *testing.T) {
	for epsilon, want := range map[float64]int{
		0.5:  11, // of 19 scenarios the peaks are 90, 98, … 234 thousand: the 10th, 162,000, needs more than 10.1
		0.1:  15, // the 18th, 226,000, needs more than 14.1
		0.05: 15, // the 19th, 234,000: 14.6
	} {
		o := reference()
		for k := range 19 {
			row := flat(80_000, 60)
			row[3+k%5] = 90_000 + 8_000*float64(k)
			o.Forecast.Scenarios = append(o.Forecast.Scenarios, row)
		}
		if d := alone(t, "quantile", Params{"epsilon": epsilon}).Decide(o); d.Target != want {
			t.Errorf("ε %g: %d workers, want %d\n%s", epsilon, d.Target, want, d.Explain())
		}
	}
}

// What cannot train yet leaves a backlog that the cost policy has to reckon with.
func TestCostCountsWhatWaitsForWorkersOnTheirWay(t *testing.T) {
	o := reference()
	o.Workers = Workers{Running: 4, Pending: 3}
	o.Action = Action{Kind: KindOut, Target: 7, Since: o.Now.Add(-time.Minute), CanGrow: true}
	s := &sheet{o: &o, current: 7, curve: curve(o.Model, o.Limits, o.Servers)}
	const missing = 3 * 16_000
	for name, c := range map[string]struct {
		change func()
		want   float64
	}{
		"3 of the 4 min are left":       {func() {}, 500_000 + missing*180},
		"none is on its way":            {func() { o.Workers = Workers{Running: 7} }, 500_000},
		"nobody knows since when":       {func() { o.Action.Since = time.Time{} }, 500_000 + missing*240},
		"they are late":                 {func() { o.Action.Since = o.Now.Add(-time.Hour) }, 500_000},
		"asked for by a clock set back": {func() { o.Action.Since = o.Now.Add(time.Hour) }, 500_000 + missing*240},
	} {
		before := o
		c.change()
		if got := new(program).start(s); got != c.want {
			t.Errorf("%s: %.0f records, want %.0f", name, got, c.want)
		}
		o = before
	}
	if got := (&program{outage: 360}).start(s); got != 500_000 {
		t.Errorf("with an outage: %.0f records, which the programme reckons itself, want 500,000", got)
	}
}

// The naive policy carries the last rate and its margin, as long as that is no older than five steps; the fixed one has its number, or the maximum.
func TestFollowAndStatic(t *testing.T) {
	o := reference()
	missing := func(n int) {
		o.setRates(110_000)
		for i := range n {
			o.Rates.Values[len(o.Rates.Values)-1-i] = math.NaN()
		}
	}
	for _, c := range []struct {
		name    string
		params  Params
		missing int
		want    int
	}{
		{"follow", nil, 0, 8},                   // 113,300 of 112,000 and 128,000
		{"follow", Params{"margin": 0}, 0, 7},   // 110,000
		{"follow", Params{"margin": 0.2}, 0, 9}, // 132,000
		{"follow", nil, 4, 8},
		{"follow", nil, 5, 7}, // not known
		{"static", Params{"workers": 5}, 0, 5},
		{"static", nil, 0, 28},
	} {
		missing(c.missing)
		if d := alone(t, c.name, c.params).Decide(o); d.Target != c.want {
			t.Errorf("%s %v, %d rates missing: %d workers, want %d\n%s", c.name, c.params, c.missing, d.Target, c.want, d.Explain())
		}
	}
}

// What members show while a rescale is under way is no usage of Autopilot's.
func TestAutopilotWhileWorkersCome(t *testing.T) {
	d := inTurns(t, alone(t, "autopilot", Params{"target": 1, "defer": 0}), 10)
	d.o.trains(80_000, 0.8, 0)
	for range 10 {
		d.want(10, "a usage of 8, and 10 · 2^(−9/60) = 9.01 may remain")
	}
	d.want(9, "10 · 2^(−10/60) = 8.9")
	d.o.Action = Action{Kind: KindIn, Target: 9, Since: d.o.Now}
	d.o.Workers = Workers{Running: 10}
	d.o.trains(128_000, 1, 0)
	d.want(9, "a usage of 10, of those that leave")
	d.o.Action = Action{}
	d.o.trains(128_000, 8./9, 0)
	d.want(9, "a usage of 8 again, and never more")
}

// Of n workers that are not used, half are left after an hour, and never fewer than n · 2^(−t/1h) on the way.
func TestAutopilotHalvesInAnHour(t *testing.T) {
	for _, n := range []int{28, 16, 8} {
		d := inTurns(t, alone(t, "autopilot", Params{"target": 1, "demand": 1, "window": 0, "defer": 0}), n)
		d.o.setRates(16_000 * float64(n))
		d.want(n, "all are used")
		d.o.setRates(1)
		for minute := 1; minute <= 120; minute++ { // since all were used
			before := d.last.Target
			got := d.s.Decide(d.o)
			at := got.Target
			d.last = got
			d.o.held(at)
			d.o.Now = d.o.Now.Add(d.o.Interval)
			if least := float64(n) * math.Exp2(-float64(minute)/60); float64(at) < least-1e-9 || at > before {
				t.Fatalf("of %d workers %d are left after %d min, %d a minute before; want %.2f or more\n%s", n, at, minute, before, least, got.Explain())
			}
			if minute == 60 && at > (n+1)/2+1 || minute == 120 && at > n/4+1 {
				t.Errorf("of %d workers %d are left after %d min\n%s", n, at, minute, got.Explain())
			}
		}
	}
}

// A fall is put off until all wishes of T_d are for fewer; then some go, and no more within 5 min.
func TestAutopilotDefers(t *testing.T) {
	d := inTurns(t, alone(t, "autopilot", Params{"target": 1, "demand": 1, "window": 0, "defer": 10}), 10)
	d.o.setRates(160_000)
	d.want(10, "a usage of 10")
	d.o.setRates(96_000)
	for range 10 {
		d.want(10, "a usage of 6, and the wish for 10 is no older than 10 min")
	}
	for range 9 {
		d.want(10, "the last wish for 10 that counts is 9 min old, and 10 · 2^(−9/60) = 9.01")
	}
	d.want(9, "10 · 2^(−10/60) = 8.9")
	for range 9 {
		d.want(9, "of those 10 min one worker has used 9.1, and 9 · 2^(−9.9/60) = 8.03")
	}
	d.want(8, "9 · 2^(−10.9/60) = 7.9")
}

// The HPA's first recommendation is the number that it finds: who comes to a job that has more workers than it needs waits for the window, too.
func TestHPABeginsWithWhatThereIs(t *testing.T) {
	d := inTurns(t, alone(t, "hpa", Params{"target": 1, "demand": 1, "down_window": 5, "up_window": 0}), 10)
	d.o.setRates(80_000)
	for range 6 {
		d.want(10, "a wish for 5, and the number at the beginning is no older than 5 min")
	}
	d.want(5, "6 min after")
	d = inTurns(t, alone(t, "hpa", Params{"target": 1, "demand": 1, "down_window": 5, "up_window": 0}), 10)
	d.o.setRates(160_000 * 1.5)
	d.want(15, "a scale-out waits for nothing")
	d = inTurns(t, alone(t, "hpa", Params{"target": 1, "demand": 1, "down_window": 5, "up_window": 2}), 10)
	d.o.setRates(160_000 * 1.5)
	for range 3 {
		d.want(10, "the number at the beginning is no older than 2 min")
	}
	d.want(15, "3 min after")
}
