package job

import (
	"math"
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Count(0, "worker"), "0 workers"}, {Count(1, "worker"), "1 worker"}, {Count(3, "partition"), "3 partitions"},
		{Length(0), "0s"}, {Length(1234 * time.Microsecond), "1.23ms"}, {Length(119400 * time.Microsecond), "119ms"}, {Length(999_600 * time.Microsecond), "1s"},
		{Length(4234 * time.Millisecond), "4.23s"}, {Length(41 * time.Second), "41s"}, {Length(59960 * time.Millisecond), "1m"}, {Length(185 * time.Second), "3m5s"},
		{Length(20 * time.Minute), "20m"}, {Length(time.Hour + 20*time.Second), "1h"}, {Length(90 * time.Minute), "1h30m"}, {Length(24 * time.Hour), "24h"},
		{Length(48 * time.Hour), "2d"}, {Length(76*time.Hour + time.Minute), "3d4h"}, {Length(-2 * time.Second), "-2s"},
		{Length(math.MinInt64), "-106751d23h"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestPercents: as few decimals as tell two shares apart, and no more than there may be.
func TestPercents(t *testing.T) {
	for _, c := range []struct {
		a, b        float64
		least, most int
		x, y        string
	}{
		{0.25, 0.125, 1, 4, "25.0", "12.5"},
		{0.432_16, 0.432_24, 1, 4, "43.216", "43.224"},
		{0.433_41, 0.433_42, 1, 4, "43.341", "43.342"},
		{0.5, 0.5, 1, 3, "50.000", "50.000"},
		{0.123_456_1, 0.123_456_2, 2, 2, "12.35", "12.35"},
	} {
		if x, y := Percents(c.a, c.b, c.least, c.most); x != c.x || y != c.y {
			t.Errorf("Percents(%v, %v, %d, %d) = %q, %q; want %q, %q", c.a, c.b, c.least, c.most, x, y, c.x, c.y)
		}
	}
}
