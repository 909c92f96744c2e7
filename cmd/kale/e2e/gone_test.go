package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
)

// The checkpoint folder of a job that runs is unmounted, and its servers and its scheduler are killed. Nobody makes a folder in its place, everybody says that it is
// gone, and when it is back the job goes on by itself, with each record trained once.
func TestCheckpointTakenAwayUnderAJob(t *testing.T) {
	t.Parallel()
	r, p := training(t)

	dir := r.job.Checkpoint.Dir
	if err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	said := func(what string) {
		t.Helper()
		r.await(what+", and people are told that the checkpoint is gone", func() string {
			v, err := r.view()
			if err != nil {
				return err.Error()
			}
			if v.State != core.StateStuck || len(v.Problems) == 0 || !strings.HasPrefix(v.Problems[0], "the checkpoint folder "+core.CheckpointFolder(r.job)+" is gone: mount it or bring it back") {
				return fmt.Sprintf("it is %s, with problems %q", v.State, v.Problems)
			}
			return ""
		})
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			r.fatalf("in the folder's place are %v, %v", left, err)
		}
	}
	said("the folder is unmounted")
	for rank := range 2 {
		r.kill9(backend.RoleServer, 1-rank)
		r.await("the server that was started in its place says for what it waits", func() string {
			logs, _ := filepath.Glob(r.site.files(r, "output.log")) // the pattern is good
			waits := 0
			for _, path := range logs {
				raw, _ := os.ReadFile(path) // what cannot be read says nothing
				if strings.Contains(string(raw), "waiting until the checkpoint is back") {
					waits++
				}
			}
			if waits <= rank {
				return fmt.Sprintf("%d of %d logs do", waits, len(logs))
			}
			return ""
		})
		said(fmt.Sprintf("server %d is killed", 1-rank))
	}
	r.killScheduler()
	r.run()
	said("the scheduler is killed")
	r.interrupt() // it gives nothing back in a folder that is not the job's
	r.run()
	said("the scheduler is started again")

	if err := errors.Join(syscall.Rmdir(dir), os.Rename(dir+".away", dir)); err != nil { // nothing is in its way
		t.Fatal(err)
	}
	r.awaitSteady("two workers train as before", 2)
	r.awaitMore(300)
	r.finish(p, nil, 600)
}

// The checkpoint folder is away for longer than a process may be silent: the chief, which cannot read it either, steps back meanwhile. Nobody is replaced for that, then or
// when the folder is back, people are told why nobody answers, and each record is trained once.
func TestCheckpointAwayForLongReplacesNobody(t *testing.T) {
	t.Parallel()
	r, p := training(t)

	before := r.chiefIncarnation()
	dir := r.job.Checkpoint.Dir
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	const hungAfter = 30 * time.Second // as in core
	away := time.Now()
	r.await("the folder was away for longer than a silent process is waited for", func() string {
		v, err := r.view()
		if err != nil {
			return err.Error()
		}
		for _, text := range append(v.Problems, v.Waits) {
			if strings.Contains(text, "answer") || strings.Contains(text, "no chief") {
				r.fatalf("of a job whose folder is gone is said: %q, waits %q", v.Problems, v.Waits)
			}
		}
		if lasts := time.Since(away); lasts < hungAfter+10*time.Second {
			return lasts.String()
		}
		return ""
	})
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	r.awaitSteady("two workers train as before", 2)
	r.awaitMore(300)
	if now := r.chiefIncarnation(); now != before {
		r.fatalf("the chief is incarnation %d, before it was %d", now, before)
	}
	for rank := range 2 {
		if id := r.process(backend.RoleServer, rank).ID; id.Generation != 1 {
			r.fatalf("server %d was replaced by %s", rank, id)
		}
	}
	r.finish(p, nil, 600)
}

// An older copy of the whole checkpoint folder, with the lease and the claims of then, is put back under a job that runs, and servers are killed. The scheduler goes on,
// nothing is given out twice for it, and each record is trained once.
func TestOlderCheckpointPutBackUnderAJob(t *testing.T) {
	t.Parallel()
	r, p := training(t)
	dir := r.job.Checkpoint.Dir
	r.await("there is a copy of the checkpoint", func() string {
		if err := errors.Join(os.RemoveAll(dir+".old"), os.CopyFS(dir+".old", os.DirFS(dir))); err != nil {
			return err.Error() // what is replaced meanwhile is missing
		}
		return ""
	})
	r.killScheduler()
	r.run() // with another lease
	for rank := range 2 {
		r.kill9(backend.RoleServer, rank)
	}
	r.awaitSteady("two workers train with new servers", 2)
	r.awaitMore(300)

	if err := errors.Join(os.Rename(dir, dir+".newer"), os.Rename(dir+".old", dir)); err != nil {
		t.Fatal(err)
	}
	for rank := range 2 {
		r.kill9(backend.RoleServer, 1-rank)
		r.awaitSteady(fmt.Sprintf("two workers train after server %d was killed", 1-rank), 2)
		r.awaitMore(300)
	}
	r.finish(p, nil, 1200)
}
