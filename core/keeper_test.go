package core

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

var silentLog = slog.New(slog.DiscardHandler)

func leaseJob(t *testing.T) *job.Job {
	t.Helper()
	j := &job.Job{Name: "ctr"}
	j.Backend.Name = job.BackendLocal
	j.Checkpoint.Dir = t.TempDir()
	return j
}

func mustTake(t *testing.T, j *job.Job, force bool) *Lease {
	t.Helper()
	l, err := TakeLease(silentLog, j, "/state/of/the/test", force)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// pretend gives a job to a scheduler that is made up, with a lease of a certain age.
func pretend(t *testing.T, j *job.Job, number uint64, h Holder, age time.Duration) string {
	t.Helper()
	if err := os.MkdirAll(j.Checkpoint.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	path := (&Lease{job: j.Name, dir: j.Checkpoint.Dir}).file(number)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return path
}

// elsewhere is a scheduler on another machine.
func elsewhere() Holder {
	return Holder{Origin: backend.Origin{Host: "gpu-7", User: "ann", Boot: "another", PIDs: "pid:[1]"}, Process: backend.Process{PID: 4711, Start: 1}, StateDir: "/home/ann/state", Since: time.Now()}
}

func wantHeld(t *testing.T, err error, near bool, says ...string) {
	t.Helper()
	held := new(HeldError)
	if !errors.As(err, &held) || held.Near != near {
		t.Fatalf("%v, want that it is held (near: %v)", err, near)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it says %q, want %q", err, text)
		}
	}
}

func left(t *testing.T, j *job.Job) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(j.Checkpoint.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".scheduler-last") {
			continue // it is history
		}
		names = append(names, e.Name())
	}
	return names
}

func TestJobHasOneScheduler(t *testing.T) {
	j := leaseJob(t)
	first := mustTake(t, j, false)
	_, err := TakeLease(silentLog, j, "/elsewhere", false)
	wantHeld(t, err, true, "kill ", "/state/of/the/test", j.Checkpoint.Dir, "kale run -take-over")
	if held, err := HeldBy(j); err != nil || held == nil || held.By.Process.PID != os.Getpid() {
		t.Errorf("held by %+v, %v", held, err)
	}
	if err := first.Check(t.Context()); err != nil {
		t.Errorf("the first one: %v", err)
	}
	other := *j
	other.Name = "ctr.scheduler-1" // its leases are not the first job's
	mustTake(t, &other, false).Close()
	first.Close()
	first.Close()
	if names := left(t, j); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
	if held, err := HeldBy(j); err != nil || held != nil {
		t.Errorf("held by %+v, %v", held, err)
	}
	mustTake(t, j, false)
}

// Of many that try at the same time one gets it.
func TestOneOfManyGetsTheJob(t *testing.T) {
	j := leaseJob(t)
	for round := range 5 {
		var wg sync.WaitGroup
		got := make([]*Lease, 8)
		for i := range got {
			wg.Go(func() {
				l, err := TakeLease(silentLog, j, "/state", false)
				if held := new(HeldError); err != nil && !errors.As(err, &held) {
					t.Error(err)
				}
				got[i] = l
			})
		}
		wg.Wait()
		n := 0
		for _, l := range got {
			if l != nil {
				n++
				if err := l.Check(t.Context()); err != nil {
					t.Errorf("who got it: %v", err)
				}
				l.Close()
			}
		}
		if n != 1 {
			t.Fatalf("round %d: %d schedulers have the job", round, n)
		}
	}
}

func TestTakenOverByForce(t *testing.T) {
	j := leaseJob(t)
	first := mustTake(t, j, false)
	second := mustTake(t, j, true)
	lost := new(LostError)
	if err := first.Check(t.Context()); !errors.As(err, &lost) || lost.By == nil || lost.By.Process.PID != os.Getpid() {
		t.Fatalf("the first one: %v", err)
	}
	first.Close() // and takes nothing away
	if err := second.Check(t.Context()); err != nil {
		t.Errorf("the second one: %v", err)
	}
	second.Close()
	if err := first.Check(t.Context()); !errors.As(err, &lost) {
		t.Errorf("the first one, when the second has gone: %v", err)
	}
}

// Who slept while others took the job and gave it back, so that its own number was given out again, has lost it: it neither acts nor takes their lease away.
func TestNumberThatBeganAgainIsAnothers(t *testing.T) {
	for _, asks := range []bool{true, false} {
		j := leaseJob(t)
		slept := mustTake(t, j, false)
		between := mustTake(t, j, true)
		between.Close()
		now := mustTake(t, j, false)
		if now.number != slept.number {
			t.Fatalf("its number is %d, and that of the one that slept %d: this test has lost its point", now.number, slept.number)
		}
		if lost := new(LostError); asks && !errors.As(slept.Check(t.Context()), &lost) {
			t.Errorf("the one that slept has the job still: %v", slept.Check(t.Context()))
		}
		slept.Close()
		if err := now.Check(t.Context()); err != nil {
			t.Errorf("asks %v: the one that slept took the lease with it: %v", asks, err)
		}
		now.Close()
		if names := left(t, j); len(names) > 0 {
			t.Errorf("left: %v", names)
		}
	}
}

