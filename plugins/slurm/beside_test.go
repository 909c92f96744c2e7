package slurm

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// On a full cluster a successor waits for its turn beside the one before it, which runs on: behind others that came before it, it is said to be. When its turn
// comes it holds its place, whatever is queued after it, and starts when the one before has ended.
func TestSuccessorWaitsForItsTurn(t *testing.T) {
	s := newSite(t, "")
	one, two := worker(0, 1), worker(0, 2)
	s.ensure(s.gpuWorkload(one, conformance.Steady, 2))
	pid := s.waitState(one, backend.StateRunning).PID
	s.started(t, s.job, one, 1)
	other := func() string { // which needs a whole node, of two
		return s.slurm("sbatch", "--parsable", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 600")
	}
	before := []string{other(), other()}
	w := s.gpuWorkload(two, conformance.Steady, 2)
	w.Beside = true
	s.ensure(w)
	s.waitFor(two, "behind others", func(st backend.Status) bool {
		return st.State == backend.StatePending && st.Behind && st.Beside && st.Reason != ""
	})
	after := other()
	s.slurm("scancel", before...)
	s.waitFor(two, "in its place", func(st backend.Status) bool {
		return st.State == backend.StateStarting && st.Beside && !st.Behind && st.Node != ""
	})
	if st := s.waitState(one, backend.StateRunning); st.PID != pid {
		t.Errorf("the one before went from pid %d to %d", pid, st.PID)
	}
	s.started(t, s.job, two, 0)
	if err := s.b.Release(t.Context(), s.job, []backend.ID{one}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	s.waitFor(two, "running", func(st backend.Status) bool { return st.State == backend.StateRunning && !st.Beside })
	s.started(t, s.job, two, 1)
	s.slurm("scancel", after)
}

// A successor that holds its place beside one that is given up, on a node that does not answer and before its script has said a last word, does not wait until Slurm has
// given up the node.
func TestSuccessorOfWhatIsOnADeadNode(t *testing.T) {
	s := newSite(t, "")
	one, two := worker(0, 1), worker(0, 2)
	s.ensure(s.gpuWorkload(one, conformance.Steady, 1))
	old := s.waitState(one, backend.StateRunning)
	s.started(t, s.job, one, 1)
	w := s.gpuWorkload(two, conformance.Steady, 1)
	w.Beside, w.Avoid = true, []string{old.Node}
	s.ensure(w)
	s.waitFor(two, "in its place", func(st backend.Status) bool { return st.State == backend.StateStarting && st.Beside && st.Node != "" })
	if err := cluster.Launched(t.Context()); err != nil {
		t.Fatal(err)
	}
	script := parentOf(t, old.PID)
	if err := syscall.Kill(script, syscall.SIGSTOP); err != nil { // as with one that never began there
		t.Fatal(err)
	}
	var dead int
	if _, err := fmt.Sscanf(old.Node, "n%d", &dead); err != nil {
		t.Fatalf("it runs on node %q", old.Node)
	}
	cluster.KillNode(dead)
	t.Cleanup(func() {
		if err := cluster.StartNode(dead); err != nil {
			t.Error(err)
		}
		_ = syscall.Kill(script, syscall.SIGCONT) // it may be gone
		conformance.Eventually(t, "the old one is gone", func() error {
			all, _, err := s.b.List(context.Background(), s.job)
			for _, st := range all {
				if st.ID == one && st.State.Live() {
					return fmt.Errorf("it is %s: %s", st.State, st.Reason)
				}
			}
			return err
		})
	})
	if err := s.b.Release(t.Context(), s.job, []backend.ID{one}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	s.started(t, s.job, two, 0)
	s.waitFor(two, "running", func(st backend.Status) bool { return st.State == backend.StateRunning && !st.Beside })
	if st := s.waitFor(one, "still ending", func(backend.Status) bool { return true }); st.State != backend.StateStopping || !st.Away {
		t.Errorf("the old one is %s, away: %v: its successor has waited for Slurm", st.State, st.Away)
	}
}
