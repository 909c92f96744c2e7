package profile

import (
	"math"
	"time"
)

// Member is one worker as the chief knows it.
type Member struct {
	ID    string // of its process: another one after a restart
	Ready bool   // it trains, and is neither joining nor leaving
	// Records and Steps are what it has trained since it became ready, Seconds ago by its own clock.
	Records, Steps uint64
	Seconds        float64
	// Saturated says that since it was looked at last every step began with a full batch waiting.
	Saturated bool
}

// Look is what is seen of a bench at one moment.
type Look struct {
	At      time.Time
	Members []Member
	// Settled says that nothing is changing: no rescale is under way, no server is being repaired, and the chief answered.
	Settled bool
	// Backlog is how many records wait, negative where that is not known.
	Backlog int64
	// Problems are what an operator should read.
	Problems []string
}

// Phase is what a measurement is at.
type Phase string

// The phases.
const (
	Starting  Phase = "starting"
	Joining   Phase = "joining"
	Filling   Phase = "filling" // all have joined; somebody waits for records, or has just begun
	Measuring Phase = "measuring"
	Ending    Phase = "ending"
)

const (
	// leastSteps is how many steps of each member an interval has at least: one of them may have begun before, and another one ends after.
	leastSteps = 10
	// fullShare is the share of full batches at which an interval counts: a batch is cut short where a chunk ends with the log it was read from.
	fullShare = 0.98
)

// meter cuts what the members have trained into intervals. Those that follow each other share their edges, so that a step that is cut by one is whole in
// their mean.
type meter struct {
	workers, batch int
	interval       time.Duration

	begin map[string]Member // of the interval under way; nil: none is
	since time.Time
	warm  bool // the first interval after the start, or after somebody waited, is over: it does not count
	// Rates are those of the saturated intervals, records/s; Hungry counts those that were not.
	rates  []float64
	hungry int
	busy   bool // there was an interval, that counted or did not, in which all were
	// Of the looks at which all had joined and could be compared with the one before: how many there were, at how many all had been busy since then, and at how
	// many of the others no records were waiting. Cut counts intervals whose batches were not full, and short those that had too few steps yet when they were long
	// enough.
	looks, fed, dry, cut int
	short                bool
	phase                Phase
	joined               int
}

// observe takes in a look, and gives the phase.
func (m *meter) observe(l Look) Phase {
	ready, fed := map[string]Member{}, true
	for _, w := range l.Members {
		if w.Ready {
			ready[w.ID] = w
			fed = fed && w.Saturated
		}
	}
	m.joined = len(ready)
	switch {
	case !l.Settled || len(ready) != m.workers || len(l.Members) != m.workers:
		m.begin, m.warm, m.phase = nil, false, Joining
	case m.begin == nil || !m.follows(ready):
		m.restart(l.At, ready)
	case !fed:
		m.looks++
		if m.hungry++; m.usedUp(l) {
			m.dry++
		}
		m.restart(l.At, ready)
	default:
		m.looks, m.fed = m.looks+1, m.fed+1
		if l.At.Sub(m.since) < m.interval {
			break
		}
		if m.short = !m.whole(ready); !m.short {
			m.close(l.At, ready)
		}
	}
	return m.phase
}

// usedUp says that no more records wait than what lies in the workers' queues.
func (m *meter) usedUp(l Look) bool {
	return l.Backlog >= 0 && l.Backlog < int64(2*m.workers*m.batch)
}

// restart begins an interval that only sees whether everybody is busy.
func (m *meter) restart(at time.Time, now map[string]Member) {
	m.begin, m.since, m.warm, m.phase = now, at, false, Filling
}

// close ends an interval and begins the next.
func (m *meter) close(at time.Time, now map[string]Member) {
	rate, records, steps := 0.0, 0.0, 0.0
	for id, b := range now {
		a := m.begin[id]
		n := float64(b.Records - a.Records)
		rate += n / (b.Seconds - a.Seconds)
		records, steps = records+n, steps+float64(b.Steps-a.Steps)
	}
	switch full := records >= fullShare*steps*float64(m.batch); {
	case !full || !(rate > 0) || math.IsInf(rate, 0):
		m.hungry, m.cut = m.hungry+1, m.cut+1
		m.restart(at, now)
		return
	case m.warm:
		m.rates = append(m.rates, rate)
	}
	m.busy = true
	m.begin, m.since, m.warm, m.phase = now, at, true, Measuring
}

// follows says whether the members are those of the interval under way, and none of them began anew.
func (m *meter) follows(now map[string]Member) bool {
	for id, b := range now {
		a, ok := m.begin[id]
		if !ok || b.Records < a.Records || b.Steps < a.Steps || b.Seconds < a.Seconds {
			return false
		}
	}
	return true
}

// whole says whether each member has made enough steps to count.
func (m *meter) whole(now map[string]Member) bool {
	for id, b := range now {
		if a := m.begin[id]; b.Steps-a.Steps < leastSteps || !(b.Seconds > a.Seconds) {
			return false
		}
	}
	return true
}
