// Package state is what a scheduler keeps across restarts, in one embedded database file per job (bbolt).
//
// In and out: the job's desired state, its decisions with their arithmetic, samples of what was observed, finished rescales, rollbacks and losses. The file
// is locked while a scheduler has it open, so that one job has one scheduler on this machine; readers that find it locked ask that scheduler.
package state

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrLocked says that another process has the job's state open: its scheduler is running.
var ErrLocked = errors.New("another scheduler of this job is running")

// Buckets. Keys of all but the first are the time in nanoseconds and a sequence number, big-endian, so that they sort by time.
var (
	bucketKV        = []byte("kv")
	bucketDecisions = []byte("decisions")
	bucketSamples   = []byte("samples")
	bucketRescales  = []byte("rescales")
	bucketRollbacks = []byte("rollbacks")
	bucketLosses    = []byte("losses")

	buckets = [][]byte{bucketKV, bucketDecisions, bucketSamples, bucketRescales, bucketRollbacks, bucketLosses}
)

// Log names a time-ordered log.
type Log struct{ bucket []byte }

// The logs of a job.
var (
	Decisions = Log{bucketDecisions}
	Samples   = Log{bucketSamples}
	Rescales  = Log{bucketRescales}
	Rollbacks = Log{bucketRollbacks}
	Losses    = Log{bucketLosses}
)

// Store is a job's state file. It is safe for concurrent use.
type Store struct {
	db     *bbolt.DB
	path   string
	file   fs.FileInfo // the file that is open; nil of a reader
	holder string      // the file that names this process; "" of a reader
	own    string      // the folder of a copy, which goes with it
	// ballast is a file beside it that is given up for room; "" of a reader.
	ballast string
	// short is by how many bytes the file was cut off when it was opened.
	short int64
}

const stateFile = "state.db"

// holderFile names the process that has the state open, for people: the lock is the database's.
const holderFile = "holder"

// Holder is the process that has dir/state.db open, 0 where none has or it is not known.
func Holder(dir string) (pid int) {
	if !locked(filepath.Join(dir, stateFile)) {
		return 0 // whoever had it last has ended, and another process may have its number
	}
	raw, err := os.ReadFile(filepath.Join(dir, holderFile))
	if err != nil {
		return 0
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(raw))); err != nil {
		return 0
	}
	return pid
}

// locked says that a process has a database open to write to it.
func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // which gives up the lock
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// Open opens dir/state.db, creating both. ErrLocked: a scheduler has it.
func Open(dir string) (*Store, error) {
	path := filepath.Join(dir, stateFile)
	if emptied(path) {
		return nil, unopened("open", path, errEmptied)
	}
	db, err := openFile(path)
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("open the job's state %s: %w", path, ErrLocked)
	}
	if err != nil {
		return nil, unopened("open", path, err)
	}
	s := &Store{db: db, path: path, short: missing(db, path)}
	err = s.update(func(tx *bbolt.Tx) error {
		for _, b := range buckets {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the job's state %s: %w", path, err), db.Close())
	}
	if s.file, err = os.Stat(path); err != nil {
		return nil, errors.Join(fmt.Errorf("see the job's state %s: %w", path, err), db.Close())
	}
	s.ballast = filepath.Join(dir, ballastFile)
	s.keepBallast()
	holder := filepath.Join(dir, holderFile)
	_ = os.WriteFile(holder, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600) // a full disk keeps nobody from running: Holder then does not know
	s.holder = holder
	return s, nil
}

// openTries bounds how often a folder is made anew because who had made it for a trial took it away, empty as it was.
const openTries = 5

// openFile opens a file, and makes it and its folder where they are missing.
func openFile(path string) (db *bbolt.DB, err error) {
	for range openTries {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		err = guard(func() error {
			db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 200 * time.Millisecond, FreelistType: bbolt.FreelistMapType})
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return db, err
}

// OpenReader opens dir/state.db for reading only; it must be closed soon, since no scheduler can start meanwhile. ErrLocked: a scheduler has it.
// fs.ErrNotExist: there is none, or an empty file in which nothing ever was, of which a scheduler makes its own.
func OpenReader(dir string) (*Store, error) {
	path := filepath.Join(dir, stateFile)
	switch info, err := os.Stat(path); {
	case err != nil: // bbolt would create it
		return nil, fmt.Errorf("read the job's state: %w", err)
	case info.Size() > 0:
	case locked(path):
		return nil, fmt.Errorf("read the job's state %s: %w", path, ErrLocked)
	case emptied(path):
		return nil, unopened("read", path, errEmptied)
	default: // bbolt would write to it
		return nil, fmt.Errorf("read the job's state %s: the file is empty: %w", path, fs.ErrNotExist)
	}
	var db *bbolt.DB
	err := guard(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 200 * time.Millisecond, ReadOnly: true})
		return err
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("read the job's state %s: %w", path, ErrLocked)
	}
	if err != nil {
		return nil, unopened("read", path, err)
	}
	return &Store{db: db, path: path, short: missing(db, path)}, nil
}

