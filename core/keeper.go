package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// A job has one scheduler, wherever those that reach its checkpoint folder run: the one that holds the job's lease.
//
//	DIR/.JOB.scheduler-N    who holds the job, as the N-th; the highest number counts
//	DIR/.JOB.scheduler-last who held it last, for people
//
// The file is written whole and linked to its name, which only one of those that try for a number can do. Nothing is overwritten, so whoever sleeps
// between two steps and wakes finds a higher number, another's nonce in the file of its number (numbers begin again when a lease is given back), or its own file
// gone and word of who held the job since, and has lost it: it never takes up again what others had meanwhile. What is older than its own lease, as in a folder that was put back from
// a copy, is no such word. A lease is renewed by touching its file, and its age is taken by the file system's own clock, so the clocks of machines are never compared. Who lives on this
// machine is seen at once, whatever the age.
const (
	// leaseEvery is how often a lease is renewed where no look does so.
	leaseEvery = 5 * time.Second
	// leaseLapse is the age at which the lease of a scheduler that cannot be seen counts as given up.
	leaseLapse = time.Minute
	// leaseSure is for how long a scheduler whose lease cannot be renewed may act: nobody takes it before the rest has passed.
	leaseSure = leaseLapse / 2
	// leaseClose bounds the wait for a folder that hangs.
	leaseClose = 2 * time.Second
)

// Lease is a job that is held. It is safe for concurrent use.
type Lease struct {
	job, dir string // dir is checkpoint.dir
	number   uint64
	nonce    string // what the file of that number says where it is this lease's
	me       Holder
	stopped  atomic.Bool // the job has stopped

	asked chan chan error
	stop  chan struct{}
	ended chan struct{} // closed by keep, which then has given the lease back
	once  sync.Once
	sure  atomic.Pointer[time.Time] // until when it is ours for certain
	seen  time.Time                 // its file's age when it was seen last, by its file system's clock; touched by keep alone once that runs
	lost  atomic.Pointer[LostError]
	// elsewhere says that a scheduler with another state folder had the job last, so that what is in this one's may be old.
	elsewhere bool
}

// TakeLease takes a job for the scheduler in this process, whose state is in a folder. HeldError: another one has it, and force was not given.
// fs.ErrNotExist: there is no checkpoint folder. Its log is to name the job.
func TakeLease(lg *slog.Logger, j *job.Job, stateDir string, force bool) (*Lease, error) {
	l := &Lease{job: j.Name, dir: j.Checkpoint.Dir, asked: make(chan chan error), stop: make(chan struct{}), ended: make(chan struct{})}
	last, _ := KeeperOf(j) // what keeps that from being read is met again below
	began := time.Now()
	was, err := l.take(thisHolder(stateDir), force)
	if err != nil {
		return nil, err
	}
	l.elsewhere = last != nil && (last.StateDir != stateDir || last.Host != l.me.Host)
	if was != nil {
		lg.Info("the job was taken over from another scheduler", "scheduler", was.Words())
	}
	l.sureFrom(began)
	go l.keep(lg) // ends with Close; alone touches the lease's file
	return l, nil
}

// draft is beside what drafts of leases are written.
func (l *Lease) draft() string { return filepath.Join(l.dir, "scheduler") }

func (l *Lease) failed(err error) error {
	return fmt.Errorf("take job %q for this scheduler, in its checkpoint folder %s: %w%s", l.job, l.dir, err, folderAdvice(err))
}

// folderAdvice says what helps where a scheduler cannot use the checkpoint folder.
func folderAdvice(err error) string {
	for _, known := range []struct {
		err    error
		advice string
	}{
		{unix.EROFS, "the file system is read-only: mount it writable on this machine too, since a scheduler notes there that it has the job"},
		{fs.ErrPermission, "a scheduler notes there that it has the job: let this user write in the folder, or run Kale as one who may"},
		{unix.ENOSPC, "free some space there"}, {unix.EDQUOT, "free some space there, or raise the quota"},
		{unix.ESTALE, "the file system has failed: see that it is mounted"}, {unix.EIO, "the file system has failed: see that it is mounted"},
	} {
		if errors.Is(err, known.err) {
			return " (" + known.advice + ")"
		}
	}
	return ""
}

