package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/state"
)

// A run that finds the job's state taken and no scheduler that answers speaks of who has it, and not of itself, which is about to start the job.
func TestRunSpeaksNotOfItself(t *testing.T) {
	s := newShell(t)
	held, err := state.Open(filepath.Join(s.env["KALE_STATE_DIR"], "life"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() }) // nothing was written to it
	r := s.run("run", lifeAt(t, "127.0.0.1:1"))
	says := fmt.Sprintf("Not compared with what runs of job \"life\": no scheduler answers for job \"life\", and process %d has its state: a kale run that begins, or a kale stop.\n", os.Getpid())
	if r.code != exitFailed || !strings.Contains(r.err, says) || strings.Contains(r.err, "about to start") || strings.Contains(r.err, "start it with") {
		t.Errorf("exit code %d, %q; want %q", r.code, r.err, says)
	}
}
