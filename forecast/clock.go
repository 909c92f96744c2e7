package forecast

import (
	"math"
	"slices"
	"time"
)

// byClock is the history with each bin at the hour that it had on a zone's clock, counted back from its end: it is the history itself where that
// clock was not put forward or back in it, or by no whole number of bins.
func byClock(zone *time.Location, history Series) Series {
	if zone == nil || len(history.Values) == 0 {
		return history
	}
	shifts := make([]int, 0, len(history.Values)) // of each bin
	end := ahead(zone, history.End())
	changes := false
	for at := history.Start; at.Before(history.End()); {
		_, next := at.In(zone).ZoneBounds() // zero: for ever
		d := ahead(zone, at) - end
		if d%history.Step != 0 {
			return history
		}
		changes = changes || d != 0
		for ; len(shifts) < len(history.Values) && (next.IsZero() || at.Before(next)); at = at.Add(history.Step) {
			shifts = append(shifts, int(d/history.Step))
		}
	}
	if !changes {
		return history
	}
	before := max(0, -slices.Min(shifts)) // bins by which the history may begin earlier
	out := Series{Start: history.At(-before), Step: history.Step, Values: make([]float64, len(history.Values)+before)}
	for i := range out.Values {
		out.Values[i] = math.NaN()
	}
	for i, v := range history.Values {
		at := i + shifts[i] + before
		if v != v || at >= len(out.Values) { // of the hour that comes twice, what its second time is yet to come
			continue
		}
		if first := out.Values[at]; first == first {
			v = (first + v) / 2
		}
		out.Values[at] = v
	}
	return out
}

// ahead is by how much a zone's clock is ahead of UTC.
func ahead(zone *time.Location, at time.Time) time.Duration {
	_, seconds := at.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// later is by how many bins each of the steps bins from a moment on is later on the zone's clock than the time that has passed till then;
// nil where that clock is not put forward or back meanwhile, or by no whole number of bins.
func later(zone *time.Location, from time.Time, step time.Duration, steps int) []int {
	if zone == nil {
		return nil
	}
	if _, next := from.In(zone).ZoneBounds(); next.IsZero() || !next.Before(from.Add(time.Duration(steps)*step)) {
		return nil
	}
	out := make([]int, steps)
	for h := range out {
		d := ahead(zone, from.Add(time.Duration(h)*step)) - ahead(zone, from)
		if d%step != 0 {
			return nil
		}
		out[h] = int(d / step)
	}
	return out
}

// onClock puts the bins of a forecast by the clock where they will be. What lies beyond its end is as the last bin is, and the hour that comes again as the first.
func onClock(f Forecast, shifts []int) Forecast {
	return f.with(func(row []float64) []float64 {
		out := make([]float64, len(shifts))
		for h, by := range shifts {
			out[h] = row[min(max(0, h+by), len(row)-1)]
		}
		return out
	})
}
