package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
)

// The folder in which the job's processes are kept is moved away under them, alone or with the scheduler's state. They train on, nothing is started beside them, also by
// a scheduler that is started meanwhile, people are told where it is and what helps, and with the folder back all goes on with the same processes.
func TestStateMovedAwayUnderAJob(t *testing.T) {
	t.Parallel()
	r, p := training(t)
	before := r.pids()

	move := func(folder string) {
		t.Helper()
		if err := os.Rename(folder, folder+".away"); err != nil {
			t.Fatal(err)
		}
	}
	back := func(folder string) {
		t.Helper()
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			r.fatalf("%s was made again: %v", folder, err)
		}
		if err := os.Rename(folder+".away", folder); err != nil {
			t.Fatal(err)
		}
		r.awaitSteady("with the folder back two workers train as before", 2)
		r.sameProcesses("the move of "+folder, before)
		r.awaitMore(300)
	}
	said := func(when, folder string, look func() (*core.View, error)) {
		t.Helper()
		r.await(when+", and people are told what to do", func() string {
			v, err := look()
			if err != nil {
				return err.Error()
			}
			if v.State != core.StateStuck || !strings.Contains(strings.Join(v.Problems, "\n"), fmt.Sprintf("mv -T %[1]s.away %[1]s", folder)) {
				return fmt.Sprintf("it is %s, with problems %q", v.State, v.Problems)
			}
			return ""
		})
		r.awaitMore(300)
	}

	processes := filepath.Join(r.stateDir(), "local")
	move(processes)
	said("the processes' folder is moved", processes, r.view)
	dead := r.plugin()
	r.killScheduler()
	r.run()
	if dead == r.plugin() {
		r.fatalf("the scheduler's plugin is still %d", dead)
	}
	said("another scheduler is started", processes, r.view)
	back(processes)

	move(r.stateDir())
	said("the whole state is moved", r.stateDir(), func() (*core.View, error) {
		path, err := api.SocketPath(r.stateDir())
		if err != nil {
			return nil, err
		}
		if name, within := strings.CutPrefix(path, r.stateDir()); within {
			path = r.stateDir() + ".away" + name
		}
		c, err := api.Dial(t.Context(), path)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), askTimeout)
		defer cancel()
		return c.Status(ctx)
	})
	back(r.stateDir())

	r.finish(p, nil, 1200)
}
