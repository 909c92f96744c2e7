package stream

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is one row of a trace.
type row struct {
	at   int64 // nanoseconds since 1970
	rate float64
	line int
}

func (r row) time() time.Time { return time.Unix(0, r.at).UTC() }

// rowParser turns the rows of a trace into times and rates, and remembers what it made of them.
type rowParser struct {
	name string
	csv  *csv.Reader
	skip int // lines before those that csv has seen
	line int // of the row that was read last

	binary  bool // the first row is no text
	columns columns
	stamps  stamps
	commas  bool // a comma may be a decimal one
	rows    []row
	comma   string // the first rate with a decimal comma
	commaAt int    // its line
	unknown int    // rows without a rate

	// What was done to the rows: the first line out of order, how many were left out and the first of them, the longest move.
	unsorted         int
	twice, twiceLine int
	snapped, usual   time.Duration // usual: the median distance of those that were moved

	// values are what the file has; restarts is how often a counter began anew, and restartLine where it did first.
	values                Values
	restarts, restartLine int
}

// wideText names the encoding of text of two bytes a character: by its mark, or where every other byte of its beginning is 0; "": it is none.
func wideText(br *bufio.Reader) string {
	head, _ := br.Peek(16) // what there is
	if len(head) < 4 {
		return ""
	}
	var zeros [2]int
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	switch half := len(head) / 2; {
	case head[0] == 0xff && head[1] == 0xfe && !(head[2] == 0 && head[3] == 0), zeros[1] == half && zeros[0] == 0:
		return "UTF-16LE"
	case head[0] == 0xfe && head[1] == 0xff, zeros[0] == (len(head)+1)/2 && zeros[1] == 0:
		return "UTF-16BE"
	}
	return ""
}

// parseRows reads all rows, in the order of the file.
func parseRows(name string, r io.Reader, values Values) (*rowParser, error) {
	b := &rowBound{r: r, left: longestRow}
	br := bufio.NewReaderSize(b, 1<<16)
	p := &rowParser{name: name, values: values}
	if code := wideText(br); code != "" {
		return nil, fmt.Errorf("%s:1:1: it is text in %s, and UTF-8 is read: save it as UTF-8 (CSV UTF-8 of a spreadsheet), or convert it with iconv -f %[2]s -t UTF-8", name, code)
	}
	var err error
	if p.skip, err = skipComments(br); err != nil && !errors.Is(err, io.EOF) {
		return nil, p.broken(err)
	}
	p.binary = binaryNext(br)
	b.left = longestRow
	p.csv = csv.NewReader(br)
	p.csv.Comma = separator(br)
	p.csv.FieldsPerRecord = -1
	p.csv.ReuseRecord = true
	p.csv.TrimLeadingSpace = p.csv.Comma != '\t'
	p.csv.Comment = '#'
	p.commas = p.csv.Comma != ','
	for first := true; ; first = false {
		fields, err := p.csv.Read()
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return nil, p.broken(err)
		}
		if b.left = longestRow; len(p.rows) >= maxBins {
			return nil, fmt.Errorf("%s:%d:1: more than %d rows: this is no curve", name, p.line, maxBins)
		}
		line, _ := p.csv.FieldPos(0)
		p.line = p.skip + line
		if first {
			named, err := p.chooseColumns(fields)
			if err != nil && p.binary {
				return nil, p.noText()
			}
			if err != nil {
				return nil, err
			}
			if named {
				continue
			}
		}
		if err := p.add(fields); err != nil {
			if first && p.binary {
				err = p.noText()
			}
			return nil, err
		}
	}
}

// binaryNext says whether the next row is no text, but bytes of another kind of file: it has control characters.
func binaryNext(r *bufio.Reader) bool {
	line, _ := r.Peek(r.Size()) // what is wrong with it, reading says
	line, _, _ = bytes.Cut(line, []byte("\n"))
	return slices.ContainsFunc(line, func(c byte) bool { return c < ' ' && c != '\t' && c != '\r' })
}

