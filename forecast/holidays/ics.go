package holidays

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem is what is wrong in an iCalendar file.
type Problem struct {
	// Line and Column, from 1, are where it stands, in bytes; Offset is that from the file's beginning, and Length how long it is.
	Line, Column, Offset, Length int
	Summary, Advice              string
}

// icsLine is one property of an iCalendar file, unfolded.
type icsLine struct {
	name, params, value string
	line, offset        int
	valueAt             int // column of the value, from 0; of a folded line as if it were not
}

// problem is one with a line: of its value where it has one.
func (l icsLine) problem(summary, format string, args ...any) Problem {
	p := Problem{Line: l.line, Column: l.valueAt + 1, Offset: l.offset + l.valueAt, Length: len(l.value), Summary: summary, Advice: fmt.Sprintf(format, args...)}
	return p
}

// icsLines unfolds a file (RFC 5545 §3.1): a line that begins with a blank goes on with the one before.
func icsLines(src string) (out []icsLine, problems []Problem) {
	offset := 0
	for n, raw := range strings.SplitAfter(src, "\n") {
		text := strings.TrimRight(raw, "\r\n")
		at := offset
		offset += len(raw)
		switch {
		case strings.TrimSpace(text) == "":
		case (text[0] == ' ' || text[0] == '\t') && len(out) > 0:
			out[len(out)-1].value += text[1:]
		default:
			colon := unquotedColon(text)
			if colon < 0 {
				problems = append(problems, Problem{n + 1, 1, at, len(text), "Not a line of an iCalendar file", `It has no colon: a line is NAME:VALUE, as in "SUMMARY:Christmas". One that goes on with the line before begins with a blank.`})
				continue
			}
			name, params, _ := strings.Cut(text[:colon], ";")
			out = append(out, icsLine{strings.ToUpper(name), strings.ToUpper(params), text[colon+1:], n + 1, at, colon + 1})
		}
	}
	return out, problems
}

// unquotedColon is where the first colon stands that is not within quotes; −1: nowhere.
func unquotedColon(text string) int {
	quoted := false
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ':' && !quoted:
			return i
		}
	}
	return -1
}

// ParseICS reads the days of an iCalendar file (RFC 5545): of each VEVENT the SUMMARY, the DTSTART and DTEND or DURATION in whole days, and a yearly RRULE with
// EXDATE. Events that were cancelled are left out. It goes on after a problem, so that all are told at once.
func ParseICS(src []byte) ([]Rule, []Problem) {
	text, marked := strings.CutPrefix(string(src), byteOrderMark)
	rules, problems := parseICS(text)
	for i := range problems {
		p := &problems[i]
		if marked {
			p.Offset += len(byteOrderMark)
		}
		p.Offset = min(p.Offset, len(src))
		p.Length = min(p.Length, len(src)-p.Offset) // a line that was folded is longer in the file, and never shorter
	}
	return rules, problems
}

// byteOrderMark begins files of some programs.
const byteOrderMark = "\ufeff"

func parseICS(text string) ([]Rule, []Problem) {
	lines, problems := icsLines(text)
	if len(lines) == 0 || lines[0].name != "BEGIN" || !strings.EqualFold(lines[0].value, "VCALENDAR") {
		return nil, []Problem{{1, 1, 0, 1, "Not an iCalendar file", "It does not begin with BEGIN:VCALENDAR."}}
	}
	var rules []Rule
	var open []icsLine
	var e icsEvent
	for _, l := range lines {
		switch {
		case l.name == "BEGIN":
			open = append(open, l)
			if strings.EqualFold(l.value, "VEVENT") {
				e = icsEvent{begin: l}
			}
		case l.name == "END" && (len(open) == 0 || !strings.EqualFold(open[len(open)-1].value, l.value)):
			return rules, append(problems, l.problem("END without its BEGIN", "END:%s closes nothing: is a line missing before it?", l.value))
		case l.name == "END":
			open = open[:len(open)-1]
			if !strings.EqualFold(l.value, "VEVENT") {
				continue
			}
			r, wrong := e.rule()
			if problems = append(problems, wrong...); len(wrong) == 0 && !e.cancelled {
				rules = append(rules, r)
			}
		case len(open) > 0 && strings.EqualFold(open[len(open)-1].value, "VEVENT"):
			e.take(l)
		}
	}
	if len(open) > 0 {
		l := open[len(open)-1]
		problems = append(problems, l.problem("BEGIN without its END", "END:%s is missing: is the file cut off?", l.value))
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Offset - b.Offset })
	return rules, problems
}

// icsEvent is one VEVENT.
type icsEvent struct {
	begin                        icsLine
	summary                      string
	start, end, duration, repeat *icsLine
	except                       []icsLine
	cancelled                    bool
}

