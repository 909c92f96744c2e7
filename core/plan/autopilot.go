package plan

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// autopilot is Google's Autopilot, horizontal (Rzadca et al., EuroSys '20 §3.3)
// [paper]: n = S(usage over the last T) / r*, where usage is the sum over workers,
// averaged over 5 min, and S the maximum or a percentile. Scale-ins are deferred
// (no fewer than the largest wish of T_d), decay slowly (so that the count at most
// halves in an hour), and small changes are put off. The paper's r* depends on the
// job; 0.8 is ours, and so is the limit of growth to a doubling in 5 min.
//
// "autopilot" has the published window of 72 h. The Kale paper's Autopilot visibly
// tracks the day, so "autopilot-short" [ours] has one of an hour, the 95th
// percentile and a margin.
type autopilot struct {
	name                       string
	target, percentile, margin float64
	window, delay              time.Duration
	demand                     bool
}

const (
	autopilotAverage = 5 * time.Minute
	autopilotHalving = time.Hour
	autopilotSmall   = 0.05 // of the workers: a change of less is no change
)

func newAutopilot(name string, p Params) autopilot {
	return autopilot{name: name, target: p["target"], percentile: p["percentile"], margin: p["margin"], window: inMinutes(p["window"]), delay: inMinutes(p["defer"]), demand: p["demand"] != 0}
}

func (p autopilot) propose(s *sheet) proposal {
	o, m := s.o, s.remember(p.name)
	if used, why := s.used(p.demand); why == "" && !s.settling() {
		m.Metrics.note(o.Now, p.window, p.averaged(), used)
	} else {
		m.Metrics.forget(o.Now, p.window)
	}
	usage, ok := p.statistic(m.Metrics)
	if !ok {
		return s.idle("utilisation", "no usage was measured yet")
	}
	wish := ceilCount(usage * (1 + p.margin) / p.target)
	m.Wishes.note(o.Now, p.delay, 0, float64(wish))
	want := p.steady(s, m, wish)
	s.note("usage", usage, "workers", fmt.Sprintf("of the last %s, level %g of its averages over %s", formatDuration(p.window), p.percentile, formatDuration(bucketWidth(p.window, p.averaged()))))
	s.note("wish", float64(wish), "workers", fmt.Sprintf("usage × (1 + %g) / target %g", p.margin, p.target))
	s.note("after delay and decay", float64(want), "workers", fmt.Sprintf("no fewer than the largest wish of %s; at most halved in %s", formatDuration(p.delay), formatDuration(autopilotHalving)))
	s.noteAlwaysBusy(want, p.target, p.demand)
	load := s.lastLoad()
	return proposal{want: want, load: load, source: "utilisation",
		reason: fmt.Sprintf("the usage of %s workers in the last %s asks for %s", formatNumber(usage), formatDuration(p.window), workers(want))}
}

// averaged is over how long usage is averaged.
func (p autopilot) averaged() time.Duration { return min(autopilotAverage, p.window/8) }

// statistic is S over the averages in the row.
func (p autopilot) statistic(r row) (usage float64, ok bool) {
	means := make([]float64, len(r))
	for i, b := range r {
		means[i] = b.Sum[0] / float64(b.N)
	}
	if len(means) == 0 {
		return 0, false
	}
	slices.Sort(means)
	k := int(math.Ceil(p.percentile*float64(len(means)) - 1e-9))
	return means[min(max(k, 1), len(means))-1], true
}

// steady applies delay, decay and limit of growth to a wish. Planned is up to when
// the time in which workers may be taken away is used up: while none may be, until
// now; of what has passed since, whole workers use as much as they take to go.
func (p autopilot) steady(s *sheet, m *memory, wish int) int {
	now, current := s.o.Now, s.current
	small := math.Abs(float64(wish-current)) < autopilotSmall*float64(current)
	if wish >= current || small {
		m.Planned = now
		if small {
			return current
		}
		return min(wish, max(2*current, 1))
	}
	wish = max(wish, int(m.Wishes.largest(now.Add(-p.delay), float64(wish))))
	passed := now.Sub(m.Planned)
	if wish >= current || passed < 0 || m.Planned.IsZero() {
		m.Planned = now
		return current
	}
	if passed < autopilotAverage {
		return current
	}
	left := max(wish, ceilCount(float64(current)*math.Exp2(-float64(passed)/float64(autopilotHalving))))
	if left < current {
		m.Planned = m.Planned.Add(time.Duration(math.Log2(float64(current)/float64(max(left, 1))) * float64(autopilotHalving)))
	}
	return left
}
