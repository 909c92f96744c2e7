package ps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/trainer/checkpoint"
)

// The crash test runs this test binary again as a server process of its own, and kills it.
const crashEnv = "KALE_TEST_PS_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashEnv); dir != "" {
		if err := crashChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func crashRig(dir string) (Options, error) {
	store, err := checkpoint.Open(dir, "ctr")
	if err != nil {
		return Options{}, err
	}
	layout, err := NewLayout(6, 1, 30)
	return Options{
		Job: "ctr", Topic: "clicks", Timeline: "t1", MapVersion: 1, Layout: layout, RowWidth: 2,
		Optimiser: Optimiser{Kind: "sgd", LearningRate: 1}, Store: store,
	}, err
}

func crashStart(dir string) (*Server, error) {
	opt, err := crashRig(dir)
	if err != nil {
		return nil, err
	}
	if opt.Incarnation, err = opt.Store.ClaimIncarnation(0); err != nil {
		return nil, err
	}
	s, err := Restore(nil, opt)
	if err != nil {
		return nil, err
	}
	return s, s.SetStarts(map[int32]int64{0: 0})
}

func crashIDs() []uint64 {
	var ids []uint64
	for id := range uint64(1200) {
		ids = append(ids, id)
	}
	return ids
}

// crashChild replays from its watermark, one record per push, and takes snapshots all the time; it says on stdout how far it is durable. It never ends by itself.
func crashChild(dir string) error {
	s, err := crashStart(dir)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { // dies with the process
		applied, _, _ := watermarks(s)
		for o := applied; ; o++ {
			if _, err := s.Push(context.Background(), request(s, crashIDs(), part(0, o, o+1))); err != nil {
				failed <- err
				return
			}
		}
	}()
	go func() { // dies with the process
		for {
			if err := s.Snapshot(context.Background()); err != nil {
				failed <- err
				return
			}
			_, _, durable := watermarks(s)
			fmt.Println(durable)
		}
	}()
	return <-failed
}

// A server that is killed in the middle of pushes and snapshots, again and again, comes back with every tablet whole, never behind what it
// had called durable, and after the replay each record is in each tablet exactly once.
func TestKillDuringPushesAndSnapshots(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var durable int64
	for round := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, exe)
		cmd.Env = append(os.Environ(), crashEnv+"="+dir)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 2+round && lines.Scan(); n++ {
			if _, err := fmt.Sscan(lines.Text(), &durable); err != nil {
				t.Errorf("the child said %q", lines.Text())
			}
		}
		cancel() // SIGKILL, somewhere in the next snapshot
		err = cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended with %v: %s", err, stderr.String())
		}

		s, err := crashStart(dir)
		if err != nil {
			t.Fatal(err)
		}
		applied, touched, safe := watermarks(s)
		t.Logf("round %d: durable was %d; restored to durable %d, applied %d, touched %d", round, durable, safe, applied, touched)
		if applied < durable || safe < durable {
			t.Errorf("restored to applied %d and durable %d, below what was called durable, %d", applied, safe, durable)
		}
		wantWhole(t, s)
	}

	s, err := crashStart(dir)
	if err != nil {
		t.Fatal(err)
	}
	applied, touched, _ := watermarks(s)
	for o := applied; o < touched+5; o++ {
		if _, err := s.Push(t.Context(), request(s, crashIDs(), part(0, o, o+1))); err != nil {
			t.Fatal(err)
		}
	}
	wantWhole(t, s)
	for _, ts := range s.Sums() {
		if got, want := ts.Partitions[0], part(0, 0, touched+5); got.N != want.N || got.Hash != want.Hash {
			t.Errorf("tablet %d: %d records, hash %x; want %d, %x", ts.Tablet, got.N, got.Hash, want.N, want.Hash)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "ctr", "tablets", "*", "*.snap")); err != nil || len(left) > 6*(2+1) {
		t.Errorf("%d snapshot files are left, want at most %d: %v", len(left), 6*(2+1), err)
	}
}

// wantWhole demands that every weight of every tablet is the number of records that its ledger counts.
func wantWhole(t *testing.T, s *Server) {
	t.Helper()
	for _, tablet := range s.tablets {
		var n uint64
		if len(tablet.ledgers) > 0 {
			n = tablet.ledgers[0].N
		}
		view := tablet.rows.view()
		for i := range view.slabs {
			for _, w := range view.used(i) {
				if w != float32(n) {
					t.Fatalf("tablet %d: a weight of %v after %d records", tablet.id, w, n)
				}
			}
		}
		for _, w := range tablet.dense.v {
			if w != float32(n) {
				t.Fatalf("tablet %d: a dense weight of %v after %d records", tablet.id, w, n)
			}
		}
	}
}
