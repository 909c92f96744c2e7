package nomad

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// In whatever way a node is lost and comes back, its worker's successor, for which no other node has room, starts there, and
// not before the old process has ended; the old one never starts again.
func TestNodeLostAndBack(t *testing.T) {
	for _, tt := range []struct {
		name       string
		lose, back func(ctx context.Context, c *nomadtest.Cluster, n int) error
	}{
		{
			"its agent is killed",
			func(_ context.Context, c *nomadtest.Cluster, n int) error { c.KillClient(n); return nil },
			func(ctx context.Context, c *nomadtest.Cluster, n int) error { return c.StartClient(ctx, n) },
		},
		{
			"its agent is parted from the server",
			func(_ context.Context, c *nomadtest.Cluster, n int) error { return c.SuspendClient(n) },
			func(ctx context.Context, c *nomadtest.Cluster, n int) error { return c.ResumeClient(ctx, n) },
		},
		{
			"its agent is stopped",
			func(_ context.Context, c *nomadtest.Cluster, n int) error { return c.StopClient(n) },
			func(ctx context.Context, c *nomadtest.Cluster, n int) error { return c.StartClient(ctx, n) },
		},
		{
			"it crashes",
			func(_ context.Context, c *nomadtest.Cluster, n int) error { return c.CrashNode(n) },
			func(ctx context.Context, c *nomadtest.Cluster, n int) error { return c.StartClient(ctx, n) },
		},
		{
			"it is set up anew",
			func(_ context.Context, c *nomadtest.Cluster, n int) error { return c.CrashNode(n) },
			func(ctx context.Context, c *nomadtest.Cluster, n int) error { return c.ReplaceNode(ctx, n) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			n := r.configured(t, "j", "")
			worker := func(rank int, generation uint64) (backend.Workload, string) {
				w, doubled := r.alone("j", workerID(rank, generation))
				w.Resources.GPUs = gpusPerNode
				return w, doubled
			}
			old, doubled := worker(0, 1)
			neighbour, _ := worker(1, 1)
			ensure(t, n, "j", old, neighbour)
			before := conformance.WaitFor(t, n, "j", old.ID, "runs", in(backend.StateRunning))
			conformance.WaitFor(t, n, "j", neighbour.ID, "runs", in(backend.StateRunning))
			r.started(t, "j", old.ID, 1) // before it is lost
			node := r.nodeOf(t, "j", old.ID)
			if err := tt.lose(t.Context(), r.cluster, node); err != nil {
				t.Fatal(err)
			}
			back := false
			defer func() {
				if !back {
					_ = tt.back(context.Background(), r.cluster, node) // for the tests that follow; this one has failed
				}
			}()
			conformance.WaitFor(t, n, "j", old.ID, "is unknown, and its node away", func(st backend.Status) bool { return st.State == backend.StateUnknown && st.Away })
			successor, _ := worker(0, 2)
			conformance.Eventually(t, "a higher generation is accepted", func() error {
				sts, err := n.Ensure(t.Context(), "j", []backend.Workload{successor})
				if err == nil && sts[0].Err != nil {
					err = sts[0].Err
				}
				return err
			})
			conformance.WaitFor(t, n, "j", successor.ID, "waits, and says for what", func(st backend.Status) bool {
				return st.State == backend.StatePending && strings.HasPrefix(st.Reason, "needs 2 GPUs, 0 free") && strings.HasSuffix(st.Reason, "may still run on: "+before.Node)
			})
			conformance.WaitFor(t, n, "j", old.ID, "was released, and its node is away", func(st backend.Status) bool { return st.State == backend.StateStopping && st.Away })
			if err := tt.back(t.Context(), r.cluster, node); err != nil {
				t.Fatal(err)
			}
			back = true
			after := conformance.WaitFor(t, n, "j", successor.ID, "runs", in(backend.StateRunning))
			if after.Node != before.Node {
				t.Errorf("the successor is on %s, want %s", after.Node, before.Node)
			}
			neverDoubled(t, doubled)
			for _, id := range []backend.ID{old.ID, neighbour.ID, successor.ID} {
				r.started(t, "j", id, 1)
			}
			if st := conformance.WaitFor(t, n, "j", successor.ID, "runs on", in(backend.StateRunning)); st.Reason != "" {
				t.Errorf("what we changed ourselves is taken for drift: %s", st.Reason)
			}
			if err := r.cluster.PurgeDown(); err != nil {
				t.Fatal(err)
			}
			conformance.Drop(t, n, "j")
		})
	}
}

