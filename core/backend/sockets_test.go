package backend

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// briefDir is a folder whose path leaves room for a socket's.
func briefDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kale")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// What plugins that are gone have left is removed, what one that lives or is being started uses is not, and neither is anybody else's.
func TestSocketsAreSwept(t *testing.T) {
	base, now := briefDir(t), time.Now()
	folder := func(name string) string {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	listen := func(dir string) *net.UnixListener {
		l, err := net.Listen("unix", filepath.Join(dir, "plugin1"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l.(*net.UnixListener)
	}
	live, dead, starting, never, other := folder("kale-plugin-1"), folder("kale-plugin-2"), folder("kale-plugin-3"), folder("kale-plugin-4"), folder("others")
	naming, binding := folder("kale-plugin-5"), folder("kale-plugin-6")
	listen(live)
	for _, dir := range []string{dead, binding} { // a socket to which nobody listens any more, or not yet
		l := listen(dir)
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// go-plugin finds a name by making a file, which it removes before it listens there.
	if err := os.WriteFile(filepath.Join(naming, "plugin1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{live, dead, never, other} {
		if err := os.Chtimes(dir, now.Add(-time.Hour), now.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	// A host that was killed has left the file by which it would show that it lives: its folder is empty besides, or has a socket.
	killed, killedLater, holds := folder("kale-plugin-7"), folder("kale-plugin-8"), folder("kale-plugin-9")
	for _, dir := range []string{killed, killedLater, holds} {
		host := lockFolder(dir)
		if host == nil {
			t.Fatal("no lock")
		}
		if dir == holds {
			defer host.Close()
		} else if err := host.Close(); err != nil {
			t.Fatal(err)
		}
	}
	listen(killedLater) // its plugin has not noticed yet
	if err := os.Chtimes(holds, now.Add(-time.Hour), now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	sweepSockets(base, now)
	for dir, stays := range map[string]bool{killed: false, killedLater: true, holds: true, live: true, dead: false, starting: true, never: false, other: true, naming: true, binding: true} {
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s: %v; want that it stays: %v", filepath.Base(dir), err, stays)
		}
	}
}

func TestSocketBase(t *testing.T) {
	dir := briefDir(t)
	t.Setenv("TMPDIR", dir)
	state := filepath.Join(dir, "state")
	open := filepath.Join(dir, "open")
	long := filepath.Join(dir, strings.Repeat("x", 90))
	for _, d := range []string{state, open, long} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := socketBase(state); got != state {
		t.Errorf("a folder of the user's: %q", got)
	}
	for what, d := range map[string]string{"none": "", "one that is not there": filepath.Join(dir, "none"), "one that others may write": open, "a long path": long} {
		if got := socketBase(d); got != dir {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// Where nothing can be made among temporary files, that is what is wrong, and TMPDIR what helps.
func TestPluginWithoutTemporaryFiles(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "none")
	t.Setenv("TMPDIR", gone)
	_, err := Launch(t.Context(), nil, "true", Options{})
	if err == nil || !strings.Contains(err.Error(), "the folder for temporary files, "+gone+", is not there: make it, or set TMPDIR to one that is") {
		t.Errorf("%v", err)
	}
}

// A base that is taken away while the folder is made, or takes nothing, is no reason not to start.
func TestSocketFolderElsewhere(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	made, err := makeIn(filepath.Join(temporary, "gone"))
	if err != nil || filepath.Dir(made) != temporary {
		t.Errorf("made %q, %v", made, err)
	}
	t.Setenv("TMPDIR", filepath.Join(temporary, "none"))
	if made, err := makeIn(os.TempDir()); err == nil {
		t.Errorf("made %q where nothing can be made", made)
	}
}
