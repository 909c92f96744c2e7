package pool

import "time"

// Asked is what must be remembered of what a job asks for and holds, so that no worker changes hands for the whim of a moment, or twice while it moves. The zero
// value is of a job that has asked for nothing yet.
type Asked struct {
	firm  int       // so many were asked for all the time
	least int       // so many at the least since
	since time.Time // zero: no more than firm is asked for
	had   int       // what it held last
	came  int       // so many of those came
	at    time.Time // at the latest
}

// After is what is remembered after a job asked for ask workers at now, and had staying. move is how long it takes to move a worker to it: what it has asked for so
// long, without asking for less meanwhile, is firm, and what came so long ago is settled.
func (a Asked) After(ask, staying int, now time.Time, move time.Duration) Asked {
	switch {
	case ask <= a.firm:
		a.firm, a.since = ask, time.Time{}
	case a.since.IsZero() || a.since.After(now): // or the clock went back
		a.least, a.since = ask, now
	default:
		a.least = min(a.least, ask)
	}
	if !a.since.IsZero() && now.Sub(a.since) >= move {
		a.firm, a.least, a.since = a.least, ask, now
		if ask <= a.firm {
			a.since = time.Time{}
		}
	}
	if staying > a.had {
		a.came, a.at = a.came+staying-a.had, now
	}
	a.had = staying
	if now.Sub(a.at) >= move || a.at.After(now) {
		a.came = 0
	}
	a.came = min(a.came, staying)
	return a
}

// Tell puts into j what a division has to know of it.
func (a Asked) Tell(j *Job) { j.Fresh, j.Settling = max(j.Ask-a.firm, 0), a.came }