// unopened says why a file was not opened, and what helps.
func unopened(what, path string, err error) error {
	if errno := syscall.Errno(0); !errors.Is(err, errDamaged) && !errors.As(err, &errno) { // it is not that the file cannot be reached
		err = fmt.Errorf("%w (%w)", errDamaged, err)
	}
	return fmt.Errorf("%s the job's state %s: %w", what, path, err)
}

var errDamaged = errors.New("the file is damaged: move it away, and the scheduler finds what runs from the backend and the chief")

var errEmptied = errors.New("it is empty, and what lies beside it says that a scheduler had written to it")

// emptied says that a file has nothing in it though a scheduler once had it open: the ballast is made after the first entry. Without that it is a file of which a
// scheduler makes its own.
func emptied(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Size() > 0 || locked(path) { // bbolt is at work on a new one
		return false
	}
	_, err = os.Stat(filepath.Join(filepath.Dir(path), ballastFile))
	return err == nil
}

// guard does something with a database: its library panics over a file that is damaged, and reads beyond one that was cut off.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%v)", errDamaged, p)
		}
	}()
	return do()
}

// decode reads what was saved as JSON. What is none is damage: a file that was cut off reads as zeros.
func decode(raw []byte, v any) error {
	err := json.Unmarshal(raw, v)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("%w (%w)", errDamaged, err)
	}
	return err
}

func (s *Store) view(f func(*bbolt.Tx) error) error {
	return guard(func() error { return s.db.View(f) })
}

func (s *Store) update(f func(*bbolt.Tx) error) error {
	return guard(func() error { return s.db.Update(f) })
}

// Moved says that the path of the file that a scheduler has open leads to no file, or to another one: somebody has moved or removed it, or its folder.
func (s *Store) Moved() bool {
	now, err := os.Stat(s.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(s.file, now)
}

// Folder is where the file that a scheduler has open is now, wherever its folder was moved; "": it was removed, or that cannot be told.
func (s *Store) Folder() string {
	for _, dir := range OpenIn(os.Getpid()) {
		if now, err := os.Stat(filepath.Join(dir, stateFile)); err == nil && os.SameFile(s.file, now) {
			return dir
		}
	}
	return ""
}

// OpenIn gives the folders whose state a process of this machine has open, wherever they were moved since. What was removed, or cannot be seen, is not among them.
func OpenIn(pid int) (dirs []string) {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is good
	for _, fd := range open {
		if path, err := os.Readlink(fd); err == nil && filepath.Base(path) == stateFile { // one that was removed has more behind its name
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	return dirs
}

// Close releases the file.
func (s *Store) Close() error {
	if s.holder != "" {
		_ = os.Remove(s.holder) // while the lock is still ours; one that stays is overwritten by the next
		s.holder = ""
	}
	err := s.db.Close()
	if s.own != "" {
		err = errors.Join(err, os.RemoveAll(s.own))
	}
	return err
}

// Put saves v as JSON under a key, durably.
func (s *Store) Put(key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("save %q in %s: %w", key, s.path, err)
	}
	err = s.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketKV).Put([]byte(key), raw) })
	if err != nil {
		return fmt.Errorf("save %q in %s: %w", key, s.path, err)
	}
	return nil
}

// Get reads what Put saved; found is false when there is nothing.
func (s *Store) Get(key string, v any) (found bool, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketKV)
		if b == nil {
			return nil // a reader of a file whose scheduler ended before it had begun
		}
		raw := b.Get([]byte(key))
		if raw == nil {
			return nil
		}
		found = true
		return decode(raw, v)
	})
	if err != nil {
		return false, fmt.Errorf("read %q from %s: %w", key, s.path, err)
	}
	return found, nil
}

