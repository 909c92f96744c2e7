package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// town is a cluster whose schedulers have state folders of their own, and share a checkpoint folder.
type town struct {
	cluster
	shared string
}

func newTown(t *testing.T) town { return town{newCluster(t), t.TempDir()} }

// config is that of the scheduler with a state folder.
func (w town) config(job, state string) backend.Config {
	cfg := w.cluster.config(job)
	cfg.StateDir, cfg.Shared = w.folder(state), []string{w.shared}
	return cfg
}

func (w town) folder(state string) string { return filepath.Join(w.dir, state) }

func (w town) note(job string) string { return backend.HomePath(w.shared, job, "local") }

func (w town) open(t *testing.T, job, state string) *local {
	t.Helper()
	l := inProcess(t, newGPUs())
	configure(t, l, w.config(job, state))
	return l
}

// keeps says that a state folder has something of a job.
func (w town) keeps(state, job string) bool {
	return exists(filepath.Join(w.folder(state), "backend-local", "jobs", job))
}

func end(t *testing.T, l *local, job string) {
	t.Helper()
	if err := l.Release(t.Context(), job, []backend.ID{{Role: backend.RoleWorker, Generation: 1}}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "its end", func() error {
		if st := list(t, l, job); st != nil {
			return fmt.Errorf("there is %+v", *st)
		}
		return nil
	})
}

// Whatever state folder who asks has, a job has the same processes: they are found, not started twice, and end for all. What starts next is kept by who starts it.
func TestProcessesAreTheSameFromEveryStateFolder(t *testing.T) {
	w := newTown(t)
	id := backend.ID{Role: backend.RoleWorker, Generation: 1}
	a, b := w.open(t, "j", "a"), w.open(t, "j", "b")
	work := w.workload("j", id, conformance.Steady)
	ensure(t, a, "j", work)
	first := waitFor(t, a, "j", "its start", running)
	if st := list(t, b, "j"); st == nil || st.PID != first.PID {
		t.Fatalf("from another state folder: %+v, want process %d", st, first.PID)
	}
	ensure(t, b, "j", work)
	later := inProcess(t, newGPUs())
	configure(t, later, w.config("j", "c"))
	if st := list(t, later, "j"); st == nil || st.PID != first.PID {
		t.Errorf("from a third state folder: %+v, want process %d", st, first.PID)
	}
	conformance.Eventually(t, "its first line", func() error {
		if w.starts(t, "j", id) == 0 {
			return errors.New("it has written nothing yet")
		}
		return nil
	})
	if n := w.starts(t, "j", id); n != 1 || w.keeps("b", "j") || w.keeps("c", "j") {
		t.Errorf("it was started %d times; the second folder has something of it: %v, the third: %v", n, w.keeps("b", "j"), w.keeps("c", "j"))
	}
	if rep, err := b.Plan(t.Context(), "j", []backend.Workload{work}); err != nil || len(rep.Placements) != 1 || !strings.Contains(rep.Placements[0].Reason, "there already") {
		t.Errorf("plan from another state folder: %+v, %v", rep, err)
	}
	if inv, err := b.Inventory(t.Context()); err != nil || inv.Total != slots || inv.Free != slots-len(first.Devices) {
		t.Errorf("inventory from another state folder: %+v, %v", inv, err)
	}
	conformance.Eventually(t, "its log from another state folder", func() error { // it writes there after its first line
		if text := readLog(t, b, "j", backend.LogOptions{}); !strings.Contains(text, "started") {
			return fmt.Errorf("it is %q", text)
		}
		return nil
	})
	end(t, b, "j")
	if st := list(t, a, "j"); st != nil || exists(w.note("j")) {
		t.Errorf("after its end there is %+v; the note is there: %v", st, exists(w.note("j")))
	}

	id.Generation = 2
	ensure(t, b, "j", w.workload("j", id, conformance.Steady))
	second := waitFor(t, b, "j", "its start", running)
	if st := list(t, a, "j"); st == nil || st.PID != second.PID || !w.keeps("b", "j") {
		t.Errorf("what the other started is to this one %+v, want process %d; kept by who started it: %v", st, second.PID, w.keeps("b", "j"))
	}
	if err := a.Release(t.Context(), "j", []backend.ID{id}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "its end", func() error {
		if st := list(t, a, "j"); st != nil {
			return fmt.Errorf("there is %+v", *st)
		}
		return nil
	})
}

