package pool

import "time"

// Asked is what must be remembered of what a job asks for, needs and holds, and of what its workers were worth, so that no worker changes hands for the whim of a
// moment, or twice while it moves. The zero value is of a job that has asked for nothing yet.
type Asked struct {
	// Firm is how many were asked for all the time; Least, how many at the least since Since. Zero: no more than Firm is asked for.
	Firm  int       `json:"firm,omitempty"`
	Least int       `json:"least,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Had is what it held last. So many of those came, At at the latest.
	Had  int       `json:"had,omitempty"`
	Came int       `json:"came,omitempty"`
	At   time.Time `json:"at,omitzero"`

	// Way is that of the last change of what it held, 1 more and -1 fewer, and Then when that was. Back is how many changes undid the one before lately, of which half count
	// after each quiet time, the last since Quiet.
	Way   int       `json:"way,omitempty"`
	Then  time.Time `json:"then,omitzero"`
	Back  int       `json:"back,omitempty"`
	Quiet time.Time `json:"quiet,omitzero"`

	// Need is how many were needed lately; Most, how many at the most since Below. Zero: as many as Need are needed.
	Need  int       `json:"need,omitempty"`
	Most  int       `json:"most,omitempty"`
	Below time.Time `json:"below,omitzero"`

	// Late is since when it has been over its objective; zero: it is not. Long: it has been for long.
	Late time.Time `json:"late,omitzero"`
	Long bool      `json:"long,omitempty"`

	// Worth is of this and of the last stretch of time.
	Worth [2]Worths `json:"worth,omitzero"`
}

// Worths is the least and the most that each worker was worth, from a time on.
type Worths struct {
	From  time.Time `json:"from,omitzero"`
	Least []float64 `json:"least,omitempty"`
	Most  []float64 `json:"most,omitempty"`
}

const (
	// loanMoves: a worker that is lent goes and comes back.
	loanMoves = 2
	// lateMoves: a job whose traffic jumps, and that is over its objective for as long as so many moves take, and as the objective is, needs more than that traffic says on the whole.
	lateMoves = 1
	// quietMoves: a change that undoes another within so many moves was in vain, and counts for as long. Each doubles for how long is asked for what others have, and
	// what a change costs, mostBack times at most.
	quietMoves = 16
	mostBack   = 4
)

// After is what is remembered after a job stands before the pool as j at now, with its worths and what it keeps as they are now, and not as Tell put them. move is how long it takes to move a worker to it: what it has asked for so long,
// without asking for less meanwhile, is firm, and what came so long ago is settled. What its traffic asks for only because it jumps it has not asked for, unless that leaves it over its
// objective. What it only keeps it lends once it has not needed it for twice as long, so that the quiet moments of a load that is never even are not taken for less of it.
func (a Asked) After(j *Job, now time.Time, move time.Duration) Asked {
	a.lateness(j.Late, now, max(lateMoves*move, j.Objective))
	a.turned(j.Staying-a.Had, now, quietMoves*move)
	a.asks(j.Ask-a.whim(j), now, move<<a.Back)
	a.needs(a.needed(j), now, loanMoves*move)
	a.holds(j.Staying, now, move)
	a.valued(j.Worth, now, move)
	return a
}

// lateness is After of whether it is over its objective.
func (a *Asked) lateness(late bool, now time.Time, long time.Duration) {
	if !late {
		a.Late = time.Time{}
	} else if a.Late.IsZero() || a.Late.After(now) { // or the clock went back
		a.Late = now
	}
	a.Long = late && now.Sub(a.Late) >= long
}

// turned is After of a change of what it holds, by so many.
func (a *Asked) turned(by int, now time.Time, quiet time.Duration) {
	a.Back = min(max(a.Back, 0), mostBack)
	if by != 0 {
		way := 1
		if by < 0 {
			way = -1
		}
		if way == -a.Way && now.Sub(a.Then) < quiet {
			a.Back, a.Quiet = min(a.Back+1, mostBack), now
		}
		a.Way, a.Then = way, now
	}
	if a.Back > 0 && (a.Quiet.After(now) || now.Sub(a.Quiet) >= quiet) {
		a.Back, a.Quiet = a.Back/2, now
	}
}

// whim is how many of those that it asks for it does so for one jump of its traffic.
func (a *Asked) whim(j *Job) int {
	if j.Calm <= 0 || a.Long {
		return 0
	}
	return max(j.Ask-j.Calm, 0)
}

// needed is how many of its workers it needs now: by its traffic on the whole where that jumps, unless that leaves it over its objective.
func (a *Asked) needed(j *Job) int {
	switch {
	case j.Calm <= 0:
		return max(j.Ask-j.Kept, 0)
	case a.Long:
		return j.Ask
	}
	return min(j.Ask, max(j.Calm, j.CalmMost))
}

// asks is After of how many workers are asked for.
func (a *Asked) asks(ask int, now time.Time, move time.Duration) {
	switch {
	case ask <= a.Firm:
		a.Firm, a.Since = ask, time.Time{}
	case a.Since.IsZero() || a.Since.After(now): // or the clock went back
		a.Least, a.Since = ask, now
	default:
		a.Least = min(a.Least, ask)
	}
	if !a.Since.IsZero() && now.Sub(a.Since) >= move {
		a.Firm, a.Least, a.Since = a.Least, ask, now
		if ask <= a.Firm {
			a.Since = time.Time{}
		}
	}
}

// needs is After of how many are needed, of which those are lent that were not for so long: asks the other way round.
func (a *Asked) needs(need int, now time.Time, long time.Duration) {
	switch {
	case need >= a.Need:
		a.Need, a.Below = need, time.Time{}
	case a.Below.IsZero() || a.Below.After(now):
		a.Most, a.Below = need, now
	default:
		a.Most = max(a.Most, need)
	}
	if !a.Below.IsZero() && now.Sub(a.Below) >= long {
		a.Need, a.Most, a.Below = a.Most, need, now
		if need >= a.Need {
			a.Below = time.Time{}
		}
	}
}

// holds is After of how many workers it has.
func (a *Asked) holds(staying int, now time.Time, move time.Duration) {
	if staying > a.Had {
		a.Came, a.At = a.Came+staying-a.Had, now
	}
	a.Had = staying
	if now.Sub(a.At) >= move || a.At.After(now) {
		a.Came = 0
	}
	a.Came = min(a.Came, staying)
}

// valued is After of what workers are worth.
func (a *Asked) valued(worth []float64, now time.Time, move time.Duration) {
	cur := a.Worth[0]
	if len(worth) == 0 || cur.From.After(now) { // nothing is known, or the clock went back
		a.Worth = [2]Worths{}
		cur = Worths{}
	}
	if len(worth) == 0 {
		return
	}
	if len(cur.Least) == 0 || now.Sub(cur.From) >= move { // where decisions are further apart than that, each is a stretch of its own
		a.Worth[1] = cur
		cur = Worths{From: now}
	}
	a.Worth[0] = Worths{From: cur.From, Least: joined(cur.Least, worth, lower), Most: joined(cur.Most, worth, higher)}
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
	j.Whim = a.whim(j)
	j.Fresh, j.Settling = max(j.Ask-a.Firm, 0), a.Came
	if j.Late { // nobody lets it wait any longer for what it needs
		j.Fresh = 0
	}
	j.Kept = max(j.Ask-a.needed(j), 0)
	kept := min(j.Kept, max(j.Ask-a.Need, 0))
	j.Lately, j.Kept = j.Kept-kept, kept
	j.Back = a.Back
	if len(j.Worth) == 0 || len(a.Worth[0].Least) == 0 {
		return
	}
	least, most := joined(a.Worth[0].Least, a.Worth[1].Least, lower), joined(a.Worth[0].Most, a.Worth[1].Most, higher)
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
