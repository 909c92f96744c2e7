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
