package replay

import (
	"math"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/plan"
)

// Who knows the trace knows what lies beyond the horizon too: else who forecasts it worse would see further.
func TestPerfectForecastSeesBeyondTheHorizon(t *testing.T) {
	rates := make([]float64, 1440)
	for i := range rates {
		rates[i] = 1000 + float64(i)
	}
	c := compare(t, reference(t), minutely(rates...), CourseOptions{}, Options{World: PaperRestart(), Forecaster: PerfectForecast})
	made := perfect(&c.course.Parts[0], c.j)
	f := made[100].unpack(plan.Needs{Forecast: true, Spread: true, Beyond: true})
	if f.Beyond == nil || f.Beyond.Step != 15*time.Minute || len(f.Beyond.Mean) != 24 || !f.Beyond.At.Equal(f.At) {
		t.Fatalf("beyond the horizon of %d bins: %+v", len(f.Mean), f.Beyond)
	}
	for k, v := range f.Beyond.Mean {
		if want := 1000 + 100 + 15*float64(k) + 7; math.Abs(v-want) > 1e-6 {
			t.Errorf("in %d minutes it expects %v, and %v comes", 15*k, v, want)
		}
	}
	last := made[1430].unpack(plan.Needs{Beyond: true}).Beyond.Mean
	if v := last[len(last)-1]; math.Abs(v-(1000+1440-8)) > 1e-6 {
		t.Errorf("after the end it expects %v, and the last quarter of an hour had %v", v, 1000+1440-8)
	}
	if made[100].unpack(plan.Needs{}).Beyond != nil {
		t.Error("who does not look beyond the horizon is shown it")
	}
}

// Each job of a fleet sees as far as a single one does; after the end of the days they begin again.
func TestFleetSeesBeyondTheHorizon(t *testing.T) {
	o := FleetOptions{Jobs: 3, GPUs: 30, Seed: 1}
	for name, sees := range map[string]bool{"cost": true, "follow": false} {
		o.Policy = name
		ms, err := members(reference(t), SyntheticWeek(1), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms {
			day := m.part.Rates
			for _, bin := range []int{0, 700, 1300, 1440} {
				f := m.by.forecast(bin)
				if (f.Beyond != nil) != sees {
					t.Fatalf("%s is shown beyond the horizon: %v", name, f.Beyond != nil)
				}
				for k, v := range f.Mean {
					if want := day[(bin+k)%1440]; !near(v, want, 1e-9) {
						t.Fatalf("%s in bin %d: %v in %d minutes, and %v comes", name, bin, v, k, want)
					}
				}
				if !sees {
					continue
				}
				if b := f.Beyond; b.Step != 15*time.Minute || len(b.Mean) != 24 || !b.At.Equal(f.At) || f.Step != time.Minute || len(f.Mean) != 120 {
					t.Fatalf("bin %d: %d steps of %s, and beyond them %d of %s", bin, len(f.Mean), f.Step, len(b.Mean), b.Step)
				}
				for k, v := range f.Beyond.Mean {
					want := 0.0
					for i := range 15 {
						want += day[(bin+15*k+i)%1440] / 15
					}
					if !near(v, want, 1e-9) {
						t.Errorf("bin %d: %v in %d minutes, and %v comes", bin, v, 15*k, want)
					}
				}
			}
		}
	}
}
