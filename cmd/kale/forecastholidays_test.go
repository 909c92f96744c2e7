package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Of a trace with holidays it is measured what they are worth: beside the forecaster that knows of them stands one that does not, over all and on these days.
func TestForecastEvalOnHolidays(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	dir := t.TempDir()
	trace, calendar := filepath.Join(dir, "rates.csv"), filepath.Join(dir, "company.ics")
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) // a Monday
	feasts := map[string]bool{"04-15": true, "05-06": true, "05-14": true}
	var lines strings.Builder
	lines.WriteString("timestamp,rate\n")
	for i := range 12 * 7 * 24 {
		at := begin.Add(time.Duration(i) * time.Hour)
		if at.Format("01-02") == "05-21" { // of this holiday nothing was measured
			continue
		}
		rate := 1000 + 600*math.Sin(2*math.Pi*(float64(at.Hour())/24-0.3))
		if at.Weekday() == time.Sunday || feasts[at.Format("01-02")] {
			rate = 500 + 200*math.Sin(2*math.Pi*(float64(at.Hour())/24-0.45))
		}
		fmt.Fprintf(&lines, "%s,%.3f\n", at.Format(time.RFC3339), rate*(1+0.03*math.Sin(7.7*float64(i)*float64(i))))
	}
	ics := "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Works outing\nDTSTART;VALUE=DATE:20260514\nEND:VEVENT\nEND:VCALENDAR\n"
	for path, text := range map[string]string{trace: lines.String(), calendar: ics} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"forecast", "eval", "-trace", trace, "-horizon", "6h", "-origins", "2000", "-holidays", "04-15,05-06,05-21," + calendar}
	var e evaluation
	if err := json.Unmarshal([]byte(s.must(append(args, "-json")...).out), &e); err != nil {
		t.Fatal(err)
	}
	on := map[string]float64{}
	for _, r := range e.OnHolidays {
		if r.Bins != 48 || r.HorizonMin != 360 {
			t.Errorf("%s is measured on %d bins, %g min ahead, want 48 and 360", r.Model, r.Bins, r.HorizonMin)
		}
		on[r.Model] = *r.WAPE
	}
	if with, without := on["seasonal"], on["seasonal, no holidays"]; e.Holidays != "05-06, Works outing" || with > 0.15 || without < 3*with {
		t.Errorf("on %s it is off by %.1f %%, without the calendar by %.1f %%", e.Holidays, 100*with, 100*without)
	}
	broken := strings.Replace(ics, "20260514", "20260532", 1)
	if err := os.WriteFile(calendar, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.run(args...); r.code != exitFailed || !strings.Contains(r.err, `company.ics:4:20: error: Invalid date "20260532"`) {
		t.Errorf("a broken calendar: exit code %d: %s", r.code, r.err)
	}
	for entries, says := range map[string]string{"atlantis": `-holidays: "atlantis" is no date`, "25-12": "the month comes first"} {
		if r := s.run("forecast", "eval", "-trace", trace, "-holidays", entries); r.code != exitUsage || !strings.Contains(r.err, says) {
			t.Errorf("-holidays %s: exit code %d: %s", entries, r.code, r.err)
		}
	}
}
