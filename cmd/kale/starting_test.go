package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
)

// lifeAt writes lifeJob with a broker's address to a file.
func lifeAt(t *testing.T, addr string) (file string) {
	t.Helper()
	text := strings.NewReplacer("%BROKER%", addr, "var.checkpoints", fmt.Sprintf("%q", t.TempDir())).Replace(lifeJob)
	_, text, _ = strings.Cut(text, "\n}\n") // without the variable
	return write(t, text)
}

// While a run asks its brokers, everybody sees that the job is about to be taken up; one that comes to nothing leaves nothing.
func TestRunIsSeenToStart(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"run", "-pool"}} {
		s := newShell(t)
		dir := filepath.Join(s.env["KALE_STATE_DIR"], "life")
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if len(args) > 1 {
			args = append(args, write(t, "pool \"main\" {\n  gpus = 8\n  job \"life\" {\n  }\n}\n"))
		}
		args = append(args, lifeAt(t, l.Addr().String()))
		run := s.start(args...)
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if pid, is := isStarting(dir); !is || pid != os.Getpid() {
			t.Errorf("%s: while brokers are asked: starting is %v, process %d", args, is, pid)
		}
		says := fmt.Sprintf("a kale run (process %d) is about to start it", os.Getpid())
		for _, c := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"status"}, exitDone, "life  starting  " + says},
			{[]string{"status", "life"}, exitDone, "life, starting: " + says},
			{[]string{"status", args[len(args)-1]}, exitDone, "life, starting: " + says},
			{[]string{"forget", "life"}, exitFailed, says + ": kale stop life first"},
			{[]string{"pause", "life"}, exitFailed, says + ": try again in a moment"},
		} {
			if r := s.run(c.args...); r.code != c.code || !strings.Contains(r.out+r.err, c.want) {
				t.Errorf("%v while it starts: exit code %d, and not %q:\n%s%s", c.args, r.code, c.want, r.out, r.err)
			}
		}
		run.interrupt()
		_ = conn.Close()
		_ = l.Close()
		run.end()
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: %s is left: %v", args, dir, err)
		}
	}
}

// The note is there for as long as any of several runs needs it.
func TestStartIsShared(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "life")
	is := func() bool { _, is := isStarting(dir); return is }
	if is() {
		t.Error("nobody starts it")
	}
	a, b := start(dir), start(dir)
	a.end()
	if a.end(); !is() {
		t.Error("one of two ended, and nobody starts it")
	}
	if b.end(); is() {
		t.Error("both ended")
	}
	var all sync.WaitGroup // each ends by itself
	for range 4 {
		all.Go(func() {
			for range 20 {
				s := start(dir)
				if s == nil || !is() {
					t.Error("one that starts is not seen")
				}
				s.end()
			}
		})
	}
	if all.Wait(); is() {
		t.Error("all have ended")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(filepath.Join(file, "life")).end() // who opens the state says what is wrong with the folder
}

// taken is a scheduler that has a job since it was asked for, and stops it when ordered to.
type taken struct{ another }

func (s *taken) Do(_ context.Context, o core.Order) error {
	if o.Kind != "stop" {
		return fmt.Errorf("ordered to %s", o.Kind)
	}
	s.view.Store(&core.View{Job: "life", LastStop: time.Now().Add(time.Hour)}) // stopped, and taken up again: who asked for the stop is done
	return nil
}

// take has a scheduler answer for job "life" until the test ends.
func (s *shell) take(file string) {
	s.t.Helper()
	dir := filepath.Join(s.env["KALE_STATE_DIR"], "life")
	held, err := state.Open(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: file}); err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		s.t.Fatal(err)
	}
	who := &taken{}
	who.view.Store(&core.View{Job: "life"})
	ctx, end := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, nil, l, who, api.Options{}) }() // ended below
	s.t.Cleanup(func() {
		end()
		if err := <-served; err != nil {
			s.t.Error(err)
		}
		if err := held.Close(); err != nil {
			s.t.Error(err)
		}
	})
}

const stoppedThat = "job \"life\" has stopped, and has been taken up again since\n"

// A stop that comes while a run is about to take the job up waits for that run, and stops it.
func TestStopWaitsForRunThatStarts(t *testing.T) {
	s := newShell(t)
	file := lifeAt(t, "127.0.0.1:1")
	for _, arg := range []string{"life", file} {
		run := start(filepath.Join(s.env["KALE_STATE_DIR"], "life"))
		stop := s.start("stop", arg)
		stop.eventually("word of what it waits for", func() bool {
			return strings.Contains(stop.err.String(), fmt.Sprintf(`waiting for a kale run (process %d) of job "life", which is just about to start it`, os.Getpid()))
		})
		if arg == "life" { // the run comes to nothing
			run.end()
			if r := stop.end(); r.code != exitFailed || !strings.Contains(r.err, `no job "life" is known`) {
				t.Errorf("stop of a job whose run failed: exit code %d: %s%s", r.code, r.out, r.err)
			}
			continue
		}
		s.take(file)
		run.end()
		if r := stop.end(); r.code != exitDone || r.out != stoppedThat {
			t.Errorf("stop of a job that was about to start: exit code %d: %s%s", r.code, r.out, r.err)
		}
	}
}

