package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/state"
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

// listed are the processes of a job that live, as who has a state folder sees them.
func (s *shell) listed(name, state string) (pids map[string]int) {
	s.t.Helper()
	a := s.app(&buffer{}, &buffer{})
	a.stateDir = state
	list, complete, err := a.list(s.t.Context(), name)
	if err != nil || !complete {
		s.t.Errorf("list from %s: complete %v, %v", state, complete, err)
	}
	pids = map[string]int{}
	for _, st := range list {
		if st.PID != 0 {
			pids[st.ID.String()] = st.PID
		}
	}
	return pids
}

// Two schedulers of one checkpoint folder, each with a state folder of its own: the second is refused and told who has the job; what was killed is no
// hindrance, and what it started is found and not started again; with -take-over the first one ends; and a stop from either folder ends all.
func TestOneSchedulerPerCheckpoint(t *testing.T) {
	t.Parallel()
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	file := filepath.Join(dir, "life.hcl")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(lifeJob, "%BROKER%", addr)), 0o600); err != nil {
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
	var started map[string]int
	first.eventually("its processes", func() bool { started = s.listed("life", a); return len(started) > 1 })
	r := s.run(args(b)...)
	for _, says := range []string{fmt.Sprintf("process %d of", process.Process.Pid), filepath.Join(a, "life"), "kale run -take-over"} {
		if r.code != exitFailed || !strings.Contains(r.err, says) {
			t.Errorf("beside another scheduler: exit code %d, %s; want %q", r.code, r.err, says)
		}
	}
	// One that is suspended is said to be, with what helps; and from its own state folder it cannot be taken over, since it would not let go of that.
	first.eventually("a decision", func() bool { return strings.Contains(s.run("explain", "life", "-all", "-state-dir", a).out, "why ") })
	pid := process.Process.Pid
	if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	first.eventually("its suspension", func() bool { return backend.Suspended(pid) })
	s.patience = time.Second
	for _, line := range [][]string{args(b), args(a), args(a, "-take-over")} {
		r := s.run(line...)
		for _, says := range []string{fmt.Sprintf("kill -CONT %d lets it go on", pid), fmt.Sprintf("kill -9 %d ends it alone", pid)} {
			if r.code != exitFailed || !strings.Contains(r.err, says) {
				t.Errorf("kale %s beside one that is suspended: exit code %d, %s; want %q", quoted(line), r.code, r.err, says)
			}
		}
	}
	// No command waits for it: each tells what its process does and what helps, or does without it.
	for _, line := range [][]string{{"scale", "2"}, {"scale", "auto"}, {"pause"}, {"resume"}, {"stop"}, {"stop", "-force"}} {
		r := s.run(append([]string{line[0], "life", "-state-dir", a}, line[1:]...)...)
		for _, says := range []string{fmt.Sprintf("pid %d is suspended: kill -CONT %d lets it go on", pid, pid), fmt.Sprintf("kill -9 %d ends that scheduler alone", pid), "kale run"} {
			if r.code != exitFailed || !strings.Contains(r.err, says) || strings.Contains(r.err, "waiting") {
				t.Errorf("kale %s beside one that is suspended: exit code %d, %s; want %q", quoted(line), r.code, r.err, says)
			}
		}
	}
	// What they advise can be done in the order in which it is named: a stop needs a scheduler that answers, or none.
	for _, line := range [][]string{args(a), {"forget", "life", "-state-dir", a}} {
		r := s.run(line...)
		_, after, found := strings.Cut(r.err, fmt.Sprintf("kill -9 %d ends it alone", pid))
		if r.code != exitFailed || !found || !strings.Contains(after, "After that") || !strings.Contains(after, "kale stop") {
			t.Errorf("kale %s beside one that is suspended: exit code %d, %s", quoted(line), r.code, r.err)
		}
	}
	// What it had recorded is shown as it is on the disk, with its age.
	page := filepath.Join(dir, "life.html")
	for _, line := range [][]string{{"explain", "-all"}, {"explain", "-all", "-json"}, {"report", "-o", page}} {
		r := s.run(append([]string{line[0], "life", "-state-dir", a}, line[1:]...)...)
		for _, says := range []string{fmt.Sprintf("job \"life\": its scheduler does not answer (pid %d is suspended: kill -CONT %d lets it go on, or fg in the shell that has it); this is what it knew ", pid, pid), "s ago, at "} {
			if r.code != exitDone || strings.Count(r.err, says) != 1 {
				t.Errorf("kale %s beside one that is suspended: exit code %d, %s; want %q", quoted(line), r.code, r.err, says)
			}
		}
		shown, says := r.out, "why "
		switch {
		case line[0] == "report":
			shown, says = read(t, page), `<span class="why">`
		case len(line) == 3:
			says = `"decision"`
		}
		if !strings.Contains(shown, says) {
			t.Errorf("kale %s beside one that is suspended shows %.2000s; want %q", quoted(line), shown, says)
		}
	}
	if r := s.run("logs", "life", "-state-dir", a); r.code != exitDone || !strings.Contains(r.out, "ps-0-g1 | ") {
		t.Errorf("logs beside one that is suspended: exit code %d, %s%s", r.code, r.out, r.err)
	}
	for _, command := range []string{"validate", "plan"} {
		r := s.run(command, file, "-state-dir", a, "-var", "checkpoints="+filepath.Join(dir, "checkpoints"))
		if says := fmt.Sprintf("pid %d is suspended: kill -CONT %d lets it go on", pid, pid); r.code != exitDone || !strings.Contains(r.err, says) {
			t.Errorf("%s beside one that is suspended: exit code %d, %s%s; want %q", command, r.code, r.out, r.err, says)
		}
	}
	r = s.run("doctor", file, "-state-dir", a, "-var", "checkpoints="+filepath.Join(dir, "checkpoints"))
	if says := "a scheduler of this job has " + filepath.Join(a, "life", "api.sock") + ", and has not answered"; !strings.Contains(r.out, says) {
		t.Errorf("doctor beside one that is suspended: %s%s; want %q", r.out, r.err, says)
	}
	s.patience = 0
	if l, err := s.app(&buffer{}, &buffer{}).load(file, jobFlags{varFlags: varFlags{vars: []string{"checkpoints=" + filepath.Join(dir, "checkpoints")}}}); err != nil {
		t.Fatal(err)
	} else if held, err := core.HeldBy(l.Job); err != nil || held == nil || held.By.Process.PID != pid {
		t.Errorf("then the job is held by %+v, %v", held, err)
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.done

	_, second := s.startProcess(args(b)...)
	second.eventually("a scheduler after one that was killed", runs(second))
	second.eventually("its first look", func() bool {
		r := s.run("status", "life", "-json", "-state-dir", b)
		return r.code == exitDone && strings.Contains(r.out, `"worker-0-g1"`)
	})
	sameIn := func(state, when string) {
		t.Helper()
		now := s.listed("life", state)
		for id := range started {
			if _, found := now[id]; !found {
				t.Errorf("%s, from %s: there was %s, and there is %v", when, state, id, now)
			}
		}
		if exists(filepath.Join(b, "life", "local")) {
			t.Errorf("%s, the other state folder keeps processes too", when)
		}
	}
	sameIn(a, "after another state folder has taken it up")
	sameIn(b, "after another state folder has taken it up")
	third := s.start(args(a, "-take-over")...)
	third.eventually("a scheduler that takes the job", runs(third))
	if r := second.end(); r.code != exitFailed || !strings.Contains(r.err, "has taken it over") || !strings.Contains(r.err, filepath.Join(a, "life")) {
		t.Errorf("the one before: exit code %d, %s", r.code, r.err)
	}
	// Who has not got the job says who has, and not what it knew itself.
	for _, tt := range []struct {
		command string
		code    int
		says    string
	}{
		{"status", exitDone, "looks after it"},
		{"status", exitDone, "kale status -state-dir " + a + " life tells more"},
		{"pause", exitFailed, "with -state-dir " + a},
		{"stop", exitFailed, "kale stop -state-dir " + a + " life stops it"},
	} {
		if r := s.run(tt.command, "life", "-state-dir", b); r.code != tt.code || !strings.Contains(r.out+r.err, tt.says) {
			t.Errorf("kale %s with the other state folder: exit code %d, %s%s; want %q", tt.command, r.code, r.out, r.err, tt.says)
		}
	}
	// What it had recorded itself is shown, and said to be older, with who has the job.
	for _, line := range [][]string{{"explain", "life"}, {"explain", "life", "-json"}, {"report", "life", "-o", page}, {"explain", file, "-var", "checkpoints=" + filepath.Join(dir, "checkpoints")}} {
		r := s.run(append(line, "-state-dir", b)...)
		for _, says := range []string{fmt.Sprintf("what the state folder %s knows of the job is older", filepath.Join(b, "life")), "looks after it", "kale " + line[0] + " -state-dir " + a + " life tells more"} {
			if r.code != exitDone || strings.Count(r.err, says) != 1 {
				t.Errorf("kale %s with the other state folder: exit code %d, %s; want %q", quoted(line), r.code, r.err, says)
			}
		}
		if r := s.run(append(line, "-state-dir", a)...); r.code != exitDone || strings.Contains(r.err, "older") {
			t.Errorf("kale %s with the state folder that has it: exit code %d, %s", quoted(line), r.code, r.err)
		}
	}
	third.interrupt()
	if r := third.end(); r.code != exitDone {
		t.Errorf("the one that has it: exit code %d, %s", r.code, r.err)
	}
	sameIn(b, "after it was taken back")
	started = s.listed("life", a)
	if r := s.run("stop", "life", "-state-dir", b); r.code != exitDone {
		t.Errorf("stop from the other state folder: exit code %d, %s", r.code, r.err)
	}
	if r := s.must("status", "life", "-state-dir", a); !strings.Contains(r.out, "life, stopped: it was stopped at ") || !strings.Contains(r.out, filepath.Join(b, "life")) {
		t.Errorf("status with the state folder of the scheduler before: %s", r.out)
	}
	for id, pid := range started {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("%s, process %d, lives after the stop", id, pid)
		}
	}
}

