package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

const (
	slots   = 4
	jobLine = 12 // where the backend block begins in the job file that the tests pretend to have
)

// plugin is the program, built once.
var plugin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kale-example-")
	if err == nil {
		plugin, err = conformance.Build(dir, "github.com/kale-sched/kale/examples/backend-processes")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir) // in the system's temporary folder: it may as well stay
	os.Exit(code)
}

// harness is a cluster in a folder of its own. The shell's programs count their starts there.
func harness(t *testing.T) conformance.Harness {
	dir := t.TempDir()
	config := func(job string) backend.Config {
		return backend.Config{Job: job, Source: fmt.Appendf(nil, "\n  slots = %d\n", slots), Filename: "job.hcl", StartLine: jobLine, StartColumn: 24, StateDir: dir}
	}
	of := func(job string, id backend.ID) string {
		return filepath.Join(dir, "backend-processes", job, id.String())
	}
	return conformance.Harness{
		Open:   func(t testing.TB) backend.Backend { return &processes{self: plugin} },
		Config: config,
		BadConfig: func(job string) (backend.Config, int) {
			cfg := config(job)
			cfg.Source = []byte("\n  slots = 4\n  slotz = 4\n")
			return cfg, jobLine + 2
		},
		Workload: conformance.Shell{Dir: dir}.Workload,
		Starts:   conformance.Shell{Dir: dir}.Starts,
		Crash:    conformance.Shell{Dir: dir}.Crash,
		Slots:    slots,
		Keeps:    func() []string { return []string{dir} },
		Stall: func(t testing.TB) func() {
			_ = os.Mkdir(filepath.Join(dir, "backend-processes"), 0o700) // where it is there, the lock below works too
			lock, err := backend.Lock(t.Context(), filepath.Join(dir, "backend-processes", "lock"))
			if err != nil {
				t.Fatal(err)
			}
			return func() { lock.Close() }
		},
		Lose: func(t testing.TB, job string, id backend.ID) {
			pid := keeperOf(t, of(job, id))
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		Obscure: func(t testing.TB, job string, id backend.ID) func() {
			path := filepath.Join(of(job, id), "status.json")
			good, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, good[:len(good)/2], 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := os.WriteFile(path, good, 0o600); err != nil {
					t.Error(err)
				}
			}
		},
	}
}

// keeperOf finds the keeper of a workload's folder by its command line.
func keeperOf(t testing.TB, dir string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // it may have ended, or be no process
		if args := strings.Split(string(raw), "\x00"); len(args) > 2 && args[1] == "keep" && args[2] == dir {
			var pid int
			if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("%s has no keeper", dir)
	return 0
}

func TestConformance(t *testing.T) { conformance.Run(t, harness) }

// The plugin as the scheduler runs it: a process of its own, which the suite kills.
func TestConformanceOverPlugin(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		h := harness(t)
		h.Open = func(t testing.TB) backend.Backend { return conformance.Launch(t, plugin, backend.Options{}) }
		h.Kill = conformance.KillPlugin
		return h
	})
}

func TestNoSlots(t *testing.T) {
	diags, err := (&processes{}).Configure(t.Context(), backend.Config{Job: "j", Source: []byte("slots = 0"), Filename: "job.hcl", StartLine: 3, StartColumn: 1})
	if err != nil || len(diags) != 1 || diags[0].Start != (backend.Position{Line: 3, Column: 9, Byte: 8}) {
		t.Errorf("slots = 0: %+v, %v", diags, err)
	}
}
