package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
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

// The state folder is removed under a job that trains, without a scheduler and with one. Whoever looks is told which processes live, and what to do; what that says helps: the
// processes end, and all starts anew without a record lost or repeated. A stop by force ends what lives there too.
func TestStateRemovedUnderAJob(t *testing.T) {
	t.Parallel()
	r, p := training(t)
	remove := func() {
		t.Helper()
		if err := os.RemoveAll(r.stateDir()); err != nil {
			t.Fatal(err)
		}
	}
	said := func(when string, args ...string) (says string) {
		t.Helper()
		c := r.child(args...)
		c.wait(r)
		says = strings.Join(strings.Fields(c.out.String()+c.err.String()), " ") // some wrap it
		if !kills.MatchString(says) || strings.Contains(says, "never started") {
			r.fatalf("%s: kale %q says %s", when, args, says)
		}
		return says
	}
	endThose := func(says string) {
		t.Helper()
		for _, pid := range strings.Fields(kills.FindStringSubmatch(says)[1]) {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			r.signal(n, syscall.SIGTERM)
		}
	}

	r.interrupt()
	remove()
	for _, command := range []string{"status", "stop", "logs", "explain", "report", "validate", "plan"} {
		said("removed", command, r.file)
	}
	r.run()
	r.interrupt()
	says := said("a scheduler has come and gone", "status", r.name())
	r.run()
	endThose(says)
	r.awaitSteady("what was told to be ended is started anew", 2)
	r.awaitMore(300)

	remove()
	says = said("removed beside a scheduler", "status", r.file)
	r.interrupt()
	r.run()
	endThose(says)
	r.awaitSteady("after both were ended, all is started anew", 2)
	r.awaitMore(300)

	r.interrupt()
	remove()
	r.kale("stop", "-force", r.file)
	r.gone()
	r.run()
	r.awaitSteady("after a stop by force it is taken up again", 2)
	r.finish(p, nil, 1200)
}

// kills are the processes that a message says to end.
var kills = regexp.MustCompile(`: kill ([0-9 ]+) ends them`)
