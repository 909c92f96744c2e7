package core

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// Whoever takes the checkpoint folder away takes the chief's address with it. What runs holds the only copy of the model then: it is not replaced for that, and
// nothing that would begin anew is started, not for a stop either.
func TestCheckpointFolderTakenAway(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.beats(2)
	folder := CheckpointFolder(r.job)
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	failed := func(says string) {
		r.chief.with(func(s *rpc.JobStatus) { s.Servers[0].Metrics.SnapshotError = says })
		r.beat()
	}
	failed(fmt.Sprintf("mkdir %s/tablets/3: no such file or directory", folder))
	if v := r.s.View(); v.Stuck != "its checkpoint folder is gone, or not shared by the nodes; it trains on" {
		t.Errorf("while it trains it is %s: %q", v.State, v.Stuck)
	}
	if p, err := r.problem("snapshots fail"); err == nil {
		t.Errorf("beside the folder that is gone: %q", p)
	}
	failed("write tablet 3: no space left on device") // on a node that never shared it
	if _, err := r.problem("parameter server 0: snapshots fail: write tablet 3"); err != nil {
		t.Error(err)
	}
	failed("")
	r.mark()
	beats := func() {
		t.Helper()
		for range 60 {
			r.now = r.now.Add(2 * time.Second)
			r.beat()
		}
		r.wantCalls()
		r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1")
		if _, err := r.problem(folder + " is gone from this machine, or the nodes on which the servers run never shared it (kale doctor"); err != nil {
			t.Error(err)
		}
	}
	beats()
	if v := r.s.View(); v.State != StateStuck || !strings.Contains(v.Stuck, "checkpoint folder is gone") {
		t.Errorf("it is %s: %q", v.State, v.Stuck)
	}
	if err := r.cluster.Exit("ctr", server(1, 1), 137); err != nil {
		t.Fatal(err)
	}
	r.beats(20)
	r.mustBeLive("ps-0-g1 worker-0-g1 worker-1-g1")
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	r.until("it goes on", func() error {
		r.joinAll()
		if v := r.s.View(); len(v.Problems) > 0 || v.Stuck != "" || running(v) != 2 {
			return fmt.Errorf("%s, problems %q", v.Stuck, v.Problems)
		}
		return nil
	})
	r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")

	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	r.beat()
	r.order("stop", 0)
	r.beats(20)
	r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		t.Fatal(err)
	}
	r.stops()
	if v := r.s.View(); v.Stuck != checkpointGone { // its last words say that nothing takes it up
		t.Errorf("when it has stopped: stuck %q", v.Stuck)
	}
}

// A volume that is unmounted leaves an empty folder in its place. Nothing is made in it, not a lease either, for a job that has a checkpoint: neither by its
// scheduler nor by one that follows it. Nobody ends for it, what is said is true, and all goes on when the volume is back, also as a copy without the lease.
func TestCheckpointFolderUnmounted(t *testing.T) {
	for name, c := range map[string]struct{ restarted, copied bool }{
		"under a scheduler": {}, "and the scheduler is started again": {restarted: true}, "and a copy is put back": {copied: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			dir := r.job.Checkpoint.Dir
			if err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			if err := r.cluster.Exit("ctr", server(1, 1), 137); err != nil {
				t.Fatal(err)
			}
			if c.restarted {
				killed := thisHolder(r.state)
				killed.Process.Start--
				away := *r.job
				away.Checkpoint.Dir += ".away"
				pretend(t, &away, 1, killed, 0)
				r.reopen()
			}
			r.beats(5)
			if r.lost != nil {
				t.Fatalf("the scheduler ends: %v", r.lost)
			}
			r.mustBeLive("ps-0-g1 worker-0-g1 worker-1-g1")
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("in its place are %v, %v", left, err)
			}
			if v := r.s.View(); v.State != StateStuck || !strings.Contains(v.Problems[0], "the checkpoint folder "+CheckpointFolder(r.job)+" is gone") || !strings.Contains(v.Problems[0], "mount it or bring it back") {
				t.Errorf("it is %s: %q", v.State, v.Problems)
			}
			for _, p := range r.s.View().Problems {
				if strings.Contains(p, "another scheduler") || strings.Contains(p, "is still the job's scheduler") {
					t.Errorf("it says %q", p)
				}
			}
			if c.copied {
				if err := os.Remove(filepath.Join(dir+".away", ".ctr.scheduler-1")); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
				t.Fatal(err)
			}
			r.until("it goes on", func() error {
				r.joinAll()
				if v := r.s.View(); len(v.Problems) > 0 || v.Stuck != "" || running(v) != 2 {
					return fmt.Errorf("%s, problems %q", v.Stuck, v.Problems)
				}
				return r.lost
			})
			r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")
			if err := r.s.lease.Check(t.Context()); err != nil {
				t.Errorf("its lease: %v", err)
			}
			wantHeld(t, func() error { _, err := TakeLease(silentLog, r.job, "/state", false); return err }(), true)
		})
	}
}

// A server is told that there is a checkpoint as soon as there is one: only a job's first ones make it.
func TestOnlyTheFirstServersMakeACheckpoint(t *testing.T) {
	r := newRig(t, rigOptions{})
	tells := func(want bool) {
		t.Helper()
		if got := slices.Contains(r.s.loads.server(1, 2).Argv, "--begun"); got != want {
			t.Errorf("a server is told that there is a checkpoint: %v, want %v", got, want)
		}
	}
	r.beat()
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
	tells(false)
	r.started(2) // its chief has written the job's state
	tells(true)
	state := filepath.Join(CheckpointFolder(r.job), "job")
	if err := os.Rename(state, state+".away"); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.beat()
	tells(true)
}
