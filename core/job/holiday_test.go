package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/forecast/holidays"
)

// withForecast is the smallest job with some lines in its forecast block.
func withForecast(lines string) []byte {
	return []byte(strings.Replace(minimal, "  checkpoint {", "  forecast {\n"+lines+"\n  }\n  checkpoint {", 1))
}

// Holidays of all forms are those of the days that they name, each treated as it says.
func TestHolidays(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "company.ics"), []byte("BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Founding day\nDTSTART;VALUE=DATE:20200619\nRRULE:FREQ=YEARLY\nEND:VEVENT\nEND:VCALENDAR\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	src := withForecast(`
    timezone = "America/New_York"
    history  = "14d"
    holidays = ["us", "company.ics", "12-24", { name = "stocktaking", on = "06-30", uplift = 0.2 }, { on = "2026-08-03..2026-08-04", like = "monday", learn = false }]
    holidays_except = ["Columbus Day"]
    holidays_like = "saturday"`)
	j, files, diags := Parse(src, filepath.Join(dir, "job.hcl"), Options{})
	if len(diags) > 0 {
		t.Fatal(rendered(files, diags))
	}
	year := j.Forecast.HolidayCalendar().Year(2026)
	saturday, monday, uplift := time.Saturday, time.Monday, 0.2
	for day, want := range map[holidays.Date]holidays.Day{
		{Year: 2026, Month: 11, Day: 26}: {Name: "Thanksgiving Day", How: holidays.How{Like: &saturday}},
		{Year: 2026, Month: 6, Day: 19}:  {Name: "Founding day", How: holidays.How{Like: &saturday}}, // the later entry says
		{Year: 2026, Month: 12, Day: 24}: {Name: "12-24", How: holidays.How{Like: &saturday}},
		{Year: 2026, Month: 6, Day: 30}:  {Name: "stocktaking", How: holidays.How{Like: &saturday, Uplift: &uplift}},
		{Year: 2026, Month: 8, Day: 4}:   {Name: "08-04", How: holidays.How{Like: &monday, Unlearnt: true}},
		{Year: 2026, Month: 10, Day: 12}: {},
	} {
		if diff := cmp.Diff(want, year[day]); diff != "" {
			t.Errorf("%v: %s", day, diff)
		}
	}
}

// What is read as people may not expect it is told, with its place.
func TestForecastWarnings(t *testing.T) {
	for name, c := range map[string]struct{ lines, at, says string }{
		"no zone":       {"    history = \"14d\"\n    holidays = [\"us\"]", "job.hcl:19:16: warning: Holidays without a time zone", "midnight to midnight in UTC"},
		"short history": {"    timezone = \"Europe/Berlin\"\n    holidays = [\"de\"]", "job.hcl:19:16: warning: History shorter than a week", `forecast.history to "14d"`},
		"no such name":  {"    timezone = \"Europe/Berlin\"\n    history = \"14d\"\n    holidays = [\"us\"]\n    holidays_except = [\"Colombus Day\"]", "job.hcl:21:24: warning: No holiday", `Did you mean "Columbus Day"?`},
		"overlap": {"    timezone = \"Europe/Berlin\"\n    events = [\n      { name = \"a\", from = \"2026-11-27\", to = \"2026-11-29\", uplift = 3 },\n      { name = \"b\", from = \"2026-11-28T12:00\", to = \"2026-11-30\", uplift = 0.5 }]",
			"job.hcl:21:7: warning: Events at once", `"b" at job.hcl:21:7 and "a" at job.hcl:20:7 overlap from 2026-11-28T12:00:00+01:00 to 2026-11-29T00:00:00+01:00: their uplifts are multiplied there, 3 × 0.5 = 1.5`},
	} {
		j, files, diags := Parse(withForecast(c.lines), "job.hcl", Options{})
		if j == nil || len(diags) != 1 {
			t.Errorf("%s: %d diagnostics\n%s", name, len(diags), rendered(files, diags))
			continue
		}
		if text := strings.Join(strings.Fields(rendered(files, diags)), " "); !strings.HasPrefix(text, c.at) || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s\nwant %s and %s", name, text, c.at, c.says)
		}
	}
	j, files, diags := Parse(withForecast("    timezone = \"Europe/Berlin\"\n    events = [{ name = \"a\", from = \"2026-11-27\", to = \"2026-11-27T18:30\", uplift = 0 }]"), "job.hcl", Options{})
	if len(diags) > 0 {
		t.Fatal(rendered(files, diags))
	}
	if e := j.Forecast.Events[0]; e.Uplift != 0 || !e.From.Equal(time.Date(2026, 11, 26, 23, 0, 0, 0, time.UTC)) || !e.To.Equal(time.Date(2026, 11, 27, 17, 30, 0, 0, time.UTC)) {
		t.Errorf("%+v", e)
	}
}

// A time that clocks skip or repeat when they are put forward or back is refused, and the error says what to write.
func TestEventTimesThatClocksDoNotShowOnce(t *testing.T) {
	for from, says := range map[string]string{
		"2026-03-29T02:30": `There is no time "2026-03-29T02:30" │ from of the event "a" falls into the hour that clocks skip in Europe/Berlin when they are put forward: write "2026-03-29T03:30:00+02:00"`,
		"2026-10-25T02:30": `A time that comes twice, "2026-10-25T02:30" │ from of the event "a" falls into the hour that clocks repeat in Europe/Berlin when they are put back: write "2026-10-25T02:30:00+02:00" for the first or "2026-10-25T02:30:00+01:00" for the second`,
	} {
		_, files, diags := Parse(withForecast("    timezone = \"Europe/Berlin\"\n    events = [{ name = \"a\", from = \""+from+"\", to = \"2026-12-01\", uplift = 2 }]"), "job.hcl", Options{})
		text := strings.Join(strings.Fields(rendered(files, diags)), " ")
		for _, part := range strings.Split(says, " │ ") {
			if !strings.Contains(text, part) || !strings.HasPrefix(text, "job.hcl:19:") {
				t.Errorf("%s: %s\nwant %s", from, text, part)
			}
		}
	}
	for from, want := range map[string]string{ // the moments beside them come once
		"2026-03-29T01:59": "2026-03-29T00:59:00Z", "2026-03-29T03:00": "2026-03-29T01:00:00Z",
		"2026-10-25T01:59": "2026-10-24T23:59:00Z", "2026-10-25T03:00": "2026-10-25T02:00:00Z",
	} {
		j, files, diags := Parse(withForecast("    timezone = \"Europe/Berlin\"\n    events = [{ name = \"a\", from = \""+from+"\", to = \"2026-12-01\", uplift = 2 }]"), "job.hcl", Options{})
		if len(diags) > 0 {
			t.Fatal(rendered(files, diags))
		}
		if got := j.Forecast.Events[0].From.UTC().Format(time.RFC3339); got != want {
			t.Errorf("%s is %s; want %s", from, got, want)
		}
	}
}
