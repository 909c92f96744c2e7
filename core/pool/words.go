package pool

import (
	"fmt"
	"slices"
	"strings"
)

// mostNamed is how many jobs a sentence names.
const mostNamed = 3

// Words says in a sentence what the pool gives to the i-th job, and why.
func (d Division) Words(i int) string {
	s := &d.Shares[i]
	said := fmt.Sprintf("asks for %d, is guaranteed %d, holds %s", s.Ask, s.Guarantee, s.holds())
	switch {
	case len(d.Frozen) > 0:
		return fmt.Sprintf("%s; all stays as it is until it is known what %s holds", said, named(d.Frozen))
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

func (s *Share) holds() string {
	if s.Leaving > 0 {
		return fmt.Sprintf("%d and %d that leave", s.Staying, s.Leaving)
	}
	return fmt.Sprint(s.Staying)
}

// instead says who has what the i-th job does not get.
func (d Division) instead(i int) string {
	s := &d.Shares[i]
	var above, worthier, owed []string
	for k := range d.Shares {
		o := &d.Shares[k]
		switch {
		case k == i || o.Goal == 0:
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
	}{{above, "of higher priority"}, {worthier, "where a worker is worth as much or more"}, {owed, "with what it is guaranteed"}} {
		if len(c.jobs) > 0 {
			why = append(why, named(c.jobs)+" "+c.why)
		}
	}
	if len(why) == 0 {
		return fmt.Sprintf(", all that the pool of %d has", d.Size)
	}
	return fmt.Sprintf(" of the pool's %d, beside %s", d.Size, strings.Join(why, ", "))
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
	return " for " + named(takers)
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
	return " until " + named(givers) + " have given back"
}

// named lists names, of many only the first in their order.
func named(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if n := len(names) - mostNamed; n > 1 {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:mostNamed], ", "), n)
	}
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
