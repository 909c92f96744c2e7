package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put writes text as a snapshot of tablet 5.
func put(s *Store, server int, inc, gen uint64, text string) error {
	return s.WriteTablet(5, server, inc, gen, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

func read(s *Store, g Generation) (string, error) {
	var text []byte
	err := s.ReadTablet(g, func(r io.Reader) (err error) {
		text, err = io.ReadAll(r)
		return err
	})
	return string(text), err
}

// newest is what a restore would take: the newest generation that verifies.
func newest(t *testing.T, s *Store) string {
	t.Helper()
	all, err := s.Generations(5)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		if text, err := read(s, g); err == nil {
			return text
		}
	}
	return ""
}

func files(t *testing.T, s *Store) []string {
	t.Helper()
	entries, err := os.ReadDir(s.tabletDir(5))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestSnapshotSurvives(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	inc := claimed(t, s, 2)
	if all, err := s.Generations(5); err != nil || len(all) != 0 {
		t.Fatalf("a tablet that was never written has %v, %v", all, err)
	}
	for gen, text := range []string{"", "one", strings.Repeat("x", 1<<20)} {
		if err := put(s, 2, inc, uint64(gen), text); err != nil {
			t.Fatal(err)
		}
		got, err := read(open(t, dir), Generation{5, inc, uint64(gen)})
		if err != nil || got != text {
			t.Errorf("generation %d: %d bytes, %v; want %d", gen, len(got), err, len(text))
		}
	}
	if _, err := read(s, Generation{5, inc, 9}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading what is not there: %v", err)
	}
}

// Rule 2: server 0 is stopped in the middle of a snapshot, replaced, and continued; its file must not become the newest, whatever the point at
// which it was stopped, and it must learn that it is to exit.
func TestRule2StoppedWriterCannotCommit(t *testing.T) {
	for _, c := range []struct {
		at    string
		files int // that lie there in the end: a late one more when it was stopped after its last look
	}{{"snapshot before body", 2}, {"snapshot before sync", 2}, {"snapshot before rename", 3}, {"snapshot before folder sync", 3}} {
		t.Run(c.at, func(t *testing.T) {
			dir := t.TempDir()
			old, next := open(t, dir), open(t, dir)
			first := claimed(t, old, 0)
			if err := put(old, 0, first, 1, "old 1"); err != nil {
				t.Fatal(err)
			}
			old.fault = func(point string) error {
				if point != c.at {
					return nil
				}
				second := claimed(t, next, 0)
				if got := newest(t, next); got != "old 1" && c.at != "snapshot before folder sync" {
					t.Errorf("the successor restores %q", got)
				}
				if err := put(next, 0, second, 1, "new 1"); err != nil {
					t.Error(err)
				}
				return nil
			}
			if err := put(old, 0, first, 2, "old 2"); !errors.Is(err, ErrSuperseded) {
				t.Errorf("the late write: %v, want ErrSuperseded", err)
			}
			if got := files(t, old); len(got) != c.files {
				t.Errorf("there lie %v, want %d files", got, c.files)
			}
			if got := newest(t, open(t, dir)); got != "new 1" {
				t.Errorf("a restore takes %q, want the successor's", got)
			}
			if err := put(old, 0, first, 3, "old 3"); !errors.Is(err, ErrSuperseded) {
				t.Errorf("the next write: %v, want ErrSuperseded", err)
			}
		})
	}
}

// Every truncation and every single damaged byte is noticed.
func TestTornOrAlteredSnapshotIsRefused(t *testing.T) {
	s := open(t, t.TempDir())
	inc := claimed(t, s, 0)
	if err := put(s, 0, inc, 1, "some weights"); err != nil {
		t.Fatal(err)
	}
	g := Generation{5, inc, 1}
	whole, err := os.ReadFile(s.Path(g))
	if err != nil {
		t.Fatal(err)
	}
	try := func(name string, content []byte) {
		if err := os.WriteFile(s.Path(g), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := read(s, g); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), s.Path(g)) {
			t.Errorf("%s: read %q, %v; want ErrDamaged and the file's name", name, text, err)
		}
	}
	for n := range whole {
		try(fmt.Sprintf("cut to %d bytes", n), whole[:n])
		altered := bytes.Clone(whole)
		altered[n] ^= 0x10
		try(fmt.Sprintf("byte %d altered", n), altered)
	}
	try("longer", append(bytes.Clone(whole), 0))
	try("zeros", make([]byte, len(whole)))
	// A file that verifies but is another generation's, copied by hand.
	if err := os.WriteFile(s.Path(Generation{5, inc, 2}), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(s, Generation{5, inc, 2}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a copy under another name: %v, want ErrDamaged", err)
	}
}

func TestReaderMustConsumeTheWholeSnapshot(t *testing.T) {
	s := open(t, t.TempDir())
	inc := claimed(t, s, 0)
	if err := put(s, 0, inc, 1, "some weights"); err != nil {
		t.Fatal(err)
	}
	err := s.ReadTablet(Generation{5, inc, 1}, func(r io.Reader) error {
		_, err := io.CopyN(io.Discard, r, 4)
		return err
	})
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("%v, want ErrDamaged", err)
	}
}

// A writer that fails, or ignores that its writes fail, leaves nothing behind, and the generation before stands.
func TestFailedWriteLeavesTheOldGeneration(t *testing.T) {
	s := open(t, t.TempDir())
	inc := claimed(t, s, 0)
	if err := put(s, 0, inc, 1, "one"); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, at := range []string{"snapshot before body", "snapshot before sync"} {
		s.fault = func(point string) error {
			if point == at {
				return broken
			}
			return nil
		}
		if err := put(s, 0, inc, 2, "two"); !errors.Is(err, broken) {
			t.Errorf("fault %s: %v", at, err)
		}
	}
	s.fault = nil
	if err := s.WriteTablet(5, 0, inc, 2, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want the writer's own error", err)
	}
	if got := newest(t, s); got != "one" {
		t.Errorf("a restore takes %q, want the generation before", got)
	}
	if got := files(t, s); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
}

// Only files of own or lower incarnations go, only beyond the newest that have verified, and damaged ones are not counted as kept.
func TestPruneKeepsTheNewestVerified(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	one := claimed(t, s, 0)
	for gen := uint64(1); gen <= 4; gen++ {
		if err := put(s, 0, one, gen, fmt.Sprint("one ", gen)); err != nil {
			t.Fatal(err)
		}
	}
	// A crashed predecessor's temporary file, and a damaged newest generation.
	tmp := filepath.Join(s.tabletDir(5), "."+Generation{5, 0, 7}.file()+".tmp")
	for _, path := range []string{tmp, s.Path(Generation{5, one, 5})} {
		if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	successor := open(t, dir)
	two := claimed(t, successor, 0)
	if err := put(successor, 0, two, 1, "two 1"); err != nil {
		t.Fatal(err)
	}

	// The old server prunes: the successor's file is not its own, and stays; the damaged one is no reason to drop a good one.
	if err := s.Prune(5, one, 2); err != nil {
		t.Fatal(err)
	}
	want := []string{Generation{5, one, 3}.file(), Generation{5, one, 4}.file(), Generation{5, one, 5}.file(), Generation{5, two, 1}.file()}
	if diff := cmp.Diff(want, files(t, s)); diff != "" {
		t.Errorf("after the old server's turn: %s", diff)
	}
	// The successor has verified only its own file so far: it must not drop the others.
	if err := successor.Prune(5, two, 2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, files(t, s)); diff != "" {
		t.Errorf("after a turn with one verified file: %s", diff)
	}
	if err := put(successor, 0, two, 2, "two 2"); err != nil {
		t.Fatal(err)
	}
	if err := successor.Prune(5, two, 2); err != nil {
		t.Fatal(err)
	}
	want = []string{Generation{5, two, 1}.file(), Generation{5, two, 2}.file()}
	if diff := cmp.Diff(want, files(t, s)); diff != "" {
		t.Errorf("after the successor's turn: %s", diff)
	}
	// The old server has read them, and wants to keep one: the others are not its to remove.
	for gen := range uint64(2) {
		if _, err := read(s, Generation{5, two, gen + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Prune(5, one, 1); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, files(t, s)); diff != "" {
		t.Errorf("after the old server's last turn: %s", diff)
	}
}

// What has another form of name than what is written here is no record, no claim and no snapshot: nobody would find it by its name.
func TestNamesOfOtherForms(t *testing.T) {
	s := open(t, t.TempDir())
	inc := claimed(t, s, 0)
	if err := errors.Join(s.SaveJob(state(4), inc), os.Mkdir(s.tabletDir(3), 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"job/09999999999999999-0000000009.json", "job/99999999999999999999-9.json", "tablets/000003/09999999999999999-00000000000000000999.snap", "claims/99999999999999999.server-0"} {
		if err := os.WriteFile(filepath.Join(s.Root(), name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.LoadJob(); err != nil || got.MapVersion != 4 {
		t.Errorf("the job's state is %+v, %v", got, err)
	}
	if got, err := s.Generations(3); err != nil || len(got) > 0 {
		t.Errorf("the tablet has snapshots %v, %v", got, err)
	}
	if gone, err := s.Superseded(0, inc); err != nil || gone {
		t.Errorf("the server is superseded: %v, %v", gone, err)
	}
}
