package core

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// ConfigureBackend hands the backend its block of the job file and turns its diagnostics into the job file's.
func ConfigureBackend(ctx context.Context, b backend.Backend, j *job.Job, stateDir string) (hcl.Diagnostics, error) {
	return configureAs(ctx, b, j, stateDir, jobOwner(j))
}

// ConfigureForAny is ConfigureBackend for who ends what runs under the job's name, whoever's it is.
func ConfigureForAny(ctx context.Context, b backend.Backend, j *job.Job, stateDir string) (hcl.Diagnostics, error) {
	return configureAs(ctx, b, j, stateDir, backend.Owner{})
}

func configureAs(ctx context.Context, b backend.Backend, j *job.Job, stateDir string, owner backend.Owner) (hcl.Diagnostics, error) {
	vars, err := json.Marshal(map[string]any{})
	if err != nil {
		return nil, fmt.Errorf("configure backend %q: %w", j.Backend.Name, err)
	}
	cfg := backend.Config{
		Job: j.Name, Source: j.Backend.Source, Filename: j.Backend.Filename, StartLine: j.Backend.Start.Line,
		StartColumn: j.Backend.Start.Column, StartByte: j.Backend.Start.Byte, StateDir: filepath.Join(stateDir, j.Backend.Name), Variables: vars,
		Shared: []string{j.Checkpoint.Dir}, Owner: owner,
	}
	at := j.Range("checkpoint.dir")
	cfg.SharedAt = []backend.Range{{Filename: at.Filename, Start: backend.Position(at.Start), End: backend.Position(at.End)}}
	for began := time.Now(); ; {
		found, err := b.Configure(ctx, cfg)
		if err == nil {
			return found.HCL(), nil
		}
		if backend.CodeOf(err) != backend.Unavailable || ctx.Err() != nil || time.Since(began) > configurePatience {
			return nil, fmt.Errorf("configure backend %q: %w", j.Backend.Name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(configureEvery):
		}
	}
}

// A plugin that dies while it is configured is started again at once by who launched it, and is asked again: a scheduler must not end of it.
const (
	configureEvery    = 250 * time.Millisecond
	configurePatience = 10 * time.Second
)
