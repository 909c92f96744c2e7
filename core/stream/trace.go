package stream

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxBins bounds what one wrong timestamp can make of a trace: 1-minute bins for 95 years.
const maxBins = 50_000_000

// ReadCurve reads a trace from a CSV file, gzip-compressed where its name ends in .gz. See [ParseCurve]. A pipe that nobody writes to is waited for, until ctx is
// done; what is neither a pipe nor an ordinary file, such as a device, is refused: it may never end.
func ReadCurve(ctx context.Context, path string) (Curve, error) {
	type result struct {
		c   Curve
		err error
	}
	done := make(chan result, 1)
	go func() { // what opens or reads a pipe cannot be interrupted: it is left behind
		c, err := readCurve(path)
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		return r.c, r.err
	case <-ctx.Done():
		return Curve{}, fmt.Errorf("read the arrival curve %s: %w", path, ctx.Err())
	}
}

func readCurve(path string) (Curve, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return Curve{}, fmt.Errorf("read the arrival curve: %w", err)
	case info.IsDir():
		return Curve{}, fmt.Errorf("read the arrival curve %s: it is a folder: name a file in it", path)
	case !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0:
		return Curve{}, fmt.Errorf("read the arrival curve %s: it is neither an ordinary file nor a pipe: name a file of lines \"timestamp,rate\"", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return Curve{}, fmt.Errorf("read the arrival curve: %w", err)
	}
	defer f.Close()
	var r io.Reader = bufio.NewReaderSize(f, 1<<16)
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(r); err != nil { // it has nothing to close: the file has
			return Curve{}, fmt.Errorf("read the arrival curve %s: its name says gzip, its content does not: %w", path, err)
		}
	}
	return ParseCurve(path, r)
}

// ParseCurve reads a trace of lines "timestamp,rate": the start of a bin (RFC 3339, such as 2024-05-01T13:00:00Z, or
// 2024-05-01 13:00:00 taken as UTC, or seconds since 1970) and its events per second. A first line that names the columns
// is skipped. Lines are in order of time; the shortest distance between two is the bin's length, and all are whole bins apart. A missing
// bin is a gap (NaN). Errors begin with name:line:column, as compilers' do.
func ParseCurve(name string, r io.Reader) (Curve, error) {
	at, rates, lines, err := parseRows(name, r)
	if err != nil {
		return Curve{}, err
	}
	if len(at) < 2 {
		return Curve{}, fmt.Errorf("%s:%d:1: %d rows; a curve needs at least 2, to know the length of a bin", name, max(1, last(lines)), len(at))
	}
	step := at[1].Sub(at[0])
	for i := 1; i < len(at); i++ {
		step = min(step, at[i].Sub(at[i-1]))
	}
	c := Curve{Start: at[0], Step: step}
	if bins := at[len(at)-1].Sub(at[0])/step + 1; bins > maxBins {
		return Curve{}, fmt.Errorf("%s:%d:1: from %s to %s in bins of %v are %d bins; that looks like a wrong timestamp",
			name, last(lines), at[0].Format(time.RFC3339), at[len(at)-1].Format(time.RFC3339), step, bins)
	}
	for i, t := range at {
		d := t.Sub(c.Start)
		if d%step != 0 {
			return Curve{}, fmt.Errorf("%s:%d:1: %s is not a whole number of bins of %v after the first row", name, lines[i], t.Format(time.RFC3339), step)
		}
		for len(c.Rates) < int(d/step) {
			c.Rates = append(c.Rates, math.NaN())
		}
		c.Rates = append(c.Rates, rates[i])
	}
	return c, nil
}

// longestRow bounds what is read from the end of a row to the end of the next one, comments included.
const longestRow = 16 << 20

var errEndless = fmt.Errorf("no row ends within %d MiB", longestRow>>20)

// rowBound reads no more than what is left for a row, which its user sets anew with each.
type rowBound struct {
	r    io.Reader
	left int
}

func (b *rowBound) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errEndless
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}

