package stream

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	nan   = math.NaN()
	start = time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
)

func minutes(rates ...float64) Curve { return Curve{Start: start, Step: time.Minute, Rates: rates} }

func TestCurveMethods(t *testing.T) {
	c := minutes(10, nan, nan, 40, 20, nan)
	near := []cmp.Option{cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-12, 0)}
	for name, tt := range map[string]struct{ got, want any }{
		"duration":            {c.Duration(), 6 * time.Minute},
		"gaps":                {c.Gaps(), 3},
		"peak":                {c.Peak(), 40.0},
		"mean":                {c.Mean(), 70. / 3},
		"peak of nothing":     {Curve{}.Peak(), nan},
		"scale":               {c.Scale(2).Rates, []float64{20, nan, nan, 80, 40, nan}},
		"scale to a peak":     {c.ScaleTo(4).Rates, []float64{1, nan, nan, 4, 2, nan}},
		"scale zero":          {minutes(0, 0).ScaleTo(4).Rates, []float64{0, 0}},
		"fill":                {c.Fill().Rates, []float64{10, 20, 30, 40, 20, 20}},
		"fill the start":      {minutes(nan, 5, 6).Fill().Rates, []float64{5, 5, 6}},
		"slice":               {c.Slice(3*time.Minute, 5*time.Minute), Curve{Start: start.Add(3 * time.Minute), Step: time.Minute, Rates: []float64{40, 20}}},
		"slice over the end":  {c.Slice(4*time.Minute, 8*time.Minute).Rates, []float64{20, nan, 10, nan}},
		"slice of yesterday":  {c.Slice(-3*time.Minute, time.Minute), Curve{Start: start.Add(-3 * time.Minute), Step: time.Minute, Rates: []float64{40, 20, nan, 10}}},
		"total":               {c.Total(0, 6*time.Minute), 70. * 60},
		"total within a bin":  {c.Total(190*time.Second, 250*time.Second), 40*50. + 20*10},
		"total around":        {c.Total(-2*time.Minute, time.Minute), 20*60. + 10*60},
		"total over six laps": {c.Total(0, 36*time.Minute), 6 * 70. * 60},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.got, near...); diff != "" {
				t.Error(diff)
			}
		})
	}
	if r, ok := c.At(time.Minute); ok || !math.IsNaN(r) {
		t.Errorf("in a gap the rate is %v, %v", r, ok)
	}
	if diff := cmp.Diff(minutes(10, nan, nan, 40, 20, nan), c, near...); diff != "" {
		t.Errorf("a method changed its curve: %s", diff)
	}
}

// Walking to each record in turn comes to as many records as the integral says, in order of time.
func TestWalkerReachesEveryRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		c := minutes()
		for range 20 {
			c.Rates = append(c.Rates, float64(rng.IntN(3))*rng.Float64()*5)
		}
		c.Rates[0]++
		from := time.Duration(rng.IntN(3600)-1800) * time.Second
		to := from + time.Duration(rng.IntN(3600))*time.Second
		w := newWalker(c, from, 1)
		n, last := 0, from
		for limit := from; limit < to; {
			limit = min(to, limit+time.Duration(rng.IntN(60))*time.Second)
			for w.reach(float64(n+1)-1e-6, limit) {
				if w.at < last || w.at > limit {
					t.Fatalf("record %d is due at %v, after %v and before %v", n, w.at, last, limit)
				}
				last = w.at
				n++
			}
		}
		if want := int(c.Total(from, to) + 1e-6); n != want {
			t.Errorf("from %v to %v: %d records, want %d", from, to, n, want)
		}
	}
}

