package core

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
)

// A scheduler with another state folder is refused before it touches anything; with force it has the job, and the one before sees that at its next look, and
// touches nothing more.
func TestSecondSchedulerOfAnotherStateFolder(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	o := r.options("run")
	o.StateDir = t.TempDir()
	_, _, err := Open(t.Context(), o)
	wantHeld(t, err, true, r.state)
	for _, c := range r.backend.Calls() {
		if c.Op != fake.OpConfigure && c.Op != fake.OpPlan && c.Op != fake.OpList && c.Op != fake.OpInventory {
			t.Errorf("it was refused, and called %s %v", c.Op, c.IDs)
		}
	}
	if o.Lease, err = TakeLease(silentLog, r.job, o.StateDir, true); err != nil {
		t.Fatal(err)
	}
	second, diags, err := Open(t.Context(), o)
	if err != nil || diags.HasErrors() {
		t.Fatal(diags, err)
	}
	t.Cleanup(func() {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.cluster.Exit("ctr", worker(1, 1), 1); err != nil {
		t.Fatal(err)
	}
	before := len(r.backend.Calls())
	lost := new(LostError)
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 4}}); !errors.As(err, &lost) {
		t.Errorf("an order to the one before: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.s.Run(t.Context()) }()
	select {
	case err := <-ended:
		if !errors.As(err, &lost) || lost.By == nil || lost.By.StateDir != o.StateDir || !strings.Contains(err.Error(), "touches nothing more") {
			t.Errorf("the one before ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the one before does not end")
	}
	for _, c := range r.backend.Calls()[before:] {
		if c.Op == fake.OpEnsure || c.Op == fake.OpRelease {
			t.Errorf("the one before called %s %v", c.Op, c.IDs)
		}
	}
	if err := second.lease.Check(t.Context()); err != nil {
		t.Errorf("the second: %v", err)
	}
}

// Without its lease a scheduler decides and does nothing, and says why, until it has it again.
func TestUnknownLeaseHolds(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	dir := r.job.Checkpoint.Dir
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-leaseSure - time.Second)
	r.s.lease.sureFrom(long)
	if err := r.cluster.Exit("ctr", worker(1, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.beats(3)
	r.wantCalls()
	if _, err := r.problem("the checkpoint folder " + CheckpointFolder(r.job) + " is gone"); err != nil || r.lost != nil {
		t.Error(err, r.lost)
	}
	if why := r.s.View().Sample.Unknown; !strings.HasPrefix(why, "whether another scheduler has the job meanwhile cannot be seen") {
		t.Errorf("unknown is %q", why)
	}
	err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop"}})
	if says := "see that it can be read and written, and give the order again"; err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), dir) || r.s.want.Stopping {
		t.Errorf("an order meanwhile: %v", err)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	r.until("it goes on", r.settled(2))
}

// Who only observes holds nobody up; to stop the job it must be the only one.
func TestObserverTakesNoLease(t *testing.T) {
	r := newRig(t, rigOptions{mode: job.ModeObserve})
	r.beats(2)
	if err := os.MkdirAll(r.job.Checkpoint.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := mustTake(t, r.job, false)
	r.beats(2)
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop"}}); err == nil || r.s.want.Stopping {
		t.Errorf("it stops a job that another one has: %v", err)
	}
	l.Close()
	r.order("stop", 0)
	wantHeld(t, func() error { _, err := TakeLease(silentLog, r.job, "/state", false); return err }(), true)
}

// Where processes run elsewhere the folder is theirs to make: this machine may lack it. When it is there, its second scheduler ends.
func TestLeaseWaitsForTheFolder(t *testing.T) {
	j := leaseJob(t)
	j.Checkpoint.Dir = filepath.Join(j.Checkpoint.Dir, "deep", "checkpoints")
	for _, force := range []bool{false, true} {
		if _, err := TakeLease(silentLog, j, "/state", force); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
	r := newRig(t, rigOptions{})
	r.chief.stop()
	if err := os.RemoveAll(r.job.Checkpoint.Dir); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.beats(2)
	if r.lost != nil || r.s.lease != nil || len(r.calls()) == 0 {
		t.Fatalf("without a folder: %v, lease %v, it called %v", r.lost, r.s.lease, r.calls())
	}
	if err := os.MkdirAll(r.job.Checkpoint.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	other := mustTake(t, r.job, false)
	r.mark()
	r.order("scale", 3)
	r.beats(2)
	wantHeld(t, r.lost, true)
	r.wantCalls()
	other.Close()
	r.beat()
	if r.lost != nil || r.s.lease == nil {
		t.Errorf("when the other one has gone: %v, lease %v", r.lost, r.s.lease)
	}
}

// Two jobs of one name on one cluster, each with its checkpoint and its state: the second is refused at its name, and touches nothing; when the first has
// stopped, the name is free. Who may end whatever runs can.
func TestNameTaken(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	other := *r.job
	other.Checkpoint.Dir = t.TempDir()
	o := r.options("run")
	o.Job, o.StateDir = &other, t.TempDir()
	taken := func(diags hcl.Diagnostics, err error) {
		t.Helper()
		if err != nil || !diags.HasErrors() || diags[0].Summary != "The name is taken" || diags[0].Subject.Start.Line != 2 ||
			!strings.HasPrefix(diags[0].Detail, `the name "ctr" is taken on this cluster, by another job: `) || !strings.Contains(diags[0].Detail, CheckpointFolder(r.job)) || !strings.Contains(diags[0].Detail, "another name") {
			t.Errorf("%v, %v", diags, err)
		}
	}
	_, diags, err := Open(t.Context(), o)
	taken(diags, err)
	if _, err := ConfigureBackend(t.Context(), o.Backend, o.Job, o.StateDir); err != nil {
		t.Fatal(err)
	}
	taken(PlacementDiagnostics(t.Context(), o))
	r.wantCalls()
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1")
	r.reopen() // the first one is itself still
	r.beats(2)
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1")

	o.Stop, o.AnyOwner = true, true
	ender, diags, err := Open(t.Context(), o)
	if err != nil || diags.HasErrors() {
		t.Fatal(diags, err)
	}
	if err := errors.Join(ender.Kill(t.Context()), ender.Close()); err != nil {
		t.Fatal(err)
	}
	r.mustBeLive("")
	o.Stop, o.AnyOwner = false, false
	next, diags, err := Open(t.Context(), o)
	if err != nil || diags.HasErrors() {
		t.Fatalf("the name is not free: %v, %v", diags, err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
}
