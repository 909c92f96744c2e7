package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Of traffic whose days are lived by a clock that is changed it is told, once, which flag helps; with it, and of traffic by UTC, nothing is.
func TestForecastSaysThatClocksChange(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	write := func(zone string) string {
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for at := time.Date(2026, 2, 23, 0, 0, 0, 0, time.UTC); at.Before(time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC)); at = at.Add(time.Hour) {
			rate := 10 + 5*at.In(z).Hour() + at.Day()%3
			if at.In(z).Weekday() == time.Sunday {
				rate /= 2
			}
			fmt.Fprintf(&b, "%s,%d\n", at.Format(time.RFC3339), rate)
		}
		trace := filepath.Join(t.TempDir(), "rates.csv")
		if err := os.WriteFile(trace, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return trace
	}
	said := func(args ...string) string {
		return strings.Join(strings.Fields(s.must(append([]string{"forecast", "eval", "-horizon", "1h", "-origins", "5"}, args...)...).err), " ")
	}
	trace := write("America/Chicago")
	if text := said("-trace", trace); strings.Count(text, "hint: ") != 1 || !strings.Contains(text, "changed on 2026-03-08") || !strings.Contains(text, "give -timezone America/New_York") {
		t.Errorf("of a trace by a clock that is changed it says %s", text)
	}
	for _, args := range [][]string{{"-trace", trace, "-timezone", "America/Chicago"}, {"-trace", write("UTC")}} {
		if text := said(args...); strings.Contains(text, "hint: ") {
			t.Errorf("%v: it says %s", args, text)
		}
	}
}
