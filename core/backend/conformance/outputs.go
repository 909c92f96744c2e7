package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kale-sched/kale/core/backend"
)

// The rules of what goes into a workload and what comes out of it.

func (s *suite) filesAndEnv() {
	id := worker(0, 1)
	w := s.workload(id, Echo)
	w.Files = map[string][]byte{"hello": []byte("hello from a file")}
	if w.Env == nil {
		w.Env = map[string]string{}
	}
	w.Env["GREETING"] = "hello from a variable"
	s.ensure(w)
	words := []string{"hello from a file", "hello from a variable"}
	s.letEnd(id, words...)
	s.waitFor(id, backend.StateExited)
	got := s.readLog(id, backend.LogOptions{})
	for _, want := range words {
		if !strings.Contains(got, want) {
			s.Errorf("the workload printed %q, want %q in it", got, want)
		}
	}
}

// letEnd lets a workload that runs Crash or Echo end once its log has some words: a log that is collected from outside may lose what ends before the collector
// is there.
func (s *suite) letEnd(id backend.ID, words ...string) {
	s.Helper()
	if s.Crash == nil {
		return
	}
	s.waitStarts(id, 1)
	s.eventually("its log has its words", func() error {
		got := s.readLog(id, backend.LogOptions{})
		for _, want := range words {
			if !strings.Contains(got, want) {
				return fmt.Errorf("it is %q, without %q", got, want)
			}
		}
		return nil
	})
	s.Crash(s.T, s.job, id)
}

// secretsEnd: what a workload was given is kept nowhere when it is gone. Its log stays.
func (s *suite) secretsEnd() {
	if s.Keeps == nil {
		s.Skip("the harness has no Keeps: whether what a workload was given is kept when it is gone is not tried")
	}
	id := worker(0, 1)
	w := s.workload(id, Steady)
	given := []string{"content-" + rand.Text(), "variable-" + rand.Text()}
	w.Files = map[string][]byte{"secret": []byte(given[0])}
	if w.Env == nil {
		w.Env = map[string]string{}
	}
	w.Env["SECRET"] = given[1]
	s.ensure(w)
	s.waitStarts(id, 1)
	if s.kept(given) == "" {
		s.Fatalf("while it runs, nothing of what it was given is in %v: the harness does not show where it is", s.Keeps())
	}
	if err := s.b.Release(s.ctx, s.job, []backend.ID{id}, backend.Drained); err != nil {
		s.Fatalf("Release(drained): %v", err)
	}
	s.eventually("the workload is gone, and what it was given too", func() error {
		if all := s.list(); len(all) > 0 {
			return fmt.Errorf("there is %v", all)
		}
		if at := s.kept(given); at != "" {
			return fmt.Errorf("some of it is in %s", at)
		}
		return nil
	})
	if text := s.readLog(id, backend.LogOptions{}); !strings.Contains(text, "started") {
		s.Errorf("its log is %q afterwards", text)
	}
}

// kept gives a file in which one of the texts is; "" when there is none.
func (s *suite) kept(texts []string) (found string) {
	for _, dir := range s.Keeps() {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what vanishes meanwhile is gone
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // go on
			}
			raw, err := os.ReadFile(path)
			for _, text := range texts {
				if err == nil && bytes.Contains(raw, []byte(text)) {
					found = path
				}
			}
			return nil
		})
	}
	return found
}

func (s *suite) readLog(id backend.ID, opts backend.LogOptions) string {
	s.Helper()
	r, err := s.b.Logs(s.ctx, s.job, id, opts)
	if err != nil {
		s.Fatalf("Logs(%s): %v", id, err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		s.Fatalf("read the log of %s: %v", id, err)
	}
	return string(text)
}

func (s *suite) logs() {
	running, ended := worker(0, 1), worker(1, 1)
	echo := s.workload(ended, Echo)
	echo.Files = map[string][]byte{"hello": []byte("one")}
	s.ensure(s.workload(running, Steady), echo)
	s.letEnd(ended, "one")
	s.waitFor(ended, backend.StateExited)
	all := s.readLog(ended, backend.LogOptions{})
	if lines := strings.Split(strings.TrimSpace(all), "\n"); lines[0] != "started" {
		s.Errorf("the log begins with %q, want %q", lines[0], "started")
	}
	if tail := s.readLog(ended, backend.LogOptions{Tail: 1}); strings.Count(tail, "\n") > 1 || !strings.HasSuffix(all, tail) {
		s.Errorf("the last line of %q is said to be %q", all, tail)
	}
	if followed := s.readLog(ended, backend.LogOptions{Follow: true}); followed != all {
		s.Errorf("following what has ended gave %q, want %q", followed, all)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	r, err := s.b.Logs(ctx, s.job, running, backend.LogOptions{Follow: true})
	if err != nil {
		s.Fatalf("Logs(follow): %v", err)
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "started\n" {
		s.Errorf("following what runs gave %q, %v", line, err)
	}
	cancel()
	_, _ = io.Copy(io.Discard, r) // that it returns is what counts
	if err := r.Close(); err != nil {
		s.Errorf("close a log: %v", err)
	}
	if _, err := s.b.Logs(s.ctx, s.job, worker(9, 1), backend.LogOptions{}); err == nil || backend.CodeOf(err) != backend.Gone {
		s.Errorf("Logs of what never was: %v; want code %q", err, backend.Gone)
	}
	if err := s.b.Release(s.ctx, s.job, []backend.ID{ended}, backend.Drained); err != nil {
		s.Fatalf("Release: %v", err)
	}
	s.waitGone(ended)
	if kept := s.readLog(ended, backend.LogOptions{}); kept != all {
		s.Errorf("the log of a released workload is %q, want %q", kept, all)
	}
}

func (s *suite) watch() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	events, err := s.b.Watch(ctx, s.job)
	if err != nil {
		s.Fatalf("Watch: %v", err)
	}
	id := worker(0, 1)
	s.ensure(s.workload(id, Steady))
	for {
		e, ok := <-events
		if !ok {
			s.Fatal("the watch ended before it told of a workload that was started")
		}
		if e.ID == id {
			break
		}
	}
	cancel()
	for range events { // it must end
	}
}
