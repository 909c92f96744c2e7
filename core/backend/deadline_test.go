package backend

import (
	"testing"
	"time"
)

// A node that is being drained is left for that, also where a walltime ends first: only a walltime may be waited for. A preemption comes first, as it is.
func TestOnDrainedNode(t *testing.T) {
	now := time.Unix(1000, 0)
	hour := now.Add(time.Hour)
	for _, c := range []struct {
		what     string
		before   Status
		until    time.Time
		deadline time.Time
		cause    EndCause
		asks     bool
	}{
		{"no limit", Status{}, hour, hour, EndDrain, false},
		{"a later walltime", Status{Deadline: now.Add(2 * time.Hour), EndCause: EndWalltime}, hour, hour, EndDrain, false},
		{"an earlier walltime", Status{Deadline: now.Add(time.Minute), EndCause: EndWalltime}, hour, now.Add(time.Minute), EndDrain, true},
		{"an earlier preemption", Status{Deadline: now.Add(time.Minute), EndCause: EndPreemption}, hour, now.Add(time.Minute), EndPreemption, true},
		{"nobody knows when", Status{Deadline: now.Add(time.Minute), EndCause: EndWalltime}, time.Time{}, now.Add(time.Minute), EndWalltime, true},
	} {
		st := c.before
		st.Asks = true
		if st.OnDrainedNode(c.until); !st.Deadline.Equal(c.deadline) || st.EndCause != c.cause {
			t.Errorf("%s: its end is %v by %q, want %v by %q", c.what, st.Deadline, st.EndCause, c.deadline, c.cause)
		}
		if st.Asks != c.asks {
			t.Errorf("%s: at its deadline or later it is asked to end: %v", c.what, st.Asks)
		}
	}
}
