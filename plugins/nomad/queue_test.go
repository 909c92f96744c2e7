package nomad

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

func TestWait(t *testing.T) {
	submitted := time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC)
	placed, started := submitted.Add(time.Minute), submitted.Add(2*time.Minute)
	alloc := func(client string, task *api.TaskState) *api.AllocationListStub {
		return &api.AllocationListStub{ClientStatus: client, CreateTime: placed.UnixNano(), TaskStates: map[string]*api.TaskState{taskName: task}}
	}
	for _, tt := range []struct {
		name     string
		allocs   []*api.AllocationListStub
		released bool
		dead     bool
		want     time.Time // when it started; zero: it waits
		unknown  bool      // and will stay so
	}{
		{name: "waits for a place"},
		{name: "was given up while it waited", released: true, unknown: true},
		{name: "was never placed", dead: true, unknown: true},
		{name: "is being started", allocs: []*api.AllocationListStub{alloc("pending", nil)}},
		{name: "runs", allocs: []*api.AllocationListStub{alloc("running", &api.TaskState{StartedAt: started})}, want: started},
		{name: "ran", allocs: []*api.AllocationListStub{alloc("complete", &api.TaskState{StartedAt: started})}, released: true, want: started},
		{name: "crashed and runs again", allocs: []*api.AllocationListStub{alloc("running", &api.TaskState{StartedAt: started.Add(time.Hour), Restarts: 3})}, want: placed},
		{name: "was moved", allocs: []*api.AllocationListStub{alloc("complete", nil), alloc("pending", nil)}, want: placed},
		{name: "could not be started", allocs: []*api.AllocationListStub{alloc("failed", &api.TaskState{})}, unknown: true},
		{name: "its node is away", allocs: []*api.AllocationListStub{alloc("unknown", nil)}, unknown: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := view{id: workerID(0, 1), job: &api.JobListStub{SubmitTime: submitted.Add(time.Hour).UnixNano(), Status: "running", Meta: map[string]string{metaSince: submitted.Format(time.RFC3339Nano)}}, allocs: tt.allocs, released: tt.released}
			if tt.dead {
				v.job.Status = "dead"
			}
			got, ok := v.wait()
			want := backend.Wait{ID: v.id, Submitted: submitted, Started: tt.want}
			if diff := cmp.Diff(want, got); ok == tt.unknown || ok && diff != "" {
				t.Errorf("wait gives %v (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// The wait for a place is learnt from workloads that had to wait, by whoever looks: also a plugin that has just been started.
func TestQueueWaitIsLearnt(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	worker := func(rank int) backend.Workload {
		w := r.workload("j", workerID(rank, 1), conformance.Steady)
		w.Resources.GPUs = slots / nodes
		return w
	}
	queueWait := func(n *nomad) time.Duration {
		t.Helper()
		inv, err := n.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return inv.QueueWait
	}
	if got := queueWait(n); got != 0 {
		t.Errorf("QueueWait = %v before anything ran, want 0", got)
	}
	for i := range nodes {
		if err := r.cluster.SetEligible(i+1, false); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.cluster.SetEligible(i+1, true) }) // where the test has failed
	}
	first := ensure(t, n, "j", worker(0))[0]
	var waiting time.Duration
	conformance.Eventually(t, "the wait grows while it lasts", func() error {
		conformance.WaitFor(t, n, "j", first.ID, "waits", in(backend.StatePending))
		if waiting = queueWait(n); waiting < time.Second {
			return errShort(waiting)
		}
		return nil
	})
	for i := range nodes {
		if err := r.cluster.SetEligible(i+1, true); err != nil {
			t.Fatal(err)
		}
	}
	st := conformance.WaitFor(t, n, "j", first.ID, "runs", in(backend.StateRunning))
	for name, each := range map[string]*nomad{"the plugin": n, "a plugin that was just started": r.configured(t, "j", "")} {
		if got, want := queueWait(each), st.Started.Sub(st.Submitted); got != want || got < waiting {
			t.Errorf("%s: QueueWait = %v, want %v and no less than %v", name, got, want, waiting)
		}
	}
	conformance.Drop(t, n, "j")
	if got := queueWait(n); got != st.Started.Sub(st.Submitted) {
		t.Errorf("QueueWait = %v after the release, want what was learnt", got)
	}
}

// errShort is a wait that is too short yet.
type errShort time.Duration

func (e errShort) Error() string { return "it is " + time.Duration(e).String() }
