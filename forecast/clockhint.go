package forecast

import (
	"math"
	"time"
)

// How [Series.Clocks] tells that people's clocks were changed.
const (
	clockWeek    = 7 * 24 * time.Hour
	clockGain    = 0.1 // share of the difference to the week before that has to be gone
	clockChanges = 8   // the last changes that are looked at
)

// ruledZones are zones by whose rule clocks are changed in the USA and Canada, and in Europe.
var ruledZones = []string{"America/New_York", "Europe/Berlin"}

// ClockHint is why a time zone would explain a history better than none does.
type ClockHint struct {
	Zone string    // one of those with the rule that explains it: in which of them the traffic is, no history tells
	At   time.Time // the latest of the changes that tell
	Gain float64   // by what share the weeks after them differ less from the weeks before, hour of that clock by hour
}

// Clocks says whether the history's course moves by an hour when clocks are changed in one of some zones: then the week after a change is nearer to the week before at the same hour of the
// clock than at the same hour of UTC, surely, and by a good part. A history without a whole week on either side of a change tells nothing.
func (s Series) Clocks() (best ClockHint, moves bool) {
	for _, name := range ruledZones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			continue // a system that has no zones has no flag for one either
		}
		if h, ok := s.clocksOf(zone); ok && h.Gain > best.Gain {
			best, moves = h, true
		}
	}
	return best, moves
}

// clocksOf is Clocks of one zone.
func (s Series) clocksOf(zone *time.Location) (h ClockHint, moves bool) {
	var plain, moved []float64 // mean differences to the week before, by day
	_, from := s.End().In(zone).ZoneBounds()
	for range clockChanges + 1 { // the first of them is after the end
		start, _ := from.Add(-time.Second).In(zone).ZoneBounds()
		if start.IsZero() || start.Before(s.Start.Add(clockWeek)) {
			break
		}
		from = start
		if start.Add(clockWeek).After(s.End()) {
			continue
		}
		_, before := start.Add(-time.Second).Zone()
		_, after := start.Zone()
		by := time.Duration(after-before) * time.Second
		if by%s.Step != 0 {
			continue
		}
		a, b := s.beside(start, by)
		if plain = append(plain, a...); h.At.IsZero() && len(a) > 0 {
			h.At = start
		}
		moved = append(moved, b...)
	}
	e0, e1 := meanOrNaN(plain), meanOrNaN(moved)
	h.Zone, h.Gain = zone.String(), 1-e1/e0
	return h, h.Gain >= clockGain && !Level(moved, plain, 1)
}

// beside is by how much each day of the week after a moment differs from the one a week before, and from that moved by some time; of days that are known by half.
func (s Series) beside(start time.Time, by time.Duration) (plain, moved []float64) {
	week, off := int(clockWeek/s.Step), int(by/s.Step)
	day := int(24 * time.Hour / s.Step)
	first := s.Bin(start)
	for d := first; day > 0 && d+day <= min(first+week, len(s.Values)); d += day {
		sum, other, n := 0.0, 0.0, 0.0
		for i := d; i < d+day; i++ {
			if i-week < 0 || i-week+off < 0 {
				continue
			}
			a, b := math.Abs(s.Values[i]-s.Values[i-week]), math.Abs(s.Values[i]-s.Values[i-week+off])
			if a+b == a+b {
				sum, other, n = sum+a, other+b, n+1
			}
		}
		if 2*n >= float64(day) {
			plain, moved = append(plain, sum/n), append(moved, other/n)
		}
	}
	return plain, moved
}
