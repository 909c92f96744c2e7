package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/state"
)

// Note is something that happened to a job and that a person should know of, for a day.
type Note struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	// Routine: it went as it does again and again where walltimes are short, and is shown for routineShown only.
	Routine bool `json:"routine,omitempty"`
	// UnderWay: its text changes still, and it is a problem too.
	UnderWay bool `json:"under_way,omitempty"`
}

// routineShown is how long what went as it should is told of.
const routineShown = time.Hour

// shown says that a note is told of still.
func (n Note) shown(now time.Time) bool {
	if n.Routine {
		return now.Sub(n.At) < routineShown
	}
	return now.Sub(n.At) < rollbackShown
}

// growth is that a topic got partitions.
type growth struct {
	At   time.Time `json:"at"`
	From int       `json:"from"`
	To   int       `json:"to"`
}

func (g growth) String() string {
	return fmt.Sprintf("the topic grew from %d to %d partitions; the new ones are trained from offset 0 on", g.From, g.To)
}

// noteGrowth takes down that the topic has more partitions than it had, and says whether there is anything new to save.
func (s *Scheduler) noteGrowth(now time.Time) (changed bool) {
	n := len(s.seen.ends)
	if s.seen.endsErr != nil || n == 0 || n == s.want.Partitions {
		return false
	}
	if was := s.want.Partitions; was > 0 && n > was {
		s.want.Growth = &growth{now, was, n}
		s.warn("the topic grew", "topic", s.job.Stream.Topic, "from", was, "to", n)
	}
	s.want.Partitions = n
	return true
}

// noteRemarks takes down what the backend remarks on processes, each once, and says whether there is anything new to save.
func (s *Scheduler) noteRemarks() (changed bool) {
	if s.seen.listErr != nil {
		return false
	}
	told := map[string]time.Time{}
	if !s.seen.complete { // those that are not seen may be back
		maps.Copy(told, s.want.Remarked)
	}
	for _, st := range s.seen.list {
		id := st.ID.String()
		last := s.want.Remarked[id]
		for _, r := range st.Remarks {
			if !r.At.After(last) {
				continue
			}
			s.want.remember(Note{At: r.At, Text: id + ": " + r.Text})
			s.warn("the backend remarks on a process", "workload", id, "at", r.At, "says", r.Text)
			last, changed = r.At, true
		}
		if !last.IsZero() {
			told[id] = last
		}
	}
	changed = changed || len(told) != len(s.want.Remarked)
	s.want.Remarked = told
	return changed
}

// handOversKept is how many are told of.
const handOversKept = 50

// remember keeps what is told of a process that another one took over from, or of an older checkpoint. What was routine makes room first.
func (d *desired) remember(n Note) {
	d.HandOvers = append(slices.Clone(d.HandOvers), n)
	if len(d.HandOvers) > handOversKept {
		least := max(0, slices.IndexFunc(d.HandOvers, func(n Note) bool { return n.Routine }))
		d.HandOvers = slices.Delete(d.HandOvers, least, least+1)
	}
}

// NotesIn are the notes that a job's state has.
func NotesIn(st *state.Store, now time.Time) ([]Note, error) {
	g := Glance{Now: now}
	_, err := g.readFrom(st)
	return g.Notes, err
}

// notes are what happened in the last day, the oldest first. Rollbacks under way are problems.
func notes(now time.Time, rollbacks []Rollback, losses []Loss, d *desired) []Note {
	var out []Note
	for _, r := range rollbacks {
		if !r.UnderWay() && now.Sub(r.At) < rollbackShown {
			out = append(out, Note{At: r.At, Text: r.String()})
		}
	}
	for _, l := range losses {
		if now.Sub(l.Until) < rollbackShown {
			out = append(out, Note{At: l.At, Text: l.String(), UnderWay: l.Open})
		}
	}
	if g := d.Growth; g != nil && now.Sub(g.At) < rollbackShown {
		out = append(out, Note{At: g.At, Text: g.String()})
	}
	for _, n := range d.HandOvers {
		if n.shown(now) {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(out, func(a, b Note) int { return a.At.Compare(b.At) })
	return out
}
