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

	"github.com/kale-sched/kale/cmd/internal/about"
)

// tryTimeout bounds the trial of a program: loading a CUDA library from a slow disk takes a while.
const tryTimeout = 60 * time.Second

// TryTrainer starts the trainer program at path, with env added to this process's environment, and has it compute something on the device.
// The error is for a program that is not the trainer or does not run; what it says about ONNX Runtime is in the answer.
func TryTrainer(ctx context.Context, path string, env map[string]string, device string) (about.About, error) {
	bounded, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	cmd := exec.CommandContext(bounded, path, "version", "--json", "--device", device)
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
		return v, fmt.Errorf("try the trainer %s: %w; is -trainer right?", path, err)
	}
	return v, fmt.Errorf("try the trainer %s: it does not say what it is: another program, or one of another version of Kale%s; is -trainer right?", path, words(said.String()))
}

// words is what a program said last, for the end of a message.
func words(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := []rune(strings.TrimSpace(lines[len(lines)-1]))
	if len(last) == 0 {
		return ""
	}
	return fmt.Sprintf(" (it says %q)", string(last[:min(len(last), 200)]))
}
