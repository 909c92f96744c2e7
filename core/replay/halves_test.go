package replay

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is chosen on the first half of the days is measured on the second: together they are the course, with the forecasts that belong to them.
func TestHalves(t *testing.T) {
	c := week(t, 3, Options{World: PaperRestart()})
	first, second, ok := c.halves()
	if a, b := first.course.Days(), second.course.Days(); !ok || a != 1 || b != 2 {
		t.Fatalf("3 days divided into %v and %v (%v)", a, b, ok)
	}
	whole, a, b := c.course.Parts[0], first.course.Parts[0], second.course.Parts[0]
	if diff := cmp.Diff(whole.Rates, slices.Concat(a.Rates, b.Rates)); diff != "" || !b.Start.Equal(whole.Start.Add(day)) {
		t.Errorf("the second half begins at %v; rates (-whole +halves): %s", b.Start, diff)
	}
	for _, h := range []*Comparison{first, second} {
		p, outlook := h.course.Parts[0], h.outlooks[0]
		if at := outlook[0].band.At; !at.Equal(p.Start) || !p.History.At(p.First).Equal(p.Start) {
			t.Errorf("the part that begins at %v has its first forecast at %v, its first bin at %v", p.Start, at, p.History.At(p.First))
		}
		if bins := int(p.Duration() / p.History.Step); len(p.History.Values) != p.First+bins || len(outlook) < bins {
			t.Errorf("%d bins of a part: a history of %d + %d, %d forecasts", bins, p.First, len(p.History.Values)-p.First, len(outlook))
		}
		if got, want := h.arrived[0].cum[len(p.Rates)], newArrivals(p.Step.Seconds(), p.Rates).cum[len(p.Rates)]; got != want {
			t.Errorf("%v arrive in a half, want %v", got, want)
		}
	}
	if _, _, ok := week(t, 1, Options{World: PaperRestart()}).halves(); ok {
		t.Error("one day was divided")
	}
}

// Gaps divide a course into parts; the halves share them by time.
func TestHalvesOfParts(t *testing.T) {
	c := week(t, 2, Options{World: PaperRestart()})
	p := c.course.Parts[0]
	c.course = c.course.without()
	outlook := c.outlooks[0]
	c.outlooks, c.arrived = nil, nil
	for _, cut := range []time.Duration{0, 18 * time.Hour} {
		c.add(p.slice(cut, min(cut+18*time.Hour, p.Duration())), outlook[int(cut/p.History.Step):])
	}
	c.add(p.slice(36*time.Hour, p.Duration()), outlook[int(36*time.Hour/p.History.Step):])
	first, second, _ := c.halves()
	lengths := func(c *Comparison) (out []time.Duration) {
		for _, p := range c.course.Parts {
			out = append(out, p.Duration())
		}
		return out
	}
	if diff := cmp.Diff([]time.Duration{18 * time.Hour, 6 * time.Hour}, lengths(first)); diff != "" {
		t.Errorf("the first half (-want +got): %s", diff)
	}
	if diff := cmp.Diff([]time.Duration{12 * time.Hour, 12 * time.Hour}, lengths(second)); diff != "" {
		t.Errorf("the second half (-want +got): %s", diff)
	}
}

// A sweep says on which days it chose, and its best setting is measured on the others.
func TestSweepMeasuresOnOtherDays(t *testing.T) {
	c := week(t, 2, Options{World: PaperRestart(), Seeds: 1, Policies: []string{"follow"}})
	r, err := c.Run(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if r.ChosenDays != 1 || r.Days != 1 || !r.From.Equal(c.course.Parts[0].Start.Add(day)) || len(r.Policies) != 2 || r.Policies[1].Setting != LabelBest {
		t.Errorf("chosen on %v days, %v days from %v: %+v", r.ChosenDays, r.Days, r.From, r.Policies)
	}
}

// The blind oracle knows the hour's mean and not what lies within: two traces of the same means have the same schedule.
func TestBlindOracle(t *testing.T) {
	for _, w := range []World{PaperRestart(), LiveRescale()} {
		w.PerDay, w.Burst = 0, 0
		calm, rough := make([]float64, 360), make([]float64, 360)
		for i := range calm {
			calm[i] = 100_000
			if i >= 180 {
				calm[i] = 200_000
			}
			rough[i] = calm[i] * (0.8 + 0.4*float64(i%2))
		}
		var plans [2]float64
		for k, rates := range [][]float64{calm, rough} {
			c := compare(t, reference(t), minutely(rates...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
			b := c.blind()
			plans[k] = b.arrived[0].at(270 * 60)
			if s := smooth(rates, 60); !near(s[90], 100_000, 0.01) || !near(s[300], 200_000, 0.01) || s[180] < 140_000 || s[180] > 160_000 {
				t.Errorf("the mean is %v, %v at the step and %v", s[90], s[180], s[300])
			}
			blind := c.playBlind(t.Context(), 2)
			for seed, got := range blind {
				var best *tally
				if w.Live {
					best, _, _ = c.playLiveOracle(t.Context(), uint64(seed), liveGrid(c.j.SLO.MaxLag), 0, nil)
				} else {
					best, _ = c.playOracle(t.Context(), uint64(seed), restartGrid(c.j.SLO.MaxLag, w), nil)
				}
				knows, not := best.metrics(&c.fig).Cost, got.metrics(&c.fig).Cost
				if not < 0.995*knows || not > 1.5*knows {
					t.Errorf("live %v: the blind oracle costs %v, the one that sees %v", w.Live, not, knows)
				}
			}
		}
		if !near(plans[0], plans[1], 0.005) {
			t.Errorf("it expects %v of a calm trace and %v of a rough one with the same means", plans[0], plans[1])
		}
	}
}

// The blind oracle answers to lag that it could not foresee, and stays within the limit on rescales all the same.
func TestBlindOracleKeepsToTheLimit(t *testing.T) {
	w := LiveRescale()
	w.PerDay, w.Burst = 36, 6
	rates := make([]float64, 1440)
	r := rand.New(rand.NewPCG(3, 5))
	for i := range rates {
		rates[i] = (100_000 + 60_000*math.Sin(float64(i)/80)) * (0.5 + r.Float64())
	}
	c := compare(t, reference(t), minutely(rates...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
	for seed, got := range c.playBlind(t.Context(), 3) {
		if n := float64(got.rescales); n > c.allowed() || n < c.allowed()/3 {
			t.Errorf("seed %d: %v rescales where %v are allowed", seed, n, c.allowed())
		}
	}
}