// Who slept while another one had the job and gave it back has lost it all the same.
func TestLeaseOfWhoSleptIsLost(t *testing.T) {
	j := leaseJob(t)
	slept := mustTake(t, j, false)
	mustTake(t, j, true).Close()
	lost := new(LostError)
	if err := slept.Check(t.Context()); !errors.As(err, &lost) || lost.By == nil || lost.By.StateDir != "/state/of/the/test" {
		t.Fatalf("%v", err)
	}

	// On another machine it shows by the age of what that one has left.
	j = leaseJob(t)
	slept = mustTake(t, j, false)
	raw, err := json.Marshal(elsewhere())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(slept.file(slept.number)), os.WriteFile(slept.lastFile(), raw, 0o600), os.Chtimes(slept.lastFile(), time.Time{}, slept.seen.Add(time.Second))); err != nil {
		t.Fatal(err)
	}
	if err := slept.Check(t.Context()); !errors.As(err, &lost) || lost.By == nil || lost.By.Host != "gpu-7" {
		t.Fatalf("%v", err)
	}
}

// A lease that is not there any more, in a folder that tells of nobody who has had the job since, is not another scheduler's: that is said, nothing is left in the
// folder in its place, and it can be taken again. So it is where the folder is another one for a while, or is put back from an older copy.
func TestLeaseThatNobodyTookIsNotLost(t *testing.T) {
	before := thisHolder("/state/of/one/before")
	before.Since, before.Process = before.Since.Add(-time.Hour), backend.Process{PID: os.Getpid(), Start: 1}
	far := elsewhere()
	for name, c := range map[string]struct {
		number uint64 // of a lease in the folder; 0: none
		holder Holder
		last   bool // it is word of who had the job last
	}{
		"another folder":                           {},
		"with an older lease":                      {1, before, false},
		"with an older lease of a higher number":   {7, before, false},
		"with an older lease of another machine":   {1, far, false},
		"with an older, higher lease of that":      {7, far, false},
		"with word of who had it before":           {1, before, true},
		"with word of who had it before, far away": {1, far, true},
	} {
		t.Run(name, func(t *testing.T) {
			j := leaseJob(t)
			l := mustTake(t, j, false)
			if err := errors.Join(os.Rename(j.Checkpoint.Dir, j.Checkpoint.Dir+".away"), os.Mkdir(j.Checkpoint.Dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			if c.number > 0 {
				path := pretend(t, j, c.number, c.holder, time.Hour)
				if c.last {
					if err := os.Rename(path, l.lastFile()); err != nil {
						t.Fatal(err)
					}
				}
			}
			was := left(t, j)
			if err := l.Check(t.Context()); !errors.Is(err, errUnleased) || !strings.Contains(err.Error(), j.Checkpoint.Dir) {
				t.Fatalf("it says %v", err)
			}
			l.Close()
			if now := left(t, j); !slices.Equal(now, was) {
				t.Errorf("it left %q, there were %q", now, was)
			}
			if err := mustTake(t, j, false).Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	j := leaseJob(t)
	l := mustTake(t, j, false)
	if err := errors.Join(os.Rename(j.Checkpoint.Dir, j.Checkpoint.Dir+".away"), os.Mkdir(j.Checkpoint.Dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(t.Context()); !errors.Is(err, errUnleased) {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(j.Checkpoint.Dir), os.Rename(j.Checkpoint.Dir+".away", j.Checkpoint.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(t.Context()); err != nil {
		t.Errorf("when the folder is back: %v", err)
	}
}

// A scheduler that was killed is known at once on its machine, by its process and not by its pid, and elsewhere by its silence.
func TestDeadHolder(t *testing.T) {
	here := thisHolder("/state")
	if here.Boot == "" || here.PIDs == "" || here.Process.Start == 0 {
		t.Skipf("this system does not tell who runs: %+v", here)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone, again, container := here, here, here
	gone.Process = backend.Process{PID: dead.Process.Pid, Start: here.Process.Start}
	again.Process.Start-- // the pid has come again
	container.PIDs = "pid:[1]"
	for name, c := range map[string]struct {
		holder     Holder
		age        time.Duration
		held, near bool
	}{
		"lives":                        {here, time.Hour, true, true},
		"has ended":                    {gone, 0, false, false},
		"its pid is another's":         {again, 0, false, false},
		"another container, fresh":     {container, 0, true, false},
		"another container, silent":    {container, 2 * leaseLapse, false, false},
		"another machine, fresh":       {elsewhere(), leaseLapse / 2, true, false},
		"another machine, silent":      {elsewhere(), leaseLapse + time.Second, false, false},
		"another machine, from future": {elsewhere(), -time.Hour, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			j := leaseJob(t)
			pretend(t, j, 7, c.holder, c.age)
			l, err := TakeLease(silentLog, j, "/state", false)
			if c.held {
				wantHeld(t, err, c.near, c.holder.Host)
				l = mustTake(t, j, true)
			} else if err != nil {
				t.Fatal(err)
			}
			if l.number != 8 {
				t.Errorf("number %d", l.number)
			}
			l.Close()
			if names := left(t, j); len(names) > 0 {
				t.Errorf("left: %q", names)
			}
		})
	}
}

func TestDamagedLease(t *testing.T) {
	for _, content := range []string{"", "{", "{}"} {
		j := leaseJob(t)
		path := pretend(t, j, 1, elsewhere(), 0)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := TakeLease(silentLog, j, "/state", false); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%q: %v", content, err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		mustTake(t, j, false)
	}
}

// A checkpoint folder in which a scheduler cannot note that it has the job is refused with what helps, and so is one that becomes so.
func TestLeaseInAFolderThatTakesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		j := leaseJob(t)
		if err := os.Chmod(j.Checkpoint.Dir, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := TakeLease(silentLog, j, "/state", false); err == nil || !strings.Contains(err.Error(), "let this user write in the folder") {
			t.Errorf("%v", err)
		}
		t.Skip("only root may mount a file system to make it read-only")
	}
	j := leaseJob(t)
	if err := unix.Mount("kale", j.Checkpoint.Dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted here, to make it read-only: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(j.Checkpoint.Dir, 0); err != nil {
			t.Error(err)
		}
	})
	l := mustTake(t, j, false)
	mounted := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("kale", j.Checkpoint.Dir, "tmpfs", unix.MS_REMOUNT|flags, "size=1m"); err != nil {
			t.Fatal(err)
		}
	}
	mounted(unix.MS_RDONLY)
	const says = "read-only file system (the file system is read-only: mount it writable on this machine too, since a scheduler notes there that it has the job)"
	l.sureFrom(time.Now().Add(-leaseSure - time.Second))
	if err := l.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "renew the lease") || !strings.Contains(err.Error(), says) {
		t.Errorf("who has the job: %v", err)
	}
	if _, err := TakeLease(silentLog, j, "/state", true); err == nil || !strings.Contains(err.Error(), j.Checkpoint.Dir) || !strings.Contains(err.Error(), says) {
		t.Errorf("who wants it: %v", err)
	}
	mounted(0)
	if err := l.Check(t.Context()); err != nil {
		t.Errorf("when it can be written again: %v", err)
	}
	l.Close()
}

// While the folder cannot be reached its scheduler goes on for as long as nobody can have taken the job, and then holds.
func TestLeaseThatCannotBeRenewed(t *testing.T) {
	j := leaseJob(t)
	l := mustTake(t, j, false)
	away := j.Checkpoint.Dir + "-away"
	if err := os.Rename(j.Checkpoint.Dir, away); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(t.Context()); err != nil {
		t.Errorf("at once: %v", err)
	}
	l.sureFrom(time.Now().Add(-leaseSure - time.Second))
	lost := new(LostError)
	if err := l.Check(t.Context()); err == nil || errors.As(err, &lost) || !strings.Contains(err.Error(), j.Checkpoint.Dir) {
		t.Errorf("later: %v", err)
	}
	if err := os.Rename(away, j.Checkpoint.Dir); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(t.Context()); err != nil {
		t.Errorf("when it is back: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l.sureFrom(time.Now().Add(-leaseSure - time.Second))
	l.Close()
	if err := l.Check(ended); err == nil {
		t.Error("a lease that was given back is held")
	}
}

// A folder that is made for the lease is open to those who may write above it, which may be other users' processes.
func TestFoldersAreAsOpenAsTheOneAbove(t *testing.T) {
	for above, want := range map[os.FileMode]os.FileMode{
		0o755: 0o755, 0o775: 0o775, 0o777: 0o777, 0o777 | os.ModeSticky: 0o755, 0o775 | os.ModeSetgid: 0o775 | os.ModeSetgid,
	} {
		root := t.TempDir()
		if err := os.Chmod(root, above); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(root, "a", "b")
		if err := makeLike(dir); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() & (os.ModePerm | os.ModeSetgid); got&^0o022 != want&^0o022 || got&0o022 != want&0o022 {
			t.Errorf("in a folder of %v it made one of %v, want %v", above, got, want)
		}
	}
}
