package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/stream"
)

// startProcess runs a command line in a process of its own, which ends with the test at the latest.
func (s *shell) startProcess(args ...string) (cmd *exec.Cmd, b *background) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b = &background{t: s.t, interrupt: cancel, done: make(chan struct{})}
	cmd = exec.CommandContext(ctx, s.exe, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = &b.out, &b.err
	cmd.WaitDelay = 10 * time.Second // a child that holds the pipes
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(b.done)
		err := cmd.Wait()
		if b.code = cmd.ProcessState.ExitCode(); err != nil && !errors.As(err, new(*exec.ExitError)) && ctx.Err() == nil {
			s.t.Errorf("kale %s: %v", quoted(args), err)
		}
	}()
	s.t.Cleanup(func() { b.interrupt(); <-b.done })
	return cmd, b
}

// Two schedulers of one checkpoint folder, each with a state folder of its own: the second is refused and told who has the job; what was killed is no
// hindrance; and with -take-over the first one ends.
func TestOneSchedulerPerCheckpoint(t *testing.T) {
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	file := filepath.Join(dir, "life.hcl")
	text := strings.NewReplacer("%BROKER%", addr, `gpus = "none"`, fmt.Sprintf("gpus = \"none\"\n    dir = %q", filepath.Join(dir, "processes"))).Replace(lifeJob)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := shortDir(t), shortDir(t)
	args := func(state string, more ...string) []string {
		return append([]string{"run", file, "-plain", "-state-dir", state, "-var", "checkpoints=" + filepath.Join(dir, "checkpoints")}, more...)
	}
	runs := func(r *background) func() bool {
		return func() bool { return strings.Contains(r.err.String(), `the scheduler of job "life" runs`) }
	}
	t.Cleanup(func() {
		if r := s.runCtx(context.Background(), "stop", "life", "-state-dir", a, "-force", "-take-over"); r.code != exitDone {
			t.Errorf("stop -force: %s", r.err)
		}
	})

	process, first := s.startProcess(args(a)...)
	first.eventually("a scheduler", runs(first))
	r := s.run(args(b)...)
	for _, says := range []string{fmt.Sprintf("process %d of", process.Process.Pid), filepath.Join(a, "life"), "kale run -take-over"} {
		if r.code != exitFailed || !strings.Contains(r.err, says) {
			t.Errorf("beside another scheduler: exit code %d, %s; want %q", r.code, r.err, says)
		}
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.done

	_, second := s.startProcess(args(b)...)
	second.eventually("a scheduler after one that was killed", runs(second))
	third := s.start(args(a, "-take-over")...)
	third.eventually("a scheduler that takes the job", runs(third))
	if r := second.end(); r.code != exitFailed || !strings.Contains(r.err, "has taken it over") || !strings.Contains(r.err, filepath.Join(a, "life")) {
		t.Errorf("the one before: exit code %d, %s", r.code, r.err)
	}
	third.interrupt()
	if r := third.end(); r.code != exitDone {
		t.Errorf("the one that has it: exit code %d, %s", r.code, r.err)
	}
}
