package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// A node that dies takes its workload with it: failed, with the node's name; a higher generation runs elsewhere.
func TestNodeDies(t *testing.T) {
	s := newSite(t, "")
	s.ensure(s.gpuWorkload(worker(0, 1), conformance.Steady, 1))
	st := s.waitState(worker(0, 1), backend.StateRunning)
	if st.Address != "127.0.0.1" || len(st.Devices) != 1 || st.Submitted.IsZero() || st.Started.IsZero() || !st.Deadline.IsZero() {
		t.Errorf("the running one is %+v; want an address, a device, when it was submitted and started, and no deadline", st)
	}
	var dead int
	if _, err := fmt.Sscanf(st.Node, "n%d", &dead); err != nil {
		t.Fatalf("it runs on node %q", st.Node)
	}
	s.started(t, s.job, worker(0, 1), 1) // before its node is ended
	if err := cluster.Launched(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.KillNode(dead)
	defer func() {
		if err := cluster.StartNode(dead); err != nil {
			t.Error(err)
		}
		conformance.Eventually(t, "the node is back", func() error {
			if _, err := cluster.Run(t.Context(), "scontrol", "update", "NodeName="+st.Node, "State=RESUME"); err != nil {
				out, _ := cluster.Run(t.Context(), "sinfo", "--noheader", "-p", "low", "-n", st.Node, "-o", "%T")
				if strings.TrimSpace(out) != "idle" {
					return fmt.Errorf("%w: %s", err, out)
				}
			}
			return nil
		})
	}()
	if err := cluster.Fail(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	st = s.waitState(worker(0, 1), backend.StateFailed)
	if !strings.Contains(st.Reason, "its node was set down") || !strings.Contains(st.Reason, st.Node) || !strings.Contains(st.Reason, "NODE_FAIL") {
		t.Errorf("its reason is %q", st.Reason)
	}
	inv, err := s.b.Inventory(t.Context())
	if err != nil || inv.Total != slots/2 || inv.Free != slots/2 {
		t.Errorf("Inventory with one node of two = %+v, %v", inv, err)
	}
	s.ensure(s.gpuWorkload(worker(0, 2), conformance.Steady, 1))
	if again := s.waitState(worker(0, 2), backend.StateRunning); again.Node == st.Node {
		t.Errorf("the next generation runs on %s, which is dead", again.Node)
	}
}

// What ran on a node that does not answer Slurm, which has not given it up yet, is unknown; once it is released, a higher generation runs elsewhere, and when the
// node is back the old one is ended there.
func TestNodeIsAway(t *testing.T) {
	s := newSite(t, "")
	s.ensure(s.gpuWorkload(worker(0, 1), conformance.Steady, 1))
	st := s.waitState(worker(0, 1), backend.StateRunning)
	var dead int
	if _, err := fmt.Sscanf(st.Node, "n%d", &dead); err != nil {
		t.Fatalf("it runs on node %q", st.Node)
	}
	s.started(t, s.job, worker(0, 1), 1)
	if err := cluster.Launched(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.KillNode(dead)
	back := false
	start := func() {
		if back = true; cluster.StartNode(dead) != nil {
			t.Error("the node does not start")
		}
	}
	defer func() {
		if !back {
			start()
		}
	}()
	if err := s.b.Release(t.Context(), s.job, []backend.ID{worker(0, 1)}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "a higher generation is accepted", func() error {
		if st := s.ensure(s.gpuWorkload(worker(0, 2), conformance.Steady, 1)); st.Err != nil {
			return st.Err
		}
		return nil
	})
	if again := s.waitState(worker(0, 2), backend.StateRunning); again.Node == st.Node {
		t.Errorf("the next generation runs on %s, which is dead", again.Node)
	}
	old := s.waitFor(worker(0, 1), "it is away", func(st backend.Status) bool { return st.Away })
	vain, silent := "released, forced; Slurm tries in vain to end it on "+st.Node, "released, forced; its node "+st.Node+" does not answer Slurm"
	if old.State != backend.StateStopping || old.Reason != vain && old.Reason != silent {
		t.Errorf("the old one is %s, %q; want %s, %q or %q", old.State, old.Reason, backend.StateStopping, vain, silent)
	}
	s.waitFor(worker(0, 1), "Slurm knows that too", func(st backend.Status) bool { return st.Reason == silent })
	start()
	conformance.Eventually(t, "the old one is gone", func() error {
		all, _, err := s.b.List(t.Context(), s.job)
		for _, st := range all {
			if st.ID == worker(0, 1) {
				return fmt.Errorf("it is %s: %s", st.State, st.Reason)
			}
		}
		return err
	})
	s.started(t, s.job, worker(0, 1), 1)
}

// A node on which workers crash at once is left out, though the job's server, which does not need what is missing there, runs there: before and after.
func TestServerSaysNothingOfWorkers(t *testing.T) {
	s := newSite(t, "")
	server := backend.ID{Role: backend.RoleServer, Generation: 1}
	s.ensure(s.workload(s.job, server, conformance.Steady))
	bad := s.waitState(server, backend.StateRunning).Node
	other := slurmtest.Node(1)
	if bad == other {
		other = slurmtest.Node(2)
	}
	for rank := range 2 {
		w := s.gpuWorkload(worker(rank, 1), conformance.Steady, 1)
		w.Argv, w.Avoid = []string{"/bin/sh", "-c", "exit 1"}, []string{other}
		s.ensure(w)
	}
	for rank := range 2 {
		if st := s.waitState(worker(rank, 1), backend.StateFailed); st.Node != bad || !strings.Contains(st.Reason, "crashed 6 times in a row") {
			t.Fatalf("worker %d on node %s, which the test made crash on %s, %s: %s", rank, st.Node, bad, st.State, st.Reason)
		}
	}
	for rank := range 2 {
		s.ensure(s.gpuWorkload(worker(rank, 2), conformance.Steady, 1))
		if st := s.waitState(worker(rank, 2), backend.StateRunning); st.Node == bad {
			t.Errorf("the next generation of worker %d runs on %s too", rank, bad)
		}
	}
	// Who asks is told of it, and that only the other node counts.
	inv, err := s.b.Inventory(t.Context())
	if err != nil || len(inv.Excluded) != 1 {
		t.Fatalf("Inventory = %+v, %v; want one excluded node", inv, err)
	}
	x := inv.Excluded[0]
	if left := time.Until(x.Until); x.Job != s.job || x.Node != bad || x.Reason != "2 of the job's processes failed there as soon as they were started" || left <= 0 || left > badFor {
		t.Errorf("excluded is %+v", x)
	}
	ask := []backend.Workload{s.gpuWorkload(worker(2, 1), conformance.Steady, 1)}
	report, err := s.b.Plan(t.Context(), s.job, ask)
	if says := "needs 1 GPU, 0 free (" + bad + " is left out until "; err != nil || report.Fits() || !strings.Contains(report.Shortage, says) {
		t.Errorf("Plan = %+v, %v; want %q", report, err, says)
	}
	// Its administrator takes it out of use, mends it, and puts it into use again: then it counts as soon as it answers.
	if err := cluster.Drain(t.Context(), numberOf(t, bad)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.b.Inventory(t.Context()); err != nil { // which looks at the nodes
		t.Fatal(err)
	}
	if err := cluster.Resume(t.Context(), numberOf(t, bad)); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"it is in use again", "it is so for the next scheduler too"} {
		conformance.Eventually(t, when, func() error {
			if report, err := s.b.Plan(t.Context(), s.job, ask); err != nil || !report.Fits() {
				return fmt.Errorf("Plan = %+v, %w", report, err)
			}
			return nil
		})
		s.b = s.open()
	}
}

// What a person who sets a node down takes away speaks against no node.
func TestNodeIsSetDown(t *testing.T) {
	s := newSite(t, "")
	s.ensure(s.gpuWorkload(worker(0, 1), conformance.Steady, 1))
	st := s.waitState(worker(0, 1), backend.StateRunning)
	s.started(t, s.job, worker(0, 1), 1)
	if err := cluster.Fail(t.Context(), numberOf(t, st.Node)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Resume(context.WithoutCancel(t.Context()), numberOf(t, st.Node)) }() // it has come back by itself
	if st := s.waitState(worker(0, 1), backend.StateFailed); !strings.HasPrefix(st.Reason, "its node was set down, on node "+st.Node) {
		t.Errorf("its reason is %q", st.Reason)
	}
	var v verdict
	path := filepath.Join(s.shared(), s.job, worker(0, 1).String(), verdictFile)
	if err := backend.ReadJSON(path, &v); err != nil || !v.Ordered {
		t.Errorf("%s says %+v, %v", path, v, err)
	}
}

// A job that somebody puts back into the queue is cancelled, and that is not called somebody else's cancellation.
func TestRequeuedByHand(t *testing.T) {
	s := newSite(t, "")
	id := worker(0, 1)
	s.ensure(s.gpuWorkload(id, conformance.Steady, 1))
	s.waitState(id, backend.StateRunning)
	s.started(t, s.job, id, 1)
	number := strings.TrimSpace(s.slurm("squeue", "--noheader", "--name="+jobName(s.job, id), "--format=%A"))
	s.slurm("scontrol", "update", "JobId="+number, "Requeue=1")
	s.slurm("scontrol", "requeue", number)
	st := s.waitState(id, backend.StateFailed)
	if !strings.HasPrefix(st.Reason, "Slurm put its job back into the queue after it had begun") || !strings.Contains(st.Reason, "Kale cancelled it") {
		t.Errorf("its reason is %q", st.Reason)
	}
	s.started(t, s.job, id, 1)
}

// numberOf gives a node's number.
func numberOf(t *testing.T, node string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(node, "n%d", &n); err != nil {
		t.Fatalf("node %q: %v", node, err)
	}
	return n
}

// A job of higher priority takes a worker's place: failed, with the reason; what waits for GPUs says what for, and no more than max_pending wait.
func TestPreemptionAndFullCluster(t *testing.T) {
	s := newSite(t, "max_pending = 1")
	for rank := range 2 {
		s.ensure(s.gpuWorkload(worker(rank, 1), conformance.Steady, 2))
		s.waitState(worker(rank, 1), backend.StateRunning)
	}
	if st := s.ensure(s.gpuWorkload(worker(2, 1), conformance.Steady, 1)); st.Err != nil {
		t.Errorf("one that must wait = %+v, and one may", st)
	}
	st := s.waitFor(worker(2, 1), "waiting for resources", func(st backend.Status) bool {
		return st.State == backend.StatePending && strings.Contains(st.Reason, "nothing that it fits on is free")
	})
	if st.Submitted.IsZero() || !st.Started.IsZero() {
		t.Errorf("the waiting one is %+v", st)
	}
	if st := s.ensure(s.gpuWorkload(worker(3, 1), conformance.Steady, 1)); st.Err == nil || st.Err.Code != backend.NoCapacity || !strings.Contains(st.Err.Message, "needs 1 GPU, 0 free") {
		t.Errorf("one more than may wait = %+v", st)
	}
	report, err := s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(3, 1), conformance.Steady, 1), s.gpuWorkload(worker(4, 1), conformance.Steady, 2)})
	if err != nil || report.Fits() || report.Shortage != "needs 3 GPUs, 0 free" {
		t.Errorf("Plan on a full cluster = %+v, %v", report, err)
	}
	s.slurm("sbatch", "--partition=high", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 1000")
	var gone backend.Status
	conformance.Eventually(t, "one is preempted", func() error {
		all, _, err := s.b.List(t.Context(), s.job)
		for _, st := range all {
			if st.State == backend.StateFailed {
				gone = st
				return nil
			}
		}
		return fmt.Errorf("List = %+v, %w", all, err)
	})
	if !strings.Contains(gone.Reason, "PREEMPTED") && !strings.Contains(gone.Reason, "preemption") {
		t.Errorf("the reason of the preempted one is %q", gone.Reason)
	}
	// What waits is cancelled and never starts.
	if err := s.b.Release(t.Context(), s.job, []backend.ID{worker(2, 1)}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the waiting one is gone", func() error {
		all, _, err := s.b.List(t.Context(), s.job)
		for _, st := range all {
			if st.ID == worker(2, 1) {
				return fmt.Errorf("it is %+v", st)
			}
		}
		return err
	})
	if n := s.starts(t, s.job, worker(2, 1)); n != 0 {
		t.Errorf("what was released while it waited was started %d times", n)
	}
}

