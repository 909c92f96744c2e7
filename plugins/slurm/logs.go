package slurm

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/kale-sched/kale/core/backend"
)

// Logs implements backend.Backend: it reads the workload's output in the shared folder.
func (s *slurm) Logs(ctx context.Context, name string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	j, err := s.job(ctx, name)
	if err != nil {
		return nil, err
	}
	if id.Validate() != nil {
		return nil, backend.Errorf(backend.Gone, "read the log of %s of job %q: there is no such workload", id, name)
	}
	inst := j.instance(id)
	logs, err := backend.ReadLogFile(ctx, inst.path(outputFile), opts, func(ctx context.Context) bool {
		return inst.alive(j.queue.poll(ctx, j.queue.freshness()))
	})
	if err != nil {
		return nil, backend.Errorf(backend.CodeOf(err), "read the log of %s of job %q: %w", id, name, err)
	}
	return logs, nil
}

// alive reports whether the instance may still write.
func (i instance) alive(snap snapshot) bool {
	v := i.look(snap)
	if v.broken != nil {
		return !errors.Is(v.broken, fs.ErrNotExist)
	}
	if v.verdict != nil || v.report.over() {
		return false
	}
	return !v.inQueue || v.row.phase() != phaseOver || v.awaitsLastWord()
}
