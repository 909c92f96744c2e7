package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// CheckModel says, as a diagnostic of the job file, that the checkpoint which the job had is not there: the trainers would begin a new model in its place. That there
// was one is known from what the job's scheduler wrote down, and from what remains in the checkpoint folder. It warns of a checkpoint that is older than that.
func CheckModel(j *job.Job, want *Wanted) hcl.Diagnostics {
	folder := CheckpointFolder(j)
	trained, ran := trainedIn(j, (*desired)(want))
	recorded, err := rpc.HasJobState(folder)
	remains := rpc.Remains(folder)
	instead, damaged := jobStateDamage(folder)
	var lost string
	switch {
	case err != nil:
		return nil // who needs it says what is wrong with it
	case damaged != nil:
		return hcl.Diagnostics{j.ErrorAt("checkpoint.dir", damagedCheckpoint, fmt.Sprintf("%s. Without it nothing else of the checkpoint can be used. %s",
			capital(damaged.Error()), giveUpModel(j, want, ran, true)))}
	case !recorded && len(remains) > 0:
		lost = lostState(folder, remains)
	case !recorded && !ran:
		return movedModel(j, (*desired)(want))
	case !recorded:
		lost = fmt.Sprintf("there is no checkpoint in %s any more", folder)
	case trained == nil || !trained.Final || rpc.Holds(folder, "tablets/*/*.snap") || rpc.Holds(folder, "written/*/*.json"):
		return append(mended(j, instead), olderModel(j, trained)...) // of what is lost the trainers know which tablets there were, or there was no snapshot yet
	default:
		lost = fmt.Sprintf("no snapshot is in %s any more", filepath.Join(folder, "tablets"))
	}
	words := "It has run before"
	if trained != nil {
		words = fmt.Sprintf("It has trained %s records", plan.Thousands(trained.Trained))
	}
	return hcl.Diagnostics{j.ErrorAt("checkpoint.dir", "The checkpoint that this job had is gone", fmt.Sprintf(
		"%s, and %s. Mount the folder, or bring back from a backup what is missing: a run would begin a new model. %s",
		words, lost, giveUpModel(j, want, ran, recorded || len(remains) > 0)))}
}

const damagedCheckpoint = "The checkpoint of this job is damaged"

// giveUpModel says how to give a model up that cannot be used any more. ran: the job has had workers there; rest: something is left in its folder.
func giveUpModel(j *job.Job, want *Wanted, ran, rest bool) string {
	var do []string
	if want.Runs() {
		do = append(do, "kale stop -force "+j.Name)
	}
	if rest {
		do = append(do, "remove "+CheckpointFolder(j))
	}
	if ran {
		do = append(do, "kale forget "+j.Name)
	}
	return fmt.Sprintf("To give the model up: %s; the next run begins a new one.", strings.Join(do, ", and "))
}

// jobStateDamage says what is wrong with the files of a job's state: damaged, that it cannot be used; instead, that a copy of it is.
func jobStateDamage(folder string) (instead, damaged error) {
	var any json.RawMessage
	if instead, damaged = rpc.ReadJobState(folder, &any); !errors.Is(damaged, rpc.ErrDamaged) {
		damaged = nil
	}
	return instead, damaged
}

// mended warns that the job's state was damaged, and is not lost.
func mended(j *job.Job, instead error) hcl.Diagnostics {
	if instead == nil {
		return nil
	}
	return hcl.Diagnostics{j.WarningAt("checkpoint.dir", "A file of the checkpoint was damaged", fmt.Sprintf(
		"%s. Its copy beside it is good, and is taken: nothing is lost, and the job's first server writes the file anew. See that the disk is sound.", capital(instead.Error())))}
}

// movedModel warns that the job has trained elsewhere than where its file looks for its checkpoint now, where there is none.
func movedModel(j *job.Job, want *desired) hcl.Diagnostics {
	if want == nil || !want.hasModel() || want.checkpoint() == "" || want.Target > 0 {
		return nil // it never had one, or CheckRunning refuses another folder
	}
	return hcl.Diagnostics{j.WarningAt("checkpoint.dir", "A new model begins here", fmt.Sprintf(
		"The job has trained before, with its checkpoint in %s, and there is none in %s: a run begins a new model. To go on with the one that there is, put the folder back as it was, or move the checkpoint here.",
		filepath.Join(want.checkpoint(), j.Name), CheckpointFolder(j)))}
}

