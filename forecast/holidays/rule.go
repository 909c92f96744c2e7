package holidays

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Day is what a holiday is.
type Day struct {
	// Name is for people, and what past holidays are known by.
	Name string
	How
}

// How is how the traffic of a holiday is foreseen.
type How struct {
	// Like is the weekday whose course it has while no other holiday was seen. nil: a Sunday.
	Like *time.Weekday `json:"like,omitempty"`
	// Uplift, where it is set, is what comes in proportion to an ordinary day; then nothing is learnt.
	Uplift *float64 `json:"uplift,omitempty"`
	// Unlearnt: it is as Like says, whatever past holidays were.
	Unlearnt bool `json:"unlearnt,omitempty"`
}

// Weekday is that whose course it has while no other holiday was seen.
func (h How) Weekday() time.Weekday {
	if h.Like == nil {
		return time.Sunday
	}
	return *h.Like
}

// Rule says of days that they are holidays. It has a Region, or days from From to To.
type Rule struct {
	// Name is that of its days. "": a region's have their own; others are named by their date.
	Name string `json:"name,omitempty"`
	// Region is a code of [Regions]: its public holidays, and the days on which they are made up for.
	Region string `json:"region,omitempty"`
	// From and To are the first and the last day; with year 0 those of every year. To may then lie in the year after.
	From Date `json:"from,omitzero"`
	To   Date `json:"to,omitzero"`
	// Repeat is how it comes again, of one whose From has a year.
	Repeat *Repeat `json:"repeat,omitempty"`
	How
}

// Repeat is a rule of an iCalendar file that repeats yearly.
type Repeat struct {
	Every  int          `json:"every,omitempty"`  // years; 0 is 1
	Count  int          `json:"count,omitempty"`  // of times in all; 0: no end
	Until  Date         `json:"until,omitzero"`   // the last day on which one may begin; zero: no end
	Month  time.Month   `json:"month,omitempty"`  // 0: that of From
	Nth    int          `json:"nth,omitempty"`    // the n-th Weekday of the month, from its end if negative; 0: the day of From
	On     time.Weekday `json:"on,omitempty"`     // of Nth
	Day    int          `json:"day,omitempty"`    // of the month; 0: that of From
	Except []Date       `json:"except,omitempty"` // days on which none begins
}

// Calendar is what a list of rules says. The zero value knows no holiday. It is not changed once it is in use, and may be asked by several at once.
type Calendar struct {
	Rules []Rule
	// Except are names of days that are no holidays here, as those of a region that nobody keeps; upper and lower case are the same.
	Except []string
}

// spread is the most days that a rule's stretch may have.
const spread = 366

// Year are the holidays of a year. Where two rules name a day, the later rule says what it is.
func (c Calendar) Year(year int) map[Date]Day {
	out := map[Date]Day{}
	for _, r := range c.Rules {
		r.days(year, func(d Date, name string) {
			if d.Year == year && !slices.ContainsFunc(c.Except, func(e string) bool { return sameName(e, name) }) {
				out[d] = Day{Name: name, How: r.How}
			}
		})
	}
	return out
}

// Table looks up days of a calendar. It keeps the years that it was asked for, and belongs to one goroutine.
type Table struct {
	of    Calendar
	years map[int]map[Date]Day
}

// Table looks up days of the calendar.
func (c Calendar) Table() *Table { return &Table{of: c, years: map[int]map[Date]Day{}} }

// Day is what holiday a date is, if it is one.
func (t *Table) Day(d Date) (Day, bool) {
	year, ok := t.years[d.Year]
	if !ok {
		year = t.of.Year(d.Year)
		t.years[d.Year] = year
	}
	h, ok := year[d]
	return h, ok
}

// sameName is whether two names are of one holiday, which may be made up for on another day.
func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, observed), strings.TrimSuffix(b, observed))
}

