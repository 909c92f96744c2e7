package profile

import "fmt"

// lacks says which condition of an interval that counts was not met, and what helps: all workers joined and busy all along, every batch full, and enough steps.
func (m *meter) lacks() string {
	switch hungry := m.looks - m.fed; {
	case m.looks == 0:
		return "no two looks in a row found all workers joined, none of them anew, and nothing changing: they were lost, or began again; kale logs may say why"
	case m.short:
		return fmt.Sprintf("steps are long: in an interval each worker must make %d, and has made fewer in more than %v; measure with a longer -interval, or a smaller model.batch",
			leastSteps, m.interval)
	case m.cut > hungry:
		return fmt.Sprintf("batches were not full in %d of %d intervals: records come in pieces that are smaller than model.batch (%d); measure with a smaller one, or where records "+
			"were written in larger pieces", m.cut, m.cut+len(m.rates), m.batch)
	case m.dry > hungry/2:
		return m.busyFor() + fmt.Sprintf(": at %d of %d looks no records were waiting in the topic; wait until it holds more, or write some with kale produce -history", m.dry, m.looks)
	}
	feeds, fewer := "it", ""
	if m.workers > 1 {
		feeds, fewer = "them", "fewer workers (-workers), "
	}
	return m.busyFor() + fmt.Sprintf(", though records were waiting: the brokers or the machine's cores, busy with other work or too few, cannot feed %s (at %d of %d looks somebody waited); "+
		"measure when they are idle, %sor in shorter intervals (-interval 1s); more records do not help", feeds, m.looks-m.fed, m.looks, fewer)
}

// busyFor is for how much of the time all were busy.
func (m *meter) busyFor() string {
	who := "the worker was"
	if m.workers > 1 {
		who = fmt.Sprintf("all %d workers were", m.workers)
	}
	whole := "never"
	if n := len(m.rates); n > 0 || m.busy {
		whole = fmt.Sprintf("not often enough (%d counted)", n)
	}
	return fmt.Sprintf("%s busy only %.0f %% of the time, and %s for a whole interval of %v", who, 100*float64(m.fed)/float64(m.looks), whole, m.interval)
}