// A node crashes and comes back before anybody has asked for a successor: its worker starts there again, once.
func TestCrashedNodeStartsItsWorkerAgain(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w, doubled := r.alone("j", workerID(0, 1))
	ensure(t, n, "j", w)
	before := conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	r.started(t, "j", w.ID, 1) // before its node crashes: that it runs says only that its process is there
	node := r.nodeOf(t, "j", w.ID)
	if err := r.cluster.CrashNode(node); err != nil {
		t.Fatal(err)
	}
	conformance.WaitFor(t, n, "j", w.ID, "is unknown", in(backend.StateUnknown))
	if err := r.cluster.StartClient(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	r.started(t, "j", w.ID, 2)
	if st := conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning)); st.Node != before.Node {
		t.Errorf("it is on %s now, was on %s", st.Node, before.Node)
	}
	neverDoubled(t, doubled)
	conformance.Drop(t, n, "j")
}

func TestKeepOff(t *testing.T) {
	mine := api.NewConstraint("${node.class}", "=", "gpu")
	theirs := api.NewConstraint(nodeID, "!=", "c")
	job := &api.Job{Constraints: []*api.Constraint{mine, theirs}, Meta: map[string]string{metaJob: "j"}}
	keepOff(job, []string{"a", "b"})
	keepOff(job, []string{"b", "d"})
	want := &api.Job{
		Constraints: []*api.Constraint{mine, theirs, api.NewConstraint(nodeID, "!=", "b"), api.NewConstraint(nodeID, "!=", "d")},
		Meta:        map[string]string{metaJob: "j", metaAvoid: "b,d"},
	}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Errorf("kept off others (-want +got):\n%s", diff)
	}
	keepOff(job, nil)
	if diff := cmp.Diff(&api.Job{Constraints: []*api.Constraint{mine, theirs}, Meta: map[string]string{metaJob: "j"}}, job); diff != "" {
		t.Errorf("kept off none (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), differences(&api.Job{TaskGroups: []*api.TaskGroup{{Tasks: []*api.Task{{}}}}}, &api.Job{
		TaskGroups: []*api.TaskGroup{{Tasks: []*api.Task{{}}}}, Meta: map[string]string{metaAvoid: "a"}, Constraints: []*api.Constraint{api.NewConstraint(nodeID, "!=", "a")},
	})); diff != "" {
		t.Errorf("taken for drift (-want +got):\n%s", diff)
	}
}

// What is in the ledger and is only being submitted waits; where nobody submits it any more, it has failed.
func TestBeingSubmittedHasNotEnded(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	s, err := n.jobs.Of(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	ws := []backend.Workload{r.workload("j", workerID(0, 1), conformance.Steady)}
	end := n.starts.Begin("j", ws)
	if err := s.claim(t.Context(), "j", ws, make([]*backend.Error, 1)); err != nil {
		t.Fatal(err)
	}
	is := func(when string, want backend.State, says string) {
		t.Helper()
		all, _, err := n.List(t.Context(), "j")
		if err != nil || len(all) != 1 || all[0].State != want || !strings.Contains(all[0].Reason, says) {
			t.Errorf("%s: List = %+v, %v", when, all, err)
		}
	}
	is("before it is submitted", backend.StatePending, "being submitted")
	end()
	is("when nobody submits it", backend.StateFailed, "was not submitted")
	ensure(t, n, "j", ws...)
	conformance.WaitFor(t, n, "j", ws[0].ID, "runs", in(backend.StateRunning))
	conformance.Drop(t, n, "j")
}

// What was released and is on a node that does not answer is listed as away, whatever Nomad calls its allocation, and nothing of it is forgotten until the node is back.
func TestReleasedAndLostWithItsNode(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w, doubled := r.alone("j", workerID(0, 1))
	ensure(t, n, "j", w)
	before := conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	r.started(t, "j", w.ID, 1)
	node := r.nodeOf(t, "j", w.ID)
	start := r.killClient(t, node)
	defer start()
	conformance.WaitFor(t, n, "j", w.ID, "is away", func(st backend.Status) bool { return st.State == backend.StateUnknown && st.Away })
	if err := n.Release(t.Context(), "j", []backend.ID{w.ID}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	for range 20 { // Nomad evaluates it meanwhile
		st := conformance.WaitFor(t, n, "j", w.ID, "is listed", func(st backend.Status) bool { return st.State != backend.StateUnknown })
		if !st.Away || st.Node != before.Node || st.State != backend.StateStopping && st.State != backend.StateExited {
			t.Fatalf("it is %s", st)
		}
		if _, err := n.Forget(t.Context(), "j", ""); backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), "may still run on node "+before.Node) {
			t.Fatalf("Forget = %v", err)
		}
	}
	start()
	neverDoubled(t, doubled)
	conformance.Drop(t, n, "j")
}

