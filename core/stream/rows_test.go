package stream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

func hours(step time.Duration, rates ...float64) Curve {
	return Curve{Start: start, Step: step, Rates: rates}
}

// exports are traces as programs write them, what becomes of each, and what is said of it.
var exports = map[string]struct {
	text  string
	want  Curve
	notes []string // without the file's name
	fail  string
}{
	"seconds with a fraction": {text: "1714521600.000,1\n1714521660.000,2\n", want: minutes(1, 2)},
	"seconds of pandas":       {text: "1.7145216e+09,1\n1.71452166e+09,2\n", want: minutes(1, 2)},
	"milliseconds": {text: "timestamp,rate\n1714521600000,1\n1714521660000,2\n", want: minutes(1, 2),
		notes: []string{"the timestamps are taken as milliseconds since 1970, by their magnitude: the first is 2024-05-01T00:00:00Z."}},
	"microseconds": {text: "1714521600000000,1\n1714521660000000,2\n", want: minutes(1, 2),
		notes: []string{"the timestamps are taken as microseconds since 1970, by their magnitude: the first is 2024-05-01T00:00:00Z."}},
	"nanoseconds": {text: "1714521600000000000,1\n1714521660000000000,2\n", want: minutes(1, 2),
		notes: []string{"the timestamps are taken as nanoseconds since 1970, by their magnitude: the first is 2024-05-01T00:00:00Z."}},
	"two units": {text: "1714521600,1\n1714521660000,2\n", fail: `t.csv:2:1: timestamp "1714521660000": it is of milliseconds since 1970, by its magnitude, and line 1 of seconds: want all of one unit`},
	"between two units": {text: "17145216000,1\n", fail: `t.csv:1:1: timestamp "17145216000": seconds since 1970 have 9 or 10 digits here, from 1973 to 2261, milliseconds 12 or 13, ` +
		"microseconds 15 or 16, nanoseconds 18 or 19"},
	"after the last year":   {text: "9999999999,1\n", fail: `t.csv:1:1: timestamp "9999999999": ` + sinceWords},
	"days":                  {text: "date,rate\n2024-05-01,1\n2024-05-02,2\n", want: hours(24*time.Hour, 1, 2)},
	"a T and no offset":     {text: "2024-05-01T00:00:00,1\n2024-05-01T00:01:00.000,2\n", want: minutes(1, 2)},
	"to the minute":         {text: "2024-05-01 00:00,1\n2024-05-01 00:01,2\n", want: minutes(1, 2)},
	"of pandas":             {text: "2024-05-01 00:00:00+00:00,1\n2024-05-01 00:01:00+00:00,2\n", want: minutes(1, 2)},
	"of BigQuery":           {text: "2024-05-01 00:00:00 UTC,1\n2024-05-01 00:01:00 UTC,2\n", want: minutes(1, 2)},
	"with slashes":          {text: "2024/05/01 00:00:00,1\n2024/05/01 00:01:00,2\n", want: minutes(1, 2)},
	"the day first":         {text: "01.05.2024 00:00,1\n", fail: `t.csv:1:1: timestamp "01.05.2024 00:00": want RFC 3339, such as 2024-05-01T13:00:00Z, or seconds since 1970`},
	"before 1970":           {text: "1960-05-01,1\n", fail: `t.csv:1:1: timestamp "1960-05-01": want a year from 1970 to 2261`},
	"semicolons":            {text: "time;rate\n2024-05-01T00:00:00Z;1.5\n2024-05-01T00:01:00Z;2\n", want: minutes(1.5, 2)},
	"tabs":                  {text: "2024-05-01T00:00:00Z\t1.5\n2024-05-01T00:01:00Z\t2\n", want: minutes(1.5, 2)},
	"a tab after the comma": {text: "timestamp,\trate\n2024-05-01T00:00:00Z,\t1\n2024-05-01T00:01:00Z,\t2\n", want: minutes(1, 2)},
	"a decimal comma": {text: "time;rate\n2024-05-01T00:00:00Z;1\n2024-05-01T00:01:00Z;2,5\n", want: minutes(1, 2.5),
		notes: []string{`the comma in rates is taken as a decimal one: "2,5" on line 3 is 2.5.`}},
	"thousands":      {text: "2024-05-01T00:00:00Z;1,000.5\n", fail: `t.csv:1:22: rate "1,000.5": want a number of events per second, 0 or more (leave the row out where it is not known)`},
	"quotes":         {text: "\ufeff\"Time\",\"rate\"\r\n\"2024-05-01 00:00:00\",\"1\"\r\n\"2024-05-01 00:01:00\",\"2\"\r\n", want: minutes(1, 2)},
	"a quoted comma": {text: "\"time\";\"rate, all; of it\"\n2024-05-01T00:00:00Z;1\n2024-05-01T00:01:00Z;2\n", want: minutes(1, 2)},
	"comments before the separator": {text: "# a;b\n\n#\ttab\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,x\n",
		fail: `t.csv:5:22: rate "x": want a number of events per second, 0 or more (leave the row out where it is not known)`},
	"the rate first": {text: "rate,timestamp\n1,2024-05-01T00:00:00Z\n2,2024-05-01T00:01:00Z\n", want: minutes(1, 2)},
	"of InfluxDB": {text: "#group,false,false\n,result,table,_time,_value\n,,0,2024-05-01T00:00:00Z,1\n,,0,2024-05-01T00:01:00Z,2\n", want: minutes(1, 2),
		notes: []string{`of 5 columns, "_time" and "_value" are read.`}},
	"an index of pandas": {text: ",timestamp,count\n0,2024-05-01T00:00:00Z,60\n1,2024-05-01T00:01:00Z,120\n", want: minutes(60, 120),
		notes: []string{`the column "count" is taken as events per second; where it counts the events of a bin, divide it by 60.`, `of 3 columns, "timestamp" and "count" are read.`}},
	"a count of Kibana": {text: "@timestamp per minute,Count of records\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2),
		notes: []string{`the column "Count of records" is taken as events per second; where it counts the events of a bin, divide it by 60.`}},
	"a rate beside a count": {text: "time,count,rate\n2024-05-01T00:00:00Z,60,1\n2024-05-01T00:01:00Z,120,2\n", want: minutes(1, 2),
		notes: []string{`of 3 columns, "time" and "rate" are read.`}},
	"requests a second": {text: "time,requests per second\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2)},
	"series of Grafana": {text: "Time,eu,us\n2024-05-01T00:00:00Z,1,2\n",
		fail: `t.csv:1:1: the names of the 3 columns do not tell which is the rate (the time is "Time"): 1 "Time", 2 "eu", 3 "us"; name one timestamp and one rate, or keep only those two, as with cut -d',' -f1,2`},
	"date and time apart": {text: "date;time;rate\n2024-05-01;00:00;1\n",
		fail: `t.csv:1:1: the names of the 3 columns do not tell which is the time (the rate is "rate"): 1 "date", 2 "time", 3 "rate"; name one timestamp and one rate, or keep only those two, as with cut -d';' -f1,2`},
	"three columns without names": {text: "2024-05-01T00:00:00Z,1,2\n",
		fail: "t.csv:1:1: 3 columns, and no row of names says which of them are the time and the rate: write one above the first, such as timestamp,rate, or keep only those two"},
	"a short row of three": {text: "time,rate,host\n2024-05-01T00:00:00Z,1\n", fail: "t.csv:2:1: 2 columns; the first row has 3"},
	"an hour that clocks skip": {text: "2024-03-31 01:00,1\n2024-03-31 01:30,2\n2024-03-31 03:00,3\n2024-03-31 03:30,4\n",
		want: Curve{Start: time.Date(2024, 3, 31, 1, 0, 0, 0, time.UTC), Step: 30 * time.Minute, Rates: []float64{1, 2, nan, nan, 3, 4}},
		notes: []string{"from 2024-03-31 02:00 to 03:00 there is no rate: where that is the hour that is skipped when clocks are put forward, the times are local, and those after it are an hour late; " +
			"write times in UTC or with their offset, such as 03:00:00+02:00."}},
	"the same hour in UTC": {text: "2024-03-31T01:00Z,1\n2024-03-31T01:30Z,2\n2024-03-31T03:00Z,3\n", // these say that they are not local
		want: Curve{Start: time.Date(2024, 3, 31, 1, 0, 0, 0, time.UTC), Step: 30 * time.Minute, Rates: []float64{1, 2, nan, nan, 3}}},
	"an hour of a Monday": {text: "2024-04-01 01:00,1\n2024-04-01 01:30,2\n2024-04-01 03:00,3\n",
		want: Curve{Start: time.Date(2024, 4, 1, 1, 0, 0, 0, time.UTC), Step: 30 * time.Minute, Rates: []float64{1, 2, nan, nan, 3}}},
	"newest first": {text: "timestamp,rate\n2024-05-01T00:01:00Z,2\n2024-05-01T00:00:00Z,1\n", want: minutes(1, 2),
		notes: []string{"the rows are not in order of time, the first on line 3: they were sorted."}},
	"twice the same": {text: "2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2),
		notes: []string{"line 3 says the same as another, and was left out."}},
	"two files in one": {text: "2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2), notes: []string{
		"the rows are not in order of time, the first on line 3: they were sorted.", "2 rows say the same as another, the first on line 3, and were left out."}},
	"an hour lived twice, of which nothing changed": {text: "2024-10-27 02:00:00,1\n2024-10-27 02:30:00,2\n2024-10-27 02:00:00,1\n2024-10-27 02:30:00,2\n2024-10-27 03:00:00,3\n",
		want: Curve{Start: time.Date(2024, 10, 27, 2, 0, 0, 0, time.UTC), Step: 30 * time.Minute, Rates: []float64{1, 2, 3}},
		notes: []string{"the rows are not in order of time, the first on line 3: they were sorted.",
			"2 rows say the same as another, the first on line 3, and were left out; where they are of the hour that is lived twice when clocks are put back, the times are local, and those after it are an hour early: write times in UTC or with their offset, such as 02:30:00+02:00."}},
	"one time only": {text: "2024-05-01T00:00:00Z,1\n2024-05-01T00:00:00Z,1\n", fail: "t.csv:2:1: all rows are of one time; a curve needs at least 2, to know the length of a bin"},
	"clocks put back": {text: "2024-10-27 02:00:00,1\n2024-10-27 02:30:00,2\n2024-10-27 02:00:00,3\n2024-10-27 02:30:00,4\n",
		fail: "t.csv:3:1: 2024-10-27T02:00:00Z has a rate of 3 here and of 1 on line 1: keep the right one; where it is the hour that is lived twice when clocks are put back, " +
			"write times in UTC or with their offset, such as 02:30:00+02:00"},
	"a scraper": {text: "1714521601,1\n1714521659,2\n1714521722,3\n1714521840,5\n", want: minutes(1, 2, 3, nan, 5),
		notes: []string{"the timestamps were moved onto bins of 1m0s, for which their median distance of 1m3s is taken, by 2s at most."}},
	"a scraper at the half minute": {text: "1714521630.2,1\n1714521689.9,2\n1714521750.1,3\n", want: Curve{Start: start.Add(30 * time.Second), Step: time.Minute, Rates: []float64{1, 2, 3}},
		notes: []string{"the timestamps were moved onto bins of 1m0s, for which their median distance of 59.7s is taken, by 200ms at most."}},
	"two in one bin": {text: "1714521600000,1\n1714521600001,1\n1714608000000,2\n1714694400000,2\n", fail: "t.csv:2:1: 2024-05-01T00:00:00.001Z lies in the bin of 24h0m0s that line 1 has: keep one of them"},
	"few of many":    {text: "1714521600,1\n1714521660,2\n1714524000,3\n1714531260,4\n", want: sparse(minutes(), map[int]float64{0: 1, 1: 2, 40: 3, 161: 4})},
	"no rate": {text: "time,rate\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,\n2024-05-01T00:02:00Z,null\n2024-05-01T00:03:00Z,2\n2024-05-01T00:04:00Z,2\n", want: minutes(1, nan, nan, 2, 2),
		notes: []string{"2 rows without a rate were taken as gaps."}},
	"more than anybody has": {text: "2024-05-01T00:00:00Z,1e13\n", fail: `t.csv:1:22: rate "1e13": want at most 1e+12 events per second (of a counter -counter takes what is added from row to row)`},
}

