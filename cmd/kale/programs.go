package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
// does not is said where the job file names the program or the library, else at the model, which needs it, and that it does not on a GPU at the line that asks
// for one. Without a path there are diagnostics, or the plugin has some of the block.
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
	var wrong *blockError
	switch {
	case errors.As(err, &wrong):
		return "", env, hcl.Diagnostics{wrong.Diagnostic}, nil
	case err != nil || l.Backend.Name != job.BackendLocal:
		return path, env, nil, err
	}
	block := l.blockTrainer()
	v, err := doctor.TryTrainer(ctx, path, env, onnx.CPU)
	switch {
	case err != nil && block.Trainer != nil && ctx.Err() == nil:
		diags = append(diags, mistake(block.TrainerRange, "Trainer cannot be used", "%v. trainer is the path of %s of this version of Kale; without it, the one beside kale is used.", err, trainerName))
		return "", env, diags, nil
	case err != nil && ctx.Err() == nil:
		return "", nil, nil, fmt.Errorf("%w; is -trainer right?", err)
	case err != nil:
		return "", nil, nil, err
	}
	if v.NoONNX != "" {
		if l.Model.Kind != job.ModelCounting { // a counting job computes nothing
			d := l.ErrorAt("model.kind", "No worker could train", fmt.Sprintf("%s cannot use ONNX Runtime: %s.", path, v.NoONNX))
			if block.namesLibrary() {
				d.Subject = &block.EnvRange
			}
			diags = append(diags, d)
		}
		return path, env, diags, nil
	}
	if l.offline || !probe.WantsCUDA(core.TrainSpec(l.Job, "")) || !l.can(cuda, "workers") { // what is wrong there may be how its GPUs are written
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

// trainerName is the name of the program that runs on the allocations.
const trainerName = "kale-trainer"

// blockError is a mistake in what the backend block says of the trainer.
type blockError struct{ *hcl.Diagnostic }

func (e *blockError) Error() string {
	return fmt.Sprintf("%s: %s: %s", job.Place(*e.Subject), e.Summary, e.Detail)
}

// findTrainer is the path of kale-trainer and what its processes need in their environment: on this machine what the backend block says of both, before what
// is found. A blockError is for what the block says.
func (a *app) findTrainer(lg *slog.Logger, l *loaded) (path string, env map[string]string, err error) {
	block, local := l.blockTrainer(), l.Backend.Name == job.BackendLocal
	if env, err = libraryEnv(lg, block, local); err != nil {
		return "", nil, err
	}
	path = l.how.Trainer
	if local && block.Trainer != nil { // the plugin takes it, whatever else is named
		named, err := executable(*block.Trainer)
		if err != nil {
			return "", env, &blockError{mistake(block.TrainerRange, "Trainer cannot be run", "trainer is the path of the program %s: %v.", trainerName, err)}
		}
		if other, err := executable(path); path != "" && (err != nil || other != named) {
			return "", env, &blockError{mistake(block.TrainerRange, "Trainer named twice", "trainer is %s, and -trainer is %s: leave one of them out.", *block.Trainer, path)}
		}
		return named, env, nil
	}
	if path == "" {
		if path, err = a.program(trainerName, ""); err != nil {
			return "", nil, err
		}
	}
	if !local {
		return path, env, nil // it is a path on other machines
	}
	if path, err = executable(path); err != nil {
		return "", nil, fmt.Errorf("find the trainer: %w; is -trainer right?", err)
	}
	return path, env, nil
}

// libraryEnv is the environment that trainers are given. That of the block is the backend's to give: here it is what the trainer is tried with.
func libraryEnv(lg *slog.Logger, block blockTrainer, local bool) (map[string]string, error) {
	env := map[string]string{}
	lib, err := onnx.Locate()
	switch {
	case block.namesLibrary():
	case err == nil:
		if env[onnx.LibraryEnv], err = filepath.Abs(lib); err != nil {
			return nil, err
		}
	case !errors.Is(err, onnx.ErrNoLibrary):
		return nil, err
	case local: // the trainer says what is wrong when it is tried
	default:
		lg.Warn("workers must find ONNX Runtime by themselves; kale doctor tells where it is missing", "err", err)
	}
	if local {
		maps.Copy(env, block.Env)
	}
	return env, nil
}
