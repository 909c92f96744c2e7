package plan

import (
	"strings"
	"testing"
	"time"
)

// On a full cluster a decision says how many workers are wanted, how many of them have a place, and what the others wait for, and not that limits bind which nobody has set.
func TestShortClusterIsTold(t *testing.T) {
	const none = "needs 1 GPU, 0 free"
	full := func(target, most, placed, waiting int) Observation {
		o := reference()
		o.Target, o.Workers.Running, o.Workers.Pending = target, placed, waiting
		o.Limits.Short = Short{Max: o.Limits.Max, Placed: placed, Waiting: waiting, Why: none}
		o.Limits.Max = most
		return o
	}
	under := full(7, 28, 4, 3)
	under.Action = Action{Kind: KindOut, Target: 7, Since: under.Now.Add(-3 * time.Minute)}
	late := full(4, 4, 4, 0)
	late.Lag, late.BacklogRecords = 2*time.Hour, 700_000_000
	early := full(7, 4, 4, 3) // nothing else would let them go
	early.Forecast.Trusted, early.LagKnown = false, false
	pinned, beyond := full(4, 4, 4, 0), full(4, 4, 1, 3)
	pinned.Manual = Manual{Pinned: true, Target: 9}
	beyond.Manual = Manual{Pinned: true, Target: 40}
	const wanted = "7 workers are wanted, 4 have a place, and "
	for name, tt := range map[string]struct {
		o          Observation
		target     int
		begins, is string // is: how the reason ends
	}{
		"while they are asked for":   {under, 7, "hold at 7 workers: a rescale (out) to 7 workers has been under way for 3m; ", wanted + "3 wait for one: " + none},
		"as they are given up":       {full(7, 4, 4, 3), 4, "the forecast peak of 100,000 records/s ", "; " + wanted + "3 wait for one: " + none + "; what waits is given up for now"},
		"which nothing else lets go": {early, 4, wanted, wanted + "3 wait for one: " + none + "; what waits is given up for now"},
		"then":                       {full(4, 4, 4, 0), 4, "", "; " + wanted + "there is none for more: " + none},
		"behind":                     {late, 4, "the lag of 2h is over the objective of 20m; ", " workers are wanted, 4 have a place, and there is none for more: " + none},
		"by hand":                    {pinned, 4, "", "pinned to 9 workers by hand; 4 have a place, and there is none for more: " + none},
		"by hand, beyond the limits": {beyond, 4, "", "pinned to 40 workers by hand, which the limits of 2 to 28 make 28; 1 has a place, and 3 wait for one: " + none},
	} {
		d := policy(t, "kale").Decide(tt.o)
		if d.Target != tt.target || !strings.HasPrefix(d.Reason, tt.begins) || !strings.HasSuffix(d.Reason, tt.is) || strings.Contains(d.Reason, "are allowed") || strings.Contains(d.Reason, "in force") {
			t.Errorf("%s: %d workers: %s", name, d.Target, d.Reason)
		}
	}
	if d := policy(t, "kale").Decide(full(7, 7, 7, 0)); strings.Contains(d.Reason, "have a place") {
		t.Errorf("where all that are wanted have a place: %s", d.Reason)
	}
}

// Where the least that is allowed carries the load with fewer already, a decision does not say that the load needs so many.
func TestLeastAllowedIsNoNeed(t *testing.T) {
	const least = "no more than the 2 workers that are the least allowed"
	for name, distrust := range map[string]bool{"kale": false, "follow": false, "quantile": false, "kale, without a forecast": true} {
		for _, c := range []struct {
			rate  float64
			least bool
		}{{10_000, true}, {25_000, false}} {
			o := reference()
			o.Target, o.Workers.Running = 2, 2
			o.setRates(c.rate)
			o.setForecast(flat(c.rate, 60))
			o.Forecast.Trusted = !distrust
			by, _, _ := strings.Cut(name, ",")
			d := policy(t, by).Decide(o)
			if d.Target != 2 || strings.Contains(d.Reason, least) != c.least {
				t.Errorf("%s at %v records/s: %d workers: %s", name, c.rate, d.Target, d.Reason)
			}
			for _, term := range d.Terms {
				if term.Name == "needed" && strings.HasPrefix(term.Expr, "the least allowed, and F(1) > ") != c.least {
					t.Errorf("%s at %v records/s: needed: %s", name, c.rate, term.Expr)
				}
			}
		}
	}
}