// noText says what a binary file is not.
func (p *rowParser) noText() error {
	return fmt.Errorf("%s:%d:1: this is no CSV file of lines \"timestamp,rate\": it is not text", p.name, p.skip+1)
}

// broken says where the rows end that can be read.
func (p *rowParser) broken(err error) error {
	var pe *csv.ParseError
	switch {
	case errors.Is(err, errEndless):
		return fmt.Errorf("%s:%d:1: %w: this is no curve", p.name, p.line+1, err)
	case p.binary:
		return p.noText()
	case errors.As(err, &pe):
		return fmt.Errorf("%s:%d:%d: %w", p.name, p.skip+pe.Line, pe.Column, pe.Err)
	}
	return fmt.Errorf("read the arrival curve %s: %w", p.name, err)
}

// add reads one row.
func (p *rowParser) add(fields []string) error {
	if len(fields) != p.columns.n {
		if p.columns.n == 2 {
			return fmt.Errorf("%s:%d:1: %d columns; want 2: timestamp,rate", p.name, p.line, len(fields))
		}
		return fmt.Errorf("%s:%d:1: %d columns; the first row has %d", p.name, p.line, len(fields), p.columns.n)
	}
	text := strings.TrimSpace(fields[p.columns.rate])
	if text == "" || strings.EqualFold(text, "null") {
		p.unknown++
		return nil
	}
	at, why := p.stamps.parse(strings.TrimSpace(fields[p.columns.time]), p.line)
	if why != "" {
		return fmt.Errorf("%s: timestamp %q: %s", p.place(p.columns.time), fields[p.columns.time], why)
	}
	rate, err := p.number(text)
	if err != nil || rate < 0 || math.IsNaN(rate) || math.IsInf(rate, 0) {
		return fmt.Errorf("%s: rate %q: want a number of events per second, 0 or more (leave the row out where it is not known)", p.place(p.columns.rate), fields[p.columns.rate])
	}
	if rate > mostRate && p.values != Counter {
		return fmt.Errorf("%s: rate %q: want at most %g events per second (of a counter -counter takes what is added from row to row)", p.place(p.columns.rate), fields[p.columns.rate], mostRate)
	}
	p.rows = append(p.rows, row{at, rate, p.line})
	return nil
}

// number reads a rate, with a decimal comma where that may be.
func (p *rowParser) number(text string) (float64, error) {
	if p.commas && strings.Count(text, ",") == 1 && !strings.Contains(text, ".") {
		if p.comma == "" {
			p.comma, p.commaAt = strings.Clone(text), p.line
		}
		text = strings.Replace(text, ",", ".", 1)
	}
	return strconv.ParseFloat(text, 64)
}

// place is name:line:column of a field of the row that was read last.
func (p *rowParser) place(field int) string {
	line, column := p.csv.FieldPos(field)
	return fmt.Sprintf("%s:%d:%d", p.name, p.skip+line, column)
}

