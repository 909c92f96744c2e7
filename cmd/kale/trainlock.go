package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// lockSuffix ends the name of the file that a training of FEDformer holds a lock on while it lasts, with its process in it.
const lockSuffix = partSuffix + ".lock"

// claimTraining has the training of a FEDformer to itself: two that write the same file would take each other's part for their own. What was begun before and is begun
// anew now is told. The system lets go of a lock when its process ends, however that ends. free lets go, and removes the lock's file.
func (a *app) claimTraining(f trainFlags) (free func(), err error) {
	path := f.out + lockSuffix
	var lock *os.File
	for lock == nil {
		lock, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("train a forecast model: %w", err)
		}
		err = backend.Flock(lock, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			defer lock.Close()
			return nil, fmt.Errorf("train a forecast model: %s is being trained by another kale%s: wait for its end or end it, or name another file with -o", f.out, trainedBy(lock))
		case err != nil:
			return nil, errors.Join(fmt.Errorf("train a forecast model: lock %s: %w", path, err), lock.Close())
		case !backend.IsAt(lock, path): // who had it has just ended, and removed it
			_ = lock.Close() // nothing was written
			lock = nil
		}
	}
	// The process is told to others only: that it cannot be written forbids nothing.
	if lock.Truncate(0) == nil {
		_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if st, err := os.Stat(f.out + partSuffix); err == nil && !f.resume {
		a.advise("there is a training of %s begun before, kept at %s: it is begun anew, and after its first epoch that one is gone. To go on with it instead, end this one and give -resume -o %s\n",
			f.out, st.ModTime().Local().Format(time.DateTime), backend.Quoted(f.out))
	}
	return func() {
		_ = os.Remove(path) // before the lock is let go of: nobody else's is removed
		_ = lock.Close()
	}, nil
}

// trainedBy names the process that holds a lock; "": it is not known.
func trainedBy(lock *os.File) string {
	raw, err := io.ReadAll(io.LimitReader(lock, 32))
	if pid, e := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && e == nil && pid > 0 {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}
