package plan

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// quantile is what predictive autoscalers such as MagicScaler, OptScaler and
// RobustScaler have in common [paper]: the smallest w with P(max L(t … t+H) >
// F(w)) ≤ ε, from a forecast with quantiles, H at least the time that a rescale
// takes.
//
// The largest load of the window has a distribution of its own, which no step's
// quantile gives: it comes from the forecast's scenarios, and is no less than the
// largest of the steps' quantiles.
type quantile struct {
	epsilon float64
	horizon time.Duration
}

func (p quantile) propose(s *sheet) proposal {
	o := s.o
	mean, start, why := s.foreseen()
	if why != "" {
		p := s.idle("forecast", why)
		p.noIn = []string{why}
		return p
	}
	horizon := max(p.horizon, o.lead())
	first, f := len(o.Forecast.Mean)-len(mean), o.Forecast
	n := s.within(horizon, start, f.Step, len(mean))
	var peaks []float64
	for _, row := range f.scenariosOf(first + n) {
		peaks = append(peaks, slices.Max(row[first:]))
	}
	slices.Sort(peaks)
	k := min(int(math.Ceil(float64(len(peaks)+1)*(1-p.epsilon)-1e-9)), len(peaks))
	load := peaks[max(k, 1)-1]
	z, levels := probit(1-p.epsilon), f.levelZ()
	for i := range n {
		load = max(load, f.quantile(z, first+i, levels))
	}
	load = max(load, 0)
	want, saturated := s.curve.Smallest(load)
	window, cut := s.foreseenFor(horizon, start, f.Step, len(mean))
	s.noteDuration("window", window, "the horizon, or the lead if that is longer"+cut)
	s.note("load", load, "records/s", fmt.Sprintf("exceeded within the window with probability %g", p.epsilon))
	return proposal{want: want, load: load, saturated: saturated, source: "forecast", noIn: slices.DeleteFunc([]string{s.distrust()}, func(w string) bool { return w == "" }),
		reason: fmt.Sprintf("within %s the load stays below %s with probability %g, which needs %s", formatDuration(window), formatRate(load), 1-p.epsilon, s.needs(want, load))}
}
