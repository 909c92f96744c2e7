package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
)

// another is a scheduler that has a job, as far as others see it.
type another struct{ view atomic.Pointer[core.View] }

func (s *another) View() *core.View                     { return s.view.Load() }
func (s *another) Do(context.Context, core.Order) error { return nil }
func (s *another) Store() *state.Store                  { return nil }

// Who runs a job that another scheduler has is told which process that is and how to end it alone; one that stops the job is waited for.
func TestRunBesideAnotherScheduler(t *testing.T) {
	t.Parallel()
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	file := filepath.Join(dir, "life.hcl")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(lifeJob, "%BROKER%", addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", file, "-plain", "-var", "checkpoints=" + filepath.Join(dir, "checkpoints")}
	folder := filepath.Join(s.env["KALE_STATE_DIR"], "life")
	held, err := state.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(folder)
	if err != nil {
		t.Fatal(err)
	}
	other := &another{}
	other.view.Store(&core.View{Job: "life"})
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, nil, l, other, api.Options{}) }() // ended below
	letGo := func() {
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := held.Close(); err != nil {
			t.Error(err)
		}
	}

	r := s.run(args...)
	if want := fmt.Sprintf("or kill %d: training goes on", os.Getpid()); r.code != exitFailed || !strings.Contains(r.err, want) || !strings.Contains(r.err, "kale status life") {
		t.Errorf("beside a scheduler that runs: exit code %d, %s; want %q", r.code, r.err, want)
	}
	note := noteProcess(folder, stoppingFile) // a kale stop, which has not looked yet
	other.view.Store(nil)
	run := s.start(args...)
	t.Cleanup(func() {
		run.interrupt()
		run.end()
		s.runCtx(context.Background(), "stop", "life", "-force")
	})
	run.eventually("word of what it waits for", func() bool {
		return strings.Contains(run.err.String(), fmt.Sprintf("a kale stop (process %d) stops it", os.Getpid()))
	})
	other.view.Store(&core.View{Job: "life", Stopping: true, Waits: "the last snapshot"})
	note.end()
	run.eventually("word of what that waits for", func() bool {
		return strings.Contains(run.err.String(), "it stops the job: waiting for the last snapshot")
	})
	letGo()
	run.eventually("the run", func() bool { return strings.Contains(run.err.String(), `the scheduler of job "life" runs`) })
}
