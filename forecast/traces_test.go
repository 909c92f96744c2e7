package forecast

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// trace reads a rate curve `timestamp,rate` from the folder $KALE_TRACES, and
// skips the test without one. Bins without a row are NaN.
func trace(t testing.TB, file string, step time.Duration) Series {
	t.Helper()
	dir := os.Getenv("KALE_TRACES")
	if dir == "" {
		t.Skip("set KALE_TRACES to a folder of rate curves (timestamp,rate; .csv.gz) to measure forecasters on them")
	}
	f, err := os.Open(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("%s is not in $KALE_TRACES", file)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := Series{Step: step}
	for r := csv.NewReader(z); ; {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, row[0])
		if err != nil {
			continue // the header
		}
		v, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if s.Start.IsZero() {
			s.Start = at
		}
		for i := s.Bin(at); len(s.Values) <= i; {
			s.Values = append(s.Values, math.NaN())
		}
		s.Values[s.Bin(at)] = v
	}
}
