package local

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

func readLog(t testing.TB, b backend.Backend, job string, opts backend.LogOptions) string {
	t.Helper()
	r, err := b.Logs(t.Context(), job, workerOne, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// However much is written, two parts within the limit are kept, and what is kept is the newest, whole.
func TestOutputIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	const limit = 1000
	o, err := openOutput(path, limit)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for i := range 500 {
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		o.write([]byte(line))
	}
	o.Close()
	newer, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	older, err := os.ReadFile(olderOutput(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(newer) > limit || len(older) > limit || len(newer) == 0 {
		t.Errorf("parts of %d and %d bytes, limit %d", len(older), len(newer), limit)
	}
	if kept := string(older) + string(newer); !strings.HasSuffix(all.String(), kept) || len(kept) < limit {
		t.Errorf("kept %d bytes that are not the end of what was written", len(kept))
	}
	again, err := openOutput(path, limit)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if again.size != int64(len(newer)) {
		t.Errorf("opened again it counts %d bytes, want %d", again.size, len(newer))
	}
}

// A disk that is full costs output and nothing else, and the loss is on record when there is room again.
func TestOutputOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no device that is always full: %v", err)
	}
	path := filepath.Join(t.TempDir(), "out")
	o, err := openOutput(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	disk := o.file
	o.file = full
	o.copyFrom(strings.NewReader("lost\n"))
	o.file = disk
	o.copyFrom(strings.NewReader("kept\n"))
	o.Close()
	full.Close()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("[kale: 5 bytes of output were lost: write /dev/full: %v]\nkept\n", unix.ENOSPC); string(got) != want {
		t.Errorf("the file has %q, want %q", got, want)
	}
}

func TestLastLines(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 0, "a\nb\nc\n"},
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb", 1, "b"},
		{"a\n\n", 1, "\n"},
		{"a\n", -1, ""},
		{"", 1, ""},
	} {
		if got := string(lastLines([]byte(tt.text), tt.n)); got != tt.want {
			t.Errorf("last %d lines of %q: %q, want %q", tt.n, tt.text, got, tt.want)
		}
	}
}

// A reader that follows misses nothing when the output is rotated under it.
func TestFollowThroughRotation(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	ensure(t, b, "j", c.workload("j", workerOne, conformance.Steady))
	waitFor(t, b, "j", "it runs", running)
	r, err := b.Logs(t.Context(), "j", workerOne, backend.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("first line %q, %v", line, err)
	}
	// This test writes in the supervisor's place: the workload prints no more.
	o, err := openOutput(filepath.Join(c.state(), "backend-local", "jobs", "j", workerOne.String(), outputFile), 20)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for i := range 6 { // rotates at every second line
		want := fmt.Sprintf("line %d .....\n", i)
		o.write([]byte(want))
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("followed %q, %v, want %q", got, err, want)
		}
	}
	conformance.Drop(t, b, "j")
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

// A folder that cannot be written is a matter for a person, and says so.
func TestFolderThatCannotBeWritten(t *testing.T) {
	c := newCluster(t)
	file := filepath.Join(c.dir, "file")
	b := inProcess(t, newGPUs())
	cfg := c.config("j")
	cfg.Source = fmt.Appendf(nil, "\ndir = %q\n", filepath.Join(file, "state"))
	configure(t, b, cfg)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := b.Ensure(t.Context(), "j", []backend.Workload{c.workload("j", workerOne, conformance.Steady)})
	if err == nil || backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), "set dir") {
		t.Errorf("Ensure = %v, want code %q and what to do", err, backend.Blocked)
	}
	if _, _, err := b.List(t.Context(), "j"); err == nil {
		t.Error("List of a folder that cannot be read gave no error: unknown is not empty")
	}
}

