package core

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// CheckModel says, as a diagnostic of the job file, that the checkpoint which the job had is not there: the trainers would begin a new model in its place. That there
// was one is known from what the job's last scheduler wrote in its state folder, and from what remains in the checkpoint folder.
func CheckModel(j *job.Job, stateDir string) hcl.Diagnostics {
	folder, trained := CheckpointFolder(j), trainedIn(j, stateDir)
	recorded, err := hasJobRecord(folder)
	remains := rpc.Remains(folder)
	var lost string
	switch {
	case err != nil:
		return nil // who needs it says what is wrong with it
	case !recorded && len(remains) > 0:
		lost = fmt.Sprintf("%s is lost, without which what is left of its checkpoint (%s) cannot be used", filepath.Join(folder, rpc.JobStateFolder), strings.Join(remains, ", "))
	case !recorded && trained == nil:
		return nil // it never had one
	case !recorded:
		lost = fmt.Sprintf("there is no checkpoint in %s any more", folder)
	case trained == nil || !trained.Final || rpc.Holds(folder, "tablets/*/*.snap") || rpc.Holds(folder, "written/*/*.json"):
		return nil // the trainers know which tablets there were, or there was no snapshot yet
	default:
		lost = fmt.Sprintf("no snapshot is in %s any more", filepath.Join(folder, "tablets"))
	}
	ran, giveUp := "It has run before", []string{}
	if recorded || len(remains) > 0 {
		giveUp = append(giveUp, "remove "+folder)
	}
	if trained != nil {
		ran, giveUp = fmt.Sprintf("It has trained %s records", plan.Thousands(trained.Trained)), append(giveUp, "kale forget "+j.Name)
	}
	return hcl.Diagnostics{j.ErrorAt("checkpoint.dir", "The checkpoint that this job had is gone", fmt.Sprintf(
		"%s, and %s. Mount the folder, or bring back from a backup what is missing: a run would begin a new model. To give the model up: %s; the next run begins a new one.",
		ran, lost, strings.Join(giveUp, ", and ")))}
}

// trainedIn is what a job has trained whose checkpoint is where the file says, by what its last scheduler wrote; nil: nothing, or that is not known.
func trainedIn(j *job.Job, stateDir string) *Totals {
	want, err := (&Glance{}).read(stateDir)
	if err != nil || want == nil || want.Totals == nil || want.Totals.Trained == 0 || !sameFolder(want.checkpoint(), j.Checkpoint.Dir) {
		return nil
	}
	return want.Totals
}

// checkpoint is checkpoint.dir of what runs, or else of what ran last; "": nothing did.
func (d *desired) checkpoint() string { return cmp.Or(d.Checkpoint, d.LastCheckpoint) }

// hasJobRecord says that a checkpoint has a record of the job's state, whether or not it can be used.
func hasJobRecord(folder string) (bool, error) {
	_, err := os.ReadDir(filepath.Join(folder, rpc.JobStateFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return rpc.Holds(folder, rpc.JobStateFolder+"/*.json"), err
}
