package nomad

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

func TestDrainEnd(t *testing.T) {
	began := time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		node api.Node
		want time.Time
	}{
		{"no drain", api.Node{LastDrain: &api.DrainMetadata{StartedAt: began}}, time.Time{}},
		{"a deadline", api.Node{DrainStrategy: &api.DrainStrategy{DrainSpec: api.DrainSpec{Deadline: time.Minute}, ForceDeadline: began.Add(time.Minute)}}, began.Add(time.Minute)},
		{"none", api.Node{DrainStrategy: &api.DrainStrategy{}, LastDrain: &api.DrainMetadata{StartedAt: began}}, began.Add(time.Hour)},
		{"none, of which nothing more is known", api.Node{DrainStrategy: &api.DrainStrategy{}}, time.Time{}},
		{"at once", api.Node{DrainStrategy: &api.DrainStrategy{DrainSpec: api.DrainSpec{Deadline: -1}}, LastDrain: &api.DrainMetadata{StartedAt: began}}, time.Time{}},
	} {
		if got := drainEnd(&tt.node); !got.Equal(tt.want) {
			t.Errorf("%s: drainEnd = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// alone gives a workload that notes each start, and each that finds an earlier process of it alive.
func (r rig) alone(job string, id backend.ID) (w backend.Workload, doubled string) {
	w = r.workload(job, id, conformance.Steady)
	seat := filepath.Join(r.dir, job+"."+seat(id))
	doubled = seat + ".doubled"
	check := `for p in %[1]s.pid.*; do [ -e "$p" ] || continue; old=${p##*.}; ` +
		`grep -qs "^State:[[:space:]]*[RSDTt]" /proc/$old/status && grep -qs -z "^KALE_TEST_NAME=" /proc/$old/environ && echo "$old lives when $$ starts" >> %[1]s.doubled; done; : > %[1]s.pid.$$; `
	w.Argv[2] = fmt.Sprintf(check, seat) + w.Argv[2]
	return w, doubled
}

func neverDoubled(t testing.TB, doubled string) {
	t.Helper()
	if raw, err := os.ReadFile(doubled); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("two processes of one rank lived at a time: %s %v", raw, err)
	}
}

// nodeInfo gives the node that a workload is on.
func (r rig) nodeInfo(t testing.TB, name string) *api.Node {
	t.Helper()
	nodes, _, err := r.raw(t).Nodes().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, stub := range nodes {
		if stub.Name == name && stub.Status == "ready" {
			n, _, err := r.raw(t).Nodes().Info(stub.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no node %s is ready: %v", name, nodes)
	return nil
}

// A node is drained: who is on it has until the drain's deadline, which the caller is told of and may use to replace it
// first; nothing new is placed there, and its free devices are not offered. When the worker has left, the drain is over.
func TestDrainedNodeIsLeftInTime(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w, doubled := r.alone("j", workerID(0, 1))
	w.Resources.GPUs = 1
	ensure(t, n, "j", w)
	before := conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	r.started(t, "j", w.ID, 1) // before it is ended
	if !before.Deadline.IsZero() {
		t.Errorf("it has the deadline %v before anything is drained", before.Deadline)
	}
	number := r.nodeOf(t, "j", w.ID)
	for _, deadline := range []time.Duration{0, 20 * time.Minute} {
		if err := r.cluster.Drain(number, deadline); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.cluster.EndDrain(number) }) // where the test has failed
		node := r.nodeInfo(t, before.Node)
		want := node.DrainStrategy.ForceDeadline
		if deadline == 0 {
			want = node.LastDrain.StartedAt.Add(backend.DrainWithin)
		}
		conformance.WaitFor(t, n, "j", w.ID, "is told of the drain", func(st backend.Status) bool {
			return st.State == backend.StateRunning && st.Deadline.Equal(want) && strings.Contains(st.Reason, before.Node+" is being drained")
		})
	}
	inv, err := n.Inventory(t.Context())
	if err != nil || inv.Total != slots-gpusPerNode+1 || inv.Free != slots-gpusPerNode {
		t.Errorf("Inventory = %+v, %v; want that the node's free device is not offered", inv, err)
	}
	successor := r.workload("j", workerID(1, 1), conformance.Steady)
	successor.Resources.GPUs = 1
	ensure(t, n, "j", successor)
	if st := conformance.WaitFor(t, n, "j", successor.ID, "runs", in(backend.StateRunning)); st.Node == before.Node || !st.Deadline.IsZero() {
		t.Errorf("the successor is on %s, deadline %v; want another node, and no end", st.Node, st.Deadline)
	}
	if err := n.Release(t.Context(), "j", []backend.ID{w.ID}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the drain is over", func() error {
		if node := r.nodeInfo(t, before.Node); node.DrainStrategy != nil {
			return fmt.Errorf("it is %v", node.DrainStrategy)
		}
		return nil
	})
	r.started(t, "j", w.ID, 1)
	neverDoubled(t, doubled)
	if err := r.cluster.EndDrain(number); err != nil {
		t.Fatal(err)
	}
	conformance.Drop(t, n, "j")
	conformance.Eventually(t, "the node's devices are offered again", func() error {
		inv, err := n.Inventory(t.Context())
		if err == nil && inv.Free != slots {
			err = fmt.Errorf("the inventory is %+v", inv)
		}
		return err
	})
}

// A drain that waits for nobody ends the worker, which says why: it has not ended by itself. Its successor runs elsewhere,
// once the old process is gone.
func TestDrainAtOnce(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w, doubled := r.alone("j", workerID(0, 1))
	ensure(t, n, "j", w)
	before := conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	r.started(t, "j", w.ID, 1) // before it is ended
	number := r.nodeOf(t, "j", w.ID)
	if err := r.cluster.Drain(number, -1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cluster.EndDrain(number) }) // where the test has failed
	conformance.WaitFor(t, n, "j", w.ID, "has failed by the drain", func(st backend.Status) bool {
		return st.State == backend.StateFailed && st.Reason == "its node "+before.Node+" was drained by its administrator"
	})
	successor, _ := r.alone("j", workerID(0, 2))
	ensure(t, n, "j", successor)
	if st := conformance.WaitFor(t, n, "j", successor.ID, "runs", in(backend.StateRunning)); st.Node == before.Node {
		t.Errorf("the successor is on %s, which is drained", st.Node)
	}
	for _, id := range []backend.ID{w.ID, successor.ID} {
		r.started(t, "j", id, 1)
	}
	neverDoubled(t, doubled)
	if err := r.cluster.EndDrain(number); err != nil {
		t.Fatal(err)
	}
	conformance.Drop(t, n, "j")
}

// A person stops the allocation and not the job: Nomad starts the same worker anew, once the old process is gone.
func TestStoppedAllocationMoves(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w, doubled := r.alone("j", workerID(0, 1))
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	r.started(t, "j", w.ID, 1) // before it is ended
	allocs, _, err := r.raw(t).Jobs().Allocations(nomadJob("j", w.ID), true, nil)
	if err != nil || len(allocs) != 1 {
		t.Fatalf("allocations: %v, %v", allocs, err)
	}
	if _, err := r.raw(t).Allocations().Stop(&api.Allocation{ID: allocs[0].ID}, nil); err != nil {
		t.Fatal(err)
	}
	conformance.WaitFor(t, n, "j", w.ID, "runs anew", func(st backend.Status) bool { return st.State == backend.StateRunning && st.Restarts == 1 })
	r.started(t, "j", w.ID, 2)
	neverDoubled(t, doubled)
	conformance.Drop(t, n, "j")
}

// Nodes that take no new work keep what they have; what is asked for waits, and says why.
func TestIneligibleNodes(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	old := r.workload("j", workerID(0, 1), conformance.Steady)
	old.Resources.GPUs = 1
	ensure(t, n, "j", old)
	conformance.WaitFor(t, n, "j", old.ID, "runs", in(backend.StateRunning))
	for i := range nodes {
		if err := r.cluster.SetEligible(i+1, false); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.cluster.SetEligible(i+1, true) }) // where the test has failed
	}
	if inv, err := n.Inventory(t.Context()); err != nil || inv.Total != 1 || inv.Free != 0 {
		t.Errorf("Inventory = %+v, %v; want the one device that is held", inv, err)
	}
	fresh := r.workload("j", workerID(1, 1), conformance.Steady)
	fresh.Resources.GPUs = 1
	ensure(t, n, "j", fresh)
	conformance.WaitFor(t, n, "j", fresh.ID, "says what it waits for", func(st backend.Status) bool {
		return st.State == backend.StatePending && strings.HasPrefix(st.Reason, "needs 1 GPU, 0 free; no node is in its datacenters and node pool, ready and eligible")
	})
	if err := r.cluster.SetEligible(2, true); err != nil {
		t.Fatal(err)
	}
	if st := conformance.WaitFor(t, n, "j", fresh.ID, "runs", in(backend.StateRunning)); st.Node != "n2" {
		t.Errorf("it runs on %s, want n2", st.Node)
	}
	conformance.WaitFor(t, n, "j", old.ID, "runs on", in(backend.StateRunning))
	for _, w := range []backend.Workload{old, fresh} {
		r.started(t, "j", w.ID, 1)
	}
	if err := r.cluster.SetEligible(1, true); err != nil {
		t.Fatal(err)
	}
	conformance.Drop(t, n, "j")
}
