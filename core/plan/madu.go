package plan

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// madu is Madu (Alibaba, SoCC '22) [ours: a reconstruction, the full text could
// not be had]. L = μ(t+h) + z·σ(t+h) from a forecast with uncertainty; capacity is
// taken for proportional to workers, c·w with c fitted through the origin; w =
// ⌈L/(c·u*)⌉. It is planned anew at fixed intervals, for the largest L until the
// next plan's workers would train, and not smoothed.
//
// σ is (the 90 % − the 10 % quantile)/2.563, as of a normal distribution.
type madu struct {
	z, target float64
	every     time.Duration
}

func (p madu) propose(s *sheet) proposal {
	o := s.o
	m := s.remember("madu")
	if passed := o.Now.Sub(m.Planned); m.Want > 0 && !m.Planned.IsZero() && passed < p.every {
		s.note("plan", float64(m.Want), "workers", "made "+formatDuration(passed)+" ago")
		return proposal{want: m.Want, load: math.NaN(), source: "forecast", reason: fmt.Sprintf("the plan of %s ago is for %s", formatDuration(passed), workers(m.Want))}
	}
	mean, start, why := s.foreseen()
	if why != "" {
		p := s.idle("forecast", why)
		p.noIn = []string{why}
		return p
	}
	first := len(o.Forecast.Mean) - len(mean)
	load := math.Inf(-1)
	ahead := addDurations(o.lead(), p.every)
	for i := range s.within(ahead, start, o.Forecast.Step, len(mean)) {
		f := o.Forecast
		sigma := (f.Quantile(upperLevel, first+i) - f.Quantile(lowerLevel, first+i)) / (2 * probit(upperLevel))
		load = max(load, max(mean[i], 0)+p.z*sigma)
	}
	c := s.throughOrigin()
	want := o.Limits.Max
	if c > 0 {
		want = ceilCount(load / (c * p.target))
	}
	m.Planned, m.Want = o.Now, want
	window, cut := s.foreseenFor(ahead, start, o.Forecast.Step, len(mean))
	s.noteDuration("window", window, "until the next plan's workers train"+cut)
	s.note("load", load, "records/s", fmt.Sprintf("largest μ + %g·σ in the window", p.z))
	s.note("per worker", c, "records/s", "c of c·w, fitted to F through the origin")
	return proposal{want: want, load: load, source: "forecast", saturated: want > o.Limits.Max, noIn: slices.DeleteFunc([]string{s.distrust()}, func(w string) bool { return w == "" }),
		reason: fmt.Sprintf("%s at %s for each worker, %.0f %% used, need %s", formatRate(load), formatRate(c), 100*p.target, workers(want))}
}

// throughOrigin is c of the line c·w that fits F within the limits.
func (s *sheet) throughOrigin() float64 {
	top, bottom := 0.0, 0.0
	for w := max(s.o.Limits.Min, 1); w <= s.o.Limits.Max; w++ {
		top += float64(w) * s.curve.At(w)
		bottom += float64(w) * float64(w)
	}
	if bottom == 0 {
		return 0
	}
	return top / bottom
}
