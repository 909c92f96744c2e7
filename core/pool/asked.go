package pool

import "time"

// Asked is what must be remembered of what a job asks for, needs and holds, and of what its workers were worth, so that no worker changes hands for the whim of a
// moment, or twice while it moves. The zero value is of a job that has asked for nothing yet.
type Asked struct {
	firm  int       // so many were asked for all the time
	least int       // so many at the least since
	since time.Time // zero: no more than firm is asked for
	had   int       // what it held last
	came  int       // so many of those came
	at    time.Time // at the latest

	need  int       // so many were needed lately
	most  int       // so many at the most since
	below time.Time // zero: as many as need are needed

	worth [2]worths // in this and in the last stretch of time
}

// worths is the least and the most that each worker was worth, from a time on.
type worths struct {
	from        time.Time
	least, most []float64
}

// loanMoves: a worker that is lent goes and comes back.
const loanMoves = 2

// After is what is remembered after a job stands before the pool as j at now, with its worths and what it keeps as they are now, and not as Tell put them. move is how long it takes to move a worker to it: what it has asked for so long,
// without asking for less meanwhile, is firm, and what came so long ago is settled. What it only keeps it lends once it has not needed it for twice as long, so that
// the quiet moments of a load that is never even are not taken for less of it.
func (a Asked) After(j *Job, now time.Time, move time.Duration) Asked {
	a.asks(j.Ask, now, move)
	a.needs(max(j.Ask-j.Kept, 0), now, loanMoves*move)
	a.holds(j.Staying, now, move)
	a.valued(j.Worth, now, move)
	return a
}

// asks is After of how many workers are asked for.
func (a *Asked) asks(ask int, now time.Time, move time.Duration) {
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
}

// needs is After of how many are needed, of which those are lent that were not for so long: asks the other way round.
func (a *Asked) needs(need int, now time.Time, long time.Duration) {
	switch {
	case need >= a.need:
		a.need, a.below = need, time.Time{}
	case a.below.IsZero() || a.below.After(now):
		a.most, a.below = need, now
	default:
		a.most = max(a.most, need)
	}
	if !a.below.IsZero() && now.Sub(a.below) >= long {
		a.need, a.most, a.below = a.most, need, now
		if need >= a.need {
			a.below = time.Time{}
		}
	}
}

// holds is After of how many workers it has.
func (a *Asked) holds(staying int, now time.Time, move time.Duration) {
	if staying > a.had {
		a.came, a.at = a.came+staying-a.had, now
	}
	a.had = staying
	if now.Sub(a.at) >= move || a.at.After(now) {
		a.came = 0
	}
	a.came = min(a.came, staying)
}

// valued is After of what workers are worth.
func (a *Asked) valued(worth []float64, now time.Time, move time.Duration) {
	cur := a.worth[0]
	if len(worth) == 0 || cur.from.After(now) || now.Sub(cur.from) >= 2*move {
		a.worth = [2]worths{}
		cur = worths{}
	}
	if len(worth) == 0 {
		return
	}
	if len(cur.least) == 0 || now.Sub(cur.from) >= move {
		a.worth[1] = cur
		cur = worths{from: now}
	}
	a.worth[0] = worths{from: cur.from, least: joined(cur.least, worth, lower), most: joined(cur.most, worth, higher)}
}

func lower(a, b float64) float64  { return min(a, b) }
func higher(a, b float64) float64 { return max(a, b) }

// joined joins two rows, of which either may be the longer.
func joined(a, b []float64, join func(a, b float64) float64) []float64 {
	out := make([]float64, max(len(a), len(b)))
	for i := range out {
		switch {
		case i >= len(a):
			out[i] = b[i]
		case i >= len(b):
			out[i] = a[i]
		default:
			out[i] = join(a[i], b[i])
		}
	}
	return out
}

// Tell puts into j what a division has to know of it. The worths of j become calm ones: what it holds counts for the most that it was worth while a worker moves, and
// what it lacks for the least.
func (a Asked) Tell(j *Job) {
	j.Fresh, j.Settling = max(j.Ask-a.firm, 0), a.came
	kept := min(j.Kept, max(j.Ask-a.need, 0))
	j.Lately, j.Kept = j.Kept-kept, kept
	if len(j.Worth) == 0 || len(a.worth[0].least) == 0 {
		return
	}
	least, most := joined(a.worth[0].least, a.worth[1].least, lower), joined(a.worth[0].most, a.worth[1].most, higher)
	calm := make([]float64, len(j.Worth))
	for i := range calm {
		if i < j.Staying {
			calm[i] = most[i]
		} else {
			calm[i] = least[i]
		}
	}
	j.Worth = calm
}