// A scheduler that lives and whose state folder was taken away is told of with that very folder too, with what helps, and nothing is done without it.
func TestSchedulerWithoutItsState(t *testing.T) {
	s := newShell(t)
	file := lifeAt(t, "127.0.0.1:1")
	l, err := s.app(&buffer{}, &buffer{}).load(file, jobFlags{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := state.Open(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	lease, err := core.TakeLease(slog.New(slog.DiscardHandler), l.Job, l.dir, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lease.Close)
	if err := os.Rename(l.dir, l.dir+".away"); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.hcl")
	if err := os.WriteFile(other, []byte(strings.Replace(read(t, file), `"life"`, `"other"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	look := func(when string, helps ...string) {
		t.Helper()
		for _, tt := range []struct {
			command string
			code    int
			says    string
			more    []string
		}{{"status", exitDone, "looks after it", nil}, {"pause", exitFailed, "cannot be asked", nil}, {"scale", exitFailed, "cannot be asked", []string{"2"}},
			{"run", exitFailed, "kale: job \"life\" has a scheduler: ", nil}, {"run", exitFailed, "kale: job \"life\" has a scheduler: ", []string{other}}, {"stop", exitFailed, "looks after it", nil}} {
			r := s.run(append([]string{tt.command, file}, tt.more...)...)
			for _, says := range append(helps, tt.says, fmt.Sprintf("process %d of", os.Getpid()), "its state is not in "+l.dir+" any more") {
				if r.code != tt.code || !strings.Contains(r.out+r.err, says) {
					t.Errorf("%s: kale %s: exit code %d, %s%s; want %q", when, tt.command, r.code, r.out, r.err, says)
				}
			}
			if strings.Contains(r.out+r.err, "never started") {
				t.Errorf("%s: kale %s: %s%s", when, tt.command, r.out, r.err)
			}
		}
	}
	lost := []string{"put the folder back", fmt.Sprintf("kill %d", os.Getpid()), "kale run " + file, "names those to end first"}
	look("the folder is gone", lost...)
	how := filepath.Join(l.dir+".away", invocationFile)
	if err := backend.WriteJSON(how, invocation{Job: "life", File: file}); err != nil { // as kale run does
		t.Fatal(err)
	}
	look("the folder is gone, and known", "mv -T "+l.dir+".away "+l.dir+" puts it back")
	if err := errors.Join(os.Remove(how), os.Mkdir(l.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	look("the folder is empty", lost...)
	if other, err := state.Open(l.dir); err != nil {
		t.Fatal(err)
	} else if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	look("there is another state in it", lost...)
	if err := saveInvocation(l.dir, invocation{File: file}); err != nil {
		t.Fatal(err)
	}
	if r := s.run("forget", "life"); r.code != exitFailed || !strings.Contains(r.err, "looks after it") {
		t.Errorf("forget: exit code %d, %s%s", r.code, r.out, r.err)
	}
}
