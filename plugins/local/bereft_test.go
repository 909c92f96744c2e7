package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

var first = backend.ID{Role: backend.RoleWorker, Generation: 1}

// homely is a town with one job, whose process runs from state folder a and was seen from b.
type homely struct {
	town
	a, b *local
	work backend.Workload
	pid  int
}

func newHomely(t *testing.T) homely {
	w := newTown(t)
	h := homely{town: w, a: w.open(t, "j", "a"), b: w.open(t, "j", "b"), work: w.workload("j", first, conformance.Steady)}
	ensure(t, h.a, "j", h.work)
	h.pid = waitFor(t, h.a, "j", "its start", running).PID
	list(t, h.b, "j")
	conformance.Eventually(t, "its first line", func() error {
		if w.starts(t, "j", first) == 0 {
			return errors.New("it has written nothing yet")
		}
		return nil
	})
	return h
}

// jobFolder is where the job's processes are kept.
func (h homely) jobFolder() string { return filepath.Join(h.folder("a"), "backend-local", "jobs", "j") }

// refused wants that nothing can be seen, started, ended or forgotten from either state folder, with the advice, and that the process lives on alone.
func (h homely) refused(t *testing.T, when, advice string) {
	t.Helper()
	next := first
	next.Generation++
	for from, l := range map[string]*local{"its own": h.a, "another": h.b} {
		_, _, listed := l.List(t.Context(), "j")
		_, ensured := l.Ensure(t.Context(), "j", []backend.Workload{h.work})
		_, replaced := l.Ensure(t.Context(), "j", []backend.Workload{h.workload("j", next, conformance.Steady)})
		_, forgotten := l.Forget(t.Context(), "j", "")
		released := l.Release(t.Context(), "j", []backend.ID{first}, backend.Forced)
		for what, err := range map[string]error{"list": listed, "ensure": ensured, "ensure of the next": replaced, "forget": forgotten, "release": released} {
			if err == nil || backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), advice) {
				t.Errorf("%s: %s from %s state folder: %v; want %q", when, what, from, err, advice)
			}
		}
	}
	h.open(t, "j", "c") // a plugin that is started meanwhile gets on later
	h.same(t, when)
	if h.keeps("b", "j") {
		t.Errorf("%s: the other state folder has something of it", when)
	}
}

// same wants that what ran runs, and that nothing else was started.
func (h homely) same(t *testing.T, when string) {
	t.Helper()
	if err := syscall.Kill(h.pid, 0); err != nil || h.starts(t, "j", first) != 1 {
		t.Errorf("%s: its process: %v; it was started %d times", when, err, h.starts(t, "j", first))
	}
}

// back wants that all is as it was.
func (h homely) back(t *testing.T) {
	t.Helper()
	for _, l := range []*local{h.a, h.b} {
		if st := list(t, l, "j"); st == nil || st.PID != h.pid || !running(*st) {
			t.Errorf("the folder is back: there is %+v, want process %d", st, h.pid)
		}
		ensure(t, l, "j", h.work)
	}
	h.same(t, "the folder is back")
	end(t, h.b, "j")
}

// Whichever of the folders is moved away under a process that lives, nothing is started beside it, it is not taken for ended, and people are told what to do. With
// the folder back all is as it was, with the same process.
func TestFolderMovedAwayUnderAProcess(t *testing.T) {
	for name, up := range map[string]string{"the scheduler's folder": "../../..", "the backend's folder": "../..", "the job's folder": "."} {
		t.Run(name, func(t *testing.T) {
			h := newHomely(t)
			folder := filepath.Join(h.jobFolder(), up)
			away := folder + " away"
			if err := os.Rename(folder, away); err != nil {
				t.Fatal(err)
			}
			advice := fmt.Sprintf("mv -T '%s' %s", away, folder)
			h.refused(t, "moved away", advice)
			if err := os.Remove(h.note("j")); err != nil {
				t.Fatal(err)
			}
			h.refused(t, "moved away, and the note removed", advice)
			if exists(folder) {
				t.Error("a folder was made in its place")
			}
			if err := os.Rename(away, folder); err != nil {
				t.Fatal(err)
			}
			h.back(t)
		})
	}
}

