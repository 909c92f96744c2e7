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

// Before the first worker nothing is held: it is said how many are wanted, and why none is asked for.
func TestNoWorkerIsAskedForYet(t *testing.T) {
	o := reference()
	o.Target, o.Workers = 0, Workers{}
	o.Hold = Hold{Unknown: true, Reason: "what runs cannot be seen: put the folder back"}
	d := policy(t, "kale").Decide(o)
	want := "no worker is asked for yet, though 7 are wanted: the state of the job is not fully known: what runs cannot be seen: put the folder back"
	if d.Kind != KindHold || d.Target != 0 || d.Reason != want {
		t.Errorf("%s to %d: %q\nwant %q", d.Kind, d.Target, d.Reason, want)
	}
	if head, _, _ := strings.Cut(d.Explain(), "\n"); !strings.HasSuffix(head, "kale: hold, with no worker asked for yet") {
		t.Errorf("it is explained as %q", head)
	}
	o.MaxLag = -1
	if d := policy(t, "kale").Decide(o); !strings.HasPrefix(d.Reason, "no worker is asked for yet: max_lag is") {
		t.Errorf("of an observation that makes no sense: %q", d.Reason)
	}
}