// said is what has to be known of what was made of the rows, in bins of step.
func (p *rowParser) said(step time.Duration) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, p.name+": "+fmt.Sprintf(format, args...)) }
	if u := p.stamps.unit; u > 0 && u < time.Second {
		say("the timestamps are taken as %s since 1970, by their magnitude: the first is %s.", unitNames[u], p.rows[0].time().Format(time.RFC3339Nano))
	}
	if p.columns.counts != "" {
		say("the column %q is taken as events per second; where it counts the events of a bin, divide it by %v.", p.columns.counts, step.Seconds())
	}
	if p.values == Counter {
		say("the values are taken as a counter: the rate of a bin is what was added to the next row.")
		if !slices.ContainsFunc(p.rows, func(r row) bool { return r.rate > 0 }) {
			say("the counter never grows: nothing arrived. Is it the right column, and was anything counted then?")
		}
	}
	switch {
	case p.restarts == 1:
		say("the counter begins anew on line %d: the bin before is a gap.", p.restartLine)
	case p.restarts > 1:
		say("the counter begins anew %d times, first on line %d: the bins before are gaps.", p.restarts, p.restartLine)
	}
	if p.columns.n > 2 {
		say("of %d columns, %q and %q are read.", p.columns.n, p.columns.timeName, p.columns.rateName)
	}
	if p.comma != "" {
		say("the comma in rates is taken as a decimal one: %q on line %d is %s.", p.comma, p.commaAt, strings.Replace(p.comma, ",", ".", 1))
	}
	if p.unsorted > 0 {
		say("the rows are not in order of time, the first on line %d: they were sorted.", p.unsorted)
	}
	switch {
	case p.twice == 1:
		say("line %d says the same as another, and was left out.", p.twiceLine)
	case p.twice > 1:
		clocks := ""
		if p.stamps.localTime && p.unsorted > 0 {
			clocks = "; where they are of the hour that is lived twice when clocks are put back, the times are local, and those after it are an hour early: write times in UTC or with their offset, such as 02:30:00+02:00"
		}
		say("%d rows say the same as another, the first on line %d, and were left out%s.", p.twice, p.twiceLine, clocks)
	}
	if p.snapped > 0 {
		taken := ""
		if off := (p.usual - step).Round(time.Millisecond); off != 0 {
			taken = fmt.Sprintf(", for which their median distance of %v is taken", step+off)
		}
		say("the timestamps were moved onto bins of %v%s, by %v at most.", step, taken, p.snapped.Round(time.Millisecond))
	}
	p.sayJump(step, say)
	p.saySkipped(step, say)
	switch {
	case p.unknown == 1:
		say("a row without a rate was taken as a gap.")
	case p.unknown > 1:
		say("%d rows without a rate were taken as gaps.", p.unknown)
	}
	return out
}

// jumpLeast is of how many bins a gap is told that is longer than all the rest of a trace: one of a few bins does no harm.
const jumpLeast = 300

// sayJump tells where the rows jump by more than all the rest of the trace is long, as by a clock that was set wrong.
func (p *rowParser) sayJump(step time.Duration, say func(format string, args ...any)) {
	rows := p.rows
	longest := 1
	for i := 2; i < len(rows); i++ {
		if rows[i].at-rows[i-1].at > rows[longest].at-rows[longest-1].at {
			longest = i
		}
	}
	before, after := rows[longest-1], rows[longest]
	gap, span := after.at-before.at, rows[len(rows)-1].at-rows[0].at
	if gap <= span-gap || gap/int64(step) < jumpLeast {
		return
	}
	where := fmt.Sprintf("from %s on line %d to %s on line %d there is no rate, which is longer than all the rest", before.time().Format(time.RFC3339), before.line, after.time().Format(time.RFC3339), after.line)
	switch {
	case longest == len(rows)-1:
		say("%s: line %d alone is of that time; if it is wrong, take the line out.", where, after.line)
	case longest == 1:
		say("%s: line %d alone is of before; if that time is wrong, take the line out.", where, before.line)
	default:
		say("%s: if a clock was set wrong there, mend the times after it, or take out the rows on one side.", where)
	}
}

// saySkipped tells of an hour without rows that may be the one that clocks skip when they are put forward: at night, on a Sunday, as nearly everywhere, where times
// have no offset.
func (p *rowParser) saySkipped(step time.Duration, say func(format string, args ...any)) {
	if !p.stamps.localTime {
		return
	}
	for i, after := range p.rows[1:] {
		before := p.rows[i]
		if d := time.Duration(after.at - before.at); (d - step - time.Hour).Abs() >= step/4 {
			continue
		}
		from := before.time().Add(step).Round(min(step, time.Hour))
		if from.Weekday() == time.Sunday && from.Hour() <= 3 && from.Minute() == 0 && from.Second() == 0 {
			say("from %s to %s there is no rate: where that is the hour that is skipped when clocks are put forward, the times are local, and those after it are an hour late; "+
				"write times in UTC or with their offset, such as 03:00:00+02:00.", from.Format("2006-01-02 15:04"), from.Add(time.Hour).Format("15:04"))
			return
		}
	}
}
