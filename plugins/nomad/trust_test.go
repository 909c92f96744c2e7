package nomad

import (
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// That Nomad refuses a token which it took is believed when it lasts: servers that were just started do so for a moment.
func TestRefusalThatMayPass(t *testing.T) {
	began, no := time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC), backend.Errorf(backend.Unauthorised, "Permission denied")
	var s trust
	for i, tt := range []struct {
		at   time.Duration
		err  error
		want bool
	}{
		{0, no, false}, // it was never taken
		{time.Second, nil, false},
		{2 * time.Second, backend.Errorf(backend.Unavailable, "connection refused"), false},
		{3 * time.Second, no, true},
		{3*time.Second + restartTime - 1, no, true},
		{3*time.Second + restartTime, no, false},
		{time.Minute, nil, false},
		{2 * time.Minute, no, true},
	} {
		if got := s.note(tt.err, began.Add(tt.at)); got != tt.want {
			t.Errorf("after call %d, %v: it may pass: %v, want %v", i, tt.err, got, tt.want)
		}
	}
	if (*trust)(nil).note(no, began) {
		t.Error("nothing is known of a token that was not used")
	}
}
