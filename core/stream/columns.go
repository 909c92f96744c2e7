package stream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// columns are those of a trace that are read.
type columns struct {
	n, time, rate      int
	timeName, rateName string // "" without a row of names
	counts             string // the rate's name where it may mean events of a bin, not a second
}

// Names of columns, as normal writes them; those of the first list go before those of the second. [ours, from what exporters write]
var (
	timeNames = [][]string{
		{"timestamp", "@timestamp", "_timestamp", "ts", "_time", "datetime", "date_time", "unix", "unixtime", "unix_time", "epoch"},
		{"time", "date"},
	}
	rateNames = [][]string{
		{"rate", "events_per_second", "events/s", "requests_per_second", "requests/s", "records_per_second", "records/s", "rps", "qps", "eps"},
		{"value", "_value", "events", "count", "requests", "records", "messages", "hits"},
	}
)

// countNames are words by which a column may count the events of a bin.
var countNames = []string{"count", "counts", "requests", "events", "records", "messages", "hits", "total"}

const byteMark = "\ufeff"

// skipComments reads over a byte order mark and over comments and empty lines, and says how many lines those were.
func skipComments(r *bufio.Reader) (lines int, err error) {
	if mark, err := r.Peek(len(byteMark)); err == nil && string(mark) == byteMark {
		_, _ = r.Discard(len(mark)) // it is there
	}
	for {
		next, err := r.Peek(1)
		if err != nil {
			return lines, err
		}
		if next[0] != '#' && next[0] != '\n' && next[0] != '\r' {
			return lines, nil
		}
		for err = bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			return lines, err
		}
		lines++
	}
}

// separator is what separates the columns of the next line: a tab, a semicolon or a comma.
func separator(r *bufio.Reader) rune {
	line, _ := r.Peek(r.Size()) // what is wrong with it, reading says
	line, _, _ = bytes.Cut(line, []byte("\n"))
	var bare []byte // without what is in quotes
	quoted := false
	for _, c := range line {
		if c == '"' {
			quoted = !quoted
		} else if !quoted {
			bare = append(bare, c)
		}
	}
	for _, c := range []byte("\t;") {
		if i := bytes.IndexByte(bare, c); i >= 0 && (i == 0 || c != '\t' || (bare[i-1] != ',' && bare[i-1] != ';')) {
			return rune(c)
		}
	}
	return ','
}

// chooseColumns finds the columns by the first row, and says whether that names them.
func (p *rowParser) chooseColumns(first []string) (named bool, err error) {
	c := &p.columns
	*c = columns{n: len(first), time: 0, rate: 1}
	switch {
	case c.n < 2:
		return false, fmt.Errorf("%s:%d:1: %d columns; want 2: timestamp,rate", p.name, p.line, c.n)
	case c.n == 2:
		named = p.namesTwo(first)
	default:
		named = !slices.ContainsFunc(first, func(s string) bool { return isTime(s) || p.isNumber(s) })
	}
	if !named && c.n > 2 {
		return false, fmt.Errorf("%s:%d:1: %d columns, and no row of names says which of them are the time and the rate: write one above the first, such as timestamp,rate, or keep only those two",
			p.name, p.line, c.n)
	}
	if !named {
		return false, nil
	}
	at, rate := choose(first, timeNames), choose(first, rateNames)
	switch {
	case c.n > 2 && (at < 0 || rate < 0 || at == rate):
		return true, p.undecided(first, at, rate)
	case c.n > 2:
		c.time, c.rate = at, rate
	case at == 1 && rate != 1, rate == 0 && at != 0:
		c.time, c.rate = 1, 0
	}
	c.timeName, c.rateName = strings.TrimSpace(first[c.time]), strings.TrimSpace(first[c.rate])
	c.timeName, c.rateName = strings.Clone(c.timeName), strings.Clone(c.rateName)
	if mayCount(c.rateName) {
		c.counts = c.rateName
	}
	return true, nil
}

// undecided says that the names of the columns do not tell which are meant, and lists them.
func (p *rowParser) undecided(names []string, at, rate int) error {
	lack := "which is the time and which the rate"
	switch {
	case at >= 0 && rate < 0:
		lack = fmt.Sprintf("which is the rate (the time is %q)", names[at])
	case rate >= 0 && at < 0:
		lack = fmt.Sprintf("which is the time (the rate is %q)", names[rate])
	}
	list := make([]string, min(len(names), mostListed))
	for i := range list {
		list[i] = fmt.Sprintf("%d %q", i+1, names[i])
	}
	more := ""
	if len(names) > len(list) {
		more = fmt.Sprintf(" and %d more", len(names)-len(list))
	}
	by := "-d'" + string(p.csv.Comma) + "' "
	if p.csv.Comma == '\t' {
		by = ""
	}
	return fmt.Errorf("%s:%d:1: the names of the %d columns do not tell %s: %s%s; name one timestamp and one rate, or keep only those two, as with cut %s-f1,2",
		p.name, p.line, len(names), lack, strings.Join(list, ", "), more, by)
}

// mostListed is how many columns are listed.
const mostListed = 20

// choose is the only column with a name of the first list, or else of the second; -1 where there is none, or more.
func choose(names []string, lists [][]string) int {
	for _, list := range lists {
		found := -1
		for i, name := range names {
			if !slices.Contains(list, normal(name)) {
				continue
			}
			if found >= 0 {
				return -1
			}
			found = i
		}
		if found >= 0 {
			return found
		}
	}
	return -1
}

// normal is a name of a column in small letters, its words joined by one mark.
func normal(name string) string {
	return strings.NewReplacer(" ", "_", "-", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
}

// mayCount says that by its name a column may count the events of a bin, not those of a second.
func mayCount(name string) bool {
	words := strings.FieldsFunc(normal(name), func(r rune) bool { return r == '_' || r == '(' || r == ')' || r == '.' })
	if slices.ContainsFunc(words, func(w string) bool {
		return strings.HasSuffix(w, "/s") || strings.HasSuffix(w, "/sec") || strings.HasPrefix(w, "sec") || w == "rate"
	}) {
		return false
	}
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(countNames, w) })
}

// namesTwo reports whether a first row of two names the columns: the first is no time, and is known as the name of one or stands beside what is no number.
func (p *rowParser) namesTwo(row []string) bool {
	if isTime(row[0]) || isTime(row[1]) && p.isNumber(row[0]) {
		return false
	}
	return slices.Contains(slices.Concat(timeNames...), normal(row[0])) || !p.isNumber(row[1])
}

func isTime(s string) bool {
	var t stamps
	_, why := t.parse(strings.TrimSpace(s), 1)
	return why == ""
}

func (p *rowParser) isNumber(s string) bool {
	s = strings.TrimSpace(s)
	if p.commas {
		s = strings.Replace(s, ",", ".", 1)
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}
