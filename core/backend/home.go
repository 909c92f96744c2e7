package backend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Home says in which folder a backend keeps what runs of a job, where that could be one of several: each scheduler of the job has a state folder of its own, and
// all that share the job's checkpoint must see the same processes. It stands in a file beside the checkpoint:
//
//	SHARED/.JOB.local    of the local backend; its doc comment says for how long
//
// The file is written whole. Who changes one that is there holds its lock (flock), so that of many who try at the same time one does.
type Home struct {
	Origin
	Dir string `json:"dir"`

	path string
	raw  []byte // as it was read; nil: there is none
}

// HomePath is the file of a job in the folder that its schedulers share, which holds its checkpoint.
func HomePath(shared, job, backend string) string {
	return filepath.Join(shared, "."+job+"."+backend)
}

// ReadHome reads the file at path. That there is none is no error: Found then says so. One that is damaged says what to do.
func ReadHome(path string) (Home, error) {
	h := Home{path: path}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // where a file is in the checkpoint folder's place nothing was ever kept
		return h, nil
	}
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(raw, &h); err != nil || !filepath.IsAbs(h.Dir) {
		if err == nil {
			err = errors.New("it names no folder")
		}
		return h, fmt.Errorf("%s says where the job's processes are kept, and is damaged (%w): where none of them lives, remove the file", path, err)
	}
	h.raw = raw
	return h, nil
}

// Found says that there is a file.
func (h Home) Found() bool { return h.raw != nil }

// errHomeMoved says that the file is not any more what was read.
var errHomeMoved = errors.New("another scheduler has just changed it")

// Move makes dir the job's folder, in place of what h says. It changes nothing, and fails, where that is not what the file says any more.
func (h Home) Move(dir string) error {
	raw, err := json.MarshalIndent(Home{Origin: ThisOrigin(), Dir: dir}, "", "  ")
	if err != nil {
		return err
	}
	draft, err := WriteDraft(h.path, append(raw, '\n'), 0o644) // others have to read whose it is
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft) }() // it was renamed, or a draft that stays harms nobody
	if h.Found() {
		return h.change(func() error { return os.Rename(draft, h.path) })
	}
	if err = os.Link(draft, h.path); errors.Is(err, fs.ErrExist) { // which never replaces one
		return errHomeMoved
	}
	return err
}

// Drop removes the file, where it still says what h does.
func (h Home) Drop() error {
	if !h.Found() {
		return nil
	}
	return h.change(func() error { return os.Remove(h.path) })
}

// change does what replaces or removes the file, under its lock, if it is the one that was read.
func (h Home) change(do func() error) error {
	f, err := os.Open(h.path)
	if err != nil {
		return err
	}
	defer f.Close() // which lets go of the lock
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errHomeMoved
	} else if err != nil {
		return err
	}
	held, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(h.path)
	if err != nil {
		return err
	}
	now, err := os.ReadFile(h.path)
	if err != nil {
		return err
	}
	if !os.SameFile(held, there) || !bytes.Equal(now, h.raw) {
		return errHomeMoved
	}
	return do()
}