// take tries until it has the highest number, or another scheduler has the job. It gives whose lease it ended.
func (l *Lease) take(me Holder, force bool) (was *Holder, err error) {
	raw, err := json.MarshalIndent(me, "", "  ")
	if err != nil {
		return nil, l.failed(err)
	}
	draft, err := backend.WriteDraft(l.draft(), append(raw, '\n'), 0o644)
	if err != nil {
		return nil, l.failed(err)
	}
	defer func() { _ = os.Remove(draft) }() // a draft that stays harms nobody
	for {
		numbers, err := l.numbers()
		if err != nil {
			return nil, l.failed(err)
		}
		top := highest(numbers)
		if was = nil; top > 0 {
			if was, err = l.judge(top, me, draft, force); err != nil {
				return nil, err
			}
		}
		if top == math.MaxUint64 {
			return nil, l.failed(fmt.Errorf("%s has the last number there is: remove it", l.file(top)))
		}
		err = os.Link(draft, l.file(top+1))
		if errors.Is(err, fs.ErrExist) {
			continue // another one was faster
		}
		if err != nil {
			return nil, l.failed(err)
		}
		l.number, l.nonce, l.me = top+1, me.Nonce, me
		if l.seen, err = touched(l.file(l.number)); err != nil {
			continue // another one has taken it away already
		}
		if numbers, err = l.numbers(); err == nil && highest(numbers) > l.number {
			_ = os.Remove(l.file(l.number)) // of no effect any more
			continue
		}
		for _, n := range numbers {
			if n < l.number {
				_ = os.Remove(l.file(n)) // of no effect any more
			}
		}
		return was, nil
	}
}

// judge says whether the holder of a number must be left alone. It gives the holder whom that ends, nil where none can be read.
func (l *Lease) judge(number uint64, me Holder, draft string, force bool) (*Holder, error) {
	path := l.file(number)
	h, damaged := readHolder(path)
	switch {
	case errors.Is(damaged, fs.ErrNotExist), damaged != nil && force:
		return nil, nil
	case force:
		return &h, nil
	}
	held := &HeldError{Job: l.job, Folder: filepath.Join(l.dir, l.job), By: h, Near: h.near(me)}
	if held.Near && damaged == nil {
		if h.Process.Alive() {
			return nil, held
		}
		return &h, nil
	}
	quiet, err := ageOf(path, draft)
	switch held.Quiet = quiet; {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, l.failed(err)
	case quiet >= leaseLapse:
		return &h, nil
	case damaged != nil:
		return nil, l.failed(damaged)
	}
	return nil, held
}

// ageOf is how long ago a file was touched, by the clock of its file system, for which another file is touched now.
func ageOf(path, other string) (time.Duration, error) {
	if err := touch(other); err != nil {
		return 0, err
	}
	now, err := os.Stat(other)
	if err != nil {
		return 0, err
	}
	then, err := touched(path)
	if err != nil {
		return 0, err
	}
	return now.ModTime().Sub(then), nil
}

// touch gives a file that is there the time of now, by its file system's clock.
func touch(path string) error {
	if err := unix.Utimes(path, nil); err != nil {
		return &fs.PathError{Op: "touch", Path: path, Err: err}
	}
	return nil
}

func (l *Lease) prefix() string { return "." + l.job + ".scheduler-" }

func (l *Lease) file(number uint64) string {
	return filepath.Join(l.dir, l.prefix()+strconv.FormatUint(number, 10))
}

