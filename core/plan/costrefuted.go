package plan

import "slices"

// refuted says whether more was measured in the last interval than any scenario had
// for it when it began, and than any has for the next. The forecaster then knows less
// of the next minutes than the measurement tells. It keeps what the scenarios have for
// the next interval until that is over.
//
// What the scenarios have now is not enough to tell: they may foresee the end of a
// spike that was foreseen.
func (s *sheet) refuted(v *view, c *courses) bool {
	unit := s.o.Interval
	highest := slices.Max(c.between(0, unit.Seconds()))
	m := s.remember("cost")
	had, known := m.Metrics.near(s.o.Now.Add(-unit), unit/2)
	m.Metrics.note(s.o.Now, 2*unit, 0, highest)
	measured, ok := v.measured(unit.Seconds())
	return ok && known && measured > max(had.Max, highest)
}