// A time limit shows as a deadline, and what it ends has failed with that reason. Slurm looks at limits twice a minute: the test has a cluster of its own,
// and runs beside the conformance suite.
func TestTimeLimit(t *testing.T) {
	if why := slurmtest.Missing(); why != "" {
		t.Skip(why)
	}
	t.Parallel()
	s, own := newOwnSite(t, slurmtest.Options{Nodes: 1, GPUsPerNode: -1}, `time = "2h"`)
	w := s.workload(s.job, worker(0, 1), conformance.Stubborn)
	w.StopGrace = 5 * time.Second
	s.ensure(w)
	st := s.waitState(worker(0, 1), backend.StateRunning)
	if left := time.Until(st.Deadline); left < 110*time.Minute || left > 130*time.Minute {
		t.Errorf("its deadline is %v away, want two hours", left)
	}
	end := func(in time.Duration) (at time.Time) {
		t.Helper()
		conformance.Eventually(t, "Slurm takes another end", func() error { // not one that has passed when it hears of it
			at = time.Now().Add(in).Truncate(time.Second)
			_, err := own.Run(t.Context(), "scontrol", "update", "JobId=1", "EndTime="+at.Format("2006-01-02T15:04:05"))
			return err
		})
		return at
	}
	nearer := end(10 * time.Minute).Add(-settings{limit: 2 * time.Hour}.warning(w.StopGrace) - warnEarly)
	s.waitFor(worker(0, 1), "its deadline is when it may be warned of its end, to the second", func(st backend.Status) bool { return st.Deadline.Equal(nearer) })
	end(2 * time.Second)
	st = s.waitState(worker(0, 1), backend.StateFailed)
	if !strings.Contains(st.Reason, "time limit") {
		t.Errorf("its reason is %q", st.Reason)
	}
}

