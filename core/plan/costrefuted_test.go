package plan

import (
	"testing"
	"time"
)

// A burst that no scenario has: its forecaster holds to what it has seen for ten minutes. Where a rescale stops training, the policy believes the measurement
// of a minute or two, and grows far enough to work off the backlog before it is over the objective.
func TestCostBelievesWhatRefutesTheForecast(t *testing.T) {
	const before, burst = 60_000., 150_000.
	begins := 30 * time.Minute
	l := newLoop(func(at time.Duration) float64 {
		if at >= begins {
			return burst
		}
		return before
	})
	l.o.Target, l.running = 7, 7
	s := NewSuccession(policy(t, "cost"))
	grown := time.Duration(-1)
	for range 60 {
		o := l.observe()
		at := o.Now.Sub(l.start)
		seen := before
		if at >= begins+10*time.Minute {
			seen = burst
		}
		f := Forecast{At: o.Now, Step: time.Minute, Mean: make(Values, 60), Source: "seasonal", Trusted: true}
		for i := range f.Mean {
			f.Mean[i] = seen
		}
		f.addSpread(8, 0.04)
		f.Beyond = o.Forecast.Beyond
		for i := range f.Beyond.Mean {
			f.Beyond.Mean[i] = seen
		}
		o.Forecast = f
		d := s.Decide(o)
		if d.Target > 7 && grown < 0 {
			grown = at - begins
			if capacity := o.Model.Throughput(d.Target, o.Servers); capacity < burst {
				t.Errorf("%v after the burst began it grows to %d workers, which train %v of %v records/s", grown, d.Target, capacity, burst)
			}
		}
		if o.Lag > o.MaxLag {
			t.Fatalf("%v after the burst began the lag is %v of %v", at-begins, o.Lag, o.MaxLag)
		}
		l.step(d)
	}
	if grown < 0 || grown > 3*time.Minute {
		t.Errorf("it grows %v after the burst began; want within three minutes", grown)
	}
}
