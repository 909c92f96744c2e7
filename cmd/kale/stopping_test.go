package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
)

// A kale stop that has a job's state and has not looked yet, or kills what runs, is named by its note: whether it answers or not.
func TestStatusBeforeAStopHasLooked(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	dir := filepath.Join(s.env["KALE_STATE_DIR"], "life")
	if err := saveInvocation(dir, invocation{}); err != nil {
		t.Fatal(err)
	}
	held, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := held.Close(); err != nil {
			t.Error(err)
		}
	})
	says := fmt.Sprintf("life, stopping: a kale stop (process %d) stops it", os.Getpid())
	look := func(what string, noted bool) {
		if out := s.must("status", "life").out; strings.Contains(out, says) != noted {
			t.Errorf("%s it says:\n%s", what, out)
		}
	}
	look("of another process that has the state", false)
	note := noteProcess(dir, stoppingFile)
	look("of a stop that does not answer", true)
	l, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, nil, l, &another{}, api.Options{}) }() // ended below
	look("of a stop that answers and has not looked", true)
	note.end()
	look("of a scheduler that has not looked", false)
	end()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A pause waits for a chief that does not answer for a moment. While kale stop stops a job whose scheduler was killed, kale status says so, by which process, and what it waits for; a second stop waits with it, and another
// order is refused.
func TestStatusWhileAStopDrives(t *testing.T) {
	t.Parallel()
	needONNX(t)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s := newShell(t).withPrograms()
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-peak", "300", "-from", "12h", "-history", "10s", "-duration", "0")
	t.Cleanup(func() { // whatever fails above, no process may be left
		if r := s.runCtx(context.Background(), "stop", "life", "-force"); r.code != exitDone && !strings.Contains(r.err, "no job") {
			t.Errorf("stop -force: %s", r.err)
		}
	})
	cmd, run := s.startProcess("run", "-state-dir", s.env["KALE_STATE_DIR"], lifeAt(t, addr), "-plain")
	pid, chief := 0, 0
	run.eventually("a worker that trains", func() bool {
		var v core.View
		if r := s.run("status", "life", "-json"); r.code != exitDone || json.Unmarshal([]byte(r.out), &v) != nil {
			return false // it is not known yet
		}
		for _, w := range v.Workers {
			if w.Member == "ready" && w.PID != 0 {
				pid = w.PID
			}
		}
		for _, w := range v.Servers {
			chief = w.PID
		}
		return pid != 0 && chief != 0
	})
	// An order that is for the chief too waits a moment for one that does not answer.
	if err := syscall.Kill(chief, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pause := s.start("pause", "life")
	pause.eventually("that it waits", func() bool { return strings.Contains(pause.err.String(), "waiting for it") })
	if err := syscall.Kill(chief, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r := pause.end(); r.code != exitDone || !strings.Contains(r.out, "paused; kale resume life goes on") {
		t.Errorf("pause beside a chief that is back: exit code %d, %s%s", r.code, r.out, r.err)
	}
	s.must("resume", "life")

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	run.end()

	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // it cannot drain
		t.Fatal(err)
	}
	goOn := func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // it may be gone
	t.Cleanup(goOn)
	stop := s.start("stop", "life")
	who := fmt.Sprintf("a kale stop (process %d) stops it", os.Getpid()) // which runs in this one
	says, waits := "", false
	for deadline := time.Now().Add(time.Minute); !waits && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		says = s.must("status", "life").out
		waits = strings.Contains(says, who+" since ") && strings.Contains(says, "waits for") && strings.Contains(says, "worker-0-g1")
		if strings.Contains(says, "about to answer, or about to end") || strings.Contains(says, who) && !strings.Contains(says, "life, stopping") {
			t.Errorf("while a stop begins it says:\n%s", says)
		}
	}
	if !waits {
		t.Fatalf("it says:\n%s", says)
	}
	if all := s.must("status").out; !strings.Contains(all, "stopping") || !strings.Contains(all, who+": waiting for ") {
		t.Errorf("of all jobs it says:\n%s", all)
	}
	if g := glanceOf(t, s, "life"); g.State != core.StateStopping || !g.Scheduler {
		t.Errorf("status -json: %+v", g)
	}
	if r := s.run("scale", "life", "2"); r.code != exitFailed || !strings.Contains(r.err, "it is being stopped") {
		t.Errorf("scale: exit code %d, %s", r.code, r.err)
	}
	second := s.start("stop", "life")
	goOn()
	for i, b := range []*background{stop, second} {
		if r := b.end(); r.code != exitDone || !strings.HasPrefix(r.out, `job "life" has stopped`) {
			t.Errorf("stop %d: exit code %d, %s%s", i+1, r.code, r.out, r.err)
		}
	}
	if g := glanceOf(t, s, "life"); g.State != core.StateStopped || g.Scheduler {
		t.Errorf("status -json after it: %+v", g)
	}
}