func TestParseCurve(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want Curve
		fail string
	}{
		"plain":           {text: "timestamp,rate\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2.5\n", want: minutes(1, 2.5)},
		"no header":       {text: "2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2)},
		"another form":    {text: "Timestamp, rate\n2024-05-01 00:00:00, 1\n2024-05-01 00:01:00, 2\n", want: minutes(1, 2)},
		"another zone":    {text: "2024-05-01T02:00:00+02:00,1\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2)},
		"a byte mark":     {text: "\ufefftimestamp,rate\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2)},
		"a gap":           {text: "2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n2024-05-01T00:04:00Z,5\n", want: minutes(1, 2, nan, nan, 5)},
		"comments":        {text: "# a trace\ntimestamp,rate\n2024-05-01T00:00:00Z,1\n\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2)},
		"other names":     {text: "time,rps\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n", want: minutes(1, 2)},
		"seconds":         {text: "1714521600,1\n1714521660,2\n", want: minutes(1, 2)},
		"garbage":         {text: "2024-05-01T00:00:00Z,1\n\x00\xff;;\n", fail: "t.csv:2:1: 1 columns; want 2: timestamp,rate"},
		"nothing":         {text: "", fail: "t.csv:1:1: no row; a curve needs at least 2, to know the length of a bin"},
		"one row":         {text: "timestamp,rate\n2024-05-01T00:00:00Z,1\n", fail: "t.csv:2:1: 1 row; a curve needs at least 2, to know the length of a bin"},
		"another file":    {text: "PK\x03\x04\"a,\"b\nc", fail: `t.csv:1:1: this is no CSV file of lines "timestamp,rate": it is not text`},
		"no quote at all": {text: "PK\x03\x04\nc", fail: `t.csv:1:1: this is no CSV file of lines "timestamp,rate": it is not text`},
		"twice":           {text: "2024-05-01T00:01:00Z,1\n2024-05-01T00:01:00Z,2\n", fail: "t.csv:2:1: 2024-05-01T00:01:00Z has a rate of 2 here and of 1 on line 1: keep the right one"},
		"off the grid":    {text: "2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n2024-05-01T00:02:30Z,2\n", fail: "t.csv:3:1: 2024-05-01T00:02:30Z is not a whole number of bins of 1m0s after the first row, nor are all rows within a quarter of a bin of a grid of 1m0s: make the bins equal"},
		"a negative rate": {text: "2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,-2\n", fail: `t.csv:2:22: rate "-2": want a number of events per second, 0 or more (leave the row out where it is not known)`},
		"not a number":    {text: "2024-05-01T00:00:00Z,NaN\n", fail: `t.csv:1:22: rate "NaN": want a number of events per second, 0 or more (leave the row out where it is not known)`},
		"no time":         {text: "timestamp,rate\nyesterday,1\n", fail: `t.csv:2:1: timestamp "yesterday": want RFC 3339, such as 2024-05-01T13:00:00Z, or seconds since 1970`},
		"too few seconds": {text: "1,2\n", fail: `t.csv:1:1: timestamp "1": seconds since 1970 have 9 or 10 digits here, from 1973 to 2261, milliseconds 12 or 13, microseconds 15 or 16, nanoseconds 18 or 19`},
		"columns":         {text: "timestamp,rate\n2024-05-01T00:00:00Z,1,2\n", fail: "t.csv:2:1: 3 columns; want 2: timestamp,rate"},
		"a quote":         {text: "timestamp,rate\n2024-05-01T00:00:00Z,\"1\n", fail: `t.csv:2:25: extraneous or missing " in quoted-field`},
		"too long":        {text: "1970-05-01T00:00:00Z,1\n2024-05-01T00:00:00Z,1\n2024-05-01T00:00:01Z,1\n", fail: "t.csv:3:1: from 1970-05-01T00:00:00Z to 2024-05-01T00:00:01Z in bins of 1s are 1704153602 bins; that looks like a wrong timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			checkCurve(t, tt.text, tt.want, tt.fail)
		})
	}
}

// checkCurve wants the curve of a text, or the words with which it is refused.
func checkCurve(t *testing.T, text string, want Curve, fail string) (notes []string) {
	t.Helper()
	got, notes, err := ParseCurve("t.csv", strings.NewReader(text), RatesOnly)
	if fail != "" {
		if err == nil {
			t.Fatalf("no error; want %s", fail)
		}
		if diff := cmp.Diff(fail, err.Error()); diff != "" {
			t.Error(diff)
		}
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
	return notes
}

func TestReadCurve(t *testing.T) {
	const text = "timestamp,rate\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n"
	var packed bytes.Buffer
	gz := gzip.NewWriter(&packed)
	if _, err := gz.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"a.csv": []byte(text), "a.csv.gz": packed.Bytes(), "bad.csv.gz": []byte(text)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		got, _, err := ReadCurve(t.Context(), path, RatesOnly)
		if strings.HasPrefix(name, "bad") {
			if err == nil || !strings.Contains(err.Error(), "its name says gzip, its content does not") {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(minutes(1, 2), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	damaged := bytes.Clone(packed.Bytes())
	damaged[len(damaged)-6] ^= 1 // in its checksum
	var stored bytes.Buffer      // as it is, so that a byte that is flipped is one of a row
	w, err := gzip.NewWriterLevel(&stored, gzip.NoCompression)
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(stored.Bytes())
	flipped[bytes.Index(flipped, []byte(text[:4]))+2] ^= 0x40 // of the first row
	for name, c := range map[string]struct {
		content []byte
		says    string // "": it is read
	}{
		"packed.csv":   {packed.Bytes(), ""}, // read by what it is
		"trunc.csv.gz": {packed.Bytes()[:packed.Len()/2], "trunc.csv.gz: it is gzip-compressed and cut short, so that its end is missing: copy or fetch it again"},
		"end.csv.gz":   {packed.Bytes()[:packed.Len()-3], "cut short"},
		"head.csv.gz":  {packed.Bytes()[:5], "cut short"},
		"bits.csv.gz":  {damaged, "it is gzip-compressed and damaged (gzip: invalid checksum): copy or fetch it again"},
		"row.csv.gz":   {flipped, "it is gzip-compressed and damaged (gzip: invalid checksum): copy or fetch it again"},
		"plain.csv.gz": {stored.Bytes(), ""},
		"empty.csv.gz": {nil, "no row"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, c.content, 0o644); err != nil {
			t.Fatal(err)
		}
		got, _, err := ReadCurve(t.Context(), path, RatesOnly)
		if c.says == "" && (err != nil || !cmp.Equal(minutes(1, 2), got)) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, %v; want %q", name, got, err, c.says)
		}
	}
	if _, _, err := ReadCurve(t.Context(), filepath.Join(dir, "absent.csv"), RatesOnly); err == nil {
		t.Error("an absent file gives no error")
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with ReadCurve, which reads all
		if err := os.WriteFile(pipe, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}()
	if got, _, err := ReadCurve(t.Context(), pipe, RatesOnly); err != nil || !cmp.Equal(minutes(1, 2), got) {
		t.Errorf("through a pipe: %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := ReadCurve(ctx, pipe, RatesOnly); !errors.Is(err, context.Canceled) {
		t.Errorf("a pipe that nobody writes to: %v", err)
	}
}

// What never ends is refused before it fills the memory: a device, and a row that is none.
func TestCurveWithoutEnd(t *testing.T) {
	for path, want := range map[string]string{
		"/dev/zero": "read the arrival curve /dev/zero: it is neither an ordinary file nor a pipe: name a file of lines \"timestamp,rate\"",
		t.TempDir(): "it is a folder: name a file in it",
	} {
		if _, _, err := ReadCurve(t.Context(), path, RatesOnly); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	const row = "2024-05-01T00:00:00Z,1\n"
	for name, c := range map[string]struct{ begin, text string }{"a line": {row, "0"}, "a field": {row + "\"", "a\n"}, "comments": {row, "#\n"}} {
		if _, _, err := ParseCurve("a.csv", io.MultiReader(strings.NewReader(c.begin), endless(c.text)), RatesOnly); err == nil || err.Error() != "a.csv:2:1: no row ends within 16 MiB: this is no curve" {
			t.Errorf("%s without end: %v", name, err)
		}
	}
	many := strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 1000)
	if _, _, err := ParseCurve("a.csv", strings.NewReader(strings.Repeat(many, 9)+row+strings.Repeat(many, 9)+"2024-05-01T00:01:00Z,1\n"), RatesOnly); err != nil {
		t.Errorf("many comments: %v", err)
	}
}

// endless says the same again and again.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e) <= len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

func FuzzParseCurve(f *testing.F) {
	f.Add("timestamp,rate\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,2\n2024-05-01T00:04:00Z,5\n")
	f.Add("0001-01-01T00:00:00Z,1\n9999-12-31T23:59:59Z,2\n")
	f.Add("\"\n,,\n#")
	for _, e := range exports {
		f.Add(e.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, _, err := ParseCurve("fuzz", strings.NewReader(text), RatesOnly)
		if err != nil {
			if !strings.Contains(err.Error(), "fuzz") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("a curve that was read is not valid: %v", err)
		}
		if c.Fill().Gaps() != 0 {
			t.Error("a filled curve has gaps")
		}
	})
}
