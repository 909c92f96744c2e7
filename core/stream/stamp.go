package stream

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// layouts are the forms of a time, each with whether it says its offset. A fraction of a second may follow the seconds of each. Only such are taken as have the year
// first: of others it cannot be told what is the day and what the month.
var layouts = []struct {
	form  string
	zoned bool
}{
	{time.RFC3339Nano, true}, {time.DateTime, false}, {"2006-01-02T15:04:05", false}, {"2006-01-02 15:04:05Z07:00", true}, {"2006-01-02 15:04:05 Z07:00", true},
	{"2006-01-02 15:04:05 UTC", true}, {"2006-01-02T15:04:05Z0700", true}, {"2006-01-02 15:04:05Z0700", true}, {"2006-01-02 15:04:05 -0700", true},
	{"2006-01-02 15:04", false}, {"2006-01-02T15:04", false}, {"2006-01-02T15:04Z07:00", true}, {"2006-01-02 15:04Z07:00", true}, {time.DateOnly, false},
	{"2006/01/02 15:04:05", false}, {"2006/01/02 15:04", false}, {"2006/01/02", false},
}

// units are those of times since 1970: the magnitudes of each are of the years 1973 to 2261, and none has two.
var units = []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond}

var unitNames = map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds", time.Microsecond: "microseconds", time.Nanosecond: "nanoseconds"}

const (
	wantTime = "want RFC 3339, such as 2024-05-01T13:00:00Z, or seconds since 1970"
	// leastUnix and pastUnix bound seconds since 1970.
	leastUnix, pastUnix = 1e8, 1e10
	// firstYear and lastYear are such that the distance of any two times is a time.Duration.
	firstYear, lastYear = 1970, 2261
)

// mostUnix is the end of the last year, in nanoseconds since 1970.
var mostUnix = time.Date(lastYear+1, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// stamps reads the times of a trace.
type stamps struct {
	unit      time.Duration // of times since 1970; 0: none was read yet
	unitLine  int
	layout    int  // that was read last
	localTime bool // a time had no offset
}

// parse reads a time, in nanoseconds since 1970; why says what is wrong with it.
func (s *stamps) parse(text string, line int) (at int64, why string) {
	if len(text) < 5 || text[4] != '-' && text[4] != '/' {
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return s.since1970(text, v, line)
		}
	}
	t, ok := s.written(text)
	switch {
	case !ok:
		return 0, wantTime
	case t.Year() < firstYear || t.Year() > lastYear:
		return 0, fmt.Sprintf("want a year from %d to %d", firstYear, lastYear)
	}
	return t.UnixNano(), ""
}

// written reads a time in one of the layouts, that of the row before first.
func (s *stamps) written(text string) (time.Time, bool) {
	if len(text) < len("2006/01/02") || len(text) > 64 {
		return time.Time{}, false
	}
	if t, err := time.Parse(layouts[s.layout].form, text); err == nil {
		s.localTime = s.localTime || !layouts[s.layout].zoned
		return t, true
	}
	for i, l := range layouts {
		if t, err := time.Parse(l.form, text); err == nil {
			s.layout, s.localTime = i, s.localTime || !l.zoned
			return t, true
		}
	}
	return time.Time{}, false
}

// since1970 reads a number as a time, whose unit its magnitude tells.
func (s *stamps) since1970(text string, v float64, line int) (at int64, why string) {
	for _, u := range units {
		perSecond := float64(time.Second / u)
		if !(v >= leastUnix*perSecond && v < pastUnix*perSecond) {
			continue
		}
		if s.unit != 0 && s.unit != u {
			return 0, fmt.Sprintf("it is of %s since 1970, by its magnitude, and line %d of %s: want all of one unit", unitNames[u], s.unitLine, unitNames[s.unit])
		}
		at, ok := inNanoseconds(text, v, u)
		if !ok {
			break
		}
		if s.unit == 0 {
			s.unit, s.unitLine = u, line
		}
		return at, ""
	}
	return 0, "seconds since 1970 have 9 or 10 digits here, from 1973 to 2261, milliseconds 12 or 13, microseconds 15 or 16, nanoseconds 18 or 19"
}

// inNanoseconds is text, whose value is v, in nanoseconds: exactly where it is whole, or has a fraction of up to nine digits.
func inNanoseconds(text string, v float64, u time.Duration) (int64, bool) {
	if v*float64(u) >= float64(mostUnix) {
		return 0, false
	}
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	part, err2 := strconv.ParseFloat("0."+fraction, 64)
	if err != nil || err2 != nil || part >= 1 { // such as 1.7e9, which is not exact: to the microsecond
		return int64(math.Round(v*(float64(u)/1e3))) * 1e3, true
	}
	return n*int64(u) + int64(math.Round(part*float64(u))), true
}
