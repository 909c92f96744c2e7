package nomad

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// The shell beside the program, and Nomad's own helper above it, are killed from outside: the program is started again,
// and at no time are there two of it.
func TestKilledSupervisorsDoubleNothing(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	for rank, tt := range []struct {
		name string
		up   int // generations above the program
	}{{"the shell", 1}, {"Nomad's executor", 2}} {
		t.Run(tt.name, func(t *testing.T) {
			w := r.workload("j", workerID(rank, 1), conformance.Steady)
			pidFile, doubled := filepath.Join(r.dir, fmt.Sprintf("pid-%d", rank)), filepath.Join(r.dir, fmt.Sprintf("doubled-%d", rank))
			w.Argv[2] = fmt.Sprintf(`old=$(cat %[1]s 2>/dev/null); [ -n "$old" ] && grep -qs "^State:[[:space:]]*[RSDTt]" /proc/$old/status && grep ^State /proc/$old/status > %[2]s; echo $$ > %[1]s.new; mv %[1]s.new %[1]s; `, pidFile, doubled) + w.Argv[2]
			ensure(t, n, "j", w)
			conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
			var pid int
			conformance.Eventually(t, "it has said who it is", func() (err error) {
				raw, err := os.ReadFile(pidFile)
				if err == nil {
					pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
				}
				return err
			})
			r.shell().AwaitStarts(t, "j", w.ID, 1) // or it might be killed before it has counted its start
			above := pid
			for range tt.up {
				above = parentOf(t, above)
			}
			if err := syscall.Kill(above, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			conformance.Eventually(t, "it has started again", func() error {
				if got := r.starts(t, "j", w.ID); got != 2 {
					return fmt.Errorf("it was started %d times", got)
				}
				return nil
			})
			if _, err := os.Stat(doubled); !errors.Is(err, os.ErrNotExist) {
				raw, _ := os.ReadFile(doubled) // for the message only
				t.Errorf("the first process lived when the second started: %s", raw)
			}
			conformance.WaitFor(t, n, "j", w.ID, "runs, started once again", func(st backend.Status) bool { return st.State == backend.StateRunning && st.Restarts == 1 })
		})
	}
	conformance.Drop(t, n, "j")
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		t.Fatalf("/proc/%d/stat is %q", pid, raw)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil || parent <= 1 {
		t.Fatalf("the parent of %d is %q", pid, fields[1])
	}
	return parent
}
