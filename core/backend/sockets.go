package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Plugins listen on unix sockets, each in a folder of its own. Who ends well removes it; where host and plugin are killed together it stays, until some
// a plugin is started in the same place: a file in it is locked by its host, so that it shows at once whether that one lives.
const (
	socketFolder = "kale-plugin-" // and a number
	// maxSocketPath is the longest path of a unix socket that all systems take, and socketNames the longest that is put behind the base: go-plugin's name
	// in our folder.
	maxSocketPath = 103
	socketNames   = len("/" + socketFolder + "4294967295/plugin4294967295")
	// hostFile is locked by who made the folder, for as long as it lives.
	hostFile = "host"
	// settling is how long a folder may have no socket to which somebody listens, where it is not known whether its host lives: its plugin has just been started.
	settling    = 5 * time.Minute
	knockWithin = time.Second
)

// makeSocketFolder makes the folder for one plugin's socket, and removes those of plugins that are gone. host is to be closed when the folder is not needed any more; nil: its
// file system has no locks.
func makeSocketFolder(dir string, now time.Time) (made string, host *os.File, err error) {
	base := socketBase(dir)
	sweepSockets(base, now)
	if base != os.TempDir() {
		sweepSockets(os.TempDir(), now) // where that of a job's first run was, before it had a folder
	}
	if made, err = makeIn(base); err != nil {
		return "", nil, err
	}
	return made, lockFolder(made), nil
}

// lockFolder marks a folder as that of a host that lives. The file has its name only once it is locked: whoever finds it unlocked knows that the host is gone.
func lockFolder(folder string) *os.File {
	draft := filepath.Join(folder, "."+hostFile)
	host, err := TryLock(draft)
	if err == nil && host != nil {
		err = os.Rename(draft, filepath.Join(folder, hostFile))
	}
	if err != nil {
		_ = os.Remove(draft) // a folder without is swept later
	}
	return host
}

// tryTemporary says what helps where nothing can be made among temporary files, which whatever starts a plugin needs.
func tryTemporary() error {
	dir, err := os.MkdirTemp("", socketFolder)
	if err == nil {
		_ = os.Remove(dir) // an empty folder that stays is swept
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder for temporary files, %s, is not there: make it, or set TMPDIR to one that is", os.TempDir())
	}
	return fmt.Errorf("nothing can be made in the folder for temporary files, %s: %w: set TMPDIR to one that can be written", os.TempDir(), err)
}

// makeIn makes the folder in base or, where that fails, among temporary files.
func makeIn(base string) (string, error) {
	made, err := os.MkdirTemp(base, socketFolder)
	if err != nil && base != os.TempDir() { // it was removed just now, or takes nothing
		made, err = os.MkdirTemp(os.TempDir(), socketFolder)
	}
	return made, err
}

// socketBase is the folder in which a plugin's folder is made: dir where that is there and its path is short enough, else that of temporary files.
func socketBase(dir string) string {
	if abs, err := filepath.Abs(dir); dir != "" && err == nil && len(abs)+socketNames <= maxSocketPath && private(abs) {
		return abs
	}
	return os.TempDir()
}

// private says that a folder is there, and that nobody else may write in it.
func private(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

// sweepSockets removes the folders in base whose plugins are gone.
func sweepSockets(base string, now time.Time) {
	folders, _ := filepath.Glob(filepath.Join(escaped(base), socketFolder+"*")) // the pattern is a good one
	for _, folder := range folders {
		if private(folder) && deserted(folder, now) {
			_ = os.RemoveAll(folder) // one that stays is swept the next time
		}
	}
}

// escaped is a path as a pattern that matches it alone.
func escaped(path string) string {
	var out []rune
	for _, r := range path {
		if r == '*' || r == '?' || r == '[' || r == '\\' {
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}

// deserted says that nobody listens in a plugin's folder any more. A plugin that starts refuses too, for a moment: its socket is bound before it listens, and
// before that a file stands there for its name.
func deserted(folder string, now time.Time) bool {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return false
	}
	gone := false
	for _, e := range entries {
		if e.Name() == hostFile {
			host, err := TryLock(filepath.Join(folder, hostFile))
			if host == nil || err != nil {
				return false
			}
			gone = true
			_ = host.Close()
			continue
		}
		conn, err := net.DialTimeout("unix", filepath.Join(folder, e.Name()), knockWithin)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return false
		}
	}
	if gone {
		return true
	}
	info, err := os.Stat(folder)
	return err == nil && now.Sub(info.ModTime()) > settling
}
