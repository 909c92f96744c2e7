package plan

import (
	"strings"
	"testing"
	"time"
)

// Where the lag is over the objective and all workers that are allowed are in force,
// the reason is the limit, which a person can change, and not the rule that decided before.
func TestLagAtTheMostWorkersNamesTheLimit(t *testing.T) {
	for _, name := range []string{"kale", "cost"} {
		for _, trusted := range []bool{false, true} {
			o := reference()
			o.Limits.Max, o.Target, o.Workers.Running = 7, 7, 7
			o.Lag, o.BacklogRecords = 2*time.Hour, 700_000_000
			o.Forecast.Trusted = trusted
			d := policy(t, name).Decide(o)
			t.Logf("%s, trusted %t: %s (%s), hold %v", name, trusted, d.Reason, d.Source, d.Hold)
			if d.Target != 7 || !strings.HasPrefix(d.Reason, "the lag of 2h is over the objective of 20m, and no more than 7 workers are allowed; ") {
				t.Errorf("%s, trusted %t: %d workers: %s", name, trusted, d.Target, d.Reason)
			}
			o.Limits.Max = 28
			if d = policy(t, name).Decide(o); d.Target <= 7 || strings.Contains(d.Reason, "are allowed") {
				t.Errorf("%s, trusted %t, with 28 allowed: %d workers: %s", name, trusted, d.Target, d.Reason)
			}
		}
	}
}
