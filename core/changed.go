package core

import (
	"fmt"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/job"
)

// AsItRuns is a job as what runs of it was started, by what its last scheduler wrote: its checkpoint is where that was, whatever the file says now. It is for
// who ends the job or looks at it; a scheduler that would go on with another folder is refused (CheckRunning).
func AsItRuns(j *job.Job, stateDir string) *job.Job {
	want, err := WantedAt(stateDir)
	if err != nil || want == nil || want.Checkpoint == "" || want.Checkpoint == j.Checkpoint.Dir {
		return j
	}
	then := *j
	then.Checkpoint.Dir = want.Checkpoint
	return &then
}

// CheckRunning says, as diagnostics of the job file, what was changed in it that a job which runs cannot take.
func CheckRunning(j *job.Job, want *Wanted) (diags hcl.Diagnostics) {
	if !want.Runs() {
		return nil
	}
	advice := fmt.Sprintf("Undo the change; or stop the job first, with kale stop %s, which ends what runs as it was started.", j.Name)
	if was := want.Checkpoint; was != "" && !sameFolder(was, j.Checkpoint.Dir) {
		diags = append(diags, j.ErrorAt("checkpoint.dir", "The job runs with its checkpoint in another folder", fmt.Sprintf(
			"It runs with its checkpoint in %s. In %s nobody would find its chief, and the model would begin anew. %s", was, j.Checkpoint.Dir, advice)))
	}
	return append(diags, otherBackend(j, want)...)
}

// CheckSameBackend is the part of CheckRunning that forbids to end the job too, or to look at it: another backend knows nothing of what runs.
func CheckSameBackend(j *job.Job, stateDir string) hcl.Diagnostics {
	want, err := WantedAt(stateDir)
	if err != nil || want == nil {
		return nil
	}
	return otherBackend(j, want)
}

func otherBackend(j *job.Job, want *Wanted) hcl.Diagnostics {
	was := want.Backend
	if was == "" || was == j.Backend.Name {
		return nil
	}
	return hcl.Diagnostics{j.ErrorAt("backend", "The job runs on another backend", fmt.Sprintf(
		"What was started of it is on backend %q, of which backend %q knows nothing. Put the block of %q back; to move the job, stop it first, with kale stop %s.", was, j.Backend.Name, was, j.Name))}
}

// sameFolder says that two paths lead to one folder.
func sameFolder(a, b string) bool { return a == b || resolved(a) == resolved(b) }

// resolved is a path without symbolic links, as far as it is there.
func resolved(path string) string {
	if full, err := filepath.EvalSymlinks(path); err == nil {
		return full
	}
	above := filepath.Dir(path)
	if above == path {
		return path
	}
	return filepath.Join(resolved(above), filepath.Base(path))
}
