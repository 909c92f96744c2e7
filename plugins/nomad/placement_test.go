package nomad

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// Where the block says that workloads may run is where they run; where they cannot is said at once, or by what waits.
func TestPlacementByTheBlock(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name, block string
		node        string // where it runs; empty: nowhere
		refused     backend.Code
		reason      string // why it waits, or is refused
	}{
		{name: "a constraint", block: "  constraint {\n    attribute = \"node.unique.name\"\n    value = \"n2\"\n  }\n", node: "n2"},
		{name: "another operator", block: "  constraint {\n    attribute = \"$${node.unique.name}\"\n    operator = \"!=\"\n    value = \"n2\"\n  }\n", node: "n1"},
		{
			name: "a constraint that no node meets", block: "  constraint {\n    attribute = \"node.class\"\n    value = \"gpu\"\n  }\n",
			reason: "needs 1 GPU, 4 free; constraint: ${node.class} = gpu on 2 of 2 nodes",
		},
		{name: "a device by its model", block: "  device = \"nvidia/gpu/FAKE\"\n  constraint {\n    attribute = \"node.unique.name\"\n    value = \"n1\"\n  }\n", node: "n1"},
		{name: "a device that no node has", block: "  device = \"amd/gpu\"\n", reason: "needs 1 GPU, 0 free; constraint: missing devices on 2 of 2 nodes"},
		{name: "another datacenter", block: "  datacenters = [\"elsewhere\"]\n", reason: "needs 1 GPU, 0 free; no node is in its datacenters and node pool, ready and eligible"},
		{name: "a node pool that is not there", block: "  node_pool = \"elsewhere\"\n", refused: backend.Blocked, reason: "name a node pool that exists"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			block := strings.Replace(tt.block, "FAKE", r.model(t), 1)
			n := r.configured(t, "j", block)
			w := r.workload("j", workerID(0, 1), conformance.Steady)
			w.Resources.GPUs = 1
			w.ID.Generation = uint64(rigs.Add(1)) // of its own: all have one ledger
			sts, err := n.Ensure(t.Context(), "j", []backend.Workload{w})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.refused != 0:
				if sts[0].Err == nil || sts[0].Err.Code != tt.refused || !strings.Contains(sts[0].Err.Message, tt.reason) {
					t.Errorf("Ensure = %+v; want code %q, and %q", sts[0], tt.refused, tt.reason)
				}
			case tt.node == "":
				conformance.WaitFor(t, n, "j", w.ID, "waits, and says for what", func(st backend.Status) bool {
					return st.State == backend.StatePending && st.Reason == tt.reason
				})
			default:
				if st := conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning)); st.Node != tt.node {
					t.Errorf("it runs on %s, want %s", st.Node, tt.node)
				}
			}
			conformance.Drop(t, n, "j")
		})
	}
}

// What is on the nodes to avoid is free for nobody who is to avoid them.
func TestPlanKeepsOffNodes(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	plan := func(many int) backend.Report {
		var ws []backend.Workload
		for rank := range many {
			w := r.workload("j", workerID(rank, 1), conformance.Steady)
			w.Resources.GPUs, w.Avoid = 1, []string{"n2"}
			ws = append(ws, w)
		}
		report, err := n.Plan(t.Context(), "j", ws)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	if two := plan(2); !two.Fits() {
		t.Errorf("of two: %+v", two)
	}
	if three := plan(3); three.Fits() || !strings.HasPrefix(three.Shortage, "needs 3 GPUs, 2 free; ") {
		t.Errorf("of three: %+v", three)
	}
}

// model gives the name of the nodes' GPUs.
func (r rig) model(t *testing.T) string {
	t.Helper()
	nodes, _, err := r.raw(t).Nodes().List(&api.QueryOptions{Params: map[string]string{"resources": "true"}})
	if err != nil || len(nodes) == 0 || len(nodes[0].NodeResources.Devices) == 0 {
		t.Fatalf("nodes %v, %v", nodes, err)
	}
	return nodes[0].NodeResources.Devices[0].Name
}

// A job of others with a higher priority takes a worker's GPUs, where the cluster allows that: the worker waits and says why,
// is not taken for one that has ended, and runs again when there is room.
func TestPreemption(t *testing.T) {
	r := newRig(t)
	if err := r.cluster.SetPreemption(true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.cluster.SetPreemption(false); err != nil {
			t.Error(err)
		}
	})
	low := r.configured(t, "low", "  priority = 20\n")
	high := r.configured(t, "high", "  priority = 90\n")
	var standing []backend.Workload
	doubles := map[backend.ID]string{}
	for rank := range nodes {
		w, doubled := r.alone("low", workerID(rank, 1))
		w.Resources.GPUs = gpusPerNode
		standing, doubles[w.ID] = append(standing, w), doubled
	}
	ensure(t, low, "low", standing...)
	for _, w := range standing {
		conformance.WaitFor(t, low, "low", w.ID, "runs", in(backend.StateRunning))
		r.started(t, "low", w.ID, 1) // before one of them is preempted
	}
	intruder := r.workload("high", workerID(0, 1), conformance.Steady)
	intruder.Resources.GPUs = gpusPerNode
	ensure(t, high, "high", intruder)
	conformance.WaitFor(t, high, "high", intruder.ID, "runs", in(backend.StateRunning))
	var victim backend.Status
	conformance.Eventually(t, "one of the others waits, and says why", func() error {
		all, _, err := low.List(t.Context(), "low")
		if err != nil {
			return err
		}
		for _, st := range all {
			if st.State == backend.StatePending && strings.Contains(st.Reason, "preempted") {
				victim = st
				return nil
			}
		}
		return errNone(all)
	})
	if err := high.Release(t.Context(), "high", []backend.ID{intruder.ID}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	conformance.WaitFor(t, low, "low", victim.ID, "runs again", in(backend.StateRunning))
	for id, doubled := range doubles {
		want := 1
		if id == victim.ID {
			want = 2
		}
		r.started(t, "low", id, want)
		neverDoubled(t, doubled)
	}
	conformance.Drop(t, low, "low")
	conformance.Drop(t, high, "high")
}

// errNone is a list in which nothing is as it should be.
type errNone []backend.Status

func (e errNone) Error() string {
	var parts []string
	for _, st := range e {
		parts = append(parts, st.ID.String()+" is "+string(st.State)+": "+st.Reason)
	}
	return strings.Join(parts, "; ")
}
