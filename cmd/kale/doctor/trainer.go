package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/cmd/internal/probe"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/forecast"
)

// tryTimeout bounds the trial of a program: loading a CUDA library from a slow disk takes a while.
const tryTimeout = 60 * time.Second

// modelLimit bounds the one answer that a forecast model is asked for.
const modelLimit = 5 * time.Second

// TryTrainer starts the trainer program at path, with env added to this process's environment, and has it compute something on the device.
// The error is for a program that is not the trainer or does not run; what it says about ONNX Runtime is in the answer.
func TryTrainer(ctx context.Context, path string, env map[string]string, device string) (about.About, error) {
	bounded, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	cmd := exec.CommandContext(bounded, path, "version", "--json", "--device", device)
	cmd.Dir = "/" // a process of the job has a folder of its own: what is relative to this one is not there
	cmd.Env = os.Environ()
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var v about.About
	if json.Unmarshal(out.Bytes(), &v) == nil && v.Go != "" {
		return v, nil // it has said what it is, whatever its exit code
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return v, fmt.Errorf("try the trainer %s: %w", path, ctx.Err())
	case bounded.Err() != nil:
		return v, fmt.Errorf("try the trainer %s: it gave no answer within %v", path, tryTimeout)
	case errors.As(err, &exit) && !exit.Exited():
		return v, fmt.Errorf("try the trainer %s: it crashed (%w)%s", path, err, words(said.String()))
	case err != nil && !errors.As(err, &exit):
		return v, fmt.Errorf("try the trainer %s: %w", path, err)
	}
	return v, fmt.Errorf("try the trainer %s: it does not say what it is: another program, or one of another version of Kale%s", path, words(said.String()))
}

// words is what a program said last, for the end of a message.
func words(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := []rune(strings.TrimSpace(ansi.Strip(lines[len(lines)-1])))
	if len(last) == 0 {
		return ""
	}
	return fmt.Sprintf(" (it says %q)", string(last[:min(len(last), 200)]))
}

// trainer tries the program that runs on the allocations, and ONNX Runtime in it and in the scheduler.
func (p Patient) trainer() group {
	trials := []trial{{check: "trainer", limit: tryTimeout + 5*time.Second, vital: true, needs: []string{"backend"}, try: p.tryTrainer}}
	if p.local() && probe.WantsCUDA(core.TrainSpec(p.Job, "")) {
		trials = append(trials, trial{check: "ONNX Runtime on a GPU", limit: tryTimeout + 5*time.Second, needs: []string{"backend", "workers"}, try: p.tryGPU})
	}
	if p.Job.Forecast.ModelFile() != "" {
		trials = append(trials, trial{check: "forecast model", limit: diskLimit, needs: []string{"forecast"}, try: p.tryForecaster})
	}
	return group{trials: trials}
}

func (p Patient) tryTrainer(ctx context.Context) []Finding {
	const check, library = "trainer", "ONNX Runtime"
	switch {
	case !p.local() && p.ProbeLimit > 0:
		return nil // probes try it where it runs
	case !p.local():
		return []Finding{{Check: check, State: Skip, Says: "it runs on other machines: probes try it there"}}
	}
	advice := "Build it with make build, install it beside kale, or name it with -trainer."
	if p.TrainerAt != "" {
		advice = fmt.Sprintf("Correct trainer in the backend block (%s), or leave it out: then the program beside kale is used.", p.TrainerAt)
	}
	if p.NoTrainer != nil {
		return []Finding{ok(check, "%v", p.NoTrainer).but(Fail, advice)}
	}
	v, err := TryTrainer(ctx, p.Trainer, p.Env, onnx.CPU)
	if err != nil {
		return []Finding{ok(check, "%v", err).but(Fail, advice)}
	}
	runs := ok(check, "%s, version %s, runs", p.Trainer, v.Version)
	if own := about.Build(); own.Version != v.Version || own.Revision != v.Revision {
		runs = runs.but(Warn, fmt.Sprintf("This kale is version %s (%s) and the trainer %s (%s): install programs of one version.", own.Version, own.Revision, v.Version, v.Revision))
	}
	if v.ONNX == "" {
		state := Fail
		if p.Job.Model.Kind == job.ModelCounting {
			state = Warn // it computes nothing
		}
		advice := fmt.Sprintf("Run make deps, or set %s to a library that works.", onnx.LibraryEnv)
		if p.LibraryAt != "" {
			advice = fmt.Sprintf("Set %s in the backend block's env (%s) to a library that works, or leave it out.", onnx.LibraryEnv, p.LibraryAt)
		}
		return []Finding{runs, ok(library, "%s", v.NoONNX).but(state, advice)}
	}
	return []Finding{runs, ok(library, "%s from %s computes", v.ONNXVersion, v.ONNX)}
}

func (p Patient) tryGPU(ctx context.Context) []Finding {
	const check = "ONNX Runtime on a GPU"
	v, err := TryTrainer(ctx, p.Trainer, p.Env, onnx.CUDA)
	switch {
	case err != nil:
		return []Finding{ok(check, "%v", err).but(Fail, "Look at the GPU's driver: nvidia-smi says whether it works.")}
	case v.ONNX == "":
		return []Finding{ok(check, "%s", v.NoONNX).but(Fail, fmt.Sprintf("Workers ask for GPUs (%s): use an ONNX Runtime with CUDA, or set workers.gpus to 0.", place(p.Job, "workers.gpus")))}
	}
	return []Finding{ok(check, "it computes")}
}

func (p Patient) tryForecaster(ctx context.Context) []Finding {
	const check = "forecast model"
	path := p.Job.Forecast.ModelFile()
	advice := fmt.Sprintf("Train one with kale forecast train, or set forecast.model to %q (%s).", job.ForecastSeasonal, place(p.Job, "forecast.model"))
	m, err := forecast.OpenONNX(path, forecast.ONNXOptions{Threads: 1, Limit: modelLimit})
	if err != nil {
		return []Finding{ok(check, "%s: %v", path, err).but(Fail, advice)}
	}
	defer m.CloseOn(ctx)()
	answers := m.Try()
	began := time.Now()
	if answers == nil { // the first answer takes longer than those that follow
		answers = m.Try()
	}
	took := time.Since(began)
	if err := m.Close(); err != nil {
		return []Finding{ok(check, "%s: %v", path, err).but(Warn, "")}
	}
	if answers != nil {
		return []Finding{ok(check, "%s gives no forecast of plain traffic, so that forecasts would be made by seasonal: %v", path, answers).but(Fail, advice)}
	}
	return []Finding{p.paceOf(ok(check, "%s can be used", path), took)}
}

// paceOf is what is found of a model that can be used, and took so long for a forecast.
func (p Patient) paceOf(found Finding, took time.Duration) Finding {
	most := core.ForecastPatience(p.Job)
	if took <= most {
		return found
	}
	found.Says += fmt.Sprintf(", but took %v for one forecast, and a decision waits %v at most: forecasts would be made by seasonal whenever it is so slow", took.Round(time.Millisecond), most)
	return found.but(Warn, "A smaller model is quicker, and so is a machine with less to do.")
}
