package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// A kale-cluster that is killed leaves no process of its Nomad's tasks, and no folder.
func TestKilledNomadLeavesNothing(t *testing.T) {
	if why := nomadtest.Missing(); why != "" {
		t.Skip(why)
	}
	program, err := conformance.Build(t.TempDir(), "github.com/kale-sched/kale/cmd/kale-cluster")
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	c := exec.Command(program, "nomad", "-clients", "1", "-gpus", "1")
	c.Env = append(os.Environ(), "TMPDIR="+temporary)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "Ctrl-C ends it"); {
	}
	dirs, err := filepath.Glob(filepath.Join(temporary, "kale-nomad-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("its folders are %q, %v", dirs, err)
	}
	task := exec.Command("sleep", "1000") // as one is marked
	task.Env = []string{"KALE_NOMADTEST=" + dirs[0]}
	if err := task.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- task.Wait() }()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	conformance.Eventually(t, "the folder is gone", func() error {
		if left, err := filepath.Glob(filepath.Join(temporary, "kale-nomad-*")); err != nil || len(left) > 0 {
			return os.ErrExist
		}
		return nil
	})
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the task ended so: %v", err)
	}
}

// A guard that is dismissed touches nothing.
func TestDismissedGuard(t *testing.T) {
	dir := t.TempDir()
	if err := guardMain(strings.NewReader("."), []string{"-remove=true", dir}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
