package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/kale-sched/kale/core/backend"
)

// Shell gives the suite's programs as scripts for /bin/sh, for a backend that runs processes.
type Shell struct {
	// Dir is a folder that every node sees at this path. Each process that starts adds a line to a file there.
	Dir string
}

// EnvStarts is the variable with Shell.Dir, which every process of a Shell has.
const EnvStarts = "KALE_TEST_STARTS"

// Parts of scripts.
const (
	// CountStart counts a start, and says so.
	CountStart = `echo x >> "$` + EnvStarts + `/$KALE_TEST_NAME.starts"; echo started; `
	// ForEver runs until a signal ends it. A read from a FIFO that nobody closes waits without a process of its own.
	ForEver = `p="$` + backend.EnvAllocDir + `/p"; [ -p "$p" ] || mkfifo "$p"; while :; do read x <> "$p"; done`
)

// Workload is a Harness.Workload.
func (s Shell) Workload(job string, id backend.ID, p Program) backend.Workload {
	const untilCrash = `until [ -e "$` + EnvStarts + `/$KALE_TEST_NAME.crash" ]; do sleep 0.05; done; `
	w := s.Script(job, id, map[Program]string{
		Steady:   `trap 'exit 0' TERM; ` + CountStart + ForEver,
		ExitZero: CountStart + `exit 0`,
		Fenced:   CountStart + `exit 3`,
		Crash:    `trap 'exit 0' TERM; ` + CountStart + `[ -e crashed ] || { : > crashed; ` + untilCrash + `exit 1; }; ` + ForEver,
		Stubborn: `trap '' TERM; ` + CountStart + ForEver,
		Echo:     CountStart + `cat "$` + backend.EnvAllocDir + `/hello"; echo; echo "$GREETING"; ` + untilCrash,
	}[p])
	if p == Missing {
		w.Argv = []string{"kale-no-such-program"}
	}
	return w
}

// Script gives a workload that runs the script, with what CountStart needs.
func (s Shell) Script(job string, id backend.ID, script string) backend.Workload {
	return backend.Workload{
		ID: id, Argv: []string{"/bin/sh", "-c", script},
		Env: map[string]string{EnvStarts: s.Dir, "KALE_TEST_NAME": job + "." + id.String()},
	}
}

// Starts is a Harness.Starts.
func (s Shell) Starts(t testing.TB, job string, id backend.ID) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Dir, job+"."+id.String()+".starts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(raw, []byte("\n"))
}

// Crash is a Harness.Crash.
func (s Shell) Crash(t testing.TB, job string, id backend.ID) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, job+"."+id.String()+".crash"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// AwaitStarts waits until a process of the workload was started so often, as they count it, and fails the test where there were more. That a workload runs says
// only that its process is there: on a busy machine it may not have counted yet.
func (s Shell) AwaitStarts(t testing.TB, job string, id backend.ID, want int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s has started %d times", id, want), func() error {
		got := s.Starts(t, job, id)
		if got > want {
			t.Fatalf("%s was started %d times, want %d", id, got, want)
		}
		if got < want {
			return fmt.Errorf("it was started %d times", got)
		}
		return nil
	})
}
