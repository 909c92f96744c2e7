package nomad

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// A job of a higher priority takes the place of a worker that drains for a while. Nomad starts the worker on the other node at once: its program waits there
// until the old process has ended.
func TestPreemptedWorkerMoves(t *testing.T) {
	r := newRig(t)
	client := r.raw(t)
	before, _, err := client.Operator().SchedulerGetConfiguration(nil)
	if err != nil {
		t.Fatal(err)
	}
	preempting := *before.SchedulerConfig
	preempting.PreemptionConfig.BatchSchedulerEnabled = true
	if _, _, err := client.Operator().SchedulerSetConfiguration(&preempting, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, _, err := client.Operator().SchedulerSetConfiguration(before.SchedulerConfig, nil); err != nil {
			t.Error(err)
		}
	})
	n := r.configured(t, "j", "")
	w, doubled := r.alone("j", workerID(0, 1))
	slow := strings.Replace(w.Argv[2], "trap 'exit 0' TERM", "trap 'sleep 3; exit 0' TERM", 1)
	if slow == w.Argv[2] {
		t.Fatalf("the program has no trap to make slow: %s", w.Argv[2])
	}
	w.Argv[2], w.Resources.GPUs, w.StopGrace = slow, 1, 20*time.Second
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	r.shell().AwaitStarts(t, "j", w.ID, 1) // or it might be moved before it has counted its start
	at := r.nodeOf(t, "j", w.ID)

	gpus := uint64(gpusPerNode)
	job := api.NewBatchJob("foreign", "foreign", "global", 90)
	job.Constrain(api.NewConstraint("${node.unique.name}", "=", fmt.Sprintf("n%d", at)))
	hold := api.NewTask("hold", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"1000"})
	hold.Resources = &api.Resources{CPU: ptr(1), MemoryMB: ptr(10), Devices: []*api.RequestedDevice{{Name: "gpu", Count: &gpus}}}
	job.AddTaskGroup(api.NewTaskGroup("hold", 1).AddTask(hold))
	if _, _, err := client.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, _, err := client.Jobs().Deregister("foreign", true, nil); err != nil {
			t.Error(err)
		}
	})
	waited := false
	after := conformance.WaitFor(t, n, "j", w.ID, "runs elsewhere", func(st backend.Status) bool {
		waited = waited || st.State == backend.StateStarting && strings.Contains(st.Reason, "when the process before it has ended")
		return st.State == backend.StateRunning && st.Restarts == 1
	})
	if after.Node == fmt.Sprintf("n%d", at) || !waited {
		t.Errorf("it runs on %s, after it was said to wait: %v", after.Node, waited)
	}
	conformance.Eventually(t, "its program has started", func() error {
		if got := r.starts(t, "j", w.ID); got != 2 {
			return fmt.Errorf("it was started %d times, want twice", got)
		}
		return nil
	})
	neverDoubled(t, doubled)
	conformance.Drop(t, n, "j")
}

// What is said of a workload that Nomad has started a second time: it runs when the process before it has surely ended.
func TestMovedWaits(t *testing.T) {
	nodes := map[string]*api.NodeListStub{"a": {ID: "a", Name: "n1"}, "b": {ID: "b", Name: "n2"}}
	alloc := func(node, status string) *api.AllocationListStub {
		return &api.AllocationListStub{ID: "on " + node, NodeID: node, NodeName: nodes[node].Name, ClientStatus: status, TaskStates: map[string]*api.TaskState{taskName: {State: "running"}}}
	}
	for _, tt := range []struct {
		older string // state of the allocation on n1
		gone  bool   // n1 is not known any more
		bound bool   // to the allocation on n2
		state backend.State
		says  string
	}{
		{older: api.AllocClientStatusRunning, state: backend.StateStarting, says: "when the process before it has ended"},
		{older: api.AllocClientStatusUnknown, state: backend.StateStarting, says: "when the process before it has ended"},
		{older: api.AllocClientStatusComplete, state: backend.StateRunning},
		{older: api.AllocClientStatusFailed, state: backend.StateRunning},
		{older: api.AllocClientStatusLost, state: backend.StateFailed, says: "its node n1 was lost before it had said"},
		{older: api.AllocClientStatusLost, gone: true, state: backend.StateRunning},
		{older: api.AllocClientStatusLost, bound: true, state: backend.StateRunning},
		{older: api.AllocClientStatusRunning, bound: true, state: backend.StateRunning},
	} {
		v := view{id: workerID(0, 1), job: &api.JobListStub{Status: "running"}, nodes: map[string]*api.NodeListStub{"b": nodes["b"]}}
		if tt.bound {
			v.bound = "on b"
		}
		if !tt.gone {
			v.nodes["a"] = nodes["a"]
		}
		nodes["a"].Status, nodes["b"].Status = "ready", "ready"
		v.allocs = []*api.AllocationListStub{alloc("a", tt.older), alloc("b", api.AllocClientStatusRunning)}
		if st := v.status(nil); st.State != tt.state || !strings.Contains(st.Reason, tt.says) {
			t.Errorf("%s on n1 (gone: %v), running on n2: it is %s: %q; want %s and %q", tt.older, tt.gone, st.State, st.Reason, tt.state, tt.says)
		}
	}
}
