package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
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
	if pid := Holder(dir); pid != os.Getpid() {
		t.Errorf("process %d holds the state, want this one, %d", pid, os.Getpid())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if pid := Holder(dir); pid != 0 {
		t.Errorf("process %d holds a state that was let go", pid)
	}
	open(t, dir)
}

// The holder is a process that has the state open now: one that ended, by whatever way, has no part in it, and its number may be another's.
func TestHolder(t *testing.T) {
	dir := t.TempDir()
	st, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid := Holder(dir); pid != os.Getpid() {
		t.Errorf("of a state that is open the holder is %d, not %d", pid, os.Getpid())
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, holderFile), fmt.Appendln(nil, os.Getpid()), 0o600); err != nil { // as of one that was killed
		t.Fatal(err)
	}
	if pid := Holder(dir); pid != 0 {
		t.Errorf("of a state that nobody has open the holder is %d", pid)
	}
	if st, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
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

// A reader sees what was written, keeps no other reader out, changes nothing, and says who has the file or that there is none.
func TestOpenReader(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenReader(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a file: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("reading left %v (%v)", left, err)
	}
	s := open(t, dir)
	if err := s.Put("desired", entry{7}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("beside a scheduler: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var got entry
	for range 2 { // at the same time
		r, err := OpenReader(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		if found, err := r.Get("desired", &got); err != nil || !found || got.N != 7 {
			t.Fatalf("found %v, %v, %v", found, got, err)
		}
		if err := r.Put("desired", entry{8}); err == nil {
			t.Error("a reader has written")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "state.db"), []byte("not a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(dir); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a damaged file: %v", err)
	}
}

// A file of which a part is lost is said to be damaged, and what to do: kale status of all jobs must not end of one.
// A copy of a state that another process holds has what was written, and nothing of what was only begun; it leaves no file.
func TestOpenCopy(t *testing.T) {
	dir, t0 := t.TempDir(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	t.Setenv("TMPDIR", t.TempDir())
	s := open(t, dir)
	const wrote = 300
	for i := range wrote {
		if err := s.Append(Decisions, t0.Add(time.Duration(i)*time.Second), entry{i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketDecisions)
		for i := range 2 * wrote {
			if err := b.Put(key(t0.Add(time.Duration(i)*time.Second), uint64(i)), []byte(`{"N":-1}`)); err != nil {
				return err
			}
		}
		c, err := OpenCopy(dir)
		if err != nil {
			return err
		}
		got, err := Last[entry](c, Decisions, 2*wrote)
		if len(got) != wrote || got[wrote-1].N != wrote-1 {
			t.Errorf("the copy has %d entries", len(got))
		}
		return errors.Join(err, c.Close())
	}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("copies leave %v, %v", left, err)
	}
	if _, err := OpenCopy(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy of nothing: %v", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("a copy of nothing leaves %v, %v", left, err)
	}
}

func TestDamagedInPart(t *testing.T) {
	for name, damage := range map[string]func(raw []byte) []byte{
		"zeros": func(raw []byte) []byte { clear(raw[2*os.Getpagesize():]); return raw },
		"something else": func(raw []byte) []byte {
			rest := raw[2*os.Getpagesize():]
			copy(rest, bytes.Repeat([]byte{0xff}, len(rest)))
			return raw
		},
		"cut in half":   func(raw []byte) []byte { return raw[:len(raw)/2] },
		"emptied":       func(raw []byte) []byte { return raw[:0] },
		"cut to a head": func(raw []byte) []byte { return raw[:2*os.Getpagesize()] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state.db")
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Put("desired", strings.Repeat("x", 1<<20)); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(raw), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := OpenReader(dir)
			if err == nil {
				_, err = r.Get("desired", new(string))
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			if err == nil || !strings.Contains(err.Error(), "damaged: move it away") || !strings.Contains(err.Error(), path) {
				t.Errorf("read: %v", err)
			}
			var was string
			w, err := Open(dir)
			if err == nil {
				_, err = w.Get("desired", &was)
			}
			if err == nil || !strings.Contains(err.Error(), "move it away") || !strings.Contains(err.Error(), path) {
				t.Errorf("opened for writing: %v", err)
			}
		})
	}
}

// A folder that others take away while it is empty, as trials do, is made anew.
func TestOpenBesideTrials(t *testing.T) {
	root := t.TempDir()
	stop, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-ended })
	go func() { // ends with the test
		defer close(ended)
		taken := map[string]int{}
		for {
			select {
			case <-stop:
				return
			default:
				dirs, _ := filepath.Glob(filepath.Join(root, "*")) // the pattern is a good one
				for _, dir := range dirs {
					if taken[dir] < openTries-1 && os.Remove(dir) == nil { // it removes nothing that is not empty
						taken[dir]++
					}
				}
			}
		}
	}()
	for i := range 50 {
		s, err := Open(filepath.Join(root, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that was moved away or replaced while it is open is told from one that is where it was.
func TestMoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ctr")
	s := open(t, dir)
	expect := func(want bool, when string) {
		t.Helper()
		if s.Moved() != want {
			t.Errorf("%s: moved is %v", when, !want)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	expect(false, "where it was")
	in := func(want, when string) {
		t.Helper()
		if got := s.Folder(); got != want {
			t.Errorf("%s: it is in %q, want %q", when, got, want)
		}
	}
	in(dir, "where it was")
	rename(dir, dir+".away")
	expect(true, "with its folder away")
	in(dir+".away", "with its folder away")
	other, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	expect(true, "with another one in its place")
	in(dir+".away", "with another one in its place")
	rename(dir, dir+".other")
	rename(dir+".away", dir)
	expect(false, "put back")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	expect(true, "removed")
	in("", "removed")
}
