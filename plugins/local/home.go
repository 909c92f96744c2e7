package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// lodged is a job's settings with the folder in which its processes are kept. Where the block names none, that is the one of the scheduler that started the
// first of those which may live: all schedulers of a job must see the same processes, whatever state folders they have.
type lodged struct {
	settings              // dir is where the processes are
	own      string       // where they would be, had this scheduler started the first
	home     backend.Home // as it was read
}

// at gives where a job's processes are.
func (l *local) at(ctx context.Context, job string) (lodged, error) {
	s, err := l.jobs.Of(ctx, job)
	if err != nil {
		return lodged{}, err
	}
	return l.lodge(s, job)
}

func (l *local) lodge(s settings, job string) (lodged, error) {
	at, err := l.lodging(s, job)
	if err == nil && !exists(at.root().jobDir(job)) {
		err = at.whole(job)
	}
	return at, err
}

// lodging is lodge, also where the folder is away and processes of the job are not: a job may be configured then, and gets on when it is back.
func (l *local) lodging(s settings, job string) (at lodged, err error) {
	at = lodged{settings: s, own: s.dir}
	if s.beside == "" {
		return at, nil
	}
	if at.home, err = backend.ReadHome(s.beside); err != nil {
		return at, backend.Errorf(fileCodeOr(err, backend.Blocked), "see where the processes of job %q are kept: %w", job, err)
	}
	h, me := at.home, backend.ThisOrigin()
	if !h.Found() { // that somebody took the file away says nothing against what is known
		if dir := l.homes.of(job); dir != "" {
			if at.dir = dir; at.deserted(job) {
				at.dir = at.own
			}
		}
		return at, nil
	}
	if h.Host != me.Host && !h.Near(me) && !(h.Dir == at.own && exists(root(at.own).jobDir(job))) {
		return at, backend.Errorf(backend.Blocked, "the processes of job %q were started on host %s, by %s (%s says so), and cannot be seen from this one, %s: "+
			"go on with the job there, or stop it there first (kale stop %s); where that machine is gone for good, remove that file", job, h.Host, h.User, s.beside, me.Host, job)
	}
	if h.Dir == at.own {
		return at, nil
	}
	err = unix.Access(root(h.Dir).jobDir(job), unix.R_OK|unix.W_OK|unix.X_OK)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		if len(root(h.Dir).bereft(job)) > 0 {
			at.dir = h.Dir // it was moved under what runs
		}
		return at, nil // or else removed, with everything in it
	case err != nil:
		return at, backend.Errorf(backend.FileCode(err), "the processes of job %q are kept by %s in %s (%s says so), which this user, %s, cannot use (%w): "+
			"run kale as %s; where none of them lives any more, remove that file", job, h.User, h.Dir, s.beside, me.User, err, h.User)
	}
	at.dir = h.Dir
	l.homes.note(job, h.Dir)
	return at, nil
}

// toStart is at for who starts processes: where nothing is left of those that are kept elsewhere, they are kept in this scheduler's own folder from now on.
func (l *local) toStart(ctx context.Context, job string) (lodged, error) {
	at, err := l.at(ctx, job)
	if err == nil && at.dir != at.own && at.deserted(job) {
		at.dir = at.own
	}
	return at, err
}

// moveIn makes the folder the one in which the job's processes are kept, for all. Who calls it holds that folder's lock, and is about to start some.
func (l *local) moveIn(ctx context.Context, job, dir string) error {
	at, err := l.toStart(ctx, job)
	if err != nil || at.beside == "" {
		return err
	}
	moved := backend.Errorf(backend.Unavailable, "another scheduler of job %q is just starting some of its processes; ask again", job)
	if at.dir != dir {
		return moved
	}
	if at.home.Found() && at.home.Dir == dir && at.home.Host == backend.ThisOrigin().Host {
		return nil
	}
	if at.home.Found() && at.home.Dir != dir {
		free, deserted := lockDeserted(job, root(at.home.Dir))
		if !deserted {
			return moved
		}
		defer free()
	}
	if err := at.home.Move(dir); err != nil {
		return backend.Errorf(fileCodeOr(err, backend.Unavailable), "note beside the checkpoint, in %s, where the processes of job %q are kept: %w", at.beside, job, err)
	}
	return nil
}

// moveOut takes that note away once no process is left. What keeps it from that is tried again by who looks next.
func (l *local) moveOut(job string, at lodged) {
	if !at.home.Found() || at.home.Dir != at.dir || !at.deserted(job) {
		return
	}
	free, deserted := lockDeserted(job, at.root())
	if !deserted {
		return
	}
	defer free()
	if err := at.home.Drop(); err != nil {
		l.lg.Debug("the note of where the job's processes are kept stays", "job", job, "file", at.beside, "err", err)
	}
}

// lockDeserted is deserted for who changes the note: until free is called nobody starts anything in the folder. One that is just used counts as not deserted.
func lockDeserted(job string, r root) (free func(), deserted bool) {
	if !exists(r.lockPath()) { // nobody has started anything there, and who looks makes no folder
		return func() {}, true
	}
	lock, err := backend.TryLock(r.lockPath())
	if lock == nil || err != nil {
		return nil, false
	}
	if !(settings{dir: string(r)}).deserted(job) {
		lock.Close()
		return nil, false
	}
	return func() { lock.Close() }, true
}

// deserted says that no process of the job lives in the folder, nor will.
func (s settings) deserted(job string) bool {
	views, err := s.root().scanJob(job)
	return err == nil && !slices.ContainsFunc(views, func(v view) bool { return !v.over() }) && len(s.root().bereft(job)) == 0
}

// homes are the folders of others in which jobs' processes were seen to be kept.
type homes struct {
	mu  sync.Mutex
	dir map[string]string
}

func (h *homes) of(job string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dir[job]
}

func (h *homes) note(job, dir string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == nil {
		h.dir = map[string]string{}
	}
	h.dir[job] = dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fileCodeOr is FileCode for what the file system says, and or for the rest.
func fileCodeOr(err error, or backend.Code) backend.Code {
	path, link := new(fs.PathError), new(os.LinkError)
	if errors.As(err, &path) || errors.As(err, &link) {
		return backend.FileCode(err)
	}
	return or
}
