package backend_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/core/backend/fake"
)

// envRole makes this test binary a plugin over the fake, or a host that launches one and waits to be killed.
const envRole = "KALE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(envRole); role {
	case "":
		os.Exit(m.Run())
	case "plugin":
		backend.Serve(func(lg *slog.Logger) backend.Backend { return fake.New(lg, fake.NewCluster(1)) })
	case "host":
		if err := host(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		panic("no role " + role)
	}
}

func host() error {
	c, err := backend.Launch(context.Background(), nil, os.Args[0], backend.Options{Env: []string{envRole + "=plugin"}})
	if err != nil {
		return err
	}
	fmt.Println(c.PID())
	_, err = bufio.NewReader(os.Stdin).ReadString('\n') // the test kills this process
	return err
}

func launch(t *testing.T, opts backend.Options) *backend.Client {
	t.Helper()
	opts.Env = append(opts.Env, envRole+"=plugin")
	return conformance.Launch(t, os.Args[0], opts)
}

func gone(pid int) error {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return nil
	}
	// A process whose parent died and that nobody reaps stays in the table as a zombie.
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil || strings.Contains(string(stat), ") Z ") {
		return nil
	}
	return fmt.Errorf("process %d is still there", pid)
}

func TestLaunchFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, tt := range []struct {
		name, path string
		opts       backend.Options
		wait       time.Duration // for the launch, before it is given up
		text       string
	}{
		{"no such program", "kale-backend-absent", backend.Options{}, time.Minute, "build or install it"},
		{"no plugin", "true", backend.Options{}, time.Minute, `start backend plugin "true"`},
		{"killed", "sh", backend.Options{Args: []string{"-c", "kill -KILL $$"}}, time.Minute, `start backend plugin "sh": signal 9 (killed) ended it while it started; `},
		{"silent program", "sleep", backend.Options{Args: []string{"1000"}}, 50 * time.Millisecond, "deadline"},
		{"silent program, start timeout", "sleep", backend.Options{Args: []string{"1000"}, StartTimeout: 50 * time.Millisecond}, time.Minute, "timeout"},
		{"bad options", "true", backend.Options{CallTimeout: -1}, time.Minute, "CallTimeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.wait)
			defer cancel()
			c, err := backend.Launch(ctx, nil, tt.path, tt.opts)
			if err == nil {
				_ = c.Close()
				t.Fatal("it was launched")
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v; want %q in it", err, tt.text)
			}
		})
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("launches that failed left %v, %v", left, err)
	}
}

// A launch that a person cuts short is no failure of the plugin: nothing is logged that would be taken for one.
func TestLaunchThatIsGivenUpIsQuiet(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	lg := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	}), &slog.HandlerOptions{Level: slog.LevelInfo}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c, err := backend.Launch(ctx, lg, "sleep", backend.Options{Args: []string{"1000"}})
	if err == nil {
		_ = c.Close()
		t.Fatal("it was launched")
	}
	mu.Lock()
	defer mu.Unlock()
	if out.Len() > 0 {
		t.Errorf("logged: %s", out.String())
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestCloseEndsThePlugin(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := launch(t, backend.Options{})
	pid := c.PID()
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := gone(pid); err != nil {
		t.Error(err)
	}
	if _, err := c.Info(t.Context()); err == nil || backend.CodeOf(err) != backend.Unavailable || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Info after Close: %v", err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("Close left %v, %v", left, err)
	}
}

// A stopped plugin neither answers nor ends by itself: Close must not wait for it.
func TestCloseOfAHungPlugin(t *testing.T) {
	c := launch(t, backend.Options{CloseTimeout: 100 * time.Millisecond, LivenessEvery: time.Hour})
	pid := c.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gone(pid); err != nil {
		t.Error(err)
	}
}

// A plugin whose program disappears cannot be restarted: calls say so, at once, and Close works.
func TestOutage(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	program := filepath.Join(t.TempDir(), "plugin")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	c, err := backend.Launch(t.Context(), nil, program, backend.Options{
		Env: []string{envRole + "=plugin"}, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // closed below, unless the test fails before
	pid := c.PID()
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the outage is noticed", func() error {
		_, _, err := c.List(t.Context(), "j")
		if backend.CodeOf(err) == backend.Unavailable && strings.Contains(err.Error(), "no such file") {
			return nil
		}
		return fmt.Errorf("List: %w", err)
	})
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the plugin is back", func() error {
		_, err := c.Info(t.Context())
		return err
	})
	if c.PID() == pid || c.Starts() < 3 {
		t.Errorf("pid %d as before or only %d starts", c.PID(), c.Starts())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("starts that failed left %v, %v", left, err)
	}
}

// A scheduler that is killed cannot end its plugin: the plugin must see it, and clean up after go-plugin.
func TestPluginEndsWithItsHost(t *testing.T) {
	tmp := t.TempDir()
	cmd, pid := startHost(t, tmp)
	killHost(t, cmd)
	conformance.Eventually(t, "the plugin ends", func() error { return gone(pid) })
	conformance.Eventually(t, "the plugin's socket folder is removed", func() error {
		left, err := os.ReadDir(tmp)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there is %v", left)
		}
		return err
	})
}

func BenchmarkList(b *testing.B) {
	c, err := backend.Launch(b.Context(), nil, os.Args[0], backend.Options{Env: []string{envRole + "=plugin"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	if _, err := c.Configure(b.Context(), backend.Config{Job: "j"}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := c.List(b.Context(), "j"); err != nil {
			b.Fatal(err)
		}
	}
}

// startHost starts a process that launches a plugin and waits, and gives both.
func startHost(t *testing.T, tmp string) (host *exec.Cmd, pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"=host", "TMPDIR="+tmp)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe() // held open: the host waits
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close() })
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	if err := gone(pid); err == nil {
		t.Fatal("the plugin did not live while its host did")
	}
	return cmd, pid
}

func killHost(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// Where host and plugin are killed together, nobody is left to clean up: a launch some minutes later does.
func TestSocketsOfTheKilledAreRemoved(t *testing.T) {
	tmp := t.TempDir()
	cmd, pid := startHost(t, tmp)
	// Neither may see the other go: the host is stopped, its plugin is killed, and the host is killed as it is.
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var stopped syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &stopped, syscall.WUNTRACED, nil); err != nil || !stopped.Stopped() {
		t.Fatalf("the host does not stop: %v, %v", stopped, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killHost(t, cmd)
	conformance.Eventually(t, "the plugin ends", func() error { return gone(pid) })
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 1 {
		t.Fatalf("left are %v, %v; want a folder with a socket", left, err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(tmp, left[0].Name()), long, long); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	if err := launch(t, backend.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("after the next launch there are %v, %v", left, err)
	}
}
