package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// What the scheduler keeps in the job's checkpoint folder, beside what the trainers keep there: it must outlive the scheduler's own state, since
// without the token a job that runs cannot be spoken to, and without the shape nobody can say what was changed in its file.
const (
	tokenFile = "token"
	shapeFile = "shape.json"
)

// tokenForm is that of every token: what a message can carry.
var tokenForm = regexp.MustCompile(`^[!-~]{1,512}$`)

const tokenAdvice = "remove it; if the job still runs, end it with kale stop -force first"

// CheckpointFolder is where a job's checkpoint is.
func CheckpointFolder(j *job.Job) string { return filepath.Join(j.Checkpoint.Dir, j.Name) }

// readToken reads the token under which a job's processes run; "" when none was kept yet.
func readToken(j *job.Job) (string, error) {
	path := filepath.Join(j.Checkpoint.Dir, j.Name, tokenFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("read the token of job %q: %w: run the scheduler as the user who started the job", j.Name, err)
	case errors.Is(err, syscall.EISDIR):
		return "", fmt.Errorf("read the token of job %q: %s is a folder: %s", j.Name, path, tokenAdvice)
	case err != nil:
		return "", fmt.Errorf("read the token of job %q: %w", j.Name, err)
	}
	token := strings.TrimSpace(string(raw))
	switch {
	case token == "":
		return "", fmt.Errorf("read the token of job %q: %s is empty: %s", j.Name, path, tokenAdvice)
	case !tokenForm.MatchString(token):
		return "", fmt.Errorf("read the token of job %q: what is in %s is no token: %s", j.Name, path, tokenAdvice)
	}
	return token, nil
}

// keepToken puts the token where readToken finds it, readable by its owner only, unless there is one.
func keepToken(j *job.Job, token string) error {
	dir := filepath.Join(j.Checkpoint.Dir, j.Name)
	path := filepath.Join(dir, tokenFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	draft, err := backend.WriteDraft(path, []byte(token+"\n"), 0o600)
	if err == nil {
		err = os.Link(draft, path) // never replaces one
		_ = os.Remove(draft)       // a draft that stays harms nobody
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep the token of job %q in its checkpoint folder: %w", j.Name, err)
	}
	return nil
}

// keptShape is what the checkpoint's fingerprint stands for, and what the job began with that no later file changes: "" and nil of one that an older version began.
type keptShape struct {
	job.Shape
	Start string `json:"stream.start,omitempty"`
	Seed  *int64 `json:"model.seed,omitempty"`
}

// readShape reads what keepShape wrote.
func readShape(j *job.Job) (kept keptShape, err error) {
	raw, err := os.ReadFile(filepath.Join(CheckpointFolder(j), shapeFile))
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	return kept, err
}

// keepShape notes the shape of a checkpoint that has just begun, or is gone on from.
func keepShape(j *job.Job) error {
	kept, err := readShape(j)
	if errors.Is(err, fs.ErrNotExist) {
		kept.Start, kept.Seed = TrainSpec(j, "").GetStream().GetStart(), &j.Model.Seed
	}
	kept.Shape = j.Shape()
	if err := backend.WriteJSON(filepath.Join(CheckpointFolder(j), shapeFile), kept); err != nil {
		return fmt.Errorf("keep the shape of job %q in its checkpoint folder: %w", j.Name, err)
	}
	return nil
}

// jobRecord is the part of the chief's durable state (trainer/checkpoint) that says which job files may go on from it.
type jobRecord struct {
	Timeline    string `json:"timeline"`
	Fingerprint string `json:"fingerprint"`
	TopicID     string `json:"topic_id"`
	Tablets     int    `json:"tablets"`
	Servers     int    `json:"servers"`
	// Starts is where the first record of each partition was read; what is below is nobody's business.
	Starts map[int32]int64 `json:"starts"`
}

// readJobRecord reads the newest record of the job's state; ok is false when there is none, or none that can be read: then the trainers judge.
func readJobRecord(j *job.Job) (r jobRecord, ok bool) {
	_, err := rpc.ReadJobState(CheckpointFolder(j), &r)
	return r, err == nil && r.Fingerprint != ""
}

// CheckFolder says, as diagnostics of the job file, why the job's checkpoint folder cannot be used from this machine. It writes nothing: a
// folder that is not there yet must be one that can be made.
func CheckFolder(j *job.Job) hcl.Diagnostics {
	fail := func(summary, detail string, args ...any) hcl.Diagnostics {
		return hcl.Diagnostics{j.ErrorAt("checkpoint.dir", summary, fmt.Sprintf(detail, args...))}
	}
	for dir := filepath.Join(j.Checkpoint.Dir, j.Name); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			if dir != filepath.Dir(dir) {
				continue
			}
			return fail("No checkpoint folder", "%s: %v.", dir, err)
		case errors.Is(err, fs.ErrPermission):
			return fail("The checkpoint folder cannot be reached", "%v. Run Kale as a user who may, or choose another folder.", err)
		case err != nil:
			return fail("The checkpoint folder cannot be reached", "%v.", err)
		case !info.IsDir():
			return fail("The checkpoint folder is a file", "%s is a file, and checkpoint.dir needs a folder. Move it away, or choose another folder.", dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fail("The checkpoint folder cannot be written", "%s: %v. Snapshots go to %s: change its permissions, or choose another folder.", dir, err, filepath.Join(j.Checkpoint.Dir, j.Name))
		}
		if err := tryWriting(dir); err != nil {
			advice := "choose another folder"
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) { // in another one a job that has trained would begin anew
				advice = "free some space there"
			}
			return fail("The checkpoint folder cannot be written", "%v. Snapshots go to %s: %s.", err, filepath.Join(j.Checkpoint.Dir, j.Name), advice)
		}
		return nil
	}
}

