package slurm

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/kale-sched/kale/core/backend"
)

// Forget implements backend.Backend: it removes the folders of what has ended.
func (s *slurm) Forget(ctx context.Context, name, role string) ([]string, error) {
	j, err := s.job(ctx, name)
	if err != nil {
		return nil, err
	}
	removed, err := j.forgetRole(ctx, role)
	if err != nil {
		return nil, backend.Staying(err, "the folder %s, and of the job's Slurm jobs those that are left, which are named %s", j.dir(), jobPrefix+name+":…")
	}
	return removed, nil
}

func (j *job) forgetRole(ctx context.Context, role string) ([]string, error) {
	j.place.Lock()
	defer j.place.Unlock()
	lock, err := j.lock(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was ever kept
	} else if err != nil {
		return nil, err
	}
	defer lock.Close() // of none too
	if err := j.set.owner.CheckFile(j.ownerPath(), j.name, func() (bool, error) { return true, nil }); err != nil {
		return nil, err
	}
	views, snap, err := j.look(ctx, 0)
	if err != nil {
		return nil, err
	}
	if snap.err != nil {
		return nil, unavailable("see whether anything of the job is left in Slurm's queue", snap.err)
	}
	markAway(views, j.nodesOf(ctx, views))
	var all []backend.Status
	for _, v := range views {
		all = append(all, v.status())
	}
	ids, err := backend.Forgettable(j.name, role, all)
	if err != nil {
		return nil, err
	}
	if err := j.endGhosts(ctx, views, ids); err != nil {
		return nil, err
	}
	removed, err := backend.ForgetFolders(j.dir(), ids, filepath.Base(j.ownerPath()), filepath.Base(j.lockPath()), nodesFile)
	if err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "remove what is kept of job %q: %w", j.name, err)
	}
	return removed, nil
}

// endGhosts cancels the Slurm jobs that Slurm has still of what has ended, as after slurmctld was killed before it had saved the end: without what is about to be removed nobody
// would know whose they are.
func (j *job) endGhosts(ctx context.Context, views []view, ids []backend.ID) error {
	var ghosts []row
	for _, v := range views {
		if !slices.Contains(ids, v.id) {
			continue
		}
		rows := v.surplus
		if v.inQueue {
			rows = append(slices.Clone(rows), v.row)
		}
		for _, r := range rows {
			if r.goesOn() {
				j.lg.Info("Slurm has a job still of what has ended; it is cancelled", "id", v.id.String(), "slurm_job", r.id, "state", r.state)
				ghosts = append(ghosts, r)
			}
		}
	}
	if len(ghosts) == 0 {
		return nil
	}
	if err := j.queue.cancel(ctx, false, ghosts...); err != nil {
		return unavailable("cancel what Slurm takes for running of what has ended", err)
	}
	return nil
}