// Names are those of the holidays from one year to another, each once, in alphabetical order.
func (c Calendar) Names(from, to int) []string {
	var out []string
	for year := from; year <= to; year++ {
		for _, d := range c.Year(year) {
			out = append(out, strings.TrimSuffix(d.Name, observed))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// days calls out with the days of the rule that begin in a year or the one before.
func (r Rule) days(year int, out func(Date, string)) {
	if r.Region != "" {
		for y := year - 1; y <= year+1; y++ { // a day may be made up for in another year
			regionDays(r.Region, y, out)
		}
		return
	}
	for y := year - 1; y <= year; y++ {
		from, last, ok := r.begins(y)
		if !ok {
			continue
		}
		name := r.Name
		for d, n := from, 0; !last.before(d) && n < spread; d, n = d.Plus(1), n+1 {
			if r.Name == "" {
				name = Date{0, d.Month, d.Day}.String()
			}
			out(d, name)
		}
	}
}

// begins is the first and last day of the stretch that begins in a year.
func (r Rule) begins(year int) (from, to Date, ok bool) {
	from, to = r.From.in(year), r.To.in(year)
	if r.From.Year == 0 && to.before(from) {
		to.Year++
	}
	switch {
	case r.From.Year == 0:
		return from, to, from.exists()
	case r.Repeat == nil:
		return from, to, r.From.Year == year || r.From.Year < year && year <= r.To.Year+1
	}
	length := to.Since(from)
	from, ok = r.Repeat.in(r.From, year)
	return from, from.Plus(length), ok
}

// in is when it comes in a year.
func (p *Repeat) in(first Date, year int) (Date, bool) {
	every := max(1, p.Every)
	if year < first.Year || (year-first.Year)%every != 0 || p.Count > 0 && (year-first.Year)/every >= p.Count {
		return Date{}, false
	}
	d := Date{year, first.Month, first.Day}
	if p.Month != 0 {
		d.Month = p.Month
	}
	if p.Day != 0 {
		d.Day = p.Day
	}
	if p.Nth != 0 {
		d.Day = 1
		if p.Nth < 0 {
			d = Date{year, d.Month, 1}
			d = DateOf(d.noon().AddDate(0, 1, -1))
			d = d.Plus(-int(d.Weekday()-p.On+7)%7 + 7*(p.Nth+1))
		} else {
			d = d.Plus(int(p.On-d.Weekday()+7)%7 + 7*(p.Nth-1))
		}
		if d.Month != cmp.Or(p.Month, first.Month) {
			return d, false
		}
	}
	gone := p.Until != Date{} && p.Until.before(d)
	return d, d.exists() && !gone && !slices.Contains(p.Except, d)
}

var regionLike = regexp.MustCompile(`^[A-Za-z]{2,4}(-[A-Za-z]{2,3})?$`)

// IsFile says whether an entry of a list of holidays is the path of an iCalendar file.
func IsFile(entry string) bool { return strings.HasSuffix(strings.ToLower(entry), ".ics") }

// Parse reads an entry of a list of holidays that is no file: the code of a region, a date, or two dates with ".." or "/" between them. The error is for people.
func Parse(entry string) (Rule, error) {
	s := strings.TrimSpace(entry)
	if regionLike.MatchString(s) {
		code := strings.ToLower(s)
		if _, ok := regions[code]; !ok {
			return Rule{}, fmt.Errorf("no holidays of a region %q are known. Known are %s; those of others can be given by date, or as an iCalendar file", entry, countries())
		}
		return Rule{Region: code}, nil
	}
	from, to, isRange := strings.Cut(s, "..")
	if !isRange {
		from, to, isRange = strings.Cut(s, "/")
	}
	first, err := ParseDate(strings.TrimSpace(from))
	if err != nil {
		return Rule{}, err
	}
	r := Rule{From: first, To: first}
	if !isRange {
		return r, nil
	}
	if r.To, err = ParseDate(strings.TrimSpace(to)); err != nil {
		return Rule{}, err
	}
	switch {
	case (r.From.Year == 0) != (r.To.Year == 0):
		return Rule{}, fmt.Errorf("%q has a year at one end only: write it at both, or at none for every year", entry)
	case r.From.Year != 0 && r.To.before(r.From):
		return Rule{}, fmt.Errorf("%q ends before it begins", entry)
	case r.From.Year != 0 && r.To.Since(r.From) >= spread:
		return Rule{}, fmt.Errorf("%q is longer than a year", entry)
	}
	return r, nil
}