func (e *icsEvent) take(l icsLine) {
	switch l.name {
	case "SUMMARY":
		e.summary = strings.NewReplacer(`\,`, ",", `\;`, ";", `\n`, " ", `\N`, " ", `\\`, `\`).Replace(l.value)
	case "DTSTART":
		e.start = &l
	case "DTEND":
		e.end = &l
	case "DURATION":
		e.duration = &l
	case "RRULE":
		e.repeat = &l
	case "EXDATE":
		e.except = append(e.except, l)
	case "STATUS":
		e.cancelled = strings.EqualFold(l.value, "CANCELLED")
	}
}

// icsDate reads 20261225, and 20261225T000000 with or without a Z: midnight is a day's begin.
func icsDate(l icsLine, s string) (Date, *Problem) {
	day, clock, timed := strings.Cut(strings.TrimSuffix(s, "Z"), "T")
	t, err := time.Parse("20060102", day)
	switch {
	case err != nil:
		p := l.problem(fmt.Sprintf("Invalid date %q", s), "%s is a day, as in %s;VALUE=DATE:20261225.", l.name, l.name)
		return Date{}, &p
	case timed && clock != "000000":
		p := l.problem("Not a whole day", "%s:%s is a time, and holidays are whole days. What lasts for hours belongs in forecast.events of the job file.", l.name, l.value)
		return Date{}, &p
	}
	return DateOf(t), nil
}

// rule is what the event says.
func (e icsEvent) rule() (r Rule, problems []Problem) {
	if e.start == nil {
		return r, []Problem{e.begin.problem("An event without DTSTART", "Write the day on which it is, as in DTSTART;VALUE=DATE:20261225.")}
	}
	from, p := icsDate(*e.start, e.start.value)
	if p != nil {
		return r, []Problem{*p}
	}
	r = Rule{Name: strings.TrimSpace(e.summary), From: from, To: from}
	switch {
	case e.end != nil:
		end, p := icsDate(*e.end, e.end.value)
		switch {
		case p != nil:
			problems = append(problems, *p)
		case end.before(from):
			problems = append(problems, e.end.problem("An event that ends before it begins", "DTEND is %s, the day after its last one, and DTSTART %s.", end, from))
		case end != from:
			r.To = end.Plus(-1)
		}
	case e.duration != nil:
		n, err := icsDays(e.duration.value)
		if err != nil {
			problems = append(problems, e.duration.problem("Not a number of whole days", "%v.", err))
			break
		}
		r.To = from.Plus(n - 1)
	}
	if r.To.noon().Sub(from.noon()) >= spread*24*time.Hour {
		problems = append(problems, e.start.problem("An event that is longer than a year", "It is from %s to %s.", from, r.To))
	}
	if e.repeat == nil {
		return r, problems
	}
	repeat, p := icsRepeat(*e.repeat)
	if p != nil {
		return r, append(problems, *p)
	}
	for _, l := range e.except {
		for _, s := range strings.Split(l.value, ",") {
			d, p := icsDate(l, s)
			if p != nil {
				problems = append(problems, *p)
				continue
			}
			repeat.Except = append(repeat.Except, d)
		}
	}
	r.Repeat = repeat
	return r, problems
}

// icsDays reads P1D, P2W.
func icsDays(s string) (int, error) {
	unit := 1
	digits, ok := strings.CutPrefix(s, "P")
	if strings.HasSuffix(digits, "W") {
		unit = 7
	}
	n, err := strconv.Atoi(strings.TrimRight(digits, "DW"))
	if !ok || err != nil || n < 1 || n > spread || !strings.HasSuffix(s, "D") && !strings.HasSuffix(s, "W") {
		return 0, fmt.Errorf("DURATION:%s is not days, as in P1D, or weeks, as in P1W", s)
	}
	return n * unit, nil
}

var icsWeekdays = []string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}

// icsRepeat reads the parts of a yearly RRULE.
func icsRepeat(l icsLine) (*Repeat, *Problem) {
	r := &Repeat{}
	wrong := func(format string, args ...any) (*Repeat, *Problem) {
		p := l.problem("A repetition that is not understood", format+" Understood are FREQ=YEARLY with INTERVAL, COUNT, UNTIL, BYMONTH, BYMONTHDAY and BYDAY, as in FREQ=YEARLY;BYMONTH=11;BYDAY=4TH.", args...)
		return nil, &p
	}
	yearly := false
	for _, part := range strings.Split(strings.ToUpper(l.value), ";") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		switch name {
		case "FREQ":
			if yearly = value == "YEARLY"; !yearly {
				return wrong("FREQ=%s is not yearly.", value)
			}
			continue
		case "WKST":
			continue
		case "UNTIL":
			d, p := icsDate(l, strings.SplitN(value, "T", 2)[0])
			if p != nil {
				return nil, p
			}
			r.Until = d
			continue
		case "BYDAY":
			on := slices.IndexFunc(icsWeekdays, func(day string) bool { return strings.HasSuffix(value, day) })
			nth, err := strconv.Atoi(strings.TrimSuffix(value, value[max(0, len(value)-2):]))
			if on < 0 || err != nil || nth == 0 || nth > 5 || nth < -5 {
				return wrong("BYDAY=%s is not the n-th weekday of a month.", value)
			}
			r.On, r.Nth = time.Weekday(on), nth
			continue
		case "INTERVAL":
			r.Every = n
		case "COUNT":
			r.Count = n
		case "BYMONTH":
			r.Month = time.Month(n)
		case "BYMONTHDAY":
			r.Day = n
		default:
			return wrong("There is %s in it.", name)
		}
		if most := map[string]int{"BYMONTH": 12, "BYMONTHDAY": 31, "INTERVAL": 1000, "COUNT": 10000}[name]; err != nil || n < 1 || n > most {
			return wrong("%s is %q, and 1 to %d is possible.", name, value, most)
		}
	}
	if !yearly {
		return wrong("It has no FREQ.")
	}
	if r.Nth != 0 && r.Month == 0 && strings.Contains(strings.ToUpper(l.value), "BYDAY") {
		return wrong("BYDAY without BYMONTH is a weekday of the year.")
	}
	return r, nil
}
