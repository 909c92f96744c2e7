package checkpoint

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, "ctr")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func claimed(t *testing.T, s *Store, server int) uint64 {
	t.Helper()
	n, err := s.ClaimIncarnation(server)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Rule 2: concurrent claims, each through its own view of the folder, never get one number twice, and one claim per server is current at the end.
func TestRule2ConcurrentClaimsAreDistinct(t *testing.T) {
	dir := t.TempDir()
	const servers, each = 3, 40
	var mu sync.Mutex
	owner := map[uint64]int{}
	var wg sync.WaitGroup
	for server := range servers {
		for range each {
			s := open(t, dir)
			wg.Go(func() {
				n, err := s.ClaimIncarnation(server)
				if errors.Is(err, ErrSuperseded) {
					return // another claim for this server was made in the meantime: it has a number of its own
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if was, taken := owner[n]; taken {
					t.Errorf("incarnation %d was given to server %d and to server %d", n, was, server)
				}
				owner[n] = server
			})
		}
	}
	wg.Wait()
	s := open(t, dir)
	current := make([]int, servers)
	for n, server := range owner {
		gone, err := s.Superseded(server, n)
		if err != nil {
			t.Fatal(err)
		}
		if !gone {
			current[server]++
		}
	}
	for server, n := range current {
		if n != 1 {
			t.Errorf("server %d has %d current incarnations, want 1", server, n)
		}
	}
}

// Rule 2: a claimant that stops after it has drawn its number, and goes on when another has claimed and serves, is told that it is late.
func TestRule2ClaimantThatSleptIsSuperseded(t *testing.T) {
	dir := t.TempDir()
	slow, fast := open(t, dir), open(t, dir)
	var other uint64
	slow.fault = func(point string) error {
		if point == "claim reserved" {
			other = claimed(t, fast, 0)
		}
		return nil
	}
	if n, err := slow.ClaimIncarnation(0); !errors.Is(err, ErrSuperseded) {
		t.Errorf("claim gave %d, %v; want ErrSuperseded", n, err)
	}
	if gone, err := fast.Superseded(0, other); err != nil || gone {
		t.Errorf("the claim of the faster one is superseded: %v, %v", gone, err)
	}
}

func TestSupersededIsPerServer(t *testing.T) {
	s := open(t, t.TempDir())
	a, b := claimed(t, s, 0), claimed(t, s, 1)
	if b <= a {
		t.Errorf("the second claim, of another server, got %d after %d: numbers grow over the whole job", b, a)
	}
	for server, n := range []uint64{a, b} {
		if gone, err := s.Superseded(server, n); err != nil || gone {
			t.Errorf("server %d: superseded %v, %v", server, gone, err)
		}
	}
	c := claimed(t, s, 0)
	if gone, _ := s.Superseded(0, a); !gone {
		t.Error("the first incarnation of server 0 is still current")
	}
	if gone, _ := s.Superseded(1, b); gone {
		t.Error("a claim for server 0 superseded server 1")
	}
	if gone, _ := s.Superseded(0, c); gone {
		t.Error("the newest claim is superseded")
	}
}

// An incarnation is above all that is in the store, also where the claims were lost or put back from before: what comes later sorts later.
func TestClaimIsAboveWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for range 6 {
		claimed(t, s, 1)
	}
	inc := claimed(t, s, 1)
	if err := s.WriteTablet(3, 1, inc, 2, func(w io.Writer) error { _, err := w.Write([]byte("rows")); return err }); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "ctr", "claims")); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if next := claimed(t, s, 1); next <= inc {
		t.Errorf("without its claims, the incarnation after %d, which has a snapshot, is %d", inc, next)
	}
	record := claimed(t, s, 0)
	if err := s.PublishChief(ChiefInfo{Address: "a:1", Incarnation: record, Timeline: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "ctr", "claims")); err != nil {
		t.Fatal(err)
	}
	if next := claimed(t, open(t, dir), 1); next <= record {
		t.Errorf("without its claims, the incarnation after chief %d is %d", record, next)
	}
}

// Rule 2: what a store gave out is not given out again by an older copy of it.
func TestRule2OlderCopyGivesOutNoNumberAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	claimed(t, s, 0)
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	given := claimed(t, s, 1)
	if again := claimed(t, open(t, old), 0); again <= given {
		t.Errorf("the copy gives out %d, and %d was given out before", again, given)
	}
}

// Whoever has a chief from before the job was stopped is to end, and who has one from after it is not.
func TestRule2ShutOut(t *testing.T) {
	s := open(t, t.TempDir())
	before := claimed(t, s, 0)
	is := func(when string, inc uint64, want bool) {
		t.Helper()
		if stopped, err := s.Stopped(inc); err != nil || stopped != want {
			t.Errorf("%s: stopped since %d: %v, %v; want %v", when, inc, stopped, err, want)
		}
	}
	is("before", before, false)
	if err := s.ShutOut(2); err != nil {
		t.Fatal(err)
	}
	is("after", before, true)
	for i := range 2 {
		if gone, err := s.Superseded(i, before); err != nil || !gone {
			t.Errorf("server %d has its place: %v", i, err)
		}
	}
	next := claimed(t, s, 0)
	is("in the next run", next, false)
	if err := s.ShutOut(1); err != nil {
		t.Fatal(err)
	}
	is("after a second stop", next, true)
}
