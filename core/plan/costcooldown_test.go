package plan

import (
	"testing"
	"time"
)

// falling is a job of 14 workers that is rescaled live, at almost no price, with so long a cooldown, and the rates that are certain to come, by minute.
func falling(cooldown time.Duration, rate func(minute int) float64) Observation {
	o := reference()
	o.BacklogRecords, o.Lag = 0, 0
	o.Target, o.Workers.Running = 14, 14
	o.RescaleCost, o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
	o.CooldownIn = cooldown
	o.setRates(rate(0))
	mean := flat(0, 120)
	for i := range mean {
		mean[i] = rate(i)
	}
	o.setForecast(mean)
	return o
}

// cheapChanges is the policy with a price for a change that is next to nothing.
func cheapChanges(t *testing.T, guard float64) Policy {
	t.Helper()
	p, err := New("cost", Params{"rescale": 0.01, "guard": guard})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Two workers that are let go now keep eight others for the cooldown, which could go in four minutes: so it waits for these. Where there is no cooldown, or
// none that binds, it does not.
func TestCostWaitsRatherThanForbidALargerScaleIn(t *testing.T) {
	soon := func(minute int) float64 {
		if minute < 4 {
			return 180_000
		}
		return 60_000
	}
	for _, c := range []struct {
		cooldown time.Duration
		guard    float64
		waits    bool
	}{{0, 1, false}, {10 * time.Minute, 1, true}, {10 * time.Minute, 0, false}} {
		d := cheapChanges(t, c.guard).Decide(falling(c.cooldown, soon))
		if waits := d.Target == 14; waits != c.waits {
			t.Errorf("a cooldown of %v, guard %v: %d workers, want it to wait: %v\n%s", c.cooldown, c.guard, d.Target, c.waits, d.Explain())
		}
	}
}

// In the plan no workers go within a cooldown of a change, one that was made before now included. Its steps are rounded: by half of one of five minutes, and to
// the two minutes in which a plan is written.
func TestCostPlansItsScaleInsACooldownApart(t *testing.T) {
	const rounded = 5 * time.Minute
	down := func(minute int) float64 { return 200_000 - 16_000*float64(minute/5) }
	for _, c := range []struct{ cooldown, ago time.Duration }{{10 * time.Minute, time.Hour}, {20 * time.Minute, time.Hour}, {20 * time.Minute, 3 * time.Minute}, {0, time.Hour}} {
		o := falling(c.cooldown, func(minute int) float64 { return max(down(minute), 50_000) })
		o.State = state{Version: stateVersion, LastOut: o.Now.Add(-c.ago)}.encode()
		d := cheapChanges(t, 1).Decide(o)
		left, told := d.Term("cooldown left")
		if want := max(c.cooldown-c.ago, 0).Seconds(); told != (want > 0) || told && float64(left.Value) != want {
			t.Errorf("a cooldown of %v, the last change %v ago: %v s are told to be left (%v), want %v", c.cooldown, c.ago, left.Value, told, want)
		}
		last, w, least := -c.ago, 14, time.Hour
		for i, to := range d.Plan.Workers {
			at := time.Duration(i) * d.Plan.Step
			if to < w {
				least = min(least, at-last)
			}
			if to != w {
				w, last = to, at
			}
		}
		if least < c.cooldown-rounded {
			t.Errorf("a cooldown of %v, the last change %v ago: scale-ins %v after another change: %v", c.cooldown, c.ago, least, d.Plan.Workers)
		}
		if c.cooldown == 0 && least > rounded+d.Plan.Step {
			t.Errorf("without a cooldown they are %v apart: %v", least, d.Plan.Workers)
		}
	}
}
