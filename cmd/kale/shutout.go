package main

import (
	"errors"

	"github.com/kale-sched/kale/core/job"
	kept "github.com/kale-sched/kale/trainer/checkpoint"
)

// shutOut takes the places of a stopped job's processes in its checkpoint store: whoever is left finds that out, and ends without writing (EXACTLY_ONCE.md, rule 2). Where there is no checkpoint folder there is nobody to write into it.
func shutOut(j *job.Job, servers int) error {
	store, err := kept.Reopen(j.Checkpoint.Dir, j.Name)
	if errors.Is(err, kept.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return store.ShutOut(servers)
}
