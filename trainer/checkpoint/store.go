// Package checkpoint is the store in which a job's state survives its processes: a folder that all of them reach.
//
// In: the claims of parameter servers, the chief's small durable state, and tablet snapshots as streams of bytes. Out: the same, verified.
// What a snapshot's bytes mean is the business of package ps.
//
// # Layout
//
//	DIR/JOB/claims/N              the number N has been given out (exclusive create)
//	DIR/JOB/claims/N.server-K     … to parameter server K: its incarnation
//	DIR/JOB/job/I-S.json          the job's state, saved by chief incarnation I as its S-th
//	DIR/JOB/job/I-S.copy          the same again, which is taken where that is damaged or lost
//	DIR/JOB/chief/I.json          where the chief of incarnation I listens
//	DIR/JOB/memory/I-S.json       metrics of workers that have left, kept for the next chief
//	DIR/JOB/tablets/T/I-G.snap    snapshot of tablet T by incarnation I, generation G
//	DIR/JOB/written/K/I-S.json    which snapshots server K knows to be there, and where it goes on from them: what is missing later was lost (manifest.go)
//	DIR/JOB/restore/K/I-S.json    what server K found wrong when it started (rpc.RestoreRecord)
//	DIR/JOB/anew/T                an operator's order: tablet T, which cannot be restored, begins anew
//
// # Fencing
//
// A folder has no compare-and-set on a file's content, and a process can be stopped between any two system calls: after a check that
// it is still the one, it may sleep for an hour, wake and write. So nothing here is ever overwritten in place. Every name begins with
// the writer's incarnation, a number that is given out once; readers take the highest name, so what an old incarnation writes late
// lies below what its successor wrote, and never wins (EXACTLY_ONCE rule 2). Writers also look before and after each write whether
// they have been superseded: that is how they learn that they must exit, not what keeps the state safe.
//
// Only POSIX calls are used (exclusive create, rename, fsync of file and folder), so any local or cluster file system does, NFS included.
package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/kale-sched/kale/core/rpc"
)

var (
	// ErrNoJob says that the store holds no job state yet.
	ErrNoJob = errors.New("no job state in the checkpoint store")
	// ErrNoChief says that no chief has published itself yet.
	ErrNoChief = errors.New("no chief in the checkpoint store")
	// ErrGone says that the store which the job had is not there.
	ErrGone = errors.New("the checkpoint is gone")
	// ErrSuperseded says that a higher incarnation has claimed the caller's place: its process must exit without writing more.
	ErrSuperseded = errors.New("superseded by a newer incarnation")
	// ErrDamaged says that a file of the store does not verify: it is torn, altered, or another one's.
	ErrDamaged = rpc.ErrDamaged
)

// Store is one job's part of the checkpoint folder. Its methods are safe for concurrent use, by any number of processes.
type Store struct {
	root string
	job  string

	mu       sync.Mutex
	verified map[Generation]bool // snapshot files that this process has read back whole

	// fault is called at named points between system calls; tests stop, kill or fail there. Nil outside tests.
	fault func(point string) error
}

// Open opens the store of a job under dir and creates what is missing. It writes and removes a probe file, so a folder that cannot be
// written is refused here and not at the first snapshot.
func Open(dir, job string) (*Store, error) {
	if dir == "" {
		return nil, errors.New("open checkpoint store: no folder given: set checkpoint.dir to one that every process of the job can reach")
	}
	if job == "" || job == "." || job == ".." || strings.ContainsAny(job, "/\\\x00") {
		return nil, fmt.Errorf("open checkpoint store in %s: the job name %q cannot name a folder", dir, job)
	}
	s := Attach(dir, job)
	err := os.MkdirAll(s.root, 0o777)
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		return nil, s.failed(err)
	}
	return s, nil
}

// Reopen is Open for a job whose store was there before: one that is gone is not made anew (ErrGone), since it would be taken for the job's, and be in its way when
// it is back. Where only the job's state is missing, the store is opened without it.
func Reopen(dir, job string) (*Store, error) {
	s := Attach(dir, job)
	names, err := s.recordNames(rpc.JobStateFolder)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil && len(names) == 0 && len(rpc.Remains(s.root)) == 0 {
		return nil, s.Gone()
	}
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		return nil, s.failed(err)
	}
	return s, nil
}

// Gone is ErrGone for people.
func (s *Store) Gone() error {
	return fmt.Errorf("%w: %s had the checkpoint of job %q, and has it no more: mount the folder or bring it back, and the job goes on by itself", ErrGone, s.root, s.job)
}

// MakeJobFolder makes the folder of the job's state where it was lost. Only who has that state may: an empty one is in the way of one that is brought back.
func (s *Store) MakeJobFolder() error {
	if err := os.Mkdir(filepath.Join(s.root, rpc.JobStateFolder), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(s.root)
}

func (s *Store) failed(err error) error {
	return fmt.Errorf("open checkpoint store of job %q: %w%s", s.job, err, advice(err))
}

// prepare makes what is missing in the store's folder, which must be there, and tries to write. The folder of the job's state is missing only before the job has
// begun: one that is made where it was lost would be in its way.
func (s *Store) prepare() error {
	subs := []string{"claims", "chief", memoryKind, "tablets", anewDir}
	if len(rpc.Remains(s.root)) == 0 {
		subs = append(subs, rpc.JobStateFolder)
	}
	for _, sub := range subs {
		if err := os.Mkdir(filepath.Join(s.root, sub), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	probe, err := os.CreateTemp(s.root, ".probe-*")
	if err != nil {
		return err
	}
	defer os.Remove(probe.Name()) //nolint:errcheck // a probe that is left behind harms nobody
	_, err = probe.Write([]byte("probe"))
	if err := errors.Join(err, probe.Sync(), probe.Close()); err != nil {
		return fmt.Errorf("write to %s: %w", s.root, err)
	}
	// The new folders themselves must survive a crash of the machine.
	return errors.Join(syncDir(filepath.Dir(s.root)), syncDir(s.root))
}

// Attach gives the store of a job for reading only: it creates and checks nothing, so that a machine that lacks the folder does not get an empty one of
// the same name. What is missing shows as ErrNoJob or ErrNoChief.
func Attach(dir, job string) *Store {
	return &Store{root: filepath.Join(dir, job), job: job, verified: map[Generation]bool{}}
}

// Root is the job's own folder, for messages.
func (s *Store) Root() string { return s.root }

// point runs the test hook of that name.
func (s *Store) point(name string) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(name)
}

// advice says what to do about the failures of a folder that operators meet.
func advice(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return " (the disk or the quota is full: free some space, or set checkpoint.dir to a larger disk)"
	case errors.Is(err, syscall.EFBIG):
		return " (a file size limit: raise `ulimit -f`)"
	case errors.Is(err, fs.ErrPermission):
		return " (the trainer's user may not write there: change the folder's owner or set checkpoint.dir to another)"
	case errors.Is(err, syscall.EROFS):
		return " (the file system is read-only: mount it writable on every node that may run a server)"
	case errors.Is(err, syscall.ENOTDIR):
		return " (a part of the path is a file, not a folder)"
	case errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.EIO):
		return " (the file system has failed: is the mount still there?)"
	}
	return ""
}

// syncDir makes the entries of a folder (new, renamed, removed) survive a crash of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	// Some network file systems cannot sync a folder and need not: they say so with EINVAL or ENOTSUP.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
