package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// mostNamed is how many jobs a sentence names.
const mostNamed = 3

// of is a number of the pool's GPUs with their type.
func (d Division) of(n int) string {
	if d.Type == "" {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d %s", n, d.Type)
}

// clock is how a moment is said.
const clock = "Jan 2 15:04"

// Words says in a sentence what the pool gives to the i-th job, and why.
func (d Division) Words(i int) string {
	s := &d.Shares[i]
	said := fmt.Sprintf("asks for %d, is guaranteed %d, holds %s", s.Ask, s.Guarantee, s.holds())
	if s.Weight > 1 {
		said += fmt.Sprintf(", has weight %d", s.Weight)
	}
	switch {
	case len(d.Frozen) > 0:
		return fmt.Sprintf("%s; all stays as it is until it is known what %s holds", said, Named(d.Frozen))
	case s.Unknown:
		return said + "; what it holds is not known yet, and stays as it is"
	case s.Ask > s.Limit:
		said += fmt.Sprintf(", may have %d at most", s.Limit)
	}
	if s.Goal == s.asks() {
		said += fmt.Sprintf("; gets %d", s.Goal)
	} else {
		said += fmt.Sprintf("; gets %d%s", s.Goal, d.instead(i))
	}
	said += s.unsure()
	kept := max(s.Staying-(s.Ask-s.Kept), 0)
	if kept := min(s.Short(), kept); kept > 0 {
		why := "for want of a forecast alone"
		if s.Calm > 0 {
			why = "for the next jump of its traffic alone"
		}
		said += fmt.Sprintf("; of what it holds it keeps %d %s", kept, why)
	}
	if lately := max(s.Staying-(s.Ask-s.Kept-s.Lately), 0) - kept; lately > 0 && d.wanted(i) {
		said += fmt.Sprintf("; %d that it needed a moment ago it lends to nobody yet", lately)
	}
	said += d.waited(i)
	switch {
	case s.Gives > 0 && s.Short() > 0:
		said += fmt.Sprintf("; gives %d back%s", s.Gives, d.to(i))
	case s.Gives > 0:
		said += fmt.Sprintf("; lets %d go", s.Gives)
	}
	if s.Waits > 0 {
		said += fmt.Sprintf("; waits for %d%s", s.Waits, d.from(i))
	}
	return said
}

// unsure says for how many of those that the job lacks nobody drains, and why.
func (s *Share) unsure() (said string) {
	later := min(s.Short(), s.asks()-s.lasting())
	whim := min(later, max(s.Whim-(s.Ask-s.asks()), 0))
	if whim > 0 {
		said = fmt.Sprintf("; for %d that it asks for in a jump of its traffic, which needs %d on the whole, nobody drains", whim, s.Calm)
	}
	if young := later - whim; young > 0 {
		said += fmt.Sprintf("; for %d that it asks for only now nobody drains yet", young)
	}
	if later > 0 && s.Back > 0 && s.Fresh > s.Whim {
		said += fmt.Sprintf(", and not before it has asked %d times as long as a move takes, for what it was given lately was taken again", 1<<s.Back)
	}
	return said
}

// wanted says whether others are short of what the i-th job holds.
func (d Division) wanted(i int) bool {
	return slices.ContainsFunc(d.Shares, func(o Share) bool { return o.Name != d.Shares[i].Name && o.Short() > 0 })
}

// waited says of the i-th job that it has a turn, or how long it has waited for one.
func (d Division) waited(i int) string {
	s := &d.Shares[i]
	since := s.Since.Format(clock)
	switch {
	case s.OnTurn && !s.Turn.IsZero():
		return fmt.Sprintf("; one of them in its turn, until %s", s.Turn.Format(clock))
	case s.OnTurn:
		return "; one of them in its turn, for it has had no more than its guarantee since " + since
	case s.Since.IsZero() || s.Short() == 0 || s.Goal > s.Guarantee:
		return ""
	case !s.Due:
		return "; has had no more than its guarantee since " + since
	}
	for _, o := range d.Shares {
		if o.OnTurn {
			return fmt.Sprintf("; has had no more than its guarantee since %s, and has its turn after %s", since, o.Name)
		}
	}
	return fmt.Sprintf("; has had no more than its guarantee since %s, and what is not guaranteed is too little for a turn", since)
}

func (s *Share) holds() string {
	if s.Leaving > 0 {
		return fmt.Sprintf("%d and %d that leave", s.Staying, s.Leaving)
	}
	return fmt.Sprint(s.Staying)
}

// instead says who has what the i-th job does not get.
func (d Division) instead(i int) string {
	s := &d.Shares[i]
	var above, worthier, owed, turns []string
	for k := range d.Shares {
		o := &d.Shares[k]
		switch {
		case k == i || o.Goal == 0:
		case o.OnTurn && o.Goal <= o.owed()+1:
			turns = append(turns, o.Name)
		case o.Goal > o.owed() && o.Priority > s.Priority:
			above = append(above, o.Name)
		case o.Goal > o.owed() && o.Priority == s.Priority:
			worthier = append(worthier, o.Name)
		default:
			owed = append(owed, o.Name)
		}
	}
	var why []string
	for _, c := range []struct {
		jobs []string
		why  string
	}{{above, "of higher priority"}, {worthier, d.worthier(i)}, {turns, "whose turn it is after a wait"}, {owed, "with what it is guaranteed"}} {
		if len(c.jobs) > 0 {
			why = append(why, Named(c.jobs)+" "+c.why)
		}
	}
	if len(why) == 0 {
		return fmt.Sprintf(", all that the pool of %s has", d.of(d.Size))
	}
	return fmt.Sprintf(" of the pool's %s, beside %s", d.of(d.Size), strings.Join(why, ", "))
}

// worthier says what others of the i-th job's priority have before it, and by how much.
func (d Division) worthier(i int) string {
	s, why := &d.Shares[i], "where a worker is worth as much or more"
	var known []string
	var last []*Share
	for k := range d.Shares {
		o := &d.Shares[k]
		if k == i || o.Priority != s.Priority {
			continue
		}
		if o.Weight != s.Weight && !strings.HasSuffix(why, "weight") {
			why += " by weight"
		}
		if o.Goal > o.owed() && !(o.OnTurn && o.Goal <= o.owed()+1) && o.worthOf(o.Goal, false) > 0 {
			last = append(last, o)
		}
	}
	slices.SortFunc(last, func(a, b *Share) int {
		return cmp.Or(cmp.Compare(a.worthOf(a.Goal, false), b.worthOf(b.Goal, false)), cmp.Compare(a.Name, b.Name))
	})
	for _, o := range last[:min(len(last), mostNamed)] { // those of which a little less would have sufficed
		known = append(known, fmt.Sprintf("the last of %s %s", o.Name, o.worthWords()))
	}
	if len(known) == 0 {
		return why
	}
	return fmt.Sprintf("%s (GPU-hours of lag that it prevents for each GPU-hour: %s; the next here %s)", why, strings.Join(known, ", "), figure(s.worthOf(s.Goal+1, false)))
}

// worthOf is what the n-th worker is worth, per GPU and by weight, as serve reckons it, with what it costs to move it where it is held.
func (s *Share) worthOf(n int, held bool) float64 {
	if n < 1 || n > s.asks() {
		return 0
	}
	return s.offer(something(falling(s.Worth, s.asks()), s.GPUs)[n-1], held)
}

// worthWords says what its last worker is worth and, where that is one that it holds, with what it would cost to move.
func (s *Share) worthWords() string {
	worth := s.worthOf(s.Goal, false)
	if s.Goal <= s.Staying && s.Move > 0 {
		return fmt.Sprintf("%s, and %s with what it would cost to move it", figure(worth), figure(s.worthOf(s.Goal, true)))
	}
	return figure(worth)
}

// figure is a worth to two digits, or to whole ones.
func figure(worth float64) string {
	if worth >= 10 {
		return fmt.Sprintf("%.0f", worth)
	}
	return fmt.Sprintf("%.2g", worth)
}

// to names who gets what the i-th job gives back.
func (d Division) to(i int) string {
	var takers []string
	for k, o := range d.Shares {
		if k != i && o.Goal > o.Staying {
			takers = append(takers, fmt.Sprintf("%s (priority %d)", o.Name, o.Priority))
		}
	}
	if len(takers) == 0 {
		return ""
	}
	return " for " + Named(takers)
}

// from names who still has what the i-th job waits for.
func (d Division) from(i int) string {
	var givers []string
	for k, o := range d.Shares {
		if k != i && o.Gives+o.Leaving > 0 {
			givers = append(givers, o.Name)
		}
	}
	switch len(givers) {
	case 0:
		return ""
	case 1:
		return " until " + givers[0] + " has given back"
	}
	return " until " + Named(givers) + " have given back"
}

// Named lists names for the middle of a sentence, of many only the first in their order.
func Named(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if n := len(names) - mostNamed; n > 1 {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:mostNamed], ", "), n)
	}
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
