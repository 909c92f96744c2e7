package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Count is "1 worker", "3 workers".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Length is a duration for people, of three digits or so and without units that are zero: 1.23ms, 4.2s, 3m5s, 20m, 1h30m, 3d4h. [FormatDuration]
// says one exactly.
func Length(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -max(d, -math.MaxInt64) // the most negative one has no opposite
	}
	to := time.Hour
	for _, r := range []struct{ below, to time.Duration }{
		{10 * time.Millisecond, 10 * time.Microsecond}, {time.Second, time.Millisecond}, {10 * time.Second, 10 * time.Millisecond},
		{time.Minute, 100 * time.Millisecond}, {time.Hour, time.Second}, {48 * time.Hour, time.Minute},
	} {
		if d < r.below {
			to = r.to
			break
		}
	}
	if d += to / 2; d < 0 { // over
		d = math.MaxInt64
	}
	d = d.Truncate(to)
	days := ""
	if d >= 48*time.Hour {
		days, d = fmt.Sprintf("%dd", d/(24*time.Hour)), d%(24*time.Hour)
		if d == 0 {
			return sign + days
		}
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return sign + days + s
}

// Percents writes two shares in percent, without the sign, with as few decimals from least to most as tell them apart. Two texts that are the same are shares that so
// many do not.
func Percents(a, b float64, least, most int) (string, string) {
	for digits := least; ; digits++ {
		x, y := strconv.FormatFloat(100*a, 'f', digits, 64), strconv.FormatFloat(100*b, 'f', digits, 64)
		if x != y || digits >= most {
			return x, y
		}
	}
}
