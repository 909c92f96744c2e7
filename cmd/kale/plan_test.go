package main

import (
	"strings"
	"testing"
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