// onSmallDisk is a backend for job "j" whose folders are on a disk of 64 KiB.
func onSmallDisk(t *testing.T, c cluster) (b backend.Backend, disk string) {
	t.Helper()
	disk = filepath.Join(c.dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot make a small disk: %v; run the tests as root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	b = inProcess(t, newGPUs())
	cfg := c.config("j")
	cfg.Source = fmt.Appendf(nil, "\ndir = %q\n", filepath.Join(disk, "state"))
	configure(t, b, cfg)
	return b, disk
}

// What runs and what has ended is known on a disk that has become read-only, and an order that cannot be written down says what to do.
func TestReadOnlyDisk(t *testing.T) {
	c := newCluster(t)
	b, disk := onSmallDisk(t, c)
	runs, ended := c.workload("j", workerOne, conformance.Steady), c.workload("j", backend.ID{Role: backend.RoleWorker, Rank: 1, Generation: 1}, conformance.ExitZero)
	ensure(t, b, "j", runs)
	before := waitFor(t, b, "j", "it runs", running)
	ensure(t, b, "j", ended)
	state := func() map[backend.ID]backend.State {
		t.Helper()
		statuses, complete, err := b.List(t.Context(), "j")
		if err != nil || !complete {
			t.Fatalf("List: %v, complete: %v", err, complete)
		}
		states := map[backend.ID]backend.State{}
		for _, st := range statuses {
			states[st.ID] = st.State
			if st.ID == workerOne && st.PID != before.PID {
				t.Errorf("%s is process %d, and was %d", st.ID, st.PID, before.PID)
			}
		}
		return states
	}
	want := map[backend.ID]backend.State{runs.ID: backend.StateRunning, ended.ID: backend.StateExited}
	conformance.Eventually(t, "the second has ended", func() error {
		if got := state(); !maps.Equal(got, want) {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
	for _, flags := range []uintptr{unix.MS_BIND, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY} { // what its supervisor has open stays so
		if err := unix.Mount(disk, disk, "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := state(); !maps.Equal(got, want) {
		t.Errorf("on a read-only disk they are %v, want %v", got, want)
	}
	err := b.Release(t.Context(), "j", []backend.ID{workerOne}, backend.Drained)
	if !errors.Is(err, unix.EROFS) && (err == nil || !strings.Contains(err.Error(), unix.EROFS.Error())) || !strings.Contains(err.Error(), "make that folder writable again") {
		t.Errorf("release on a read-only disk: %v; want what to do", err)
	}
	if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(t.Context(), "j", []backend.ID{workerOne}, backend.Drained); err != nil {
		t.Error(err)
	}
	conformance.Drop(t, b, "j")
}

// What runs can be ended when the disk has become full, by force too where it was asked to end before.
func TestReleaseOnAFullDisk(t *testing.T) {
	c := newCluster(t)
	b, disk := onSmallDisk(t, c)
	ensure(t, b, "j", c.workload("j", workerOne, conformance.Steady))
	waitFor(t, b, "j", "it runs", running)
	err := os.WriteFile(filepath.Join(disk, "full"), make([]byte, 64<<10), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	for _, how := range []backend.How{backend.Drained, backend.Forced} {
		if err := b.Release(t.Context(), "j", []backend.ID{workerOne}, how); err != nil {
			t.Errorf("release on a full disk: %v", err)
		}
		if got, err := readReleased(filepath.Join(disk, "state", "jobs", "j", workerOne.String())); err != nil || got != how {
			t.Errorf("released %s is on record as %s (%v)", how, got, err)
		}
	}
	conformance.Eventually(t, "it has ended", func() error {
		if st := list(t, b, "j"); st != nil && st.State.Live() {
			return fmt.Errorf("it is %+v", st)
		}
		return nil
	})
}

// What is killed when the disk has become full is started again there, as often as it happens, and whoever looks sees the process that runs.
func TestCrashOnAFullDisk(t *testing.T) {
	c := newCluster(t)
	b, disk := onSmallDisk(t, c)
	ensure(t, b, "j", c.workload("j", workerOne, conformance.Steady))
	before := waitFor(t, b, "j", "it runs", running)
	err := os.WriteFile(filepath.Join(disk, "full"), make([]byte, 64<<10), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	for restarts := 1; restarts <= 3; restarts++ {
		if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		before = waitFor(t, b, "j", "it runs again", func(st backend.Status) bool {
			return running(st) && st.Restarts == restarts && st.PID != before.PID && !st.Finished.IsZero()
		})
	}
	conformance.Drop(t, b, "j")
}

func TestFullDisk(t *testing.T) {
	c := newCluster(t)
	b, _ := onSmallDisk(t, c)
	big := c.workload("j", workerOne, conformance.Steady)
	big.Files = map[string][]byte{"big": make([]byte, 1<<20)}
	st, err := b.Ensure(t.Context(), "j", []backend.Workload{big})
	if err != nil || st[0].Err == nil || st[0].Err.Code != backend.Blocked || !strings.Contains(st[0].Err.Message, "no space") {
		t.Errorf("Ensure on a full disk = %+v, %v; want code %q in its status", st, err, backend.Blocked)
	}
	if left := list(t, b, "j"); left != nil {
		t.Errorf("it left %+v", left)
	}
	// The same id fits once there is room for it: nothing of the failure is remembered.
	big.Files = nil
	ensure(t, b, "j", big)
	waitFor(t, b, "j", "it runs", running)
	conformance.Drop(t, b, "j")
}
