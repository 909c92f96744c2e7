package nomad

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend/conformance"
)

// Who asks it to stop before its program runs is heard at any moment: the shell ends well, so that Nomad starts no other, and the program never runs.
func TestStopsBeforeItsProgramRuns(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"drained": syscall.SIGTERM, "by force": syscall.SIGUSR2} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			at := func(path ...string) string { return filepath.Join(append([]string{dir}, path...)...) }
			if err := os.MkdirAll(at("secrets", "kale"), 0o700); err != nil {
				t.Fatal(err)
			}
			// Its environment is read just before the program is started: here that takes until the signal has been sent.
			hold := ": > " + at("reached") + "\nwhile [ ! -e " + at("go") + " ]; do sleep 0.02; done\n"
			if err := os.WriteFile(at("secrets", "kale", ".env"), []byte(hold), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", startScript, "kale", "60.000", "0", "/bin/sh", "-c", ": > "+at("ran"))
			cmd.Env = append(os.Environ(), "NOMAD_TASK_DIR="+dir, "NOMAD_SECRETS_DIR="+at("secrets"), "NOMAD_ALLOC_ID=a", "NOMAD_ALLOC_INDEX=0")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			conformance.Eventually(t, "it reads its environment", func() error {
				_, err := os.Stat(at("reached"))
				return err
			})
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at("go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ends with %v, which Nomad answers with another start", err)
			}
			if said, err := os.ReadFile(at(".kale", "exit")); err != nil || !strings.HasPrefix(string(said), "0 it was asked to stop before it ran") {
				t.Errorf("it left the word %q, %v", said, err)
			}
			if left, err := os.ReadDir(at("secrets")); err != nil || len(left) > 0 {
				t.Errorf("of what it was given there is still %v, %v", left, err)
			}
			if _, err := os.Stat(at("ran")); err == nil {
				t.Error("its program ran")
			}
		})
	}
}

// A program that is asked to stop and ends well at once has ended well: the shell's wait, which the request ends too, tells no code of the program's. Which of the two
// is first is the machine's choice, so it is tried often.
func TestTellsTheCodeOfWhatEndsAtOnce(t *testing.T) {
	for range 60 {
		dir := t.TempDir()
		at := func(path ...string) string { return filepath.Join(append([]string{dir}, path...)...) }
		if err := os.MkdirAll(at("secrets", "kale"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at("secrets", "kale", ".env"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		program := "trap 'exit 0' TERM; : > " + at("runs") + "; while :; do :; done" // which a signal ends at once
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", startScript, "kale", "60.000", "0", "/bin/sh", "-c", program)
		cmd.Env = append(os.Environ(), "NOMAD_TASK_DIR="+dir, "NOMAD_SECRETS_DIR="+at("secrets"), "NOMAD_ALLOC_ID=a", "NOMAD_ALLOC_INDEX=0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		conformance.Eventually(t, "it runs", func() error {
			_, err := os.Stat(at("runs"))
			return err
		})
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if said, err := os.ReadFile(at(".kale", "exit")); err != nil || string(said) != "0 it ended with code 0: done\n" {
			t.Fatalf("it left the word %q, %v", said, err)
		}
	}
}

// Somebody has Nomad restart what has ended for good, as with nomad alloc restart: what it was given is gone, so that it runs no more, and its end stays as it was told. It
// was a crash without end, which Nomad went on with and no successor took the place of.
func TestRestartOfWhatHasEnded(t *testing.T) {
	dir := t.TempDir()
	at := func(path ...string) string { return filepath.Join(append([]string{dir}, path...)...) }
	if err := os.MkdirAll(at("secrets", "kale"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("secrets", "kale", ".env"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", startScript, "kale", "60.000", "0", "/bin/sh", "-c", "echo x >> "+at("ran"))
		cmd.Env = append(os.Environ(), "NOMAD_TASK_DIR="+dir, "NOMAD_SECRETS_DIR="+at("secrets"), "NOMAD_ALLOC_ID=a", "NOMAD_ALLOC_INDEX=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("it ends with %v, which Nomad answers with another start: %s", err, said)
		}
		if said, err := os.ReadFile(at(".kale", "exit")); err != nil || string(said) != "0 it ended with code 0: done\n" {
			t.Errorf("it left the word %q, %v", said, err)
		}
	}
	if ran, err := os.ReadFile(at("ran")); err != nil || string(ran) != "x\n" {
		t.Errorf("its program ran %q, %v", ran, err)
	}
}

// The list of processes on a node shows what runs there in a line each: the shell's text is in a file.
func TestCommandLinesAreShort(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w := r.workload("j", workerID(0, 1), conformance.Steady)
	pidFile := filepath.Join(r.dir, "pid")
	w.Argv[2] = "echo $$ > " + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "; " + w.Argv[2]
	ensure(t, n, "j", w)
	var pid int
	conformance.Eventually(t, "it has said who it is", func() error {
		raw, err := os.ReadFile(pidFile)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		}
		return err
	})
	shell, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parentOf(t, pid)))
	argv := strings.Split(strings.TrimSuffix(string(shell), "\x00"), "\x00")
	if err != nil || len(argv) < 5 || argv[0] != "/bin/sh" || !strings.HasSuffix(argv[1], "/local/"+startFile) || !slices.Equal(argv[4:], w.Argv) {
		t.Errorf("beside the program runs %q, %v", argv, err)
	}
	conformance.Drop(t, n, "j")
}
