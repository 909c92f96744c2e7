package plan

import "fmt"

// static always wants the same number of workers ("adequate resources" in Kale
// Table 3: the maximum) [paper]. It is the baseline that every other policy must beat.
type static struct {
	workers int // 0: the upper limit
}

func (p static) propose(s *sheet) proposal {
	want, why := p.workers, fmt.Sprintf("a fixed %s", workers(p.workers))
	if want == 0 {
		want, why = s.o.Limits.Max, fmt.Sprintf("always the maximum, %s", workers(s.o.Limits.Max))
	}
	load := s.lastLoad()
	return proposal{want: want, load: load, saturated: load >= s.capacity(s.o.Limits.Clamp(want)), source: "static", reason: why}
}
