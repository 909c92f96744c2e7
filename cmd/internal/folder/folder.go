// Package folder makes folders for a trial and takes them away again.
//
// In: a folder's path. Out: what of it was made. Several programs try the same folder at the same time, and one may begin to use it for good: so only that is
// taken away which the same caller made, and only while it is empty.
package folder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Made are folders that one call of Make has made, the deepest first.
type Made []string

// Make makes a folder that only its owner uses, with those above it that are missing. What it made counts also where it failed.
func Make(dir string) (made Made, err error) {
	info, err := os.Stat(dir)
	switch above := filepath.Dir(dir); {
	case err == nil && !info.IsDir():
		return nil, &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("a file is there")}
	case err == nil || !errors.Is(err, fs.ErrNotExist) || above == dir:
		return nil, err
	default:
		if made, err = Make(above); err != nil {
			return made, err
		}
	}
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist): // another one was faster: it is that one's
		return made, nil
	case err != nil:
		return made, err
	}
	return append(Made{dir}, made...), nil
}

// Remove takes the folders away that are empty: in the others somebody has put something meanwhile.
func (m Made) Remove() {
	for _, dir := range m {
		_ = os.Remove(dir) // which removes nothing that is not empty
	}
}
