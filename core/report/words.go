package report

import (
	"math"
	"strconv"
	"time"

	"github.com/kale-sched/kale/core/job"
)

// nbsp keeps a number and its unit on one line.
const nbsp = "\u00a0"

// seconds writes a time given in seconds.
func seconds(s float64) string {
	if math.IsNaN(s) {
		return "unknown"
	}
	if math.Abs(s) > 9e9 {
		return "over 285 years"
	}
	return job.Length(time.Duration(s * float64(time.Second)))
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
