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