// tryWriting makes a folder with a file in a folder, and removes both: permissions do not tell of file systems that take nothing.
func tryWriting(dir string) (err error) {
	trial, err := os.MkdirTemp(dir, ".kale-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(trial)) }()
	return os.WriteFile(filepath.Join(trial, "file"), []byte("kale"), 0o600)
}

// CheckCheckpoint says, as diagnostics of the job file, what was changed in it that the job's checkpoint does not allow, and, as warnings, what it makes meaningless. The trainers would refuse it
// too, but only when one of them starts, and until then workers of both shapes could meet.
func CheckCheckpoint(j *job.Job) hcl.Diagnostics {
	r, ok := readJobRecord(j)
	if !ok {
		return nil
	}
	advice := fmt.Sprintf("Undo the change, or set checkpoint.dir to an empty folder to train a new model. The checkpoint is in %s.", filepath.Join(j.Checkpoint.Dir, j.Name))
	var diags hcl.Diagnostics
	kept, err := readShape(j)
	if r.Fingerprint != j.Fingerprint() {
		var changes []string
		if err == nil {
			changes = j.Shape().Changes(kept.Shape)
		}
		for _, c := range changes {
			path, _, _ := strings.Cut(c, " ")
			diags = append(diags, j.ErrorAt(path, "The checkpoint belongs to another model", c+". "+advice))
		}
		if len(changes) == 0 {
			diags = append(diags, j.ErrorAt("model", "The checkpoint belongs to another model",
				fmt.Sprintf("Its model, features or topic are not those of this file (fingerprint %s, the file gives %s). %s", r.Fingerprint, j.Fingerprint(), advice)))
		}
	}
	if r.Servers > 0 && r.Servers != j.Servers.Count {
		diags = append(diags, j.ErrorAt("servers.count", "The number of servers cannot be changed yet",
			fmt.Sprintf("The checkpoint was made with %d parameter servers and the file says %d. %s", r.Servers, j.Servers.Count, advice)))
	}
	return append(diags, otherBeginning(j, kept)...)
}

// otherBeginning warns of what was changed in the file of a job that has begun, and is only for one that begins.
func otherBeginning(j *job.Job, began keptShape) (diags hcl.Diagnostics) {
	advice := fmt.Sprintf("For a job that begins with it, set checkpoint.dir to an empty folder. The checkpoint is in %s.", CheckpointFolder(j))
	if start := TrainSpec(j, "").GetStream().GetStart(); began.Start != "" && began.Start != start {
		diags = append(diags, j.WarningAt("stream.start", "This job has begun already", fmt.Sprintf(
			"It began at start = %q and goes on where it has got to; %q changes nothing of that. %s", began.Start, start, advice)))
	}
	if began.Seed != nil && *began.Seed != j.Model.Seed {
		does := "changes nothing of that"
		if j.Model.Kind == job.ModelDeepFM {
			does = "is only that of the embeddings of values which come for the first time after kale stop and kale run"
		}
		diags = append(diags, j.WarningAt("model.seed", "This model has begun already", fmt.Sprintf(
			"It began with seed %d and keeps what it has learnt; %d %s. %s", *began.Seed, j.Model.Seed, does, advice)))
	}
	return diags
}
