package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// nbsp keeps a number and its unit on one line.
const nbsp = "\u00a0"

// people writes a duration as people read it: 820 ms, 4.2 s, 3 min 5 s, 2 h 10 min, 3 d 4 h. Its spaces do not break.
func people(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "−", -d
	}
	return strings.ReplaceAll(sign+magnitude(d), " ", nbsp)
}

func magnitude(d time.Duration) string {
	switch {
	case d < 0: // The most negative duration has no opposite.
		return "over 292 years"
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return trim(d.Seconds()) + " s"
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 3600:
		return two(s/60, "min", s%60, "s")
	case s < 24*3600:
		return two(s/3600, "h", s%3600/60, "min")
	}
	return two(s/86400, "d", s%86400/3600, "h")
}

func two(a int64, unitA string, b int64, unitB string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unitA)
	}
	return fmt.Sprintf("%d %s %d %s", a, unitA, b, unitB)
}

// trim writes one decimal, unless it is 0.
func trim(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") }

// seconds writes a time given in seconds.
func seconds(s float64) string {
	if math.IsNaN(s) {
		return "unknown"
	}
	if math.Abs(s) > 9e9 {
		return "over 285 years"
	}
	return people(time.Duration(s * float64(time.Second)))
}

// percent writes a share of 0 to 100; what is not quite all is never rounded up to 100.
func percent(v float64) string {
	switch {
	case v > 99 && v < 100:
		return strconv.FormatFloat(math.Floor(v*100)/100, 'f', 2, 64) + nbsp + "%"
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64) + nbsp + "%"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + nbsp + "%"
}

// moment writes a time in UTC, with the date where it differs from that of the time before it.
func moment(t, before time.Time) string {
	t, before = t.UTC(), before.UTC()
	clock := t.Format("15:04:05")
	if t.Format(time.DateOnly) != before.Format(time.DateOnly) {
		return t.Format("2 Jan 2006 ") + clock
	}
	return clock
}
