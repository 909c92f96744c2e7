package main

import (
	"testing"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/trainer"
)

// TestOneBoundOfDenseValues: what is said of records before a job runs is what workers do with them.
func TestOneBoundOfDenseValues(t *testing.T) {
	if job.MaxDense != trainer.MaxDense {
		t.Errorf("a numeric field is bounded by %g for the job file, and by %g for workers", job.MaxDense, trainer.MaxDense)
	}
}
