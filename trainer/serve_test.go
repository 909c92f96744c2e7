package trainer

import (
	"slices"
	"testing"
	"time"
)

// A young server's work is soon in a snapshot; an old one's at the job's interval.
func TestNextSnapshot(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		want  []time.Duration
	}{
		{10 * time.Minute, []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute}},
		{20 * time.Second, []time.Duration{15 * time.Second, 20 * time.Second, 20 * time.Second}},
		{time.Second, []time.Duration{time.Second, time.Second}},
	} {
		var got []time.Duration
		last := time.Duration(0)
		for range c.want {
			last = nextSnapshot(last, c.every)
			got = append(got, last)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("every %v: snapshots after %v, want %v", c.every, got, c.want)
		}
	}
}
