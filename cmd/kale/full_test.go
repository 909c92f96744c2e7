package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/stream"
)

// A result that cannot be written is a failure, of every command that prints one, and is said once. A reader that has gone has read what it wanted.
func TestResultThatCannotBeWritten(t *testing.T) {
	s := newShell(t).withPrograms()
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 1})
	file := jobAt(t, addr)
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-history", "10s", "-duration", "0")
	env := append(os.Environ(), "KALE_STATE_DIR="+s.env["KALE_STATE_DIR"])
	for _, line := range []string{
		"help", "help jobfile", "run -help", "", "version", "version -json", "status", "status -json", "completion bash", "__complete status ''",
		"validate -offline " + file, "validate -offline -json " + file, "init -topic clicks -brokers " + addr, "plan " + file, "plan -json " + file,
		"produce -topic clicks -duration 0 -brokers " + addr, "produce -json -topic clicks -duration 0 -brokers " + addr,
	} {
		for into, want := range map[string]string{">/dev/full": "kale: write /dev/stdout: no space left on device\n", "| true": ""} {
			cmd := exec.Command("sh", "-c", fmt.Sprintf("%s %s %s", s.exe, line, into))
			cmd.Env = env
			var says strings.Builder
			cmd.Stderr = &says
			err := cmd.Run()
			var code *exec.ExitError
			switch {
			case want == "": // it ends by itself or, where it writes too late, by the pipe's signal: in silence
				if strings.Contains(says.String(), "/dev/stdout") {
					t.Errorf("kale %s %s: %v, %s", line, into, err, says.String())
				}
			case !errors.As(err, &code) || code.ExitCode() != exitFailed || strings.Count(says.String(), want) != 1:
				t.Errorf("kale %s %s: %v; want %q once:\n%s", line, into, err, want, says.String())
			}
		}
	}
}
