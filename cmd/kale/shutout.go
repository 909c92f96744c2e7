package main

import (
	"errors"

	"github.com/kale-sched/kale/core/job"
	kept "github.com/kale-sched/kale/trainer/checkpoint"
)

// shutOut claims an incarnation for each parameter server of a job, above all that were given out: whoever serves there finds that out, and ends without writing
// (EXACTLY_ONCE.md, rule 2). Where there is no checkpoint folder there is nobody to write into it.
func shutOut(j *job.Job, servers int) error {
	store, err := kept.Reopen(j.Checkpoint.Dir, j.Name)
	if errors.Is(err, kept.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range servers {
		if _, e := store.ClaimIncarnation(i); e != nil && !errors.Is(e, kept.ErrSuperseded) {
			err = errors.Join(err, e)
		}
	}
	return err
}