const sinceWords = "seconds since 1970 have 9 or 10 digits here, from 1973 to 2261, milliseconds 12 or 13, microseconds 15 or 16, nanoseconds 18 or 19"

// sparse is c with rates in some of its bins, and gaps between.
func sparse(c Curve, rates map[int]float64) Curve {
	for i := range rates {
		for len(c.Rates) <= i {
			c.Rates = append(c.Rates, math.NaN())
		}
	}
	for i, r := range rates {
		c.Rates[i] = r
	}
	return c
}

func TestExports(t *testing.T) {
	for name, tt := range exports {
		t.Run(name, func(t *testing.T) {
			notes := checkCurve(t, tt.text, tt.want, tt.fail)
			for i := range notes {
				notes[i] = strings.TrimPrefix(notes[i], "t.csv: ")
			}
			if diff := cmp.Diff(tt.notes, notes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every scrape within a quarter of a bin of a grid is moved onto it, whatever the grid's length and phase; one that is further off is refused.
func TestJitter(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, time.Hour} {
		for _, phase := range []time.Duration{0, step / 3, step - 1} {
			for _, worst := range []float64{0.2, 0.3} {
				var b strings.Builder
				for i := range 200 {
					off := time.Duration(0.2 * math.Sin(float64(i)) * float64(step))
					if i == 100 {
						off = time.Duration(worst * float64(step))
					}
					if i%17 != 3 { // some are missing
						fmt.Fprintf(&b, "%d,%d\n", start.Add(phase+time.Duration(i)*step+off).UnixNano(), i)
					}
				}
				c, _, err := ParseCurve("t.csv", strings.NewReader(b.String()), RatesOnly)
				if worst > 0.25 {
					if err == nil {
						t.Errorf("bins of %v from %v: a row that is %.0f %% off is taken", step, phase, 100*worst)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range c.Rates {
					if c.Step != step || len(c.Rates) != 200 || (i%17 == 3) != math.IsNaN(r) || (!math.IsNaN(r) && r != float64(i)) {
						t.Fatalf("bins of %v from %v: %d bins of %v, the %dth with %v", step, phase, len(c.Rates), c.Step, i, r)
					}
				}
			}
		}
	}
}

// Where rows jump by more than the rest is long, as by a clock that was wrong, the lines of it are named; where there is no rate for as long as that alone, nothing is.
func TestJumps(t *testing.T) {
	t.Parallel()
	row := func(day, minute int) string {
		return start.AddDate(0, 0, day).Add(time.Duration(minute)*time.Minute).Format(time.RFC3339) + ",1\n"
	}
	hour := func(day int) (out string) {
		for minute := range 60 {
			out += row(day, minute)
		}
		return out
	}
	for name, c := range map[string]struct{ text, want string }{
		"a clock that was set": {hour(0) + hour(400), "t.csv: from 2024-05-01T00:59:00Z on line 60 to 2025-06-05T00:00:00Z on line 61 there is no rate, which is longer than all the rest: " +
			"if a clock was set wrong there, mend the times after it, or take out the rows on one side."},
		"a row of another year": {row(0, 0) + row(7000, 0) + row(0, 1) + row(0, 2), "line 2 alone is of that time; if it is wrong, take the line out."},
		"a row from before":     {hour(3000) + row(0, 5), "line 61 alone is of before; if that time is wrong, take the line out."},
		"days without":          {hour(0) + hour(1) + hour(2), ""},
		"a few minutes":         {row(0, 0) + row(0, 1) + row(0, 50), ""},
	} {
		_, notes, err := ParseCurve("t.csv", strings.NewReader(c.text), RatesOnly)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		said := strings.Join(notes, "\n")
		if c.want == "" && strings.Contains(said, "no rate") || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
}

// A trace of two bytes a character, as spreadsheets save it, is told by its encoding.
func TestWideTextIsNamed(t *testing.T) {
	units := utf16.Encode([]rune("timestamp,rate\n2024-05-01T00:00:00Z,1\n"))
	for code, order := range map[string]binary.AppendByteOrder{"UTF-16LE": binary.LittleEndian, "UTF-16BE": binary.BigEndian} {
		for _, mark := range [][]uint16{nil, {0xfeff}} {
			var raw []byte
			for _, u := range append(mark, units...) {
				raw = order.AppendUint16(raw, u)
			}
			if _, _, err := ParseCurve("t.csv", bytes.NewReader(raw), RatesOnly); err == nil || !strings.Contains(err.Error(), "t.csv:1:1: it is text in "+code+", and UTF-8 is read") {
				t.Errorf("%s, mark %v: %v", code, mark, err)
			}
		}
	}
}

// Rows that are some seconds off a grid have the width of its bins, and not that of the median distance, from which a long trace would drift away: it is told for what that is taken.
func TestJitteredWidths(t *testing.T) {
	t.Parallel()
	for _, want := range []time.Duration{100 * time.Second, 97 * time.Second, 7 * time.Minute, 450 * time.Millisecond, time.Minute, 25 * time.Minute, 12 * time.Minute, 97300 * time.Millisecond} {
		for _, n := range []int{40, 20_000} {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			var b strings.Builder
			for i := range n {
				off := time.Duration(0.1 * (2*rng.Float64() - 1) * float64(want))
				if i%50 != 20 { // some are missing
					fmt.Fprintf(&b, "%d,%d\n", start.Add(time.Duration(i)*want+off).UnixNano(), i)
				}
			}
			c, notes, err := ParseCurve("t.csv", strings.NewReader(b.String()), Rates)
			if err != nil {
				t.Errorf("%d bins of %v: %v", n, want, err)
				continue
			}
			said := strings.Join(notes, "\n")
			if n > 1000 && c.Step != want || (c.Step-want).Abs() > want/100 || len(c.Rates) != n || !strings.Contains(said, fmt.Sprintf("moved onto bins of %v, for which their median distance of ", c.Step)) {
				t.Errorf("%d bins of %v are read as %d of %v: %s", n, want, len(c.Rates), c.Step, said)
			}
			for i, r := range c.Rates {
				if !math.IsNaN(r) && r != float64(i) {
					t.Fatalf("%d bins of %v: the %dth has %v", n, want, i, r)
				}
			}
		}
	}
}