// The release of what had ended without one, as when the machine went down, takes the note away though nobody looks again.
func TestNoteGoesWithTheReleaseOfTheLost(t *testing.T) {
	w := newTown(t)
	id := backend.ID{Role: backend.RoleWorker, Generation: 1}
	l := w.open(t, "j", "a")
	ensure(t, l, "j", w.workload("j", id, conformance.Steady))
	waitFor(t, l, "j", "its start", running)
	s, err := l.at(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.root().instance("j", id).look().record.Supervisor.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, l, "j", "the loss", func(st backend.Status) bool { return st.State == backend.StateFailed })
	if !exists(w.note("j")) {
		t.Error("what may be started again has no note")
	}
	if err := l.Release(t.Context(), "j", []backend.ID{id}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	if exists(w.note("j")) {
		t.Error("the note is left")
	}
}

// Jobs of one name with checkpoints of their own are different jobs, in state folders of their own; a block that names its folder needs no note.
func TestJobsOfOneNameStayApart(t *testing.T) {
	w := newTown(t)
	other := w
	other.shared = t.TempDir()
	id := backend.ID{Role: backend.RoleWorker, Generation: 1}
	a, b := w.open(t, "j", "a"), other.open(t, "j", "b")
	ensure(t, a, "j", w.workload("j", id, conformance.Steady))
	if st := list(t, b, "j"); st != nil {
		t.Errorf("the other job has %+v", *st)
	}
	ensure(t, b, "j", w.workload("j", id, conformance.Steady))
	if n := w.starts(t, "j", id); n > 2 || !w.keeps("a", "j") || !w.keeps("b", "j") {
		t.Errorf("started %d times; kept by the one: %v, by the other: %v", n, w.keeps("a", "j"), w.keeps("b", "j"))
	}
	end(t, a, "j")
	if st := list(t, b, "j"); st == nil {
		t.Error("with the one's processes the other's have ended")
	}
	end(t, b, "j")

	c := inProcess(t, newGPUs())
	cfg := w.config("k", "c")
	cfg.Source = fmt.Appendf(cfg.Source, "  dir = %q\n", w.folder("d"))
	configure(t, c, cfg)
	ensure(t, c, "k", w.workload("k", id, conformance.Steady))
	if exists(w.note("k")) {
		t.Error("a block that names its folder has left a note")
	}
	end(t, c, "k")
}

// Of many that start the same process at once, each with a state folder of its own, one does.
func TestManyStateFoldersStartOneProcess(t *testing.T) {
	w := newTown(t)
	id := backend.ID{Role: backend.RoleWorker, Generation: 1}
	work := w.workload("j", id, conformance.Steady)
	all := make([]*local, 4)
	for i := range all {
		all[i] = w.open(t, "j", fmt.Sprint("s", i))
	}
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(func() {
			conformance.Eventually(t, "its turn", func() error {
				sts, err := l.Ensure(t.Context(), "j", []backend.Workload{work})
				if err == nil && sts[0].Err != nil {
					err = sts[0].Err
				}
				if err != nil && backend.CodeOf(err) != backend.Unavailable {
					t.Error(err)
					return nil
				}
				return err
			})
		})
	}
	wg.Wait()
	st := waitFor(t, all[0], "j", "its start", running)
	kept := 0
	for i, l := range all {
		if other := list(t, l, "j"); other == nil || other.PID != st.PID {
			t.Errorf("state folder %d sees %+v, the first process %d", i, other, st.PID)
		}
		if w.keeps(fmt.Sprint("s", i), "j") {
			kept++
		}
	}
	if n := w.starts(t, "j", id); n != 1 || kept != 1 {
		t.Errorf("it was started %d times, and %d folders keep it", n, kept)
	}
	end(t, all[0], "j")
}

