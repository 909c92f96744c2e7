package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/onnx"
)

// program finds another program of Kale: in dir when that is given, else beside kale, else in $PATH.
func (a *app) program(name, dir string) (string, error) {
	if dir != "" {
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("find %s: %w; is -plugin-dir right?", name, err)
		}
		return filepath.Abs(path)
	}
	if a.exe != "" {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(a.exe), name)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside kale (%s) nor in $PATH: build all programs with make build, or install it there", name, filepath.Dir(a.exe))
	}
	return filepath.Abs(path)
}

// launch starts the backend plugin of a job. The caller closes it.
func (a *app) launch(ctx context.Context, lg *slog.Logger, l *loaded) (*backend.Client, error) {
	path, err := a.program("kale-backend-"+l.Backend.Name, l.how.Plugins)
	if err != nil {
		return nil, fmt.Errorf("backend %q of %s: %w", l.Backend.Name, l.Range("backend"), err)
	}
	return backend.Launch(ctx, lg, path, backend.Options{})
}

// configured is launch, with the job's block given to the plugin. The caller closes it.
func (a *app) configured(ctx context.Context, l *loaded, stateDir string) (*backend.Client, error) {
	b, err := a.launch(ctx, a.logger("warn"), l)
	if err != nil {
		return nil, err
	}
	diags, err := core.ConfigureBackend(ctx, b, l.Job, stateDir)
	if err == nil {
		err = a.diagnose(l.files, diags)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// trainer is the path of kale-trainer and what its processes need in their environment.
func (a *app) trainer(lg *slog.Logger, l *loaded) (path string, env map[string]string, err error) {
	path = l.how.Trainer
	if path == "" {
		if path, err = a.program("kale-trainer", ""); err != nil {
			return "", nil, err
		}
	}
	env = map[string]string{}
	switch lib, err := onnx.Locate(); {
	case err == nil:
		if env[onnx.LibraryEnv], err = filepath.Abs(lib); err != nil {
			return "", nil, err
		}
	case errors.Is(err, onnx.ErrNoLibrary):
		lg.Warn("workers must find ONNX Runtime by themselves", "err", err)
	default:
		return "", nil, err
	}
	return path, env, nil
}
