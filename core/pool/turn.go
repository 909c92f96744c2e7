package pool

import (
	"cmp"
	"time"
)

// Wait is what must be remembered of a job from one division to the next, so that it does not wait for ever: a job that asks for more than its guarantee,
// and had no more for as long as the pool's patience, less the time that a worker takes to come, has one worker for a turn. The zero value is of a job that does not wait.
type Wait struct {
	// Since is when it began to ask for more than its guarantee and to have no more.
	Since time.Time `json:"since,omitzero"`
	// Until is when its turn ends; zero: it has none.
	Until time.Time `json:"until,omitzero"`
}

const (
	// turnPart: a turn lasts patience / turnPart, so that a job that always waits has a worker for a fifth of the time.
	turnPart = 4
	// turnMoves: and this many times as long as it takes to move a worker, so that three quarters of a turn are training.
	turnMoves = 4
	// aheadPart: a turn is due before the patience has passed by as long as moving a worker takes, but by no more than patience / aheadPart.
	aheadPart = 4
)

// TurnLength is how long a turn lasts: a quarter of the patience, and four times as long as it takes to move a worker, at least.
func TurnLength(patience, move time.Duration) time.Duration {
	return max(patience/turnPart, turnMoves*min(max(move, 0), 24*time.Hour))
}

// at is the wait at a moment: who had a turn begins to wait anew.
func (w Wait) at(now time.Time) Wait {
	if !w.Until.IsZero() && !now.Before(w.Until) || w.Since.After(now) { // or the clock went back
		return Wait{Since: now}
	}
	return w
}

// Tell puts into j what a division at now has to know of the wait. move is how long it takes to move a worker to the job: its turn is due so long before the
// patience has passed, so that nobody is given a worker meanwhile that the turn would take again. A patience of 0 has no turns.
func (w Wait) Tell(j *Job, now time.Time, patience, move time.Duration) {
	if patience <= 0 {
		w = Wait{}
	}
	w = w.at(now)
	j.Since, j.Turn = w.Since, w.Until
	j.Due = w.Until.IsZero() && !w.Since.IsZero() && now.Sub(w.Since) >= patience-min(max(move, 0), patience/aheadPart)
}

// After is the wait after a division at now, in which the job got s; move is how long it takes to move a worker to it.
func (w Wait) After(s Share, now time.Time, patience, move time.Duration) Wait {
	if patience <= 0 || s.asks() <= s.Guarantee {
		return Wait{}
	}
	w = w.at(now)
	end := now.Add(TurnLength(patience, move))
	switch {
	case w.Until.After(end): // the clock went back
		w.Until = end
	case !w.Until.IsZero(): // it runs
	case s.OnTurn && s.May > s.Guarantee:
		w.Until = end
	case s.OnTurn: // it comes when others have given back
	case s.Staying > s.Guarantee:
		return Wait{}
	case w.Since.IsZero():
		w.Since = now
	}
	return w
}

// turn gives one worker beyond its guarantee to the job whose turn it is: whose turn runs, else who is due and has waited longest. One has a turn at a time,
// so that the others miss no more than one worker of it.
func turn(room int, jobs []*Share) (left int) {
	var best *Share
	for _, s := range jobs {
		if s.Turn.IsZero() && !s.Due || s.Goal < s.owed() || s.asks() <= s.Guarantee || s.GPUs > room {
			continue
		}
		if best == nil || before(s, best) < 0 {
			best = s
		}
	}
	if best == nil {
		return room
	}
	best.Goal++
	best.OnTurn = true
	return room - best.GPUs
}

// before orders those who may have a turn.
func before(a, b *Share) int {
	runs := func(s *Share) int {
		if s.Turn.IsZero() {
			return 1
		}
		return 0
	}
	return cmp.Or(runs(a)-runs(b), a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name))
}
