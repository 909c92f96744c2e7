package backend

import (
	"testing"
	"time"
)

func TestLearnQueueWait(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	// waited is a worker's wait that began so long ago and took so long; less than 0: it still waits.
	waited := func(ago, took time.Duration) Wait {
		w := Wait{ID: ID{Role: RoleWorker, Generation: 1}, Submitted: now.Add(-ago)}
		if took >= 0 {
			w.Started = w.Submitted.Add(took)
		}
		return w
	}
	server := func(w Wait) Wait {
		w.ID.Role = "ps"
		return w
	}
	const waits = -1
	old := make([]Wait, 0, 40)
	for i := range 40 {
		old = append(old, waited(time.Hour+time.Duration(i)*time.Second, 30*time.Minute))
	}
	recent := make([]Wait, 0, 32)
	for i := range 32 {
		recent = append(recent, waited(time.Duration(i)*time.Second, time.Second))
	}
	for _, tt := range []struct {
		name  string
		waits []Wait
		want  time.Duration
	}{
		{"nobody", nil, 0},
		{"one", []Wait{waited(time.Hour, 7*time.Second)}, 7 * time.Second},
		{"three of four are not longer", []Wait{waited(4, 4*time.Second), waited(3, time.Second), waited(2, 3*time.Second), waited(1, 2*time.Second)}, 3 * time.Second},
		{"of seven", []Wait{waited(1, 1), waited(1, 2), waited(1, 3), waited(1, 4), waited(1, 5), waited(1, 6), waited(1, 7)}, 6},
		{"whoever waits, alone", []Wait{waited(time.Minute, waits)}, time.Minute},
		{"has just begun to wait", []Wait{waited(9*time.Minute, 8*time.Minute), waited(time.Second, waits), waited(time.Second, waits), waited(time.Second, waits)}, 8 * time.Minute},
		{"has waited longer than all before", []Wait{waited(time.Hour, time.Second), waited(time.Hour, time.Second), waited(20*time.Minute, waits), waited(30*time.Minute, waits)}, 20 * time.Minute},
		{"servers beside a worker", []Wait{server(waited(1, 1)), server(waited(1, 2)), server(waited(1, 3)), server(waited(1, 4)), waited(time.Hour, time.Minute)}, time.Minute},
		{"servers alone", []Wait{server(waited(time.Hour, time.Minute))}, time.Minute},
		{"clocks that differ", []Wait{{ID: ID{Role: RoleWorker}, Submitted: now, Started: now.Add(-time.Second)}}, 0},
		{"never handed in", []Wait{{ID: ID{Role: RoleWorker}, Started: now}}, 0},
		{"of yesterday", []Wait{waited(24*time.Hour, 8*time.Minute)}, 8 * time.Minute},
		{"of the day before", []Wait{waited(48*time.Hour+8*time.Minute, 8*time.Minute)}, 2 * time.Minute},
		{"of last week", []Wait{waited(168*time.Hour+8*time.Minute, 8*time.Minute)}, 8 * time.Minute >> 12},
		{"of last week, and who waits now", []Wait{waited(168*time.Hour, 8*time.Minute), waited(time.Second, waits)}, time.Second},
		{"the newest", append(append([]Wait(nil), old...), recent...), time.Second},
	} {
		if got := LearnQueueWait(now, tt.waits); got != tt.want {
			t.Errorf("%s: LearnQueueWait = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// What nobody has measured for long is what would be assumed without it.
func TestFaded(t *testing.T) {
	for ago, want := range map[time.Duration]time.Duration{0: time.Minute, 24 * time.Hour: time.Minute, 36 * time.Hour: 40 * time.Second, 48 * time.Hour: 30 * time.Second, 1000 * time.Hour: 20 * time.Second} {
		if got := Faded(time.Minute, 20*time.Second, ago); got.Round(time.Millisecond) != want {
			t.Errorf("a minute of %v ago, against 20 s: %v, want %v", ago, got, want)
		}
	}
}
