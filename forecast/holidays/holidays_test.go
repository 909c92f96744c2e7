package holidays

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// listed are the holidays of a year that rules give, in order.
func listed(t *testing.T, c Calendar, year int) []string {
	t.Helper()
	all := c.Year(year)
	var out []string
	for _, d := range slices.SortedFunc(maps.Keys(all), func(a, b Date) int { return a.noon().Compare(b.noon()) }) {
		out = append(out, d.String()+" "+all[d].Name)
	}
	return out
}

func parse(t *testing.T, entries ...string) (c Calendar) {
	t.Helper()
	for _, e := range entries {
		r, err := Parse(e)
		if err != nil {
			t.Fatal(err)
		}
		c.Rules = append(c.Rules, r)
	}
	return c
}

// The federal holidays of the United States in 2021, as the Office of Personnel Management published them: three were made up for on another day, one of them of the year after.
func TestRegion(t *testing.T) {
	c := parse(t, "us")
	c.Except = []string{"veterans day"}
	want := []string{
		"2021-01-01 New Year's Day", "2021-01-18 Martin Luther King Jr. Day", "2021-02-15 Presidents' Day", "2021-05-31 Memorial Day",
		"2021-06-18 Juneteenth (observed)", "2021-06-19 Juneteenth", "2021-07-04 Independence Day", "2021-07-05 Independence Day (observed)", "2021-09-06 Labor Day",
		"2021-10-11 Columbus Day", "2021-11-25 Thanksgiving Day", "2021-12-24 Christmas Day (observed)", "2021-12-25 Christmas Day", "2021-12-31 New Year's Day (observed)",
	}
	if diff := cmp.Diff(want, listed(t, c, 2021)); diff != "" {
		t.Error(diff)
	}
	easter := parse(t, "DE").Year(2026) // Easter Sunday is on 5 April
	for day, name := range map[Date]string{{2026, 4, 3}: "Karfreitag", {2026, 4, 6}: "Ostermontag", {2026, 5, 14}: "Christi Himmelfahrt"} {
		if easter[day].Name != name {
			t.Errorf("%v is %q, want %q", day, easter[day].Name, name)
		}
	}
	if day := (Date{2026, 1, 6}); parse(t, "de").Year(2026)[day].Name != "" || parse(t, "de-by").Year(2026)[day].Name == "" {
		t.Error("Epiphany is a holiday in Bavaria, and not in all of Germany")
	}
}

func TestParse(t *testing.T) {
	c := parse(t, "12-24..01-02", "2026-08-01/2026-08-02", "02-29", "2026-05-05")
	want := []string{"2026-01-01 01-01", "2026-01-02 01-02", "2026-05-05 05-05", "2026-08-01 08-01", "2026-08-02 08-02",
		"2026-12-24 12-24", "2026-12-25 12-25", "2026-12-26 12-26", "2026-12-27 12-27", "2026-12-28 12-28", "2026-12-29 12-29", "2026-12-30 12-30", "2026-12-31 12-31"}
	if diff := cmp.Diff(want, listed(t, c, 2026)); diff != "" {
		t.Error(diff)
	}
	if got := listed(t, parse(t, "02-29"), 2028); len(got) != 1 || got[0] != "2028-02-29 02-29" {
		t.Errorf("a leap day: %v", got)
	}
	for entry, want := range map[string]string{
		"atlantis": "is no date", "xx": `no holidays of a region "xx"`, "25-12": "the month comes first", "2026-02-30": "there is no day 2026-02-30", "2026-12-24..2026-12-01": "ends before it begins",
		"2026-12-24..12-31": "a year at one end only", "2026-1-1": "is no date", "": "is no date", "2026-01-01..2028-01-01": "longer than a year", "26-12-01": "is no date",
	} {
		if _, err := Parse(entry); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", entry, err, want)
		}
	}
}

