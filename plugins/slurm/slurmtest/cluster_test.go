package slurmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The cluster gives jobs GPUs and folders as it says, survives what the faults do, and leaves nothing.
func TestCluster(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	ctx := t.Context()
	c, err := Start(ctx, Options{Nodes: 2, GPUsPerNode: 2})
	if err != nil {
		t.Fatal(err)
	}
	dir := c.dir
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if left := c.strays(); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is left: %v", err)
		}
	}()
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := c.Run(ctx, name, args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	script := fmt.Sprintf(`echo "$CUDA_VISIBLE_DEVICES" > %s/$SLURMD_NODENAME; echo mine > %s/who; sleep 1000`, c.Shared(), c.Private())
	for n := 1; n <= 2; n++ {
		run("sbatch", "--no-requeue", "--gres=gpu:2", "--output=/dev/null", "-w", Node(n), "--wrap="+script)
	}
	running := func(want int) func() error {
		return func() error {
			out, err := c.Run(ctx, "squeue", "--noheader", "-t", "R", "-o", "%i")
			if got := len(strings.Fields(out)); err == nil && got != want {
				err = fmt.Errorf("%d jobs run, want %d", got, want)
			}
			return err
		}
	}
	wait := func(what string, cond func() error) {
		t.Helper()
		if err := c.wait(ctx, what, func(context.Context) error { return cond() }); err != nil {
			t.Fatal(err, c.complaints())
		}
	}
	wait("both jobs run and have written", func() error {
		for n := 1; n <= 2; n++ {
			raw, err := os.ReadFile(filepath.Join(c.Shared(), Node(n)))
			if err != nil || strings.TrimSpace(string(raw)) != "0,1" {
				return fmt.Errorf("node %d: CUDA_VISIBLE_DEVICES is %q, %w", n, raw, err)
			}
			where := c.Private()
			if c.Apart() {
				where = c.NodePrivate(n)
			}
			if _, err := os.Stat(filepath.Join(where, "who")); err != nil {
				return err
			}
		}
		return running(2)()
	})
	if _, err := os.Stat(filepath.Join(c.Private(), "who")); c.Apart() && err == nil {
		t.Error("what a node writes into its private folder is seen from outside")
	}
	if err := c.Launched(ctx); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if got := c.managers(n); len(got) != 1 {
			t.Errorf("node %d has the step managers %v; it runs one job", n, got)
		}
	}
	c.KillNode(1)
	wait("the dead node's manager is gone, the other lives", func() error {
		if one, two := c.managers(1), c.managers(2); len(one) != 0 || len(two) != 1 {
			return fmt.Errorf("managers are %v and %v", one, two)
		}
		return nil
	})
	if err := c.Fail(ctx, 1); err != nil {
		t.Fatal(err)
	}
	wait("one job is left", running(1))
	if err := c.StartNode(1); err != nil {
		t.Fatal(err)
	}
	if err := c.Resume(ctx, 1); err != nil {
		t.Fatal(err)
	}
	wait("the node is idle again", func() error {
		if got := run("sinfo", "--noheader", "--Node", "-n", "n1", "-o", "%T"); got != "idle" {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	if err := c.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	c.KillController()
	if out, err := c.Run(ctx, "squeue"); err == nil {
		t.Errorf("squeue answers without slurmctld: %s", out)
	}
	if err := c.StartController(ctx); err != nil {
		t.Fatal(err)
	}
	wait("the job still runs", running(1))
	late := aged(filepath.Join(dir, "state", "job_state"))
	if err := c.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	late()
	for _, d := range []*daemon{c.control, c.nodes[1]} { // as somebody else does
		kill([]int{d.cmd.Process.Pid})
		<-d.ended
	}
	if names, err := c.Revive(ctx); err != nil || !slices.Equal(names, []string{"slurmctld", Node(2)}) {
		t.Errorf("revived are %q, %v", names, err)
	}
	if names, err := c.Revive(ctx); err != nil || len(names) > 0 {
		t.Errorf("of what runs was revived: %q, %v", names, err)
	}
	wait("the job still runs, which has outlived its slurmd", running(1))
	if err := c.Drain(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if got := run("sinfo", "--noheader", "--Node", "-n", "n1", "-o", "%T"); got != "drained" {
		t.Errorf("after Drain the node is %s", got)
	}
}

// aged makes a file, whenever it is written, an hour older than it is, as where a file system's clock is behind, until what it returns is called.
func aged(path string) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			then := time.Now().Add(-time.Hour)
			_ = os.Chtimes(path, then, then) // it may be about to be written
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() { close(end); <-ended }
}
