package job

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/kale-sched/kale/forecast/holidays"
)

// holidayParts are the attributes of an entry of forecast.holidays that is an object.
var holidayParts = []string{"name", "on", "like", "uplift", "learn"}

// holidayForm is a whole one.
const holidayForm = `{ name = "stocktaking", on = "06-30", uplift = 0.2 }`

// holidayForms say what an entry may be.
const holidayForms = `a region such as "us" or "de-by", a day as "2026-12-24" or "12-24", days as "12-24..01-02", the path of an .ics file, or ` + holidayForm

// mostICS bounds the size of an iCalendar file, in bytes.
const mostICS = 8 << 20

// holidayList reads forecast.holidays.
type holidayList struct{}

func (holidayList) kind() string   { return "list" }
func (holidayList) limits() string { return "regions, days, .ics files, objects" }

func (holidayList) set(dir string, j *Job, v cty.Value) []*problem {
	var entries [][]holidays.Rule
	problems := list[[]holidays.Rule]{single: true, dst: func(*Job) *[][]holidays.Rule { return &entries }, read: readHoliday}.set(dir, j, v)
	j.Forecast.Holidays = slices.Concat(entries...)
	return problems
}

// readHoliday reads one entry of forecast.holidays.
func readHoliday(dir string, v cty.Value) ([]holidays.Rule, *problem) {
	switch {
	case v.Type() == cty.String:
		return holidayRules(dir, v)
	case !v.Type().IsObjectType() && !v.Type().IsMapType():
		return nil, wrong("A holiday is needed here", "This is %s: write %s.", typeName(v), holidayForms)
	}
	parts := v.AsValueMap()
	var all []*problem
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if !slices.Contains(holidayParts, name) {
			p := wrong(fmt.Sprintf("Unknown part %q of a holiday", name), "%sA holiday has %s.", DidYouMean(name, holidayParts), strings.Join(holidayParts, ", "))
			p.part = name
			all = append(all, p)
		}
	}
	part := func(name string, read func(cty.Value) *problem) {
		v, there := parts[name]
		if !there || v.IsNull() || !v.IsKnown() {
			return
		}
		p := read(v)
		if p == nil {
			return
		}
		each := []*problem{p}
		if len(p.parts) > 0 {
			each = p.parts
		}
		for _, p := range each {
			p.part = name
			all = append(all, p)
		}
	}
	var rules []holidays.Rule
	var name string
	var how holidays.How
	if on, there := parts["on"]; (!there || on.IsNull()) && len(all) == 0 {
		all = append(all, wrong("A holiday without its days", "Say on what days it is: %s.", holidayForm))
	}
	part("on", func(v cty.Value) (p *problem) {
		rules, p = holidayRules(dir, v)
		return p
	})
	part("name", func(v cty.Value) (p *problem) {
		name, p = readText(nil)("", v)
		return p
	})
	part("like", func(v cty.Value) (p *problem) {
		s, p := asString(v)
		if p == nil {
			how.Like, p = readWeekday(s)
		}
		return p
	})
	part("uplift", func(v cty.Value) *problem {
		n, p := asNumber(v)
		if p == nil && !(n >= 0 && n <= mostUplift) {
			p = wrong("Unsuitable uplift", "The uplift of a holiday is %v: what comes is so many times what an ordinary day would have, 0 (nothing comes) to %d.", n, mostUplift)
		}
		how.Uplift = &n
		return p
	})
	part("learn", func(v cty.Value) *problem {
		if v.Type() != cty.Bool {
			return wrong("true or false is needed here", "%s is %s.", show(v), typeName(v))
		}
		how.Unlearnt = v.False()
		return nil
	})
	for i := range rules {
		if name != "" && rules[i].Region == "" {
			rules[i].Name = name
		}
		rules[i].How = how
	}
	return rules, together(all)
}

// holidayRules reads the text of an entry.
func holidayRules(dir string, v cty.Value) ([]holidays.Rule, *problem) {
	s, p := readText(nil)(dir, v)
	if p != nil {
		return nil, p
	}
	if holidays.IsFile(s) {
		return readICS(dir, v)
	}
	r, err := holidays.Parse(s)
	if err != nil {
		advice := sentence(err) + "."
		if !strings.ContainsAny(s, "0123456789") { // else it was meant as a date
			advice += " Write " + holidayForms + "."
		}
		return nil, wrong(fmt.Sprintf("Unknown holidays %q", s), "%s", advice)
	}
	return []holidays.Rule{r}, nil
}

