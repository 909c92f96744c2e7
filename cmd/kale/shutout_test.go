package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kale-sched/kale/core/job"
	kept "github.com/kale-sched/kale/trainer/checkpoint"
)

// Who shuts the servers out takes the place of each, and of none that is not there; where there is no checkpoint nothing is made.
func TestRule2ServersAreShutOut(t *testing.T) {
	dir := t.TempDir()
	j := &job.Job{Name: "clicks"}
	j.Checkpoint.Dir = dir
	if err := shutOut(j, 2); err != nil {
		t.Errorf("without a checkpoint: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "clicks")); err == nil {
		t.Error("a checkpoint folder was made")
	}
	store, err := kept.Open(dir, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	var incs [3]uint64
	for i := range incs {
		if incs[i], err = store.ClaimIncarnation(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.PublishChief(kept.ChiefInfo{Address: "127.0.0.1:1", Incarnation: incs[0], Timeline: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := shutOut(j, 2); err != nil {
		t.Fatal(err)
	}
	for i, inc := range incs {
		if gone, err := store.Superseded(i, inc); err != nil || gone != (i < 2) {
			t.Errorf("server %d has lost its place: %v, %v", i, gone, err)
		}
	}
}
