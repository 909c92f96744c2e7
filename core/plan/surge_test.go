package plan

import (
	"math"
	"strings"
	"testing"
)

// A load that has doubled, which the forecast, trusted still, does not know, is answered after three bins, and not when half of the lag that is allowed is used up.
func TestKaleAnswersASurge(t *testing.T) {
	surged := func(bins int, rate float64) Observation {
		o := reference()
		o.Headroom = 0.1
		for i := range bins {
			o.Rates.Values[len(o.Rates.Values)-1-i] = rate
		}
		return o
	}
	p := policy(t, "kale")
	for name, c := range map[string]struct {
		o    Observation
		want int
	}{
		"after three bins":       {surged(3, 200_000), 14}, // 220,000 by 16,000
		"one bin may be a burst": {surged(1, 200_000), 7},
		"two also":               {surged(2, 200_000), 7},
		"within the headroom":    {surged(5, 109_000), 7},
		"without a headroom, as in the paper": {func() Observation {
			o := surged(5, 200_000)
			o.Headroom = 0
			return o
		}(), 7},
		"within the band": {func() Observation {
			o := surged(5, 200_000)
			o.Forecast.Upper = flat(190_000, 60)
			return o
		}(), 7},
		"a load that falls as was foreseen": {func() Observation {
			o := surged(0, 0)
			for i, rate := range []float64{260_000, 230_000, 200_000} { // and 100,000 in a while
				o.Rates.Values[27+i] = rate
			}
			return o
		}(), 7},
		"one of them was not measured": {func() Observation {
			o := surged(3, 200_000)
			o.Rates.Values[28] = math.NaN()
			return o
		}(), 7},
		"long ago": {func() Observation {
			o := surged(3, 200_000)
			o.Rates.Start = o.Rates.Start.Add(-10 * o.Interval)
			return o
		}(), 7},
	} {
		c.o.Target, c.o.Workers.Running = 7, 7
		d := p.Decide(c.o)
		if d.Target != c.want {
			t.Errorf("%s: %d workers, %q; want %d", name, d.Target, d.Reason, c.want)
		}
		if c.want > 7 && (d.Source != "reactive" || !strings.Contains(d.Reason, "the last 3 bins came at 200,000 records/s or more, above the 110,000 records/s that are forecast for now at the most")) {
			t.Errorf("%s: by %s, %q", name, d.Source, d.Reason)
		}
	}
}