// sentence begins with a capital letter where it begins with a lower-case one.
func sentence(err error) string {
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// readICS reads an iCalendar file. What is wrong in it is placed in that file.
func readICS(dir string, v cty.Value) ([]holidays.Rule, *problem) {
	path, p := readPath(true)(dir, v)
	if p != nil {
		return nil, p
	}
	src, rules, diags := LoadICS(path)
	if len(diags) == 0 {
		return rules, nil
	}
	var all []*problem
	for _, d := range diags {
		all = append(all, &problem{summary: d.Summary, detail: d.Detail, at: d.Subject, source: src})
	}
	return rules, together(all)
}

// LoadICS reads the holidays of an iCalendar file, and says what is wrong in it.
func LoadICS(path string) (src []byte, rules []holidays.Rule, diags hcl.Diagnostics) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > mostICS {
		err = fmt.Errorf("it has %d MiB, and %d are read at most", info.Size()>>20, mostICS>>20)
	}
	if err == nil {
		src, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, nil, hcl.Diagnostics{at(hcl.DiagError, hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}, "Cannot read the calendar "+filepath.Base(path), err.Error()+".")}
	}
	rules, problems := holidays.ParseICS(src)
	for _, p := range problems {
		begin := hcl.Pos{Line: p.Line, Column: p.Column, Byte: p.Offset}
		end := hcl.Pos{Line: p.Line, Column: p.Column + p.Length, Byte: p.Offset + p.Length}
		diags = append(diags, at(hcl.DiagError, hcl.Range{Filename: path, Start: begin, End: end}, p.Summary, p.Advice))
	}
	return src, rules, diags
}

// weekdays are the names that holidays_like takes.
var weekdays = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// readWeekday reads the English name of a weekday.
func readWeekday(s string) (*time.Weekday, *problem) {
	i := slices.Index(weekdays, strings.ToLower(s))
	if i < 0 {
		return nil, wrong(fmt.Sprintf("Unknown weekday %q", s), "%sUse %s.", DidYouMean(s, weekdays), oneOf(weekdays))
	}
	day := time.Weekday((i + 1) % 7)
	return &day, nil
}

// HolidayCalendar are the job's holidays, each as the file says how it is treated.
func (f Forecast) HolidayCalendar() holidays.Calendar {
	c := holidays.Calendar{Rules: slices.Clone(f.Holidays), Except: f.HolidaysExcept}
	like, _ := readWeekday(f.HolidaysLike) // Load has refused others
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Like == nil {
			r.Like = like
		}
		r.Unlearnt = r.Unlearnt || !f.HolidaysLearn
	}
	return c
}

// checkHolidays says what of the holidays would not be as people expect.
func (d *decoder) checkHolidays(f Forecast) {
	const path = "forecast.holidays"
	if len(f.Holidays) == 0 || !d.ok(path) {
		return
	}
	if f.Timezone == "" && d.ok("forecast.timezone") {
		d.warn(path, "Holidays without a time zone", "They are taken from midnight to midnight in UTC. Set forecast.timezone to where people live whose holidays they are, as in \"Europe/Berlin\".")
	}
	if d.ok("forecast.history") && f.Past() < 8*day {
		d.warn(d.written("forecast.history", []string{path}), "History shorter than a week",
			"The history is %s, and may hold neither a %s nor an ordinary day of the holiday's weekday: the holiday would be forecast as any day. Set forecast.history to %q or more, as far as the topic keeps records.",
			FormatDuration(f.Past()), f.HolidaysLike, "14d")
	}
	if !d.ok("forecast.holidays_except") {
		return
	}
	for i, name := range f.HolidaysExcept {
		if names, known := HolidayNames(f.Holidays, name); !known {
			d.warn(fmt.Sprintf("forecast.holidays_except[%d]", i), fmt.Sprintf("No holiday %q", name), "%sThe job's holidays are %s.", DidYouMean(name, names), strings.Join(names, ", "))
		}
	}
}

// HolidayNames are the names that holidays have by rules, and whether the given one is among them, in whatever case.
func HolidayNames(rules []holidays.Rule, name string) (names []string, known bool) {
	names = holidays.Calendar{Rules: rules}.Names(namedFrom, namedTo)
	return names, slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// namedFrom and namedTo are the years of which the names of holidays are looked through.
const (
	namedFrom = 2020
	namedTo   = 2035
)

// checkEvents tells of events that are at once.
func (d *decoder) checkEvents(f Forecast) {
	if !d.ok("forecast.events") {
		return
	}
	for i, e := range f.Events {
		for k, other := range f.Events[:i] {
			if !e.From.Before(other.To) || !other.From.Before(e.To) {
				continue
			}
			path := fmt.Sprintf("forecast.events[%d]", i)
			d.warn(path, "Events at once", "%q at %s and %q at %s overlap from %s to %s: their uplifts are multiplied there, %.4g × %.4g = %.4g. Where one is meant to replace the other, end it before.",
				e.Name, Place(d.job.Range(path)), other.Name, Place(d.job.Range(fmt.Sprintf("forecast.events[%d]", k))),
				latest(e.From, other.From).Format(time.RFC3339), earliest(e.To, other.To).Format(time.RFC3339), other.Uplift, e.Uplift, e.Uplift*other.Uplift)
			break
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
