package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/cmd/internal/folder"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/state"
)

// starting says that a kale run is about to take a job up: it asks brokers and the backend for some time before it has the job's state, and a stop that comes
// meanwhile must not take the job for one that nobody runs. It is a lock (flock) on a file in the job's state folder, shared by all that start at once, which is
// held until the scheduler answers and goes with its process. The file names the process, for people.
type starting struct {
	f    *os.File
	path string
	made folder.Made
}

const startingFile = "starting"

// startTries bounds how often the file is opened anew because another run that has just started removed it.
const startTries = 100

// stoppingFile is the same for a kale stop that is to stop a job which no scheduler looks after: it cannot say so itself before it has looked, nor while it kills.
const stoppingFile = "stopping"

// forgettingFile is the same for a kale forget, which is about to remove the folder: a run that begins meanwhile would lose what it has there.
const forgettingFile = "forgetting"

// start notes that a job is about to be taken up with its state in a folder. Where that cannot be noted it is nil: who opens the state says what is wrong.
func start(dir string) *starting { return noteProcess(dir, startingFile) }

// noteProcess notes in a file of a job's state folder what this process is about to do.
func noteProcess(dir, file string) *starting {
	path := filepath.Join(dir, file)
	for range startTries {
		made, err := folder.Make(dir)
		if err != nil {
			made.Remove()
			return nil
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the folder went, as empty as another run had made it
		}
		if err != nil {
			made.Remove()
			return nil
		}
		if backend.Flock(f, unix.LOCK_SH) == nil && backend.IsAt(f, path) { // who has it to itself looks, or removes it, and lets go at once
			_ = f.Truncate(0) // that it is not known which process starts the job keeps none from it
			_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
			return &starting{f, path, made}
		}
		f.Close()
	}
	return nil
}

// end takes the note back: the scheduler answers, or is not to be.
func (s *starting) end() {
	if s == nil || s.f == nil {
		return
	}
	if backend.Flock(s.f, unix.LOCK_EX|unix.LOCK_NB) == nil && backend.IsAt(s.f, s.path) { // otherwise another run still needs it
		_ = os.Remove(s.path) // one that stays says nothing: nobody holds it
		s.made.Remove()
	}
	s.f.Close()
	s.f = nil
}

// isStarting says whether a kale run is about to take up the job that has its state in a folder, and in which process; 0: that is not known.
func isStarting(dir string) (pid int, is bool) { return noted(dir, startingFile) }

// noted says whether a process that lives has noted in a file of a job's state folder what it is about to do, and which; 0: that is not known.
func noted(dir, file string) (pid int, is bool) {
	path := filepath.Join(dir, file)
	if !exists(path) {
		return 0, false
	}
	f, err := backend.TryLock(path)
	if f != nil || err != nil {
		f.Close()
		return 0, false
	}
	raw, _ := os.ReadFile(path)
	pid, _ = strconv.Atoi(string(bytes.TrimSpace(raw)))
	return pid, true
}

// starts says whether a kale run is about to take up a job that has its state on this machine, and names it: "a kale run (process 7)".
func (a *app) starts(name string) (run string, is bool) {
	if backend.ValidJob(name) != nil {
		return "", false
	}
	dir, err := a.jobDir(name)
	if err != nil {
		return "", false // who needs the folder says what is wrong with it
	}
	pid, is := isStarting(dir)
	return commandAt("run", pid), is
}

// commandAt names a command of kale's by its process; 0: that is not known.
func commandAt(command string, pid int) string {
	if pid == 0 {
		return "a kale " + command
	}
	return fmt.Sprintf("a kale %s (process %d)", command, pid)
}

// awaitStart waits while a kale run is about to take a job up, and says whether one was.
func (a *app) awaitStart(ctx context.Context, name string) (was bool, err error) {
	if backend.ValidJob(name) != nil {
		return false, nil
	}
	dir, err := a.jobDir(name)
	if err != nil {
		return false, err
	}
	return a.awaitNoted(ctx, name, "run", "is just about to start it", func() (int, bool) { return isStarting(dir) })
}

// awaitStopping waits while a kale stop is about to stop a job and does not have its state yet, whose order came first. One that has it is waited for by who opens that.
func (a *app) awaitStopping(ctx context.Context, name, dir string) error {
	_, err := a.awaitNoted(ctx, name, "stop", "has just begun to stop it", func() (int, bool) {
		pid, stops := noted(dir, stoppingFile)
		return pid, stops && state.Holder(dir) == 0
	})
	return err
}

// startUnforgotten is start, once no kale forget is at work that came first.
func (a *app) startUnforgotten(ctx context.Context, name, dir string) (*starting, error) {
	for {
		s := start(dir)
		if _, forgets := noted(dir, forgettingFile); !forgets {
			return s, nil
		}
		s.end()
		if _, err := a.awaitNoted(ctx, name, "forget", "is about to forget it", func() (int, bool) { return noted(dir, forgettingFile) }); err != nil {
			return nil, err
		}
	}
}

// awaitNoted waits for a process that has noted what it is about to do with a job, and says whether there was one.
func (a *app) awaitNoted(ctx context.Context, name, command, does string, look func() (pid int, is bool)) (was bool, err error) {
	began := time.Now()
	bar := a.progress()
	defer bar.done()
	for {
		pid, is := look()
		if !is {
			return was, nil
		}
		who, kill := commandAt(command, pid), ""
		if pid != 0 {
			kill = fmt.Sprintf(", or kill %d", pid)
		}
		waited := time.Since(began)
		if waited > stopTimeout {
			return was, fmt.Errorf("%s of job %q %s, and is no further after %s: press Ctrl-C where it runs%s; then run this again", who, name, does, stopTimeout, kill)
		}
		if backend.Suspended(pid) {
			return was, fmt.Errorf("%s of job %q %s, and is suspended: kill -CONT %d lets it go on, and kill -9 %d ends it; then run this again", who, name, does, pid, pid)
		}
		if !was {
			was = true
			a.advise("waiting for %s of job %q, which %s\n", who, name, does)
		}
		bar.show("waiting, %s: %s %s", waited.Round(time.Second), who, does)
		if err := wait(ctx, letGoPoll); err != nil {
			return was, err
		}
	}
}
