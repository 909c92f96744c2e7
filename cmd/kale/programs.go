package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/cmd/internal/probe"
	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
)

// program finds another program of Kale: in dir when that is given, else beside kale, else in $PATH.
func (a *app) program(name, dir string) (string, error) {
	if dir != "" {
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("there is no %s in the folder of -plugin-dir that can be run (%w)", name, err)
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
		return "", fmt.Errorf("%s is neither beside kale (%s) nor in $PATH: install it there; make build makes those that come with Kale", name, filepath.Dir(a.exe))
	}
	return filepath.Abs(path)
}

// plugin finds the program of the job's backend, Kale's own or anybody's. That there is none is said at the block that names it.
func (a *app) plugin(l *loaded) (path string, diags hcl.Diagnostics) {
	name := "kale-backend-" + l.Backend.Name
	path, err := a.program(name, l.how.Plugins)
	if err != nil {
		diags = append(diags, &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "No program " + name, Subject: l.Range("backend").Ptr(),
			Detail: fmt.Sprintf("%sBackend %q is a program of its own: %v.", job.DidYouMean(l.Backend.Name, job.Backends), l.Backend.Name, err),
		})
	}
	return path, diags
}

// launch starts the backend plugin of a job. The caller closes it.
func (a *app) launch(ctx context.Context, lg *slog.Logger, l *loaded) (*backend.Client, error) {
	path, diags := a.plugin(l)
	if err := a.diagnose(l.files, diags); err != nil {
		return nil, err
	}
	return backend.Launch(ctx, lg, path, backend.Options{SocketDir: l.dir})
}

// configured is launch, with the job's block given to the plugin, for what runs of the job. The caller closes it.
func (a *app) configured(ctx context.Context, l *loaded, stateDir string) (*backend.Client, error) {
	if err := a.diagnose(l.files, core.CheckSameBackend(l.Job, l.dir)); err != nil {
		return nil, err
	}
	b, err := a.launch(ctx, a.logger("warn"), l)
	if err != nil {
		return nil, err
	}
	configure := core.ConfigureBackend
	if l.anyOwner {
		configure = core.ConfigureForAny
	}
	diags, err := configure(ctx, b, core.AsItRuns(l.Job, l.dir), stateDir)
	if err == nil {
		err = a.diagnose(l.files, diags)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// trainer is findTrainer. Where trainers run on this machine, the program is tried besides: it must start, and ONNX Runtime must work in it. That it
// does not is said at the model, which needs it, and that it does not on a GPU at the line that asks for one.
func (a *app) trainer(ctx context.Context, lg *slog.Logger, l *loaded) (path string, env map[string]string, diags hcl.Diagnostics, err error) {
	if l.tried == nil {
		path, env, diags, err := a.tryTrainer(ctx, lg, l)
		if err != nil {
			return "", nil, nil, err
		}
		l.tried = &triedTrainer{path, env, diags}
	}
	return l.tried.path, l.tried.env, l.tried.diags, nil
}

// triedTrainer is what came of trying the trainer: once for a job and a command.
type triedTrainer struct {
	path  string
	env   map[string]string
	diags hcl.Diagnostics
}

func (a *app) tryTrainer(ctx context.Context, lg *slog.Logger, l *loaded) (path string, env map[string]string, diags hcl.Diagnostics, err error) {
	path, env, err = a.findTrainer(lg, l)
	if err != nil || l.Backend.Name != "local" {
		return path, env, nil, err
	}
	v, err := doctor.TryTrainer(ctx, path, env, onnx.CPU)
	if err != nil {
		return "", nil, nil, err
	}
	if v.NoONNX != "" {
		if l.Model.Kind != job.ModelCounting { // a counting job computes nothing
			diags = append(diags, l.ErrorAt("model.kind", "No worker could train", fmt.Sprintf("%s cannot use ONNX Runtime: %s.", path, v.NoONNX)))
		}
		return path, env, diags, nil
	}
	if !probe.WantsCUDA(core.TrainSpec(l.Job, "")) || !l.can(cuda, "workers") { // what is wrong there may be how its GPUs are written
		return path, env, nil, nil
	}
	v, err = doctor.TryTrainer(ctx, path, env, onnx.CUDA)
	why := v.NoONNX
	if err != nil {
		why = err.Error()
	}
	if why != "" && ctx.Err() == nil {
		diags = append(diags, l.ErrorAt("workers.gpus", "No worker could train on a GPU", fmt.Sprintf(
			"workers.gpus is %d, so that workers compute with CUDA, and that fails: %s. Set gpus = 0 to train on CPUs.", l.Workers.GPUs, why)))
	}
	return path, env, diags, nil
}

// findTrainer is the path of kale-trainer and what its processes need in their environment.
func (a *app) findTrainer(lg *slog.Logger, l *loaded) (path string, env map[string]string, err error) {
	path = l.how.Trainer
	if path == "" {
		if path, err = a.program("kale-trainer", ""); err != nil {
			return "", nil, err
		}
	}
	env = map[string]string{}
	lib, err := onnx.Locate()
	switch {
	case err == nil:
		if env[onnx.LibraryEnv], err = filepath.Abs(lib); err != nil {
			return "", nil, err
		}
	case !errors.Is(err, onnx.ErrNoLibrary):
		return "", nil, err
	case l.Backend.Name == "local": // the trainer says what is wrong when it is tried
	default:
		lg.Warn("workers must find ONNX Runtime by themselves; kale doctor tells where it is missing", "err", err)
	}
	if l.Backend.Name != "local" {
		return path, env, nil // it is a path on other machines
	}
	if path, err = exec.LookPath(path); err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", nil, fmt.Errorf("find the trainer: %w; is -trainer right?", err)
	}
	return path, env, nil
}
