package plan

import "fmt"

// Short tells of a cluster that has no place for all workers that were asked for. [Limits.Max] may be lower than the job file's then.
type Short struct {
	Max     int    `json:"max"`     // the job file's limit
	Placed  int    `json:"placed"`  // workers that have a place
	Waiting int    `json:"waiting"` // workers that wait for one
	Why     string `json:"why"`     // the cluster's words; "": it has a place for all
}

// roomy are the limits as they would be if the cluster had a place for all.
func (l Limits) roomy() Limits {
	if l.Short.Why != "" && l.Short.Max > l.Max {
		l.Max, l.Why = l.Short.Max, ""
	}
	return l
}

// String says for how many there is a place, of more that are wanted.
func (t Short) String() string {
	have := fmt.Sprintf("%d have a place", t.Placed)
	switch t.Placed {
	case 0:
		have = "none has a place"
	case 1:
		have = "1 has a place"
	}
	switch {
	case t.Waiting == 0:
		return fmt.Sprintf("%s, and there is none for more: %s", have, t.Why)
	case t.Waiting == 1:
		return fmt.Sprintf("%s, and 1 waits for one: %s", have, t.Why)
	}
	return fmt.Sprintf("%s, and %d wait for one: %s", have, t.Waiting, t.Why)
}

// shortOf says of a decision on a full cluster how many workers are wanted, how many of them have a place, and what the others wait for; "": all that are wanted have one.
func (s *sheet) shortOf(d *Decision, p proposal) string {
	short := s.o.Limits.Short
	if short.Why == "" {
		return ""
	}
	lim := s.o.Limits.roomy()
	if m := s.o.Manual; m.Pinned {
		if lim.Clamp(m.Target) <= short.Placed {
			return ""
		}
		return short.String()
	}
	wanted := max(d.Target, p.want)
	if finite(p.load) {
		w, _ := curve(s.o.Model, lim, s.o.Servers).Smallest(p.load)
		wanted = max(wanted, w)
	}
	if wanted = lim.Clamp(wanted); wanted <= short.Placed {
		return ""
	}
	return fmt.Sprintf("%s %s wanted, %s", workers(wanted), isAre(wanted), short)
}

// tellShort completes a decision's reason where the cluster is full.
func (s *sheet) tellShort(d *Decision, short string) {
	if short == "" {
		return
	}
	if d.Source == "limits" { // the cluster's: nothing else bounds it
		d.Reason = short
	} else {
		d.Reason += "; " + short
	}
	if d.Target < d.Current && s.o.Limits.Short.Waiting > 0 {
		d.Reason += "; what waits is given up for now"
	}
}
