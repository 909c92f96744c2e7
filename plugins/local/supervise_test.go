package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

var workerOne = backend.ID{Role: backend.RoleWorker, Rank: 0, Generation: 1}

func (c cluster) record(t testing.TB, job string) record {
	t.Helper()
	var r record
	if err := backend.ReadJSON(filepath.Join(root(filepath.Join(c.state(), "backend-local")).instance(job, workerOne).dir, statusFile), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The supervisor brings a killed process back while there is neither plugin nor scheduler.
func TestChildKilledWhileNobodyWatches(t *testing.T) {
	c := newCluster(t)
	b := launch(t)
	configure(t, b, c.config("j"))
	ensure(t, b, "j", c.workload("j", workerOne, conformance.Steady))
	first := waitFor(t, b, "j", "it runs", running)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the supervisor starts it again", func() error {
		if r := c.record(t, "j"); r.State != backend.StateRunning || r.Restarts != 1 {
			return fmt.Errorf("its record is %+v", r)
		}
		return nil
	})
	again := launch(t)
	configure(t, again, c.config("j"))
	st := waitFor(t, again, "j", "it is found", running)
	if st.PID == first.PID || st.Restarts != 1 || st.ExitCode != 128+9 {
		t.Errorf("found as %+v; want another pid, 1 restart and exit code 137", st)
	}
	conformance.Drop(t, again, "j")
}

