package main

import (
	"strings"
	"testing"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// Of each process that would be started it is said whether there is room for it, also where the backend does not know yet where it will run.
func TestPlanSaysWhereThereIsRoom(t *testing.T) {
	var out strings.Builder
	if err := writePlanned(&out, planned{Placements: []placement{
		{ID: "ps-0-g1", Fits: true},
		{ID: "worker-0-g1", Fits: true, Node: "n1", Devices: []string{"0", "1"}},
		{ID: "worker-1-g1", Fits: true, Reason: "the cluster chooses its node"},
		{ID: "worker-2-g1", Reason: "needs 2 GPUs, 0 free"},
	}}); err != nil {
		t.Fatal(err)
	}
	want := `start
  ps-0-g1      room
  worker-0-g1  n1 0,1
  worker-1-g1  room: the cluster chooses its node
  worker-2-g1  no room: needs 2 GPUs, 0 free
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("it prints\n%s\nwant, at its end,\n%s", out.String(), want)
	}
}

// What waits for a place or is not heard of is not told as running.
func TestPlanTellsWhatDoesNotRun(t *testing.T) {
	p := newPlanned(&loaded{Job: &job.Job{Name: "ctr"}}, job.TopicInfo{Partitions: 3}, &core.Preview{Running: []backend.Status{
		{ID: backend.ID{Role: "ps", Generation: 1}, State: backend.StateRunning},
		{ID: backend.ID{Role: "worker", Generation: 1}, State: backend.StateUnknown, Reason: "its node n2 does not answer"},
		{ID: backend.ID{Role: "worker", Rank: 1, Generation: 1}, State: backend.StatePending},
		{ID: backend.ID{Role: "worker", Rank: 2, Generation: 1}, State: backend.StateFailed},
		{ID: backend.ID{Role: "worker", Rank: 3, Generation: 1}, State: backend.StateStopping, Reason: "released, forced"},
	}})
	var out strings.Builder
	if err := writePlanned(&out, p); err != nil {
		t.Fatal(err)
	}
	want := `running  ps-0-g1
others   worker-0-g1 is unknown (its node n2 does not answer)
others   worker-1-g1 is pending
start    nothing more: what is wanted is there, or asked for
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("it prints\n%s\nwant, at its end,\n%s", out.String(), want)
	}
}
