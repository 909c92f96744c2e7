package state

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type entry struct{ N int }

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestOneSchedulerAtATime(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := Open(dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("second open: %v, want ErrLocked", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestKeysSurviveReopening(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Put("desired", entry{7}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	var got entry
	if found, err := s.Get("desired", &got); err != nil || !found || got.N != 7 {
		t.Fatalf("found %v, %v, %v", found, got, err)
	}
	if found, err := s.Get("other", &got); err != nil || found {
		t.Fatalf("an unknown key: found %v, %v", found, err)
	}
}

func TestLogsAreOrderedBoundedAndSearchable(t *testing.T) {
	s := open(t, t.TempDir())
	t0 := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for i := range 10 {
		if err := s.Append(Samples, t0.Add(time.Duration(i)*time.Second), entry{i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(Decisions, t0, entry{99}); err != nil {
		t.Fatal(err)
	}
	if err := s.Trim(Samples, t0.Add(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	var got []entry
	err := Scan(s, Samples, t0.Add(5*time.Second), func(e entry) bool { got = append(got, e); return e.N < 8 })
	if diff := cmp.Diff([]entry{{5}, {6}, {7}, {8}}, got); err != nil || diff != "" {
		t.Errorf("scan: %v (-want +got):\n%s", err, diff)
	}
	last, err := Last[entry](s, Samples, 3)
	if diff := cmp.Diff([]entry{{7}, {8}, {9}}, last); err != nil || diff != "" {
		t.Errorf("last: %v (-want +got):\n%s", err, diff)
	}
	all, err := Last[entry](s, Samples, 100)
	if err != nil || len(all) != 7 {
		t.Errorf("after the trim %d entries are left, want 7 (%v)", len(all), err)
	}
}
