package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
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

// A pause waits for a chief that does not answer for a moment. While kale stop stops a job whose scheduler was killed, kale status says so, by which process, and what it
// waits for; a second stop waits with it, and another order is refused.
func TestStatusWhileAStopDrives(t *testing.T) {
	t.Parallel()
	needONNX(t)
	s := newShell(t).withPrograms()
	cmd, run, _, pid, chief := s.trains()
	// An order that is for the chief too waits a moment for one that does not answer.
	if err := syscall.Kill(chief, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	run.eventually("its suspension", func() bool { return backend.Suspended(chief) })
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

// trains runs a job in a process of its own and waits until it trains: with one worker and one server, which is its chief.
func (s *shell) trains() (cmd *exec.Cmd, run *background, file string, worker, chief int) {
	s.t.Helper()
	addr := broker(s.t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-peak", "300", "-from", "12h", "-history", "10s", "-duration", "0")
	s.t.Cleanup(func() { // whatever fails above, no process may be left
		if r := s.runCtx(context.Background(), "stop", "life", "-force"); r.code != exitDone && !strings.Contains(r.err, "no job") {
			s.t.Errorf("stop -force: %s", r.err)
		}
	})
	file = lifeAt(s.t, addr)
	cmd, run = s.startProcess("run", "-state-dir", s.env["KALE_STATE_DIR"], file, "-plain")
	run.eventually("a worker that trains", func() bool {
		var v core.View
		if r := s.run("status", "life", "-json"); r.code != exitDone || json.Unmarshal([]byte(r.out), &v) != nil {
			return false // it is not known yet
		}
		for _, w := range v.Workers {
			if w.Member == "ready" && w.PID != 0 {
				worker = w.PID
			}
		}
		for _, w := range v.Servers {
			chief = w.PID
		}
		return worker != 0 && chief != 0
	})
	return cmd, run, file, worker, chief
}

// A kale stop that is suspended at its work is not taken for a scheduler, whose end would let the job train on: what is asked beside it says what it is and what helps.
func TestSuspendedStop(t *testing.T) {
	t.Parallel()
	needONNX(t)
	s := newShell(t).withPrograms()
	cmd, run, file, worker, _ := s.trains()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	run.end()
	if err := syscall.Kill(worker, syscall.SIGSTOP); err != nil { // it cannot drain
		t.Fatal(err)
	}
	cmd, stop := s.startProcess("stop", "-state-dir", s.env["KALE_STATE_DIR"], "life")
	pid := cmd.Process.Pid
	who := fmt.Sprintf("a kale stop (process %d)", pid)
	stop.eventually("that it stops the job", func() bool { return strings.Contains(s.run("status", "life").out, who+" stops it since ") })
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stop.eventually("its suspension", func() bool { return backend.Suspended(pid) })
	s.patience = time.Second
	silent := fmt.Sprintf("the kale stop that stops it does not answer (pid %d is suspended: kill -CONT %d lets it go on", pid, pid)
	ends := fmt.Sprintf("kill -9 %d ends it, and kale stop life goes on with what it began", pid)
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"status", "life"}, exitDone, []string{"life, stopping: " + silent}},
		{[]string{"stop", "life"}, exitFailed, []string{silent, ends}},
		{[]string{"stop", "-force", "life"}, exitFailed, []string{silent, ends}},
		{[]string{"pause", "life"}, exitFailed, []string{silent, ends}},
		{[]string{"plan", file}, exitDone, []string{silent, who + ` is at work on job "life": what was learnt of the job, and what was ordered, is not in this plan`}},
		{[]string{"run", file}, exitFailed, []string{"is being stopped, by " + who, ends}},
		{[]string{"run", "-take-over", file}, exitFailed, []string{who + " has its state", ends}},
		{[]string{"forget", "life"}, exitFailed, []string{who + " is at work on it", ends}},
	} {
		r := s.run(c.args...)
		for _, want := range c.want {
			if r.code != c.code || !strings.Contains(r.out+r.err, want) || c.code != exitDone && strings.Contains(r.out+r.err, "training goes on") {
				t.Errorf("kale %s beside a stop that is suspended: exit code %d, want %q:\n%s%s", quoted(c.args), r.code, want, r.out, r.err)
			}
		}
	}
	s.patience = 0
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-stop.done
	if r := s.run("stop", "life"); r.code != exitDone || !strings.HasPrefix(r.out, `job "life" has stopped`) {
		t.Errorf("a stop after it: exit code %d, %s%s", r.code, r.out, r.err)
	}

	// One that is suspended before it has the state, which it has only noted.
	dir := filepath.Join(s.env["KALE_STATE_DIR"], "life")
	early := exec.CommandContext(t.Context(), "bash", "-c", `exec 9<>stopping && flock -s 9 && echo -n $$ >stopping && kill -STOP $$`)
	early.Dir = dir
	if err := early.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = early.Wait() }() // it is killed
	defer func() { _ = early.Process.Kill() }()
	pid = early.Process.Pid
	want := holder{pid: pid, stops: true, suspended: true}
	for deadline := time.Now().Add(time.Minute); holderOf(dir) != want && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	ends = fmt.Sprintf("kill -9 %d ends it, and kale stop life goes on with what it began", pid)
	helps := fmt.Sprintf("is suspended: kill -CONT %d lets it go on", pid)
	for _, args := range [][]string{{"stop", "life"}, {"stop", "-force", "life"}, {"forget", "life"}, {"scale", "life", "1"}, {"run", file}} {
		r := s.run(args...)
		if says := strings.ToLower(r.err); r.code != exitFailed || !strings.Contains(says, strings.ToLower(helps)) || args[0] != "run" && !strings.Contains(r.err, ends) {
			t.Errorf("kale %s beside one that is suspended early: exit code %d, want %q:\n%s%s", quoted(args), r.code, ends, r.out, r.err)
		}
	}
}