// A preemption with a grace shows as a deadline of what it will end, which has no time limit: neither its own nor its partition's.
func TestPreemptionWithGrace(t *testing.T) {
	if why := slurmtest.Missing(); why != "" {
		t.Skip(why)
	}
	t.Parallel()
	for _, partition := range []string{"DefaultTime=UNLIMITED", ""} { // without one, Slurm gives a year
		t.Run(partition, func(t *testing.T) {
			s, own := newOwnSite(t, slurmtest.Options{Nodes: 1, GPUsPerNode: -1, Conf: []string{
				"PreemptType=preempt/partition_prio", "PreemptMode=CANCEL",
				"PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=3600 " + partition,
				"PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF",
			}}, "")
			s.ensure(s.workload(s.job, worker(0, 1), conformance.Steady))
			if st := s.waitState(worker(0, 1), backend.StateRunning); !st.Deadline.IsZero() {
				t.Errorf("before the preemption its deadline is %v", st.Deadline)
			}
			before := time.Now()
			if _, err := own.Run(t.Context(), "sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap=sleep 1000"); err != nil {
				t.Fatal(err)
			}
			st := s.waitFor(worker(0, 1), "the preemption shows as its deadline", func(st backend.Status) bool { return !st.Deadline.IsZero() })
			if end := st.Deadline; st.EndCause != backend.EndPreemption || end.Before(before.Add(50*time.Minute)) || end.After(time.Now().Add(time.Hour+time.Minute)) {
				t.Errorf("its deadline is %v, by %v; want an hour from %v", st.Deadline, st.EndCause, before)
			}
		})
	}
}

