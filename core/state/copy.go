package state

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// OpenCopy opens for reading a copy of dir/state.db, which goes when it is closed. It is for the state of a scheduler that is suspended: a suspended one keeps the
// file locked and changes nothing in it, and what it had begun to write counts as not written, as after its death. A file that is written meanwhile may be copied torn.
func OpenCopy(dir string) (st *Store, err error) {
	path := filepath.Join(dir, "state.db")
	own, err := os.MkdirTemp("", "kale-state-")
	if err != nil {
		return nil, fmt.Errorf("copy the job's state %s: %w", path, err)
	}
	defer func() {
		if st == nil {
			err = errors.Join(err, os.RemoveAll(own))
		}
	}()
	if err := copyFile(filepath.Join(own, "state.db"), path); err != nil {
		return nil, fmt.Errorf("copy the job's state %s: %w", path, err)
	}
	if st, err = OpenReader(own); err != nil {
		return nil, err
	}
	st.own = own
	return st, nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
