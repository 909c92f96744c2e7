package api_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/api"
)

func TestNobody(t *testing.T) {
	dir := shortDir(t)
	t.Run("no socket", func(t *testing.T) {
		if _, err := api.Dial(t.Context(), filepath.Join(dir, "none.sock")); !errors.Is(err, api.ErrNoScheduler) {
			t.Errorf("%v", err)
		}
	})
	t.Run("stale socket", func(t *testing.T) {
		if _, err := api.Dial(t.Context(), stale(t, dir)); !errors.Is(err, api.ErrNoScheduler) {
			t.Errorf("%v", err)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		if _, err := api.Dial(t.Context(), filepath.Join(dir, "a", "b.sock")); !errors.Is(err, api.ErrNoScheduler) {
			t.Errorf("%v", err)
		}
	})
}

// stale leaves a socket behind as a process that was killed does.
func stale(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
	return path
}

func TestListen(t *testing.T) {
	dir := shortDir(t)
	t.Run("replaces a stale socket", func(t *testing.T) {
		l, err := api.Listen(stale(t, dir))
		must(t, err)
		must(t, l.Close())
	})
	t.Run("refuses a live one", func(t *testing.T) {
		path := filepath.Join(dir, "live.sock")
		first, err := api.Listen(path)
		must(t, err)
		defer func() { must(t, first.Close()) }()
		if _, err := api.Listen(path); err == nil || !strings.Contains(err.Error(), "another scheduler answers") {
			t.Errorf("a second scheduler on the same socket: %v", err)
		}
		if conn, err := net.Dial("unix", path); err != nil {
			t.Errorf("the first one is disturbed: %v", err)
		} else {
			conn.Close()
		}
	})
	t.Run("leaves files alone", func(t *testing.T) {
		path := filepath.Join(dir, "notes.txt")
		must(t, os.WriteFile(path, []byte("mine"), 0o600))
		if _, err := api.Listen(path); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("a file where the socket goes: %v", err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
			t.Errorf("the file is %q, %v", got, err)
		}
	})
	t.Run("is its user's alone", func(t *testing.T) {
		path := filepath.Join(dir, "sub", "mode.sock")
		l, err := api.Listen(path)
		must(t, err)
		defer func() { must(t, l.Close()) }()
		for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
			if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s has mode %v, %v; want %v", p, info.Mode().Perm(), err, want)
			}
		}
	})
	t.Run("not where everybody writes", func(t *testing.T) {
		open := filepath.Join(dir, "open")
		must(t, os.Mkdir(open, 0o700))
		must(t, os.Chmod(open, 0o777))
		if _, err := api.Listen(filepath.Join(open, "a.sock")); err == nil || !strings.Contains(err.Error(), "everybody") {
			t.Errorf("a folder that everybody may write in: %v", err)
		}
	})
}

func TestSocketPath(t *testing.T) {
	short, err := api.SocketPath("/var/lib/kale/ctr")
	must(t, err)
	if short != "/var/lib/kale/ctr/api.sock" {
		t.Errorf("socket of a short folder: %s", short)
	}
	long := "/" + strings.Repeat("deep/", 40) + "ctr"
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1000")
	a, err := api.SocketPath(long)
	must(t, err)
	if !strings.HasPrefix(a, "/run/user/1000/kale-") || len(a) > 103 {
		t.Errorf("socket of a long folder: %s", a)
	}
	if b, err := api.SocketPath(long + "2"); err != nil || a == b {
		t.Errorf("two folders share the socket %s (%v)", a, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", long)
	if _, err := api.SocketPath(long); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("nowhere short enough: %v", err)
	}
}

// A real socket at the fallback's path works from end to end.
func TestLongStateFolder(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", shortDir(t))
	path, err := api.SocketPath(filepath.Join(t.TempDir(), strings.Repeat("x", 120)))
	must(t, err)
	l, err := api.Listen(path)
	must(t, err)
	defer func() { must(t, l.Close()) }()
	c, err := api.Dial(t.Context(), path)
	must(t, err)
	c.Close()
}