func parseRows(name string, r io.Reader) (at []time.Time, rates []float64, lines []int, err error) {
	b := &rowBound{r: r, left: longestRow}
	cr := csv.NewReader(b)
	cr.FieldsPerRecord = -1
	cr.ReuseRecord = true
	cr.TrimLeadingSpace = true
	cr.Comment = '#'
	for first := true; ; first = false {
		row, err := cr.Read()
		if errors.Is(err, io.EOF) {
			return at, rates, lines, nil
		}
		if errors.Is(err, errEndless) {
			return nil, nil, nil, fmt.Errorf("%s:%d:1: %w: this is no curve", name, last(lines)+1, err)
		}
		if b.left = longestRow; len(at) >= maxBins {
			return nil, nil, nil, fmt.Errorf("%s:%d:1: more than %d rows: this is no curve", name, last(lines), maxBins)
		}
		if err != nil {
			var pe *csv.ParseError
			if errors.As(err, &pe) {
				return nil, nil, nil, fmt.Errorf("%s:%d:%d: %w", name, pe.Line, pe.Column, pe.Err)
			}
			return nil, nil, nil, fmt.Errorf("read the arrival curve %s: %w", name, err)
		}
		line, _ := cr.FieldPos(0)
		if first && names(row) {
			continue
		}
		if len(row) != 2 {
			return nil, nil, nil, fmt.Errorf("%s:%d:1: %d columns; want 2: timestamp,rate", name, line, len(row))
		}
		t, err := parseTime(strings.TrimSpace(row[0]))
		if _, notWhole := strconv.ParseInt(strings.TrimSpace(row[0]), 10, 64); err != nil && notWhole == nil {
			return nil, nil, nil, fmt.Errorf("%s: timestamp %q: seconds since 1970 have 9 or 10 digits here, from 1973 to 2286", place(name, cr, 0), row[0])
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: timestamp %q: want RFC 3339, such as 2024-05-01T13:00:00Z, or seconds since 1970", place(name, cr, 0), row[0])
		}
		rate, err := strconv.ParseFloat(strings.TrimSpace(row[1]), 64)
		if err != nil || rate < 0 || math.IsNaN(rate) || math.IsInf(rate, 0) {
			return nil, nil, nil, fmt.Errorf("%s: rate %q: want a number of events per second, 0 or more (leave the row out where it is not known)", place(name, cr, 1), row[1])
		}
		if n := len(at); n > 0 && !t.After(at[n-1]) {
			return nil, nil, nil, fmt.Errorf("%s: %s does not come after %s on line %d: sort the rows by time, each bin once",
				place(name, cr, 0), t.Format(time.RFC3339), at[n-1].Format(time.RFC3339), lines[n-1])
		}
		at, rates, lines = append(at, t), append(rates, rate), append(lines, line)
	}
}

// place is name:line:column of a field of the row that was read last.
func place(name string, cr *csv.Reader, field int) string {
	line, column := cr.FieldPos(field)
	return fmt.Sprintf("%s:%d:%d", name, line, column)
}

// names reports whether a first row names the columns: neither of them holds a value.
func names(row []string) bool {
	_, err := parseTime(strings.TrimSpace(strings.TrimPrefix(row[0], "\ufeff")))
	if err == nil || strings.EqualFold(strings.TrimPrefix(row[0], "\ufeff"), "timestamp") {
		return err != nil
	}
	_, err = strconv.ParseFloat(strings.TrimSpace(row[len(row)-1]), 64)
	return len(row) == 2 && err != nil
}

// last is the last of the lines, 0 without any.
func last(lines []int) int {
	if len(lines) == 0 {
		return 0
	}
	return lines[len(lines)-1]
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t, err = time.Parse(time.DateTime, s)
	}
	if err != nil && len(s) >= 9 && len(s) <= 10 { // from 1973 to 2286
		var unix int64
		if unix, err = strconv.ParseInt(s, 10, 64); err == nil {
			t = time.Unix(unix, 0)
		}
	}
	return t.UTC(), err
}
