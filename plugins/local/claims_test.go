package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

func newClaims(t *testing.T) claims { return claims(filepath.Join(t.TempDir(), "kale-gpus")) }

// someone is the holder that an instance in a folder of its own is.
func someone(job string) holder {
	return root("/home/"+job).instance(job, workerOne).holder()
}

func (c claims) mustTake(t *testing.T, device string, me holder) *os.File {
	t.Helper()
	f, by, err := c.take(device, me)
	if err != nil || f == nil {
		t.Fatalf("take %s: held by %q, %v", device, by, err)
	}
	t.Cleanup(func() { f.Close() }) // for the second time, where the test did
	return f
}

func TestClaim(t *testing.T) {
	c := newClaims(t)
	if _, held, err := c.look("GPU-1"); held || err != nil || exists(string(c)) {
		t.Errorf("before any: held %v, %v; who looked made the folder: %v", held, err, exists(string(c)))
	}
	f := c.mustTake(t, "GPU-1", someone("first"))
	if f2, by, err := c.take("GPU-1", someone("second")); f2 != nil || err != nil || by.String() != "first/worker-0-g1" {
		t.Errorf("the second took %v, held by %q, %v", f2, by, err)
	}
	if by, held, err := c.look("GPU-1"); !held || err != nil || by.String() != "first/worker-0-g1" || by.Dir != someone("first").Dir {
		t.Errorf("who looks sees %v by %+v, %v", held, by, err)
	}
	c.mustTake(t, "GPU-2", someone("second"))
	f.Close()
	if by, held, err := c.look("GPU-1"); held || err != nil {
		t.Errorf("after its end: held by %q, %v", by, err)
	}
	c.mustTake(t, "GPU-1", someone("a-job-with-a-longer-name"))
	if by, _, _ := c.look("GPU-1"); by.Job != "a-job-with-a-longer-name" {
		t.Errorf("held by %+v", by)
	}
	if err := os.Remove(c.path("GPU-2")); err != nil { // as who cleans up /tmp does
		t.Fatal(err)
	}
	c.mustTake(t, "GPU-2", someone("first"))
}

// All users of the machine share the folder, whatever the umask of who made it.
func TestClaimsAreForAllUsers(t *testing.T) {
	c := newClaims(t)
	defer syscall.Umask(syscall.Umask(0o077))
	c.mustTake(t, "GPU-1", someone("first"))
	for path, want := range map[string]os.FileMode{string(c): os.ModeDir | os.ModeSticky | 0o777, c.path("GPU-1"): 0o666} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if left, err := os.ReadDir(string(c)); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, %v", left, err)
	}
	h := someone("first")
	h.User = "ann"
	writeHolder(c.mustTake(t, "GPU-2", h), h)
	if by, _, _ := c.look("GPU-2"); by.String() != "ann:first/worker-0-g1" {
		t.Errorf("another user's is told as %q", by)
	}
	h.Job = "\x1b[2J"
	writeHolder(c.mustTake(t, "GPU-3", h), h)
	if by, held, _ := c.look("GPU-3"); !held || by.String() != "another process" {
		t.Errorf("what is for no terminal is told as %q", by)
	}
}

func TestMachineClaims(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if c := machineClaims(); c != "/run/lock/kale-gpus" && c != "/tmp/kale-gpus" {
		t.Errorf("the claims are in %s", c)
	}
}

