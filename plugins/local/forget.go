package local

import (
	"context"
	"path/filepath"

	"github.com/kale-sched/kale/core/backend"
)

// Forget implements backend.Backend: it removes the folders of what has ended.
func (l *local) Forget(ctx context.Context, job, role string) ([]string, error) {
	at, err := l.at(ctx, job)
	if err != nil {
		return nil, err
	}
	dir := at.root().jobDir(job)
	if !exists(dir) {
		return nil, nil
	}
	removed, err := at.forget(ctx, job, role, dir)
	if err != nil {
		return nil, backend.Staying(err, "the folder %s, and its processes if one lives", dir)
	}
	l.moveOut(job, at)
	return removed, nil
}

func (s settings) forget(ctx context.Context, job, role, dir string) ([]string, error) {
	lock, err := backend.Lock(ctx, s.root().lockPath())
	if err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "remove what is kept of job %q: %w%s", job, err, dirAdvice)
	}
	defer lock.Close()
	if err := s.owner.CheckFile(s.root().ownerPath(job), job, func() (bool, error) { return true, nil }); err != nil {
		return nil, err
	}
	views, err := s.root().scanJob(job)
	if err != nil {
		return nil, err
	}
	if err := s.found(job, views); err != nil {
		return nil, err
	}
	var all []backend.Status
	for _, v := range views {
		all = append(all, v.status())
	}
	ids, err := backend.Forgettable(job, role, all)
	if err != nil {
		return nil, err
	}
	removed, err := backend.ForgetFolders(dir, ids, filepath.Base(s.root().ownerPath(job)))
	if err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "remove what is kept of job %q: %w", job, err)
	}
	return removed, nil
}