const ics = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n" +
	"BEGIN:VEVENT\r\nSUMMARY:Works out\r\n ing\\, all of us\r\nDTSTART;VALUE=DATE:20260810\r\nDTEND;VALUE=DATE:20260813\r\nBEGIN:VALARM\r\nDURATION:PT5M\r\nEND:VALARM\r\nEND:VEVENT\r\n" +
	"BEGIN:VEVENT\r\nSUMMARY:Founding day\r\nDTSTART;VALUE=DATE:20200405\r\nRRULE:FREQ=YEARLY;UNTIL=20270101\r\nEXDATE;VALUE=DATE:20250405\r\nEND:VEVENT\r\n" +
	"BEGIN:VEVENT\r\nSUMMARY:Fourth Thursday\r\nDTSTART:20201126\r\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH\r\nEND:VEVENT\r\n" +
	"BEGIN:VEVENT\r\nSUMMARY:Last Monday\r\nDTSTART:20200525T000000\r\nDURATION:P1D\r\nRRULE:FREQ=YEARLY;BYMONTH=5;BYDAY=-1MO;COUNT=7\r\nEND:VEVENT\r\n" +
	"BEGIN:VEVENT\r\nSUMMARY:Gone\r\nSTATUS:CANCELLED\r\nDTSTART:20260101\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

func TestICS(t *testing.T) {
	rules, problems := ParseICS([]byte(ics))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := Calendar{Rules: rules}
	want := map[int][]string{
		2025: {"2025-05-26 Last Monday", "2025-11-27 Fourth Thursday"},
		2026: {"2026-04-05 Founding day", "2026-05-25 Last Monday", "2026-08-10 Works outing, all of us", "2026-08-11 Works outing, all of us", "2026-08-12 Works outing, all of us", "2026-11-26 Fourth Thursday"},
		2027: {"2027-11-25 Fourth Thursday"},
	}
	for year, want := range want {
		if diff := cmp.Diff(want, listed(t, c, year)); diff != "" {
			t.Errorf("%d: %s", year, diff)
		}
	}
}

func TestICSProblems(t *testing.T) {
	event := func(lines ...string) string {
		return "BEGIN:VCALENDAR\nBEGIN:VEVENT\n" + strings.Join(lines, "\n") + "\nEND:VEVENT\nEND:VCALENDAR\n"
	}
	for _, c := range []struct {
		src          string
		line, column int
		says         string
	}{
		{"hello", 1, 1, "Not an iCalendar file"},
		{event("DTSTART;VALUE=DATE:20261325"), 3, 20, "Invalid date"},
		{event("SUMMARY:x"), 2, 7, "without DTSTART"},
		{event("DTSTART:20261225T093000Z"), 3, 9, "Not a whole day"},
		{event("DTSTART:20261225", "DTEND:20261224"), 4, 7, "ends before it begins"},
		{event("DTSTART:20261225", "RRULE:FREQ=MONTHLY"), 4, 7, "not understood"},
		{event("DTSTART:20261225", "RRULE:FREQ=YEARLY;BYDAY=TH"), 4, 7, "not understood"},
		{event("DTSTART:20261225", "RRULE:FREQ=YEARLY;BYMONTH=13"), 4, 7, "not understood"},
		{event("DTSTART:20261225", "DURATION:PT8H"), 4, 10, "whole days"},
		{event("DTSTART:20261225", "no colon"), 4, 1, "Not a line"},
		{"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261225\n", 2, 7, "BEGIN without its END"},
		{"BEGIN:VCALENDAR\nEND:VEVENT\n", 2, 5, "END without its BEGIN"},
	} {
		_, problems := ParseICS([]byte(c.src))
		if len(problems) == 0 {
			t.Errorf("%q: no problem", c.src)
			continue
		}
		p := problems[0]
		at := strings.Count(c.src[:p.Offset], "\n") + 1
		if p.Line != c.line || p.Column != c.column || at != p.Line || !strings.Contains(p.Summary, c.says) || p.Advice == "" {
			t.Errorf("%q: %+v", c.src, p)
		}
	}
}

// What is read is no program: whatever stands in a file, it is read to its end, and its days can be listed.
func FuzzICS(f *testing.F) {
	f.Add([]byte(ics))
	f.Fuzz(func(t *testing.T, src []byte) {
		rules, problems := ParseICS(src)
		c := Calendar{Rules: rules}
		for day := range c.Year(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Year()) {
			if !day.exists() {
				t.Errorf("there is no day %v", day)
			}
		}
		for _, p := range problems {
			if p.Offset < 0 || p.Offset+p.Length > len(src) || p.Line < 1 || p.Column < 1 {
				t.Errorf("out of the file: %+v", p)
			}
		}
	})
}
