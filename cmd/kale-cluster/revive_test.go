package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// A daemon that somebody has killed comes back as kale-cluster says.
func TestRevive(t *testing.T) {
	program, err := conformance.Build(t.TempDir(), "github.com/kale-sched/kale/cmd/kale-cluster")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args, missing string
		daemon        string // a part of its command line
		says          string
	}{
		{"slurm -nodes 1 -gpus 1", slurmtest.Missing(), "slurmctld\x00", "Started again: slurmctld."},
		{"slurm -nodes 1 -gpus 1", slurmtest.Missing(), "slurmd\x00", "Started again: n1."},
		{"nomad -clients 1 -gpus 1", nomadtest.Missing(), filepath.Join("n1", "agent.hcl"), "Started again: n1."},
		{"nomad -clients 1 -gpus 1", nomadtest.Missing(), filepath.Join("server", "agent.hcl"), "Started again: server."},
	} {
		t.Run(tt.says+" "+tt.args[:5], func(t *testing.T) {
			if tt.missing != "" {
				t.Skip(tt.missing)
			}
			c := exec.Command(program, strings.Fields(tt.args)...)
			c.Env, c.Stderr = append(os.Environ(), "TMPDIR="+t.TempDir()), os.Stderr
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			lines := make(chan string)
			go func() { // ends with the cluster
				defer close(lines)
				for s := bufio.NewScanner(out); s.Scan(); {
					lines <- s.Text()
				}
			}()
			await := func(prefix string) string {
				t.Helper()
				limit := time.After(2 * time.Minute)
				for {
					select {
					case line, more := <-lines:
						if strings.HasPrefix(line, prefix) {
							return line
						}
						if more {
							continue
						}
					case <-limit:
					}
					t.Fatalf("it does not say %q", prefix)
				}
			}
			defer func() {
				_ = c.Process.Signal(os.Interrupt)
				for range lines {
				}
				if err := c.Wait(); err != nil {
					t.Error(err)
				}
			}()
			says := await("A daemon that was killed (")
			if want := fmt.Sprintf("kill -USR1 %d.", c.Process.Pid); !strings.HasSuffix(says, want) {
				t.Fatalf("it says %q, want %q", says, want)
			}
			await("Ctrl-C ends it")
			pid := childOf(t, c.Process.Pid, tt.daemon)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			conformance.Eventually(t, "the daemon has ended", func() error {
				if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
					return os.ErrExist
				}
				return nil
			})
			for _, want := range []string{tt.says, "Nothing had ended."} {
				if err := c.Process.Signal(syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
				await(want)
			}
		})
	}
}

// childOf is the child of a process that has something in its command line.
func childOf(t *testing.T, parent int, has string) (pid int) {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path) // it may be gone by now
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		m := regexp.MustCompile(`^(\d+) \(.*\) . (\d+) `).FindSubmatch(stat)
		if m != nil && string(m[2]) == fmt.Sprint(parent) && strings.Contains(string(line), has) {
			_, _ = fmt.Sscan(string(m[1]), &pid)
			return pid
		}
	}
	t.Fatalf("process %d has no child with %q in its command line", parent, has)
	return 0
}
