package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The tests below run this test binary again as a process of its own, which dies or meets its limits there.
const childEnv = "KALE_TEST_CHECKPOINT_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := child(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child writes generation 2 of tablet 5 and is killed at the point that what names, or runs into a full disk.
func child(what string) error {
	s, err := Open(os.Getenv("KALE_TEST_CHECKPOINT_DIR"), "ctr")
	if err != nil {
		return err
	}
	if strings.HasPrefix(what, "full disk") {
		// A file size limit makes write(2) itself fail, as a full disk does.
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}); err != nil {
			return err
		}
	}
	s.fault = func(point string) error {
		if point == what {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
		return nil
	}
	inc, err := strconv.ParseUint(os.Getenv("KALE_TEST_CHECKPOINT_INCARNATION"), 10, 64)
	if err != nil {
		return err
	}
	return s.WriteTablet(5, 0, inc, 2, func(w io.Writer) error {
		for i := range 64 {
			if i == 32 && s.fault("body") != nil {
				return errors.New("unreachable")
			}
			if _, err := w.Write([]byte(strings.Repeat("2", 32<<10))); err != nil && what != "full disk, ignored" {
				return err
			}
		}
		return nil
	})
}

func runChild(t *testing.T, dir, what string, inc uint64) (stderr string, err error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+what, "KALE_TEST_CHECKPOINT_DIR="+dir, fmt.Sprintf("KALE_TEST_CHECKPOINT_INCARNATION=%d", inc))
	var text strings.Builder
	cmd.Stderr = &text
	err = cmd.Run()
	return text.String(), err
}

// kill -9 at any point of a snapshot leaves the generation before, or the new one whole; the successor works on and clears up.
func TestKillInMidSnapshot(t *testing.T) {
	for _, c := range []struct {
		at   string
		want string // what a restore takes afterwards
	}{
		{"snapshot before body", "1"},
		{"body", "1"},
		{"snapshot before sync", "1"},
		{"snapshot before rename", "1"},
		{"snapshot before folder sync", "2"},
	} {
		t.Run(c.at, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			first := claimed(t, s, 0)
			if err := put(s, 0, first, 1, "1"); err != nil {
				t.Fatal(err)
			}
			_, err := runChild(t, dir, c.at, first)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the child was not killed: %v", err)
			}
			s = open(t, dir)
			second := claimed(t, s, 0)
			if got := newest(t, s); got == "" || got[:1] != c.want {
				t.Errorf("a restore takes %.10q, want generation %s", got, c.want)
			}
			for gen := uint64(1); gen <= 2; gen++ {
				if err := put(s, 0, second, gen, "3"); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Prune(5, second, 2); err != nil {
				t.Fatal(err)
			}
			if got := files(t, s); len(got) != 2 {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

// A full disk is an error that says so, also when the one who writes does not look, and the generation before stands.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	first := claimed(t, s, 0)
	if err := put(s, 0, first, 1, "1"); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"full disk", "full disk, ignored"} {
		stderr, err := runChild(t, dir, what, first)
		if err == nil || !strings.Contains(stderr, fmt.Sprintf("write snapshot (tablet 5, incarnation %d, generation 2)", first)) || !strings.Contains(stderr, "file size limit") {
			t.Errorf("%s: the child ended with %v and said %q", what, err, stderr)
		}
	}
	if got := newest(t, s); got != "1" {
		t.Errorf("a restore takes %q, want the generation before", got)
	}
	if got := files(t, s); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
}