// onDaemon runs a worker on a node whose daemon then dies, while the worker lives on; back starts the daemon again.
func (s *site) onDaemon(t *testing.T, id backend.ID) (node string, n int, back func()) {
	t.Helper()
	s.ensure(s.gpuWorkload(id, conformance.Steady, 1))
	node = s.waitState(id, backend.StateRunning).Node
	if _, err := fmt.Sscanf(node, "n%d", &n); err != nil {
		t.Fatalf("it runs on node %q", node)
	}
	s.started(t, s.job, id, 1)
	if err := cluster.Launched(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.KillDaemon(n)
	isBack := false
	back = func() {
		if isBack {
			return
		}
		if isBack = true; cluster.StartNode(n) != nil {
			t.Error("the node does not start")
		}
		conformance.Eventually(t, "the node is back", func() error {
			out, err := cluster.Run(t.Context(), "sinfo", "--noheader", "-p", "low", "-n", node, "-o", "%T")
			if state := strings.TrimSpace(out); err != nil || state != "idle" {
				_, _ = cluster.Run(t.Context(), "scontrol", "update", "NodeName="+node, "State=RESUME") // which may not be needed
				return fmt.Errorf("it is %s, %w", state, err)
			}
			return nil
		})
	}
	return node, n, back
}

// What was released under a dead slurmd ends by its script, and is over by that one's word, though Slurm goes on for minutes to say that its job is there.
func TestReleasedUnderADeadDaemon(t *testing.T) {
	s := newSite(t, "")
	id := worker(0, 1)
	_, _, back := s.onDaemon(t, id)
	defer back()
	if err := s.b.Release(t.Context(), s.job, []backend.ID{id}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "it is over", func() error {
		all, complete, err := s.b.List(t.Context(), s.job)
		if err == nil && !complete {
			err = errors.New("not all is known")
		}
		for _, st := range all {
			if st.ID == id {
				return fmt.Errorf("it is %s", st)
			}
		}
		return err
	})
	if s.slurm("squeue", "--noheader", "--states=running,completing", "--name="+jobPrefix+s.job+":"+id.String(), "--format=%T") == "" {
		t.Error("Slurm too knows of its end: this showed nothing")
	}
	s.started(t, s.job, id, 1)
}

// What Slurm gave up with a node that does not answer may live there: it is said so, and nothing of it is forgotten, until its script says that it has ended.
func TestGivenUpWithItsNode(t *testing.T) {
	s := newSite(t, "")
	id := worker(0, 1)
	node, n, back := s.onDaemon(t, id)
	defer back()
	if err := cluster.Fail(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	s.slurm("scontrol", "update", "NodeName="+node, "State=NORESP") // which slurmctld finds out by itself in a minute
	s.waitFor(id, "it was given up, and is away", func(st backend.Status) bool { return st.State == backend.StateFailed && st.Away })
	if _, err := s.b.Forget(t.Context(), s.job, ""); backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), id.String()+` of job "`+s.job+`" may still run on node `+node) {
		t.Errorf("Forget = %v", err)
	}
	if err := s.b.Release(t.Context(), s.job, []backend.ID{id}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "its script has ended it, and it is forgotten", func() error {
		_, err := s.b.Forget(t.Context(), s.job, "")
		return err
	})
}

