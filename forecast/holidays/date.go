package holidays

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Date is a day on the wall calendar. Year 0 is every year.
type Date struct {
	Year  int
	Month time.Month
	Day   int
}

// DateOf is the day of a moment on its own clock.
func DateOf(t time.Time) Date {
	y, m, d := t.Date()
	return Date{y, m, d}
}

// String is 2026-12-25, or 12-25 of every year.
func (d Date) String() string {
	if d.Year == 0 {
		return fmt.Sprintf("%02d-%02d", d.Month, d.Day)
	}
	return fmt.Sprintf("%04d-%02d-%02d", d.Year, d.Month, d.Day)
}

// MarshalText and UnmarshalText carry a date as [Date.String] writes it.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Date) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDate(string(text))
	return err
}

// ParseDate reads "2026-12-25", or "12-25" for every year. The error says what there is not, for people.
func ParseDate(s string) (d Date, err error) {
	parts := strings.Split(s, "-")
	var n []int
	for _, part := range parts {
		v, err := strconv.Atoi(part)
		if err != nil || len(part) != 2 && len(part) != 4 {
			return d, fmt.Errorf("%q is no date: write 2026-12-25, or 12-25 for every year", s)
		}
		n = append(n, v)
	}
	switch {
	case len(n) == 3 && len(parts[0]) == 4 && len(parts[1]) == 2 && len(parts[2]) == 2:
		d = Date{n[0], time.Month(n[1]), n[2]}
	case len(n) == 2 && len(parts[0]) == 2 && len(parts[1]) == 2:
		d = Date{0, time.Month(n[0]), n[1]}
	default:
		return d, fmt.Errorf("%q is no date: write 2026-12-25, or 12-25 for every year", s)
	}
	if !d.exists() {
		hint := ""
		if d.Month > 12 && d.Day >= 1 && d.Day <= 12 {
			hint = ": the month comes first"
		}
		return d, fmt.Errorf("there is no day %s%s", s, hint)
	}
	return d, nil
}

// exists says whether the calendar has the day; that of every year in some year.
func (d Date) exists() bool {
	year := d.Year
	if year == 0 {
		year = 2024 // which has a 29 February
	}
	return d.Month >= 1 && d.Month <= 12 && d.Day >= 1 && DateOf(Date{year, d.Month, d.Day}.noon()) == Date{year, d.Month, d.Day}
}

// noon is a moment of the day, in UTC.
func (d Date) noon() time.Time { return time.Date(d.Year, d.Month, d.Day, 12, 0, 0, 0, time.UTC) }

// Weekday is the day's in the week.
func (d Date) Weekday() time.Weekday { return d.noon().Weekday() }

// Since is how many days d comes after another; negative: before.
func (d Date) Since(other Date) int { return int(d.noon().Sub(other.noon()) / (24 * time.Hour)) }

// Plus is the date so many days later.
func (d Date) Plus(days int) Date { return DateOf(d.noon().AddDate(0, 0, days)) }

// in is the day in a year; of one of every year, that of this year.
func (d Date) in(year int) Date {
	if d.Year == 0 {
		d.Year = year
	}
	return d
}

// before says whether d comes before e.
func (d Date) before(e Date) bool { return d.noon().Before(e.noon()) }
