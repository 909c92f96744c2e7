package plan

import "fmt"

// static always wants the same number of workers ("adequate resources" in Kale
// Table 3: the maximum). It is the baseline that every other policy must beat.
type static struct {
	workers int // 0: the upper limit
}

func (p static) propose(s *sheet) proposal {
	want, why := p.workers, fmt.Sprintf("a fixed %s", workers(p.workers))
	if want == 0 {
		want, why = s.o.Limits.Max, fmt.Sprintf("always the maximum, %s", workers(s.o.Limits.Max))
	}
	load, _ := s.lastRate()
	return proposal{want: want, load: load, saturated: load >= s.capacity(s.o.Limits.Clamp(want)), source: "static", reason: why}
}

// follow wants the workers that carry the last measured rate plus a margin: the
// naive autoscaler that a forecast must beat. It uses no forecast, so it is not
// kept from scaling in by one that is not trusted.
type follow struct {
	margin float64
}

func (p follow) propose(s *sheet) proposal {
	rate, ok := s.lastRate()
	if !ok {
		why := "no rate was measured lately"
		return proposal{want: s.current, source: "rate", reason: why, hold: []string{why}}
	}
	load := rate * (1 + p.margin)
	want, saturated := s.curve.Smallest(load)
	s.note("last rate", rate, "samples/s", "newest measured")
	s.note("load", load, "samples/s", fmt.Sprintf("last rate × (1 + %g)", p.margin))
	return proposal{
		want: want, load: load, saturated: saturated, source: "rate",
		reason: fmt.Sprintf("the last rate of %s, with %g %% on top, needs %s", formatRate(rate), 100*p.margin, workers(want)),
	}
}
