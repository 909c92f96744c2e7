package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// checkOut makes sure, before something is computed that takes long, that the file which is to hold it can be written, and is none of those that it is made from.
// Inputs that are "" or no files are passed over.
func checkOut(path string, inputs ...string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("write %s: it is a folder: name a file in it", path)
	case err == nil && !info.Mode().IsRegular():
		return nil // a device or a pipe: to open it may wait for a reader
	}
	if err == nil {
		for _, in := range inputs {
			if of, err := os.Stat(in); err == nil && os.SameFile(of, info) {
				return fmt.Errorf("write %s: it is the file that is read as %s: name another file to write", path, in)
			}
		}
	}
	dir := filepath.Dir(path)
	if to, err := filepath.EvalSymlinks(path); err == nil {
		dir = filepath.Dir(to) // a link stays where it is
	}
	err = unix.Access(dir, unix.W_OK|unix.X_OK)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write %s: there is no folder %s: make it, or name a file elsewhere", path, dir)
	case err != nil:
		return fmt.Errorf("write %s: the folder %s cannot be written: %w: name a file elsewhere", path, dir, err)
	}
	return nil
}