// A probe that was left on a node whose daemon is dead keeps nothing else of the job from being forgotten, and is forgotten when the node is back. The node is named as soon
// as Slurm knows that it does not answer.
func TestProbeLeftOnItsNode(t *testing.T) {
	s := newSite(t, "")
	ended, left := worker(0, 1), backend.ID{Role: backend.RoleProbe, Rank: 62, Generation: 17}
	brief := s.workload(s.job, ended, conformance.Steady)
	brief.Argv = []string{"/bin/sh", "-c", "exit 0"}
	s.ensure(brief)
	s.waitState(ended, backend.StateExited)
	node, other := slurmtest.Node(1), slurmtest.Node(2)
	conformance.Eventually(t, "Slurm is done with it", func() error { // else it waits for the node, and places nothing more there
		if left := s.slurm("squeue", "--noheader", "--nodelist="+node); left != "" {
			return errors.New(left)
		}
		return nil
	})
	cluster.KillNode(1)
	back := false
	start := func() {
		if back = true; cluster.StartNode(1) != nil {
			t.Error("the node does not start")
		}
	}
	defer func() {
		if !back {
			start()
		}
	}()
	probe := s.workload(s.job, left, conformance.Steady)
	probe.Avoid = []string{other}
	s.ensure(probe)
	s.waitFor(left, "it has a place", func(st backend.Status) bool { return st.Node == node && st.State == backend.StateStarting })
	forget := func() error {
		_, err := s.b.Forget(t.Context(), s.job, "")
		return err
	}
	if err := forget(); backend.CodeOf(err) != backend.Blocked {
		t.Errorf("Forget of one that was not released = %v", err)
	}
	if err := s.b.Release(t.Context(), s.job, []backend.ID{left}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "nothing waits for it", forget)
	has := func(id backend.ID) bool {
		_, err := os.Stat(filepath.Join(s.shared(), s.job, id.String()))
		return err == nil
	}
	if has(ended) || !has(left) {
		t.Errorf("what ended is kept: %v, what was left: %v", has(ended), has(left))
	}
	s.slurm("scontrol", "update", "NodeName="+node, "State=NORESP") // which slurmctld finds out by itself in a minute
	if inv, err := s.b.Inventory(t.Context()); err != nil || !slices.Equal(inv.Silent, []string{node}) {
		t.Errorf("silent are %q, %v", inv.Silent, err)
	}
	start()
	conformance.Eventually(t, "it is forgotten too", func() error {
		if err := forget(); err != nil {
			return err
		}
		if has(left) {
			return errors.New("its folder is there")
		}
		return nil
	})
	if inv, err := s.b.Inventory(t.Context()); err != nil || len(inv.Silent) > 0 {
		t.Errorf("silent are %q, %v", inv.Silent, err)
	}
}

// With the last of what ran of a job its folder goes, and what was noted there of nodes.
func TestForgetLeavesNoFolder(t *testing.T) {
	s := newSite(t, "")
	id := worker(0, 1)
	brief := s.workload(s.job, id, conformance.Steady)
	brief.Argv = []string{"/bin/sh", "-c", "exit 0"}
	s.ensure(brief)
	s.waitState(id, backend.StateExited)
	dir := filepath.Join(s.shared(), s.job)
	if err := backend.WriteJSON(filepath.Join(dir, nodesFile), map[string]time.Time{slurmtest.Node(1): time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.b.Forget(t.Context(), s.job, ""); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}