// No UUID names a file elsewhere, nor that of another.
func TestOddUUIDs(t *testing.T) {
	c := newClaims(t)
	seen := map[string]bool{}
	long := strings.Repeat("long", 100)
	for _, device := range []string{
		"GPU-1", "", ".", "..", "../../x", "/etc/passwd", "MIG-GPU-1/2/0", "MIG-GPU-1%2F2%2F0", "a\x00b", "\xff", long + "a", long + "b",
	} {
		c.mustTake(t, device, someone("first"))
		seen[c.path(device)] = true
		if filepath.Dir(c.path(device)) != string(c) {
			t.Errorf("%q has its claim in %s", device, c.path(device))
		}
	}
	if entries, err := os.ReadDir(string(c)); err != nil || len(entries) != len(seen) || len(seen) != 12 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

// What is in the way is told with the folder, and what to do; it is followed nowhere.
func TestClaimsFolderThatIsNoUse(t *testing.T) {
	for name, spoil := range map[string]func(c claims) error{
		"a file in its place": func(c claims) error { return os.WriteFile(string(c), nil, 0o600) },
		"a link":              func(c claims) error { return os.Symlink(filepath.Dir(string(c)), string(c)) },
		"a link that leads nowhere": func(c claims) error {
			return os.Symlink(filepath.Join(filepath.Dir(string(c)), "elsewhere"), string(c))
		},
		"a link for a claim": func(c claims) error {
			return errors.Join(os.Mkdir(string(c), 0o700), os.Symlink("/dev/null", c.path("GPU-1")))
		},
		"a folder for a claim": func(c claims) error { return os.MkdirAll(c.path("GPU-1"), 0o700) },
		"a pipe for a claim": func(c claims) error {
			return errors.Join(os.Mkdir(string(c), 0o700), unix.Mkfifo(c.path("GPU-1"), 0o666))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaims(t)
			if err := spoil(c); err != nil {
				t.Fatal(err)
			}
			_, _, looked := c.look("GPU-1")
			f, _, taken := c.take("GPU-1", someone("first"))
			if f != nil {
				t.Error("it was taken")
			}
			for _, err := range []error{looked, taken} {
				if err == nil || backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), "chmod 1777 "+string(c)) || !strings.Contains(err.Error(), `gpus = "none"`) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	if os.Getuid() == 0 {
		t.Log("not checked: a folder that may not be read, which this user, root, may")
		return
	}
	c := newClaims(t)
	if err := os.Mkdir(string(c), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.look("GPU-1"); backend.CodeOf(err) != backend.Blocked {
		t.Errorf("a folder that may not be read: %v", err)
	}
}

// Of many that take at once one has it; and those that look keep nobody from it.
func TestClaimsAtOnce(t *testing.T) {
	c := newClaims(t)
	const takers, rounds = 4, 200
	var inside, taken atomic.Int32
	var all sync.WaitGroup
	for n := range takers {
		all.Go(func() {
			for range rounds {
				f, _, err := c.take("GPU-1", someone(fmt.Sprint("job", n)))
				if err != nil {
					t.Error(err)
					return
				}
				if f == nil {
					continue
				}
				taken.Add(1)
				if inside.Add(1) != 1 {
					t.Error("two have it")
				}
				inside.Add(-1)
				f.Close()
			}
		})
	}
	all.Wait()
	if taken.Load() == 0 {
		t.Error("nobody had it")
	}
	stop := make(chan struct{})
	for range takers {
		all.Go(func() { // until stop is closed
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Microsecond): // far more often than any scheduler
					if _, _, err := c.look("GPU-2"); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range rounds {
		f, by, err := c.take("GPU-2", someone("taker"))
		if err != nil || f == nil {
			t.Errorf("who looks keeps it from being taken: held by %q, %v", by, err)
			break
		}
		f.Close()
	}
	close(stop)
	all.Wait()
}

// What a killed supervisor leaves for a moment has its GPU until it is dead, for all but who starts it again.
func TestDyingHolder(t *testing.T) {
	c := newClaims(t)
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	h := someone("first")
	var err error
	if h.Child, err = backend.ProcessOf(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	f := c.mustTake(t, "GPU-1", h)
	f.Close()
	if by, held, err := c.look("GPU-1"); !held || err != nil || by.Job != "first" {
		t.Errorf("who looks sees %v by %q, %v", held, by, err)
	}
	if f, by, err := c.take("GPU-1", someone("second")); f != nil || err != nil || by.Job != "first" {
		t.Errorf("the second took %v, held by %q, %v", f, by, err)
	}
	c.mustTake(t, "GPU-1", h).Close()
	_, _ = cmd.Process.Kill(), cmd.Wait()
	c.mustTake(t, "GPU-1", someone("second"))
}

// A supervisor that a person starts by hand has no claims, and runs nothing on a GPU.
func TestSupervisorWithoutClaims(t *testing.T) {
	i := root(t.TempDir()).instance("j", workerOne)
	ran := filepath.Join(t.TempDir(), "ran")
	sp := spec{Job: "j", ID: i.id, Argv: []string{"/bin/sh", "-c", ": > " + ran}, Env: map[string]string{}, Devices: []string{"GPU-1"}}
	if err := i.write(sp, nil); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, SuperviseCommand, i.dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "0 claims for 1 GPUs (GPU-1)") || exists(ran) {
		t.Errorf("%v: %s; it ran: %v", err, out, exists(ran))
	}
}