// A probe that was left on a node that is away keeps nothing else of the job from being forgotten, and is forgotten when the node is back. Meanwhile the node is named.
func TestProbeLeftOnItsNode(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	left := r.workload("j", backend.ID{Role: backend.RoleProbe, Rank: 62, Generation: 17}, conformance.Steady)
	ensure(t, n, "j", left)
	before := conformance.WaitFor(t, n, "j", left.ID, "runs", in(backend.StateRunning))
	node := r.nodeOf(t, "j", left.ID)
	start := r.killClient(t, node)
	defer start()
	conformance.WaitFor(t, n, "j", left.ID, "is away", func(st backend.Status) bool { return st.Away })
	if inv, err := n.Inventory(t.Context()); err != nil || !cmp.Equal(inv.Silent, []string{before.Node}) {
		t.Errorf("silent are %q, %v", inv.Silent, err)
	}
	forget := func() error {
		_, err := n.Forget(t.Context(), "j", "")
		return err
	}
	if err := forget(); backend.CodeOf(err) != backend.Blocked {
		t.Errorf("Forget of one that was not released = %v", err)
	}
	if err := n.Release(t.Context(), "j", []backend.ID{left.ID}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "nothing waits for it", forget)
	all, _, err := n.List(t.Context(), "j")
	if err != nil || len(all) != 1 || all[0].ID != left.ID || !all[0].LeftProbe() {
		t.Errorf("what was left is listed as %+v, %v", all, err)
	}
	start()
	conformance.Eventually(t, "it is forgotten too", func() error {
		if err := forget(); err != nil {
			return err
		}
		all, _, err := n.List(t.Context(), "j")
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("there is %s", all[0])
		}
		return err
	})
}

// killClient kills the agent of a node, whose tasks live on; start starts it again, once.
func (r rig) killClient(t *testing.T, node int) (start func()) {
	r.cluster.KillClient(node)
	return sync.OnceFunc(func() {
		if err := r.cluster.StartClient(context.Background(), node); err != nil {
			t.Errorf("the node does not come back: %v", err)
		}
	})
}

// What was released while its node was away, and ended there meanwhile, leaves nothing when the node is back that Nomad would never collect: its Nomad job is dead, or gone.
func TestReleasedDuringAnOutage(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w := r.workload("j", workerID(0, 1), conformance.Steady)
	end := filepath.Join(r.dir, "end")
	w.Argv = []string{"/bin/sh", "-c", fmt.Sprintf("while [ ! -e %s ]; do sleep 0.05; done", end)}
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	node := r.nodeOf(t, "j", w.ID)
	r.cluster.KillClient(node)
	conformance.WaitFor(t, n, "j", w.ID, "is unknown", in(backend.StateUnknown))
	if err := n.Release(t.Context(), "j", []backend.ID{w.ID}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.StartClient(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "its Nomad job is gone, or will be collected", func() error {
		list, _, err := n.List(t.Context(), "j")
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("it is %v", list)
		}
		if err != nil {
			return err
		}
		job, _, err := r.raw(t).Jobs().Info(nomadJob("j", w.ID), nil)
		switch {
		case err != nil && notFound(err):
			return nil
		case err != nil:
			return err
		case *job.Status != "dead":
			return fmt.Errorf("it is %s, stopped: %v", *job.Status, *job.Stop)
		}
		return nil
	})
	conformance.Drop(t, n, "j")
}
