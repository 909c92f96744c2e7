package stream

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxBins bounds what one wrong timestamp can make of a trace: 1-minute bins for 95 years.
const maxBins = 50_000_000

// ReadCurve reads a trace from a CSV file, which may be gzip-compressed, whatever its name. See [ParseCurve] for what it may look like, and for the notes. A pipe that nobody writes to is waited for, until ctx is
// done; what is neither a pipe nor an ordinary file, such as a device, is refused: it may never end.
func ReadCurve(ctx context.Context, path string, values Values) (c Curve, notes []string, err error) {
	type result struct {
		c     Curve
		notes []string
		err   error
	}
	done := make(chan result, 1)
	go func() { // what opens or reads a pipe cannot be interrupted: it is left behind
		c, notes, err := readCurve(path, values)
		done <- result{c, notes, err}
	}()
	select {
	case r := <-done:
		return r.c, r.notes, r.err
	case <-ctx.Done():
		return Curve{}, nil, fmt.Errorf("read the arrival curve %s: %w", path, ctx.Err())
	}
}

func readCurve(path string, values Values) (Curve, []string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return Curve{}, nil, fmt.Errorf("read the arrival curve: %w", err)
	case info.IsDir():
		return Curve{}, nil, fmt.Errorf("read the arrival curve %s: it is a folder: name a file in it", path)
	case !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0:
		return Curve{}, nil, fmt.Errorf("read the arrival curve %s: it is neither an ordinary file nor a pipe: name a file of lines \"timestamp,rate\"", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return Curve{}, nil, fmt.Errorf("read the arrival curve: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	head, _ := r.Peek(len(gzipMagic)) // what is wrong with it, reading says
	switch packed := string(head) == gzipMagic; {
	case packed:
		return readPacked(path, r, values)
	case strings.HasSuffix(path, ".gz") && len(head) > 0:
		return Curve{}, nil, fmt.Errorf("read the arrival curve %s: its name says gzip, its content does not: rename it, or compress it with gzip", path)
	}
	return ParseCurve(path, r, values)
}

// gzipMagic is how gzip's files begin (RFC 1952, 2.3.1).
const gzipMagic = "\x1f\x8b"

// mostRest bounds what is unpacked behind a row that cannot be read, to learn whether the file is damaged.
const mostRest = 1 << 30

// readPacked reads a trace that is gzip-compressed.
func readPacked(path string, r io.Reader, values Values) (c Curve, notes []string, err error) {
	z, err := gzip.NewReader(r) // it has nothing to close: the file has
	if err == nil {
		if c, notes, err = ParseCurve(path, z, values); err != nil { // damage may show as a row that is none before the checksum, which comes last, tells of it
			if _, rest := io.CopyN(io.Discard, z, mostRest); rest != nil && !errors.Is(rest, io.EOF) {
				err = rest
			}
		}
	}
	switch corrupt := flate.CorruptInputError(0); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("read the arrival curve %s: it is gzip-compressed and cut short, so that its end is missing: copy or fetch it again", path)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, &corrupt):
		err = fmt.Errorf("read the arrival curve %s: it is gzip-compressed and damaged (%w): copy or fetch it again", path, err)
	}
	return c, notes, err
}

// ParseCurve reads a trace of two columns, the start of a bin and its events per second, separated by commas, semicolons or tabs, with a decimal comma where
// the separator is none. A first row may name the columns, in any order; of more than two, those are taken whose names say that they are the time and the rate.
//
// The time is RFC 3339, such as 2024-05-01T13:00:00Z, or a like form of ISO 8601 (a date alone is its midnight; UTC where no offset is written), or the time since
// 1970 in seconds, milliseconds, microseconds or nanoseconds, which of these by its magnitude and the same in all rows. Rows may be in any order. The shortest
// distance between two is the bin's length where all are whole bins apart; else all must lie within a quarter of a bin of such a grid, and are moved onto it: its bins
// are of a whole number of seconds, or of 10 s, or of minutes, where the median distance of two rows is one but for the jitter.
// A missing bin, or one whose rate is empty, is a gap (NaN). values says what the second column is: a counter is refused unless it is asked for.
//
// The notes are sentences that say what was made of the rows that their writer may not have meant. Errors begin with name:line:column, as compilers' do.
func ParseCurve(name string, r io.Reader, values Values) (c Curve, notes []string, err error) {
	p, err := parseRows(name, r, values)
	if err != nil {
		return Curve{}, nil, err
	}
	if len(p.rows) < 2 {
		return Curve{}, nil, fmt.Errorf("%s:%d:1: %s; a curve needs at least 2, to know the length of a bin", name, max(1, p.line), []string{"no row", "1 row"}[len(p.rows)])
	}
	if err := p.order(); err != nil {
		return Curve{}, nil, err
	}
	if len(p.rows) < 2 {
		return Curve{}, nil, fmt.Errorf("%s:%d:1: all rows are of one time; a curve needs at least 2, to know the length of a bin", name, p.line)
	}
	switch values {
	case RatesOnly:
		err = p.checkRates()
	case Counter:
		err = p.differences()
	}
	if err != nil {
		return Curve{}, nil, err
	}
	if c, err = p.curve(); err != nil {
		return Curve{}, nil, err
	}
	return c, p.said(c.Step), nil
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
