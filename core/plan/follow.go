package plan

import "fmt"

// follow wants the workers that carry the last measured rate plus a margin: the
// naive autoscaler [ours] that a forecast must beat. It uses no forecast, so it is not
// kept from scaling in by one that is not trusted.
type follow struct {
	margin float64
}

func (p follow) propose(s *sheet) proposal {
	rate, ok := s.lastRate()
	if !ok {
		return s.idle("rate", "no rate was measured lately")
	}
	load := rate * (1 + p.margin)
	want, saturated := s.curve.Smallest(load)
	s.note("last rate", rate, "records/s", "newest measured")
	s.note("load", load, "records/s", fmt.Sprintf("last rate × (1 + %g)", p.margin))
	return proposal{
		want: want, load: load, saturated: saturated, source: "rate",
		reason: fmt.Sprintf("the last rate of %s, with %g %% on top, needs %s", formatRate(rate), 100*p.margin, s.needs(want, load)),
	}
}