// olderModel warns that the snapshots have fewer records than the job had trained when it was stopped, of which it had written all.
func olderModel(j *job.Job, trained *Totals) hcl.Diagnostics {
	has, less := snapshotsLack(j, trained)
	if !less || !trained.Final {
		return nil
	}
	had := trained.Trained + trained.Dead
	return hcl.Diagnostics{j.WarningAt("checkpoint.dir", "The checkpoint is older than what this job has trained", fmt.Sprintf(
		"It had %s records when it was stopped, and the snapshots in %s have %s: they are an older copy. A run trains the others again, as far as the topic still has them.",
		plan.Thousands(had), CheckpointFolder(j), plan.Thousands(has)))}
}

// snapshotsLack says how many records the snapshots of a job that does not run have, dead ones included, where they are fewer than it is known to have trained.
func snapshotsLack(j *job.Job, trained *Totals) (has uint64, less bool) {
	r, ok := readJobRecord(j)
	if !ok || trained == nil {
		return 0, false
	}
	has, known := rpc.RestoreRecords(CheckpointFolder(j), r.Timeline, r.Servers)
	return has, known && has < trained.Trained+trained.Dead
}

// hasModel says that the job has a checkpoint, as far as its scheduler knows: it has trained, or its state was seen there. From then on nobody makes it anew.
func (s *Scheduler) hasModel() bool { return s.modelSeen || s.want.hasModel() }

func (d *desired) hasModel() bool { return d.Trained || d.Totals != nil && d.Totals.Trained > 0 }

// modelGone says that the job's state is not in its checkpoint folder, where every job has it that ever had a chief.
func modelGone(j *job.Job) bool {
	recorded, err := rpc.HasJobState(CheckpointFolder(j))
	return err == nil && !recorded
}

// goneWords say what a checkpoint folder that was taken away under a job means, and what to do.
func goneWords(j *job.Job) string {
	what, back := gone(j)
	return fmt.Sprintf("%s: %s. The model is only in the memory of the servers that still run: nothing is started, ended or replaced until then, and with it back the job goes on by itself. "+
		"To give the model up: kale stop -force %[3]s, remove what is left of %[4]s, and kale forget %[3]s; the next run begins a new one", what, back, j.Name, CheckpointFolder(j))
}

// gone is what a job's checkpoint lacks, and how it is brought back. A folder that the nodes do not share looks from here like one that was taken away.
func gone(j *job.Job) (what, back string) {
	folder := CheckpointFolder(j)
	what, back = fmt.Sprintf("the checkpoint folder %s is gone", folder), "mount it or bring it back"
	if remains := rpc.Remains(folder); len(remains) > 0 {
		what = lostState(folder, remains)
		back = "the parameter server 0 that had it writes it anew within seconds, where that runs still; one that was started since cannot: then bring it back from a backup"
	}
	if j.Backend.Name != job.BackendLocal {
		what += " from this machine, or the nodes on which the servers run never shared it (kale doctor tries that)"
	}
	return what, back
}

// lostState says that a checkpoint lacks the job's state.
func lostState(folder string, remains []string) string {
	what := filepath.Join(folder, rpc.JobStateFolder)
	if stateFolder(folder) {
		what = "the file of the job's state in " + what
	}
	return fmt.Sprintf("%s is lost, without which what is left of its checkpoint (%s) cannot be used", what, strings.Join(remains, ", "))
}

// stateFolder says that the folder of the job's state is there.
func stateFolder(folder string) bool {
	info, err := os.Stat(filepath.Join(folder, rpc.JobStateFolder))
	return err == nil && info.IsDir()
}

// trainedIn is what a job has trained whose checkpoint is where the file says, by what its scheduler wrote; nil: nothing, or that is not known. ran: it has had
// workers there.
func trainedIn(j *job.Job, want *desired) (t *Totals, ran bool) {
	if want == nil || !want.hasModel() || !sameFolder(want.checkpoint(), j.Checkpoint.Dir) {
		return nil, false
	}
	if t = want.Totals; t != nil && t.Trained == 0 {
		t = nil
	}
	return t, true
}

// servesStill says that a parameter server of a job may live, which has the model in its memory.
func servesStill(ctx context.Context, o Options) bool {
	list, complete, err := o.list(ctx)
	return err != nil || !complete || slices.ContainsFunc(list, func(st backend.Status) bool { return st.ID.Role == backend.RoleServer && st.State.Live() })
}

// checkpoint is checkpoint.dir of what runs, or else of what ran last; "": nothing did.
func (d *desired) checkpoint() string { return cmp.Or(d.Checkpoint, d.LastCheckpoint) }
