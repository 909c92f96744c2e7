package core

import (
	"os"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/state"
	"time"
)

// Who has a job, or had it last, is known to who shares its checkpoint folder: while it lives, when it has ended, well or killed, and what for.
func TestKeeperOf(t *testing.T) {
	j := leaseJob(t)
	look := func() *Keeper {
		t.Helper()
		k, err := KeeperOf(j)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if k := look(); k != nil {
		t.Errorf("of a job that never ran: %+v", k)
	}
	l := mustTake(t, j, false)
	k := look()
	if k == nil || !k.Held || k.Process.PID != os.Getpid() || k.Elsewhere("/state/of/the/test") || !k.Elsewhere("/another") {
		t.Fatalf("while it is held: %+v", k)
	}
	if g := GlanceElsewhere(t.Context(), j, k, nil); !g.Scheduler || g.State != StateUnknown || !strings.Contains(g.Says, "looks after it, its chief does not answer") {
		t.Errorf("while it is held: %+v", g)
	}
	l.Close()
	if k = look(); k == nil || k.Held || k.Stopped || k.StateDir != "/state/of/the/test" || time.Since(k.Until) > time.Hour {
		t.Fatalf("when it has ended: %+v", k)
	}
	if g := GlanceElsewhere(t.Context(), j, k, nil); g.Scheduler || g.State == StateStopped || !strings.Contains(g.Says, "no scheduler looks after it since ") {
		t.Errorf("when it has ended: %+v", g)
	}
	l = mustTake(t, j, false)
	l.stopped.Store(true)
	l.Close()
	if k = look(); k == nil || k.Held || !k.Stopped {
		t.Fatalf("when the job has stopped: %+v", k)
	}
	if g := GlanceElsewhere(t.Context(), j, k, nil); g.State != StateStopped || g.Scheduler || !strings.Contains(g.Says, "it was stopped at ") {
		t.Errorf("when the job has stopped: %+v", g)
	}
	pretend(t, j, 3, elsewhere(), 2*leaseLapse)
	if k = look(); k == nil || k.Held || k.Stopped || k.Host != "gpu-7" || !k.Elsewhere("/state/of/the/test") {
		t.Errorf("one that was killed later: %+v", k)
	}
	mustTake(t, j, false).Close()
	if err := os.WriteFile(l.lastFile(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := KeeperOf(j); err == nil || !strings.Contains(err.Error(), l.lastFile()) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("a damaged word: %+v, %v", k, err)
	}
}

// A scheduler whose state folder is free while it holds the job has lost that folder; one that has given both back since it was asked about is ending, and has lost nothing.
func TestBereftIsNotWhoEnds(t *testing.T) {
	j, dir := leaseJob(t), t.TempDir()
	l, err := TakeLease(silentLog, j, dir, false)
	if err != nil {
		t.Fatal(err)
	}
	st, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	k, held, err := HeldKeeper(j)
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	if k.Bereft() {
		t.Error("a scheduler with its state open has lost it")
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if !k.Bereft() {
		t.Error("the folder is not its own any more")
	}
	l.Close()
	if k.Bereft() {
		t.Error("a scheduler that has ended has lost its state")
	}
}