// numbers lists the job's leases.
func (l *Lease) numbers() ([]uint64, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		if digits, ours := strings.CutPrefix(e.Name(), l.prefix()); ours {
			if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n > 0 {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

func highest(numbers []uint64) (top uint64) {
	for _, n := range numbers {
		top = max(top, n)
	}
	return top
}

// keep renews the lease until Close, and gives it back.
func (l *Lease) keep(lg *slog.Logger) {
	defer close(l.ended)
	t := time.NewTicker(leaseEvery)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			lost := new(LostError)
			err := l.renew() // it may have slept until now
			l.sureFrom(time.Time{})
			if !errors.As(err, &lost) && !errors.Is(err, errUnleased) {
				l.noteLast()
				if err := os.Remove(l.file(l.number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					lg.Warn("that this scheduler has ended cannot be noted beside the checkpoint", "err", err)
				}
			}
			return
		case answer := <-l.asked:
			answer <- l.renew()
		case <-t.C:
			_ = l.renew() // who acts asks
		}
	}
}

// errUnleased says that a lease is not where it was left, and that no other scheduler has had the job since: the folder is another one than it was, or somebody has
// removed the file.
var errUnleased = errors.New("its lease is not there any more, though no other scheduler has had the job")

// renew touches the lease's file and looks whether it is the highest still.
func (l *Lease) renew() error {
	if lost := l.lost.Load(); lost != nil {
		return lost
	}
	began := time.Now()
	path := l.file(l.number)
	own, unread := readHolder(path) // before the touch, by which another's would be taken for new
	var gone error
	if own.Nonce == l.nonce {
		gone = touch(path)
	}
	numbers, err := l.numbers()
	if err != nil {
		return l.unseen(err)
	}
	if top := highest(numbers); top > l.number {
		if h, damaged := readHolder(l.file(top)); damaged != nil || l.since(h, l.file(top)) {
			return l.loses(&h, damaged)
		}
		return fmt.Errorf("%w: %s", errUnleased, path)
	}
	switch {
	case errors.Is(unread, fs.ErrNotExist), errors.Is(gone, fs.ErrNotExist):
		if h, damaged := readHolder(l.lastFile()); damaged == nil && l.since(h, l.lastFile()) {
			return l.loses(&h, nil)
		}
		return fmt.Errorf("%w: %s", errUnleased, path)
	case unread != nil:
		return l.unseen(unread)
	case own.Nonce != l.nonce && l.since(own, path):
		return l.loses(&own, nil)
	case own.Nonce != l.nonce:
		return fmt.Errorf("%w: %s", errUnleased, path)
	case gone != nil:
		return fmt.Errorf("renew the lease of job %q: %w%s", l.job, gone, folderAdvice(gone))
	}
	if own, unread = readHolder(path); unread != nil || own.Nonce != l.nonce { // what it says after the touch was so then
		return l.unseen(cmp.Or(unread, fmt.Errorf("%s has just become another's", path)))
	}
	if at, err := touched(path); err == nil {
		l.seen = at
	}
	l.sureFrom(began)
	return nil
}

func (l *Lease) unseen(err error) error {
	return fmt.Errorf("see that job %q is still this scheduler's: %w%s", l.job, err, folderAdvice(err))
}

// loses notes that another scheduler has the job, or had it. damaged: it is not known which.
func (l *Lease) loses(to *Holder, damaged error) error {
	if damaged != nil {
		to = nil
	}
	l.lost.Store(&LostError{Job: l.job, By: to})
	return l.lost.Load()
}

// since says that a holder, of whom a file beside the checkpoint tells, has had the job after this lease was last seen to be there. On this machine one clock tells
// that; of others the file's age does, by its file system's clock.
func (l *Lease) since(h Holder, path string) bool {
	if h.Near(l.me.Origin) {
		return h.Since.After(l.me.Since)
	}
	at, err := touched(path)
	return err != nil || at.After(l.seen)
}

// touched is when a file was touched last, by its file system's clock.
func touched(path string) (time.Time, error) {
	f, err := os.Open(path) // a network file system looks anew for who opens
	if err != nil {
		return time.Time{}, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (l *Lease) sureFrom(t time.Time) {
	until := t.Add(leaseSure)
	l.sure.Store(&until)
}

// Check renews the lease, and says why this scheduler may not act: the job is another one's (LostError), or that could not be told for too long. A nil lease,
// that of who only looks, always may. It waits for the folder no longer than ctx.
func (l *Lease) Check(ctx context.Context) error {
	if l == nil {
		return nil
	}
	answer := make(chan error, 1)
	var err error
	select {
	case l.asked <- answer: // it answers, whatever comes
		select {
		case err = <-answer:
		case <-ctx.Done():
			err = fmt.Errorf("%s does not answer: %w", l.dir, ctx.Err())
		}
	case <-l.ended:
		if lost := l.lost.Load(); lost != nil {
			return lost
		}
		return fmt.Errorf("job %q was given back by this scheduler", l.job)
	case <-ctx.Done():
		err = fmt.Errorf("%s does not answer: %w", l.dir, ctx.Err())
	}
	if lost := new(LostError); err == nil || !errors.As(err, &lost) && !errors.Is(err, errUnleased) && time.Now().Before(*l.sure.Load()) {
		return nil
	}
	return err
}

// Close gives the job back, unless it is another scheduler's by now. It is idempotent.
func (l *Lease) Close() {
	if l == nil {
		return
	}
	l.once.Do(func() { close(l.stop) })
	select {
	case <-l.ended:
	case <-time.After(leaseClose): // the folder hangs: the lease lapses
	}
}

// HeldBy says who holds a job, nil when nobody does that is known to live. It changes nothing but a file that it makes and removes.
func HeldBy(j *job.Job) (*HeldError, error) {
	l := &Lease{job: j.Name, dir: j.Checkpoint.Dir}
	numbers, err := l.numbers()
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(numbers) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, l.failed(err)
	}
	draft, err := backend.WriteDraft(l.draft(), nil, 0o600)
	if err != nil {
		return nil, l.failed(err)
	}
	defer func() { _ = os.Remove(draft) }() // a draft that stays harms nobody
	_, err = l.judge(highest(numbers), thisHolder(""), draft, false)
	if held := new(HeldError); errors.As(err, &held) {
		return held, nil
	}
	return nil, err
}

// makeLike makes a folder and those above it that are missing, each open to those to whom the one above it is: the job's processes may be another user's.
func makeLike(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
	}
	above := filepath.Dir(dir)
	if !errors.Is(err, fs.ErrNotExist) || above == dir {
		return err
	}
	if err := makeLike(above); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil // somebody else just has
		}
		return err
	}
	return openLike(dir, above)
}

// openLike lets a new folder be written by those who may write the one above it. One that all may write with only their own files in it, such as /tmp, is
// left out: what is made there is for who makes it.
func openLike(dir, above string) error {
	info, err := os.Stat(above)
	if err != nil || info.Mode()&fs.ModeSticky != 0 {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	mine, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return os.Chmod(dir, mine.Mode().Perm()|info.Mode().Perm()&0o022|mine.Mode()&fs.ModeSetgid)
}
