package replay

import (
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/plan"
)

// Forecasts that are spoilt are those of a worse forecaster, and not of one that lies about how sure it is: what is said is wrong by what the world says, and its 90 % hold 90 %, once what came
// of it is known.
func TestSpoiltForecastsAreCalibrated(t *testing.T) {
	w := LiveRescale()
	w.ForecastBias, w.ForecastNoise = -0.2, 0.2
	c := week(t, 3, Options{World: w, Seeds: 1, Policies: []string{"cost"}})
	part := &c.course.Parts[0]
	by := &policyDecider{outlook: c.outlooks[0], needs: plan.Needs{Spread: true}}
	r := &run{j: c.j, w: w, part: part, chance: chance{seed: 1}, by: by}
	first, said, known := 0, 0., 0.
	inside, n := map[int]float64{}, 0.
	for bin := 1; bin+120 < len(by.outlook); bin += 7 {
		r.q.t = part.History.Step.Seconds() * float64(bin)
		whole := by.forecast(bin)
		f := by.spoiled(r, bin, whole)
		said, known = said+f.Mean[10], known+whole.Mean[10]
		low, high := slices.Index(f.Levels, 0.05), slices.Index(f.Levels, 0.95)
		if low < 0 || f.Outcomes < 19 {
			continue
		}
		if n == 0 {
			first = bin
		}
		n++
		for _, h := range []int{5, 30, 90} {
			if came := whole.Mean[h]; f.Quantiles[low][h] <= came && came <= f.Quantiles[high][h] {
				inside[h]++
			}
		}
	}
	if first == 0 || first > 24*60/2 {
		t.Errorf("the forecasts are calibrated from bin %d of a minute on; want that within half a day", first)
	}
	if ratio := said / known; ratio < 0.77 || ratio > 0.87 { // the mean of the noise is exp(0.2²/2)
		t.Errorf("the forecasts are %.3f of what they were; want about 0.8", ratio)
	}
	for h, k := range inside {
		if k/n < 0.84 || k/n > 0.97 {
			t.Errorf("%d bins ahead, 90 %% hold %.1f %% of %.0f", h, 100*k/n, n)
		}
	}
	if len(inside) != 3 {
		t.Errorf("at %d of 3 horizons anything was held", len(inside))
	}
}