// room is what must fit into the file before a store that could not be written counts as one that can be: all that one look writes, and more. On a disk that is
// all but full some writes succeed and others do not.
const (
	room    = 256 << 10
	roomKey = "room"
)

// Room returns why nothing much can be written, nil where it can.
func (s *Store) Room() error {
	err := s.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketKV).Put([]byte(roomKey), make([]byte, room)) })
	if err == nil {
		err = s.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketKV).Delete([]byte(roomKey)) })
	}
	if err != nil {
		return fmt.Errorf("make room in %s: %w", s.path, err)
	}
	return nil
}

const (
	ballastFile = "ballast"
	ballastSize = 128 << 10
)

// keepBallast sees to it that there is ballast. A disk that has no room for it is full already.
func (s *Store) keepBallast() {
	if info, err := os.Stat(s.ballast); err == nil && info.Size() >= ballastSize {
		return
	}
	if err := os.WriteFile(s.ballast, make([]byte, ballastSize), 0o600); err != nil {
		_ = os.Remove(s.ballast) // what was written of it
	}
}

// DropBallast makes room on a disk that is full, for the little that must be saved to leave it, and says whether it could. The next Open takes ballast in again.
func (s *Store) DropBallast() bool { return s.ballast != "" && os.Remove(s.ballast) == nil }

// Append adds an entry to a log, durably.
func (s *Store) Append(l Log, at time.Time, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("append to %s of %s: %w", l.bucket, s.path, err)
	}
	err = s.update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(l.bucket)
		seq, err := b.NextSequence()
		if err != nil {
			return err
		}
		return b.Put(key(at, seq), raw)
	})
	if err != nil {
		return fmt.Errorf("append to %s of %s: %w", l.bucket, s.path, err)
	}
	return nil
}

func key(at time.Time, seq uint64) []byte {
	k := make([]byte, 16)
	binary.BigEndian.PutUint64(k, uint64(at.UnixNano()))
	binary.BigEndian.PutUint64(k[8:], seq)
	return k
}

// Set writes an entry of a log durably, in place of the one that was there of the same time and number. A log is written by Set alone or by Append alone.
func (s *Store) Set(l Log, at time.Time, number uint64, v any) error {
	raw, err := json.Marshal(v)
	if err == nil {
		err = s.update(func(tx *bbolt.Tx) error { return tx.Bucket(l.bucket).Put(key(at, number), raw) })
	}
	if err != nil {
		return fmt.Errorf("write to %s of %s: %w", l.bucket, s.path, err)
	}
	return nil
}

// Trim removes the entries of a log before a time.
func (s *Store) Trim(l Log, before time.Time) error {
	limit := uint64(before.UnixNano())
	err := s.update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(l.bucket).Cursor()
		for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k) < limit; k, _ = c.Next() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("trim %s of %s: %w", l.bucket, s.path, err)
	}
	return nil
}

// Scan calls f with each entry of a log from a time on, in order, until f returns false.
func Scan[T any](s *Store, l Log, from time.Time, f func(T) bool) error {
	start := make([]byte, 8)
	if !from.IsZero() {
		binary.BigEndian.PutUint64(start, uint64(from.UnixNano()))
	}
	err := s.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(l.bucket)
		if b == nil {
			return nil // a reader of a file that is older than the log
		}
		c := b.Cursor()
		for k, raw := c.Seek(start); k != nil; k, raw = c.Next() {
			var v T
			if err := decode(raw, &v); err != nil {
				return err
			}
			if !f(v) {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s of %s: %w", l.bucket, s.path, err)
	}
	return nil
}

// Last returns the newest n entries of a log, oldest first.
func Last[T any](s *Store, l Log, n int) ([]T, error) {
	var out []T
	err := s.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(l.bucket)
		if b == nil {
			return nil // a reader of a file that is older than the log
		}
		c := b.Cursor()
		for k, raw := c.Last(); k != nil && len(out) < n; k, raw = c.Prev() {
			var v T
			if err := decode(raw, &v); err != nil {
				return err
			}
			out = append(out, v)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", l.bucket, s.path, err)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}