// The kernel ends the process with its supervisor, so that there are never two; Ensure starts it again.
func TestSupervisorKilled(t *testing.T) {
	c := newCluster(t)
	b := launch(t)
	configure(t, b, c.config("j"))
	w := c.workload("j", workerOne, conformance.Stubborn)
	w.Resources.GPUs = 1
	ensure(t, b, "j", w)
	first := waitFor(t, b, "j", "it runs", running)
	if err := syscall.Kill(c.record(t, "j").Supervisor.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	lost := waitFor(t, b, "j", "the loss shows", func(st backend.Status) bool { return st.State == backend.StateFailed })
	if !strings.Contains(lost.Reason, "supervisor") || lost.PID != 0 {
		t.Errorf("lost: %+v", lost)
	}
	conformance.Eventually(t, "the process is dead too", func() error {
		if _, err := backend.ProcessOf(first.PID); err == nil {
			return errors.New("it lives")
		}
		return nil
	})
	inv, err := b.Inventory(t.Context())
	if err != nil || inv.Free != slots-1 {
		t.Errorf("Inventory = %+v, %v: what is lost keeps its device until it is replaced or released", inv, err)
	}
	ensure(t, b, "j", w)
	st := waitFor(t, b, "j", "it runs again", running)
	if st.PID == first.PID || st.Restarts != 1 || len(st.Devices) != 1 || st.Devices[0] != first.Devices[0] {
		t.Errorf("again: %+v; was %+v", st, first)
	}
	conformance.Drop(t, b, "j")
}

// Release must work on what has lost its supervisor: it is gone at once and does not come back.
func TestReleaseOfTheLost(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	w := c.workload("j", workerOne, conformance.Steady)
	ensure(t, b, "j", w)
	waitFor(t, b, "j", "it runs", running)
	if err := syscall.Kill(c.record(t, "j").Supervisor.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, b, "j", "the loss shows", func(st backend.Status) bool { return st.State == backend.StateFailed })
	if err := b.Release(t.Context(), "j", []backend.ID{workerOne}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	if st := list(t, b, "j"); st != nil {
		t.Errorf("still there: %+v", st)
	}
	if st, err := b.Ensure(t.Context(), "j", []backend.Workload{w}); err != nil || st[0].Err == nil || st[0].Err.Code != backend.Gone {
		t.Errorf("Ensure = %+v, %v, want code %q", st, err, backend.Gone)
	}
}

// Where a folder was taken away under what runs, and another of its name was made by who could not see that, the end of the first process is no end of the second.
func TestFolderTakenAwayUnderASupervisor(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	w := c.workload("j", workerOne, conformance.Steady)
	ensure(t, b, "j", w)
	first := waitFor(t, b, "j", "it runs", running)
	old := c.record(t, "j").Supervisor
	at, err := b.at(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	i := at.root().instance("j", workerOne)
	spec := i.look().spec
	if err := errors.Join(os.RemoveAll(c.state()), i.write(spec, nil), b.supervise(t.Context(), i, nil)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, b, "j", "another one runs", func(st backend.Status) bool { return running(st) && st.PID != first.PID })
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(old.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the first supervisor has ended", func() error {
		if old.Alive() {
			return errors.New("it lives")
		}
		return nil
	})
	st := waitFor(t, b, "j", "the second runs on", running)
	if rec := c.record(t, "j"); rec.Supervisor == old || rec.Final {
		t.Errorf("the first one's record is in its place: %+v", rec)
	}
	if err := b.Release(t.Context(), "j", []backend.ID{workerOne}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "a release ends it", func() error {
		if _, err := backend.ProcessOf(st.PID); err == nil {
			return errors.New("it lives")
		}
		return nil
	})
	conformance.Drop(t, b, "j")
}

// A supervisor that somebody else ends with SIGTERM (a machine that shuts down) drains its process, and Ensure
// starts it again.
func TestSupervisorTerminatedByAnother(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	w := c.workload("j", workerOne, conformance.Steady)
	ensure(t, b, "j", w)
	waitFor(t, b, "j", "it runs", running)
	conformance.Eventually(t, "it has set its trap", func() error {
		if c.starts(t, "j", workerOne) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if err := syscall.Kill(c.record(t, "j").Supervisor.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, b, "j", "it has ended", func(st backend.Status) bool { return st.State == backend.StateFailed })
	if r := c.record(t, "j"); r.Final || r.ExitCode != 0 {
		t.Errorf("its record is %+v; want code 0, not final", r)
	}
	ensure(t, b, "j", w)
	waitFor(t, b, "j", "it runs again", running)
	conformance.Drop(t, b, "j")
}

// What a workload leaves running ends with it: TestMain fails when a process is left.
func TestGrandchildrenEnd(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	w := c.workload("j", workerOne, conformance.Steady)
	w.Argv[2] = `sleep 100000 & echo $!; exit 0`
	ensure(t, b, "j", w)
	waitFor(t, b, "j", "it has ended", func(st backend.Status) bool { return st.State == backend.StateExited })
	conformance.Eventually(t, "nothing of it is left", func() error {
		if left := descendants(conformance.EnvStarts + "=" + c.dir); len(left) > 0 {
			return fmt.Errorf("there is %v", left)
		}
		return nil
	})
	conformance.Drop(t, b, "j")
}

// A program that ends badly again and again is started again with growing pauses, and can be released meanwhile.
func TestCrashLoop(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	w := c.workload("j", workerOne, conformance.Steady)
	w.Argv[2] = conformance.CountStart + `exit 7`
	ensure(t, b, "j", w)
	st := waitFor(t, b, "j", "it has crashed twice", func(st backend.Status) bool { return st.Restarts >= 2 })
	if st.ExitCode != 7 {
		t.Errorf("%+v, want exit code 7", st)
	}
	waitFor(t, b, "j", "it waits to start", func(st backend.Status) bool {
		return st.State == backend.StateStarting && strings.Contains(st.Reason, "code 7") && strings.Contains(st.Reason, "starts again in")
	})
	conformance.Drop(t, b, "j")
}

// A child that was well for a while is started again at once, however often it was killed; one that fails by itself waits longer each time.
func TestPauseAfter(t *testing.T) {
	s := &supervisor{backoff: backoffMin}
	for i, c := range []struct{ lived, want time.Duration }{
		{time.Second, backoffMin}, {time.Second, 2 * backoffMin}, {0, 4 * backoffMin},
		{healthyRun, backoffMin}, {healthyRun - 1, 2 * backoffMin}, {time.Hour, backoffMin}, {time.Hour, backoffMin},
	} {
		if got := s.pauseAfter(c.lived); got != c.want {
			t.Errorf("end %d, after %v: pause of %v, want %v", i, c.lived, got, c.want)
		}
	}
	for range 20 {
		if got := s.pauseAfter(0); got > 5*time.Second {
			t.Fatalf("a pause of %v, want 5 s at most: the job stands still in it", got)
		}
	}
}

// The line between two processes begins a line, also when the former broke off in the middle of one.
func TestBoundaryBeginsALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), outputFile)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, text := range []string{"first\n", "broken off", ""} {
		o, err := openOutput(path, maxOutput)
		if err != nil {
			t.Fatal(err)
		}
		o.write([]byte(text))
		o.boundary(at, "why")
		o.Close()
	}
	got, err := os.ReadFile(path)
	line := backend.LogBoundary + "2026-01-02T03:04:05Z why\n"
	if want := "first\n" + line + "broken off\n" + line + "\n" + line; err != nil || string(got) != want {
		t.Errorf("the log is %q, %v, want %q", got, err, want)
	}
}

// A plugin that is stopped is replaced, and its workloads do not notice.
func TestHungPlugin(t *testing.T) {
	c := newCluster(t)
	b, err := backend.Launch(t.Context(), conformance.Logger(t), binary, backend.Options{
		LivenessEvery: 20 * time.Millisecond, LivenessTimeout: 500 * time.Millisecond, BackoffMin: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	configure(t, b, c.config("j"))
	ensure(t, b, "j", c.workload("j", workerOne, conformance.Steady))
	before := waitFor(t, b, "j", "it runs", running)
	hung := b.PID()
	if err := syscall.Kill(hung, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "another plugin answers", func() error {
		_, _, err := b.List(t.Context(), "j")
		if err == nil && b.PID() == hung {
			err = errors.New("the hung one does")
		}
		return err
	})
	if st := list(t, b, "j"); st == nil || st.PID != before.PID {
		t.Errorf("after the change of plugins: %+v, before: %+v", st, before)
	}
	conformance.Drop(t, b, "j")
}

// A pid that came again is not the process that it once named.
func TestSignalGoesToThatProcessOnly(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	id, err := backend.ProcessOf(cmd.Process.Pid)
	if err != nil || !id.Alive() {
		t.Fatalf("identify = %+v, %v, alive %v", id, err, id.Alive())
	}
	other := processID{PID: id.PID, Start: id.Start - 1}
	if err := signalTo(other, syscall.SIGKILL); !errors.Is(err, errNotThatProcess) {
		t.Errorf("a signal to an earlier process with this pid: %v", err)
	}
	if !id.Alive() {
		t.Fatal("the signal went to the wrong process")
	}
	if err := signalTo(id, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	conformance.Eventually(t, "it is dead", func() error {
		if id.Alive() {
			return errors.New("it lives")
		}
		return nil
	})
	if err := signalTo(id, syscall.SIGKILL); !errors.Is(err, errNotThatProcess) {
		t.Errorf("a signal to a dead process: %v", err)
	}
	if err := signalTo(processID{}, syscall.SIGKILL); !errors.Is(err, errNotThatProcess) {
		t.Errorf("a signal to nobody: %v", err)
	}
}

// Two supervisors for one folder: the second steps back and says that all is well.
func TestOneSupervisorForAFolder(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	ensure(t, b, "j", c.workload("j", workerOne, conformance.Steady))
	st := waitFor(t, b, "j", "it runs", running)
	dir := root(filepath.Join(c.state(), "backend-local")).instance("j", workerOne).dir
	if out, err := exec.CommandContext(t.Context(), binary, SuperviseCommand, dir).CombinedOutput(); err != nil {
		t.Errorf("a second supervisor: %v: %s", err, out)
	}
	if again := list(t, b, "j"); again == nil || again.PID != st.PID {
		t.Errorf("after it: %+v, before: %+v", again, st)
	}
	conformance.Drop(t, b, "j")
}

// What cannot be read is unknown: neither absent nor ended.
func TestUnreadableRecordIsUnknown(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	w := c.workload("j", workerOne, conformance.Steady)
	ensure(t, b, "j", w)
	waitFor(t, b, "j", "it runs", running)
	status := filepath.Join(root(filepath.Join(c.state(), "backend-local")).instance("j", workerOne).dir, statusFile)
	good, err := os.ReadFile(status)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(status, half(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if st := list(t, b, "j"); st == nil || st.State != backend.StateUnknown || !strings.Contains(st.Reason, statusFile) {
		t.Errorf("listed as %+v, want unknown, with the file", st)
	}
	if st, err := b.Ensure(t.Context(), "j", []backend.Workload{w}); err != nil || st[0].Err == nil {
		t.Errorf("Ensure of what cannot be read = %+v, %v; want an error in its status", st, err)
	}
	if err := os.WriteFile(status, good, 0o600); err != nil {
		t.Fatal(err)
	}
	conformance.Drop(t, b, "j")
}

func TestSuperviseSaysWhatIsWrong(t *testing.T) {
	broken := t.TempDir()
	for name, content := range map[string]string{lockFile: "", specFile: "{"} {
		if err := os.WriteFile(filepath.Join(broken, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	empty := t.TempDir()
	raw, err := json.Marshal(spec{})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{lockFile: nil, specFile: raw} {
		if err := os.WriteFile(filepath.Join(empty, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ dir, text string }{
		{filepath.Join(broken, "absent"), "no such file"},
		{broken, specFile},
		{empty, "names no program"},
	} {
		out, err := exec.CommandContext(t.Context(), binary, SuperviseCommand, tt.dir).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), tt.text) {
			t.Errorf("supervise %s: %v, %q; want exit code 1 and %q", tt.dir, err, out, tt.text)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"-h"}, 2, "started by kale"},
		{nil, 1, "plugin"}, // without a host
	} {
		out, err := exec.CommandContext(t.Context(), binary, tt.args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != tt.code || !strings.Contains(string(out), tt.text) {
			t.Errorf("%v: %v, %q; want exit code %d and %q", tt.args, err, out, tt.code, tt.text)
		}
	}
}