// A run that comes while a stop has begun and does not have the job's state yet waits for it: the order of the two is that in which they were given.
func TestRunWaitsForAStopThatHasNotLooked(t *testing.T) {
	s := newShell(t).withPrograms()
	file := lifeAt(t, "127.0.0.1:1")
	other := write(t, strings.Replace(read(t, lifeAt(t, "127.0.0.1:1")), `job "life"`, `job "other"`, 1))
	files := [][]string{{file}, {file, other}}
	for _, args := range files {
		dir := filepath.Join(s.env["KALE_STATE_DIR"], "life")
		stop := noteProcess(dir, stoppingFile)
		run := s.start(append([]string{"run"}, args...)...)
		run.eventually("word of what it waits for", func() bool {
			return strings.Contains(run.err.String(), fmt.Sprintf(`waiting for a kale stop (process %d) of job "life", which has just begun to stop it`, os.Getpid()))
		})
		if pid, starts := isStarting(dir); starts {
			t.Errorf("while it waits it is about to start the job, in process %d", pid)
		}
		stop.end()
		if r := run.end(); r.code != exitFailed || !strings.Contains(r.err, "127.0.0.1:1") {
			t.Errorf("after that: exit code %d: %s%s", r.code, r.out, r.err)
		}
	}
	dir := filepath.Join(s.env["KALE_STATE_DIR"], "life")
	defer noteProcess(dir, stoppingFile).end()
	run := s.start("run", files[0][0])
	run.eventually("the wait", func() bool { return strings.Contains(run.err.String(), "waiting for a kale stop") })
	run.interrupt()
	if r := run.end(); r.code != exitFailed || !strings.Contains(r.err, "this run has started nothing") {
		t.Errorf("interrupted: exit code %d: %s", r.code, r.err)
	}
}

// A run that comes while a forget is at work waits for it, or what it has begun in the job's folder would be removed; a forget that comes while a run is about to start is refused.
func TestRunWaitsForAForget(t *testing.T) {
	s := newShell(t).withPrograms()
	file, dir := lifeAt(t, "127.0.0.1:1"), filepath.Join(s.env["KALE_STATE_DIR"], "life")
	forget := noteProcess(dir, forgettingFile)
	run := s.start("run", file)
	run.eventually("word of what it waits for", func() bool {
		return strings.Contains(run.err.String(), fmt.Sprintf(`waiting for a kale forget (process %d) of job "life", which is about to forget it`, os.Getpid()))
	})
	if _, starts := isStarting(dir); starts {
		t.Error("while it waits it is about to start the job, whose folder is to be removed")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	forget.end()
	if r := run.end(); r.code != exitFailed || !strings.Contains(r.err, "127.0.0.1:1") {
		t.Errorf("after that: exit code %d: %s%s", r.code, r.out, r.err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: file}); err != nil {
		t.Fatal(err)
	}
	defer start(dir).end()
	if r := s.run("forget", "life"); r.code != exitFailed || !strings.Contains(r.err, "is about to start it") {
		t.Errorf("forget beside a run: exit code %d: %s%s", r.code, r.out, r.err)
	}
	if _, forgets := noted(dir, forgettingFile); forgets {
		t.Error("a forget that was refused is at work still")
	}
}

// slowPlugin is a folder with a plugin of the local backend that says nothing until it may answer.
func slowPlugin(t *testing.T) (dir string, asked func() bool, answer func()) {
	t.Helper()
	dir = t.TempDir()
	began, on := filepath.Join(dir, "began"), filepath.Join(dir, "on")
	script := fmt.Sprintf("#!/bin/sh\n: >%q\nwhile [ ! -e %q ]; do sleep 0.05; done\nexec %q\n", began, on, filepath.Join(binDir, "kale-backend-local"))
	if err := os.WriteFile(filepath.Join(dir, "kale-backend-local"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, func() bool { return exists(began) }, func() {
		if err := os.WriteFile(on, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A backend that takes its time is said to be waited for.
func TestValidateSaysThatItWaitsForTheBackend(t *testing.T) {
	s := newShell(t).withPrograms()
	s.patience = 400 * time.Millisecond
	dir, _, answer := slowPlugin(t)
	validate := s.start("validate", lifeAt(t, broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})), "-plugin-dir", dir)
	const waits = "waiting for the backend \"local\", which has not answered yet\n"
	validate.eventually("word of what it waits for", func() bool { return strings.Contains(validate.err.String(), waits) })
	answer()
	if r := validate.end(); r.code != exitDone || strings.Count(r.err, waits) != 1 {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
}

// A run that takes the job up while a stop looks at what runs is stopped too.
func TestStopOfJobThatIsTakenUpMeanwhile(t *testing.T) {
	s := newShell(t).withPrograms()
	file := lifeAt(t, "127.0.0.1:1")
	dir, asked, answer := slowPlugin(t)
	stop := s.start("stop", file, "-plugin-dir", dir)
	stop.eventually("question what runs", asked)
	s.take(file)
	answer()
	if r := stop.end(); r.code != exitDone || r.out != stoppedThat {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
}