// A copy in the folder's place, as from a backup, is no place for processes that live elsewhere: they are not taken for ended, and not started again.
func TestCopyInTheFoldersPlace(t *testing.T) {
	h := newHomely(t)
	folder := filepath.Join(h.folder("a"), "backend-local")
	away := folder + "-away"
	if err := os.Rename(folder, away); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the folder is copied", func() error { // a process that lives may write in between
		out, err := exec.Command("cp", "-a", away, folder).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", errors.Join(err, os.RemoveAll(folder)), out)
		}
		return nil
	})
	h.refused(t, "a copy is in its place", fmt.Sprintf("mv -T %[1]s %[1]s.new; mv -T %[2]s %[1]s", folder, away))
	if err := errors.Join(os.RemoveAll(folder), os.Rename(away, folder)); err != nil {
		t.Fatal(err)
	}
	h.back(t)
}

// A process whose own folder was moved away is not started a second time.
func TestFolderOfOneProcessMovedAway(t *testing.T) {
	h := newHomely(t)
	folder := filepath.Join(h.jobFolder(), first.String())
	if err := os.Rename(folder, h.folder("away")); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*local{h.a, h.b} {
		for generation := range uint64(2) {
			id := first
			id.Generation += generation
			if sts, err := l.Ensure(t.Context(), "j", []backend.Workload{h.workload("j", id, conformance.Steady)}); err == nil || backend.CodeOf(err) != backend.Blocked {
				t.Errorf("start %s: %+v, %v", id, sts, err)
			}
		}
		if err := l.Release(t.Context(), "j", []backend.ID{first}, backend.Drained); err == nil || backend.CodeOf(err) != backend.Blocked {
			t.Errorf("release: %v", err)
		}
	}
	if !exists(h.note("j")) {
		t.Error("the note of where it is kept is gone")
	}
	h.same(t, "moved away")
	if err := os.Rename(h.folder("away"), folder); err != nil {
		t.Fatal(err)
	}
	h.back(t)
}

// Where the folder was removed the processes have to be ended; then all starts anew.
func TestFolderRemovedUnderAProcess(t *testing.T) {
	h := newHomely(t)
	s, err := h.a.at(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	supervisor := s.root().instance("j", first).look().record.Supervisor
	if err := os.RemoveAll(h.folder("a")); err != nil {
		t.Fatal(err)
	}
	h.refused(t, "removed", fmt.Sprintf("%s was removed: kill %d ends them", h.folder("a"), supervisor.PID))
	if err := syscall.Kill(supervisor.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "its end", func() error {
		if supervisor.Alive() {
			return errors.New("it lives")
		}
		return nil
	})
	if st := list(t, h.a, "j"); st != nil {
		t.Errorf("there is %+v", *st)
	}
	ensure(t, h.b, "j", h.work)
	if st := waitFor(t, h.a, "j", "a new start", running); st.PID == h.pid || !h.keeps("b", "j") {
		t.Errorf("then %+v runs", st)
	}
	end(t, h.a, "j")
}

// What cannot be listed, since its folder was moved or removed, can be ended by force from any state folder; then all starts anew.
func TestEndedByForceWithItsFolderAway(t *testing.T) {
	for name, takeAway := range map[string]func(dir string) error{
		"moved": func(dir string) error { return os.Rename(dir, dir+".away") }, "removed": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHomely(t)
			if err := h.a.Release(t.Context(), "j", nil, backend.Forced); err != nil {
				t.Fatal(err)
			}
			h.same(t, "its folder is in its place")
			process, err := backend.ProcessOf(h.pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := takeAway(h.folder("a")); err != nil {
				t.Fatal(err)
			}
			if err := h.b.Release(t.Context(), "j", nil, backend.Drained); err == nil || !process.Alive() {
				t.Errorf("a drain: %v, and it lives: %v", err, process.Alive())
			}
			if err := h.b.Release(t.Context(), "j", nil, backend.Forced); err != nil {
				t.Fatal(err)
			}
			conformance.Eventually(t, "its end", func() error {
				if process.Alive() {
					return errors.New("it lives")
				}
				return nil
			})
			for _, l := range []*local{h.a, h.b} {
				if st := list(t, l, "j"); st != nil {
					t.Errorf("there is %+v", *st)
				}
			}
			ensure(t, h.b, "j", h.work)
			waitFor(t, h.b, "j", "a new start", running)
			end(t, h.b, "j")
		})
	}
}

