package backend

import (
	"context"
	"maps"
	"sync"
)

// Jobs holds what a backend has made of each job's block, a T. The zero value is ready, and all methods may be called at once.
type Jobs[T any] struct {
	mu   sync.Mutex
	made map[string]T
}

// Configure is a Configure: decode checks the block, and the job is configured unless it finds errors.
func (j *Jobs[T]) Configure(ctx context.Context, cfg Config, decode func(Config) (T, Diagnostics)) (Diagnostics, error) {
	if err := ValidJob(cfg.Job); err != nil {
		return nil, err
	}
	made, diags := decode(cfg)
	if diags.HasErrors() {
		return diags, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, Errorf(Unavailable, "configure job %q: %w", cfg.Job, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.made == nil {
		j.made = map[string]T{}
	}
	j.made[cfg.Job] = made
	return diags, nil
}

// Of gives what was made of the job's block. It is Blocked when the job is not configured, and Unavailable when ctx is over.
func (j *Jobs[T]) Of(ctx context.Context, job string) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, Errorf(Unavailable, "job %q: %w", job, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	made, ok := j.made[job]
	if !ok {
		return none, Errorf(Blocked, "job %q is not configured on this backend; configure it first", job)
	}
	return made, nil
}

// All gives what was made of every job's block, by the job's name.
func (j *Jobs[T]) All() map[string]T {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.made)
}