// What is found beside the checkpoint that cannot be true or cannot be seen is told with what to do, and nothing is started; a folder that is gone is no hindrance.
func TestNotesThatCannotBeFollowed(t *testing.T) {
	id := backend.ID{Role: backend.RoleWorker, Generation: 1}
	far := func(dir string) string {
		raw, err := json.Marshal(backend.Home{Origin: backend.Origin{Host: "gpu-7", User: "ann", Boot: "another", PIDs: "pid:[1]"}, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	for _, tt := range []struct {
		name string
		note func(w town) string
		says []string // none: it can be followed
	}{
		{"garbage", func(town) string { return "\x00garbage" }, []string{"is damaged", "remove the file"}},
		{"empty", func(town) string { return "" }, []string{"is damaged", "remove the file"}},
		{"no folder", func(town) string { return "{}" }, []string{"names no folder", "remove the file"}},
		{"another host", func(town) string { return far("/home/ann/kale/backend-local") }, []string{"on host gpu-7, by ann", "kale stop j"}},
		{"the same path on another host", func(w town) string { return far(filepath.Join(w.folder("a"), "backend-local")) }, []string{"on host gpu-7, by ann"}},
		{"a folder that is gone", func(w town) string {
			raw, err := json.Marshal(backend.Home{Origin: backend.ThisOrigin(), Dir: w.folder("gone")})
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newTown(t)
			a := w.open(t, "j", "a")
			if err := os.WriteFile(w.note("j"), []byte(tt.note(w)), 0o600); err != nil {
				t.Fatal(err)
			}
			work := []backend.Workload{w.workload("j", id, conformance.Steady)}
			if len(tt.says) == 0 {
				ensure(t, a, "j", work[0])
				if h, err := backend.ReadHome(w.note("j")); err != nil || h.Dir != filepath.Join(w.folder("a"), "backend-local") {
					t.Errorf("then the note says %+v, %v", h, err)
				}
				end(t, a, "j")
				return
			}
			_, _, listed := a.List(t.Context(), "j")
			_, ensured := a.Ensure(t.Context(), "j", work)
			_, configured := a.Configure(t.Context(), w.config("j", "a"))
			for _, err := range []error{listed, ensured, configured, a.Release(t.Context(), "j", []backend.ID{id}, backend.Forced)} {
				for _, says := range append(tt.says, w.note("j")) {
					if backend.CodeOf(err) != backend.Blocked || !strings.Contains(fmt.Sprint(err), says) {
						t.Errorf("%v; want %q", err, says)
					}
				}
			}
			if w.starts(t, "j", id) > 0 || w.keeps("a", "j") {
				t.Error("something was started")
			}
		})
	}
}

// Who takes the note away while a scheduler that has found the processes elsewhere runs makes it start nothing twice.
func TestNoteThatWasRemoved(t *testing.T) {
	w := newTown(t)
	id := backend.ID{Role: backend.RoleWorker, Generation: 1}
	a, b := w.open(t, "j", "a"), w.open(t, "j", "b")
	work := w.workload("j", id, conformance.Steady)
	ensure(t, a, "j", work)
	if list(t, b, "j") == nil {
		t.Fatal("it is not seen from the other state folder")
	}
	if err := os.Remove(w.note("j")); err != nil {
		t.Fatal(err)
	}
	ensure(t, b, "j", work)
	if n := w.starts(t, "j", id); n > 1 || w.keeps("b", "j") || !exists(w.note("j")) {
		t.Errorf("started %d times; the second folder has something: %v; the note is there again: %v", n, w.keeps("b", "j"), exists(w.note("j")))
	}
	end(t, b, "j")
}

// Of two that change one note, or one that was read before it changed, one does.
func TestNoteChangesOnce(t *testing.T) {
	path := backend.HomePath(t.TempDir(), "j", "local")
	none, err := backend.ReadHome(path)
	if err != nil || none.Found() {
		t.Fatal(none, err)
	}
	if err := none.Move("/a"); err != nil {
		t.Fatal(err)
	}
	if err := none.Move("/b"); err == nil {
		t.Error("a note was made twice")
	}
	first, err := backend.ReadHome(path)
	if err != nil || first.Dir != "/a" {
		t.Fatal(first, err)
	}
	if err := first.Move("/b"); err != nil {
		t.Fatal(err)
	}
	if err := first.Move("/c"); err == nil {
		t.Error("it was moved by who had read an older one")
	}
	if err := first.Drop(); err == nil {
		t.Error("it was removed by who had read an older one")
	}
	if now, err := backend.ReadHome(path); err != nil || now.Dir != "/b" {
		t.Errorf("%+v, %v", now, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
