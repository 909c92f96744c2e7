package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// A program that is asked to stop and ends well at once has ended well: the supervisor's wait, which the request ends too, tells no code of the program's. Which of
// the two is first is the machine's choice, so it is tried often.
func TestTellsTheCodeOfWhatEndsAtOnce(t *testing.T) {
	for range 60 {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		if err := os.Mkdir(at("alloc"), 0o700); err != nil {
			t.Fatal(err)
		}
		program := "trap 'exit 0' TERM; echo $$ > pid; mv pid runs; while :; do :; done" // which a signal ends at once
		w := backend.Workload{ID: backend.ID{Role: backend.RoleWorker, Generation: 1}, Argv: []string{"setsid", "/bin/sh", "-c", program}}
		script := runScript(settings{}, instance{job: "j", id: w.ID, dir: dir}, w.Argv[0], "", w, time.Minute)
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
		cmd.Env = append(os.Environ(), "SLURM_JOB_ID=1", "SLURMD_NODENAME=n1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		conformance.Eventually(t, "it runs", func() error {
			_, err := os.Stat(at("alloc/runs"))
			return err
		})
		if err := os.WriteFile(at("released"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(at("alloc/runs"))
		var child int
		if _, scanErr := fmt.Sscan(string(raw), &child); err != nil || scanErr != nil || child <= 1 {
			t.Fatalf("the program is process %q, %v", raw, err)
		}
		_ = syscall.Kill(-child, syscall.SIGKILL) // its sleep, which Slurm ends with the job
		if raw, err = os.ReadFile(at("status")); err != nil || !strings.Contains(string(raw), "\ncode=0\n") || !strings.Contains(string(raw), "\nreason=released; it ended with code 0\n") {
			t.Fatalf("its status is\n%s%v", raw, err)
		}
	}
}
