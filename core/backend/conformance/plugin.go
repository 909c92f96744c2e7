package conformance

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// This file has what the tests of a plugin need besides the suite: the real program, started, killed and waited for.

// Build builds the program of the package at the import path into the folder dir, and gives the program's path. It is for a TestMain, which has no test.
func Build(dir, importPath string) (program string, err error) {
	return filepath.Join(dir, path.Base(importPath)), BuildAll(dir, importPath)
}

// BuildAll builds the programs of the packages at the import paths into the folder dir. What "make test" left in bin/ begins each: go build links it again only
// where it is not what the source gives, and a link takes longer than most tests.
func BuildAll(dir string, importPaths ...string) error {
	args := []string{"build", "-buildvcs=false", "-o", dir + string(filepath.Separator)} // a test's own process has no revision either
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, here, _, ok := runtime.Caller(0); ok {
		args = append(args, asBuilt(filepath.Join(filepath.Dir(here), "../../../bin"), dir, importPaths)...)
	}
	if out, err := exec.Command("go", append(args, importPaths...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(importPaths, ", "), err, out)
	}
	return nil
}

// asBuilt copies what bin has of the programs into dir, and gives the flags that they were built with. Whatever it cannot do is left to go build.
func asBuilt(bin, dir string, importPaths []string) (flags []string) {
	for _, p := range importPaths {
		from := filepath.Join(bin, path.Base(p))
		info, err := buildinfo.ReadFile(from)
		if err != nil {
			continue
		}
		trims := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-trimpath" && s.Value == "true" })
		flags = []string{"-trimpath=" + strconv.FormatBool(trims)}
		if raw, err := os.ReadFile(from); err == nil {
			_ = os.WriteFile(filepath.Join(dir, path.Base(p)), raw, 0o755) // one that is cut short is linked anew
		}
	}
	return flags
}

// Logger gives a logger whose lines are the test's output.
func Logger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// Launch starts the program as a plugin, and closes it at the end of the test. Where opts do not say otherwise, a plugin that dies is started again at
// once.
func Launch(t testing.TB, program string, opts backend.Options) *backend.Client {
	t.Helper()
	opts.BackoffMin, opts.BackoffMax = cmp.Or(opts.BackoffMin, time.Millisecond), cmp.Or(opts.BackoffMax, 100*time.Millisecond)
	c, err := backend.Launch(t.Context(), Logger(t), program, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// KillPlugin is a Harness.Kill for what Launch gave: it ends the plugin's process with SIGKILL, and returns once the client has noticed.
func KillPlugin(t testing.TB, b backend.Backend) {
	t.Helper()
	c := b.(*backend.Client)
	pid := c.PID()
	if pid == 0 {
		return // it is down already
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	Eventually(t, "the client notices that the plugin is dead", func() error {
		if c.PID() == pid {
			return errors.New("it does not")
		}
		return nil
	})
}

// Eventually polls cond until it gives nil. After a minute of errors the test fails with the last one.
func Eventually(t testing.TB, what string, cond func() error) {
	t.Helper()
	eventually(context.Background(), t, what, cond) // not the test's own context: that is over when its clean-up runs
}

// WaitFor waits until the job's workload id is as ok says, which what says in words, and gives its status.
func WaitFor(t testing.TB, b backend.Backend, job string, id backend.ID, what string, ok func(backend.Status) bool) backend.Status {
	t.Helper()
	var got backend.Status
	Eventually(t, fmt.Sprintf("%s %s", id, what), func() error {
		all, _, err := b.List(t.Context(), job)
		if err != nil {
			return err
		}
		for _, st := range all {
			if st.ID == id {
				if got = st; ok(got) {
					return nil
				}
				return fmt.Errorf("it is %+v", got)
			}
		}
		return fmt.Errorf("it is not listed; there is %v", all)
	})
	return got
}

// Drop ends all that the job has, by force.
func Drop(t testing.TB, b backend.Backend, job string) {
	t.Helper()
	Eventually(t, "all of the job is gone", func() error {
		all, _, err := b.List(t.Context(), job)
		if err != nil || len(all) == 0 {
			return err
		}
		var ids []backend.ID
		for _, st := range all {
			ids = append(ids, st.ID)
		}
		if err := b.Release(t.Context(), job, ids, backend.Forced); err != nil {
			return err
		}
		return fmt.Errorf("there are %v", ids)
	})
}

func eventually(ctx context.Context, t testing.TB, what string, cond func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := cond()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > patience || ctx.Err() != nil {
			t.Fatalf("it never came that %s: %v", what, err)
		}
		time.Sleep(min(max(waited/20, 5*time.Millisecond), 100*time.Millisecond)) // what is slow already is not slowed down by being asked all the time
	}
}