// Who removes the state of a job that was stopped starts anew.
func TestFolderRemovedAfterTheEnd(t *testing.T) {
	h := newHomely(t)
	end(t, h.a, "j")
	if err := os.RemoveAll(h.folder("a")); err != nil {
		t.Fatal(err)
	}
	if st := list(t, h.b, "j"); st != nil {
		t.Errorf("there is %+v", *st)
	}
	ensure(t, h.a, "j", h.work)
	waitFor(t, h.b, "j", "a new start", running)
	end(t, h.a, "j")
}

// While a folder that jobs share is away its devices are not given out again, to whichever of them.
func TestSharedFolderMovedAwayGivesOutNothing(t *testing.T) {
	c := newCluster(t)
	shared := filepath.Join(c.dir, "shared")
	open := func(job string) *local {
		l, cfg := inProcess(t, newGPUs()), c.config(job)
		cfg.Source = fmt.Appendf(cfg.Source, "  dir = %q\n", shared)
		configure(t, l, cfg)
		return l
	}
	j, k := open("j"), open("k")
	ensure(t, j, "j", c.workload("j", first, conformance.Steady))
	waitFor(t, j, "j", "its start", running)
	if err := os.Rename(shared, shared+".away"); err != nil {
		t.Fatal(err)
	}
	_, err := k.Ensure(t.Context(), "k", []backend.Workload{c.workload("k", first, conformance.Steady)})
	if err == nil || backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), `processes of job "j"`) || exists(shared) {
		t.Errorf("%v; a folder was made: %v", err, exists(shared))
	}
	if st := list(t, k, "k"); st != nil {
		t.Errorf("there is %+v", *st)
	}
	if err := os.Rename(shared+".away", shared); err != nil {
		t.Fatal(err)
	}
	ensure(t, k, "k", c.workload("k", first, conformance.Steady))
	end(t, j, "j")
	end(t, k, "k")
}

// A supervisor that starts its program is for a moment there twice: what was forked stands in the program's folder and is not executed yet. That is no supervisor whose
// folder was moved.
func TestForkIsNoSupervisor(t *testing.T) {
	r := root(t.TempDir())
	dir := r.instance("j", first).dir
	if err := os.MkdirAll(filepath.Join(dir, "alloc"), 0o700); err != nil {
		t.Fatal(err)
	}
	script := "(cd alloc; echo forked; read line; echo over); exit 0\n" // the parentheses fork, and nothing is executed
	if err := os.WriteFile(filepath.Join(dir, SuperviseCommand), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "/bin/sh", SuperviseCommand, dir)
	sh.Dir = dir
	in, err := sh.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := sh.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "forked" {
		t.Fatalf("the shell says %q: %v", lines.Text(), lines.Err())
	}
	if lost := r.bereft("j"); len(lost) > 0 {
		t.Errorf("with the folder in its place: %+v", lost)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if lost := r.bereft("j"); len(lost) != 1 || lost[0].PID != sh.Process.Pid || lost[0].now != dir+".away" {
		t.Errorf("with the folder away: %+v; want process %d alone", lost, sh.Process.Pid)
	}
	if _, err := fmt.Fprintln(in); err != nil {
		t.Error(err)
	}
	if err := sh.Wait(); err != nil {
		t.Error(err)
	}
}
