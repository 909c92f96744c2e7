package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// Holder is a scheduler, as others that share its job's checkpoint folder see it.
type Holder struct {
	backend.Origin
	Process  backend.Process `json:"process"`
	Since    time.Time       `json:"since"`
	StateDir string          `json:"state_dir"`
	// Nonce tells one lease from every other: numbers begin again when a lease was given back.
	Nonce string `json:"nonce"`
}

// thisHolder is this process as a scheduler with its state in a folder. What cannot be told stays empty: then others go by the lease's age.
func thisHolder(stateDir string) Holder {
	h := Holder{Origin: backend.ThisOrigin(), Since: time.Now().UTC(), StateDir: stateDir, Nonce: rand.Text()}
	h.Process, _ = backend.ProcessOf(os.Getpid())
	h.Process.PID = os.Getpid()
	return h
}

// near says that whether a holder lives can be seen from here: by its process, at once.
func (h Holder) near(me Holder) bool {
	return h.Near(me.Origin) && h.Process.Start != 0
}

// Words name a holder for people: "process 4711 of ann on host gpu-3 (since 2026-11-22 06:02:11, state in /home/ann/.local/state/kale/ctr)".
func (h Holder) Words() string {
	return fmt.Sprintf("process %d of %s on host %s (since %s, state in %s)",
		h.Process.PID, cmp.Or(h.User, "somebody"), cmp.Or(h.Host, "unknown"), h.Since.Local().Format("2006-01-02 15:04:05"), cmp.Or(h.StateDir, "a folder that is not known"))
}

// readHolder reads a lease. A file that is damaged says so, and what to do.
func readHolder(path string) (h Holder, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(raw, &h); err != nil || h.Process.PID == 0 {
		return h, fmt.Errorf("%s says which scheduler has the job, and is damaged (%w): where no scheduler of the job runs, remove the file",
			path, cmp.Or(err, errors.New("it names no process")))
	}
	return h, nil
}

// HeldError says that another scheduler has the job.
type HeldError struct {
	Job, Folder string // Folder is the checkpoint folder
	By          Holder
	// Near: it lives, as can be seen from here. Otherwise it is believed to, until it has said nothing for leaseLapse.
	Near  bool
	Quiet time.Duration // for how long it has said nothing
}

func (e *HeldError) Error() string {
	end, last := EndWords(e.By.Process.PID, e.Near), ""
	if !e.Near {
		last = fmt.Sprintf("; it last said so %s ago, and counts as gone after %s", job.Length(e.Quiet.Round(time.Second)), job.Length(leaseLapse))
	}
	return fmt.Sprintf("job %q has a scheduler: %s keeps the job whose checkpoint is in %s%s. %s. kale run -take-over takes the job from it",
		e.Job, e.By.Words(), e.Folder, last, end)
}

// EndWords say how to end a scheduler alone. Where near, its process can be seen from here.
func EndWords(pid int, near bool) string {
	switch {
	case near && backend.Suspended(pid):
		return fmt.Sprintf("It is suspended: kill -CONT %d lets it go on, and kill -9 %d ends it alone: training goes on", pid, pid)
	case near:
		return fmt.Sprintf("To end it alone, press Ctrl-C where it runs, or kill %d: training goes on", pid)
	}
	return fmt.Sprintf("To end it alone, press Ctrl-C where it runs, or kill %d there: training goes on (where it is suspended, kill -CONT %d lets it go on, and kill -9 %d ends it)", pid, pid, pid)
}

// Patience is for how long in all who has waited for some time waits for the holder: until one that cannot be seen, and has given no sign of life meanwhile,
// counts as gone. 0: it lives.
func (e *HeldError) Patience(waited time.Duration) time.Duration {
	if e.Near || e.Quiet < waited {
		return 0
	}
	return waited + leaseLapse - e.Quiet + leaseEvery
}

// LostError says that this scheduler had the job and has it no more.
type LostError struct {
	Job string
	By  *Holder // nil: it is not known who has it now
}

func (e *LostError) Error() string {
	who := "another scheduler has taken it over, whose lease beside the checkpoint is damaged"
	if e.By != nil {
		who = e.By.Words() + " has taken it over"
	}
	return fmt.Sprintf("job %q is this scheduler's no more: %s. This one touches nothing more, and training goes on", e.Job, who)
}

// jobOwner says whose the job's processes are: the job's that has its checkpoint where this one has it, by whatever links.
func jobOwner(j *job.Job) backend.Owner {
	folder := resolved(CheckpointFolder(j))
	sum := sha256.Sum256([]byte(folder))
	me := thisHolder("")
	return backend.Owner{ID: hex.EncodeToString(sum[:8]), Words: fmt.Sprintf("the one whose checkpoint is in %s, run by %s from host %s", folder, me.User, me.Host)}
}

// nameTaken is an error at the job's name where the cluster has it for another job. The backend must have been configured.
func nameTaken(ctx context.Context, o Options) hcl.Diagnostics {
	_, _, err := o.Backend.List(ctx, o.Job.Name)
	if err == nil || backend.CodeOf(err) != backend.Conflict {
		return nil
	}
	return hcl.Diagnostics{o.Job.ErrorAt("name", "The name is taken", backend.AsError(err).Own()+".")}
}
