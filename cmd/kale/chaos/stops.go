package chaos

import (
	"slices"
	"time"
)

// Sample is one look at a job's progress.
type Sample struct {
	At      time.Time
	Applied int64 // sum over the partitions of what every tablet has applied; it falls when a server is restored from a snapshot
}

// Window is a time in which a fault acted, from its beginning to its healing; a kill's ends where it begins.
type Window struct{ From, To time.Time }

// LongestStop gives the longest time without any progress that no fault explains, and where it began: the longest part, between two samples in which
// progress shows or the ends of what was watched, that touches no window. What is trained again after a restore is progress, too.
func LongestStop(samples []Sample, windows []Window, from, to time.Time) (began time.Time, lasted time.Duration) {
	windows = slices.Clone(windows)
	slices.SortFunc(windows, func(a, b Window) int { return a.From.Compare(b.From) })
	last := from
	stop := func(until time.Time) {
		quiet := last // since when nothing was trained and nothing was broken
		for _, w := range windows {
			if w.To.Before(quiet) || w.From.After(until) {
				continue
			}
			if d := w.From.Sub(quiet); d > lasted {
				began, lasted = quiet, d
			}
			quiet = w.To
		}
		if d := until.Sub(quiet); d > lasted {
			began, lasted = quiet, d
		}
	}
	var before int64
	for i, s := range samples {
		if s.At.Before(from) || s.At.After(to) {
			continue
		}
		if i > 0 && s.Applied > before {
			stop(s.At)
			last = s.At
		}
		before = s.Applied
	}
	stop(to)
	return began, lasted
}
