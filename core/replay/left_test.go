package replay

import (
	"math"
	"testing"
	"time"
)

// What is left at the end is reckoned as the queue would train it, if nothing came any more: 200/s arrive for ten minutes, 100/s of them are trained, and then 250/s of
// what is left, which takes four minutes.
func TestLeftAtTheEnd(t *testing.T) {
	a := newArrivals(60, flat(200, 10))
	q := queue{a: a}
	q.advance(600, 100)
	got := leftAt(a, q.served, q.t, 5, 250, 120)
	// The oldest record is 300 s old, and after each minute of 60 · 250 records, which arrived within 75 s, 15 s younger; after the fourth there is none.
	want := left{held: 5 * 240, lag: (285 + 270 + 255) / 60., over: 3}
	if !near(got.held, want.held, 1e-9) || !near(got.lag, want.lag, 1e-9) || got.over != want.over {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := leftAt(a, a.at(600), 600, 5, 250, 120); got != (left{}) {
		t.Errorf("nothing is left, and it takes %+v", got)
	}
	if got, want := want.cost(Weights{Lag: 0.01, Violation: 1}, 2), 2*5*240/3600.+0.01*13.5+3; !near(got, want, 1e-9) {
		t.Errorf("it costs %v, want %v", got, want)
	}
}

// On what is short and ends in a flood, nobody is cheaper than the oracle: what is left at the end costs all the same.
func TestNobodyIsCheaperThanTheOracleAtTheEnd(t *testing.T) {
	ramp := flat(60_000, 60)
	for i := range ramp {
		ramp[i] *= 1 + float64(i)/15
	}
	for name, w := range map[string]World{"live": LiveRescale(), "restart": PaperRestart()} {
		c := compare(t, reference(t), minutely(ramp...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast, Seeds: 2})
		r, err := c.Run(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Policies {
			if p.Cost < r.Oracle.Cost*0.998 {
				t.Errorf("%s: %s costs %.2f, %.3f of the oracle's %.2f", name, p.Name, p.Cost, p.CostRatioOracle, r.Oracle.Cost)
			}
			if sum := p.GPUHours + r.Weights.Lag*p.AccumulatedLagMin + r.Weights.Violation*p.ViolationPct/100*1440 + p.LeftCost; math.Abs(p.Cost-sum) > 1e-6*p.Cost {
				t.Errorf("%s: %s costs %.4f, and its parts are %.4f", name, p.Name, p.Cost, sum)
			}
		}
		for workers := 2; workers <= 28; workers++ {
			sum := c.playSteady(t.Context(), 0, workers, nil)
			if cost := sum.metrics(&c.fig).Cost; cost < r.Oracle.by[0].Cost*0.998 {
				t.Errorf("%s: %d workers all the time cost %.2f, the oracle %.2f", name, workers, cost, r.Oracle.by[0].Cost)
			}
		}
		// A last step down saves nothing, since what it leaves is charged for.
		by := sequence{0: 20, 52 * time.Minute: 2}
		sum, j := &tally{}, *c.j
		j.Autoscale.Mode, j.Autoscale.Tick = w.mode(), time.Minute
		c.playPart(t.Context(), 0, &j, by, 0, nil, sum)
		if m := sum.metrics(&c.fig); m.Cost < r.Oracle.by[0].Cost*0.998 || m.LeftCost <= 0 {
			t.Errorf("%s: who lets all go at the end pays %.2f, %.2f of it for what is left; the oracle %.2f", name, m.Cost, m.LeftCost, r.Oracle.by[0].Cost)
		}
	}
}
