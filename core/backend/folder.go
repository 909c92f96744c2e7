package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// This file has what a backend needs that keeps what it knows in folders: files that are whole or not there, and locks.

// WriteFile replaces the file at path, with mode 0600, or leaves it as it was. What it wrote survives a power cut.
func WriteFile(path string, content []byte) error { return WriteFileMode(path, content, 0o600) }

// WriteFileMode is WriteFile for a file that others may read too. Where path is no file but a device, a pipe or a terminal, as /dev/stdout may be, it is written
// to: a file that took its place would be in everybody's way. A link's file is
// replaced, and the link stays.
func WriteFileMode(path string, content []byte, mode os.FileMode) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return writeInto(path, content)
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	draft, err := WriteDraft(path, content, mode)
	if err != nil {
		return err
	}
	if err = os.Rename(draft, path); err != nil {
		_ = os.Remove(draft) // the first error tells more
	}
	return writing(path, err)
}

// writing is the error of a file that was to be written, by the name that it was to have.
func writing(path string, err error) error {
	var op *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &op):
		err = op.Err
	case errors.As(err, &link):
		err = link.Err
	default:
		return err
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}

// writeInto writes to what is there.
func writeInto(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// WriteDraft writes a whole file beside path, under a hidden name of its own: to be linked or renamed to path, or removed.
func WriteDraft(path string, content []byte, mode os.FileMode) (draft string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return "", writing(path, err)
	}
	if mode != 0o600 { // which CreateTemp gives, also where nothing can be changed
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, writeOut(f, content)); err != nil {
		_ = os.Remove(f.Name()) // the first error tells more
		return "", writing(path, err)
	}
	return f.Name(), nil
}

// writeOut writes the content to the disk, and closes the file.
func writeOut(f *os.File, content []byte) error {
	_, err := f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// WriteJSON is WriteFile of a value as JSON.
func WriteJSON(path string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(path, raw)
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// AllocFolder is the name that WriteFolder gives to the folder for a workload's Files and its own.
const AllocFolder = "alloc"

// draftPrefix begins the name of a folder that WriteFolder has not finished.
const draftPrefix = ".new-"

// WriteFolder makes the folder of a workload, and those above it: own are the backend's files by name, files are Workload.Files, which go into AllocFolder
// below it. It makes the folder under another name first: at dir it is complete, or not there.
func WriteFolder(dir string, own, files map[string][]byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(filepath.Dir(dir), draftPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(draft) // the first error tells more
		}
	}()
	if err := os.Mkdir(filepath.Join(draft, AllocFolder), 0o700); err != nil {
		return err
	}
	contents := map[string][]byte{}
	maps.Copy(contents, own)
	for name, content := range files {
		contents[filepath.Join(AllocFolder, name)] = content
	}
	for name, content := range contents {
		f, err := os.OpenFile(filepath.Join(draft, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			err = writeOut(f, content)
		}
		if err != nil {
			return err
		}
	}
	return os.Rename(draft, dir)
}

// RemoveFiles removes files of a workload's AllocFolder by name, from the folder that WriteFolder has made: what it was given is not to outlive it, since it may
// be a secret. What the workload itself has written stays. A file that is not there is no error.
func RemoveFiles(dir string, names []string) error {
	var all []error
	for _, name := range names {
		if err := os.Remove(filepath.Join(dir, AllocFolder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// FileCode says what an error of the file system means to the scheduler: most need a person (Blocked), the rest may pass (Unavailable).
func FileCode(err error) Code {
	for _, e := range []error{
		fs.ErrPermission, unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.ENOTDIR, unix.ENAMETOOLONG, unix.EFBIG, fs.ErrExist,
	} {
		if errors.Is(err, e) {
			return Blocked
		}
	}
	return Unavailable
}

// lockRetry is how often a lock that is taken is tried again: flock itself cannot be given up when a context ends.
const lockRetry = 5 * time.Millisecond

// Lock takes the lock (flock) on the file at path, and makes the file where there is none. Who else has the lock is waited for, until ctx ends. The lock is
// held for as long as the file is open, here or in a process that inherited it.
func Lock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := TryLock(path)
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s, which another process holds: %w", path, ctx.Err())
		case <-time.After(lockRetry):
		}
	}
}

// TryLock is Lock without the wait: it gives nil, and no error, when the lock is taken.
func TryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = Flock(f, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// Flock is flock(2), begun again where a signal interrupts it.
func Flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// IsAt says that a file that is open is the one that has the path now, and not one that was moved or removed since. No link is followed.
func IsAt(f *os.File, path string) bool {
	has, err := f.Stat()
	if err != nil {
		return false
	}
	is, err := os.Lstat(path)
	return err == nil && os.SameFile(has, is)
}
