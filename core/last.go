package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/state"
)

// Keeper is the scheduler that has a job, or had it last, as what lies beside the job's checkpoint says. It may have its state in a folder of its own, on this
// machine or another.
type Keeper struct {
	Holder
	// Stopped: it ended because the job had stopped.
	Stopped bool `json:"stopped,omitempty"`
	// Held: it lives, or is believed to. Until is else when it gave its last sign of life.
	Held  bool      `json:"held"`
	Until time.Time `json:"until,omitzero"`

	job *job.Job // whose; nil where that is not known
}

// HeldKeeper is the scheduler that holds a job, as others see it; nil: none does.
func HeldKeeper(j *job.Job) (*Keeper, *HeldError, error) {
	held, err := HeldBy(j)
	if err != nil || held == nil {
		return nil, nil, err
	}
	return &Keeper{Holder: held.By, Held: true, job: j}, held, nil
}

func (l *Lease) lastFile() string { return filepath.Join(l.dir, l.prefix()+"last") }

// noteLast leaves word of this scheduler, which ends. Where that cannot be written, its lease is left as the word.
func (l *Lease) noteLast() {
	raw, err := json.MarshalIndent(Keeper{Holder: l.me, Stopped: l.stopped.Load()}, "", "  ")
	if err == nil {
		err = backend.WriteFileMode(l.lastFile(), append(raw, '\n'), 0o644)
	}
	if err != nil {
		_ = os.Rename(l.file(l.number), l.lastFile())
	}
}

// KeeperOf says who has a job, or had it last; nil where nobody is known to.
func KeeperOf(j *job.Job) (*Keeper, error) {
	l := &Lease{job: j.Name, dir: j.Checkpoint.Dir}
	if k, _, err := HeldKeeper(j); err != nil || k != nil {
		return k, err
	}
	numbers, err := l.numbers()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, l.failed(err)
	}
	path, k := l.lastFile(), &Keeper{}
	if top := highest(numbers); top > 0 { // it was killed
		path = l.file(top)
	}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, k)
	}
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(statErr, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s, which says who looked after job %q last: %w (remove the file: nothing depends on it)", path, j.Name, err)
	case statErr != nil:
		return nil, statErr
	}
	k.Held, k.Until = false, info.ModTime()
	return k, nil
}

// Elsewhere says that the keeper's state is not in a folder of this machine.
func (k *Keeper) Elsewhere(stateDir string) bool {
	if k.StateDir != stateDir {
		return true
	}
	me := thisHolder(stateDir)
	if k.Host == me.Host || k.Near(me.Origin) {
		return false
	}
	info, err := os.Stat(filepath.Join(stateDir, "state.db")) // a container that was started again has another name, and the folder that it had
	return err != nil || info.ModTime().Before(k.Since)
}

// Bereft says that the keeper lives on this machine and has its state in no folder any more: somebody has moved or removed it. Nothing reaches it then.
func (k *Keeper) Bereft() bool {
	if !k.Held || k.Elsewhere(k.StateDir) {
		return false
	}
	st, err := state.OpenReader(k.StateDir)
	switch {
	case err == nil: // one that somebody has made meanwhile, or its own, which a scheduler that ends lets go of right after its lease
		err = st.Close()
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return false
	}
	return k.job == nil || k.holds()
}

// holds says that the keeper has its lease still.
func (k *Keeper) holds() bool {
	held, err := HeldBy(k.job)
	return err == nil && held != nil && held.By.Nonce == k.Nonce
}

// Forgotten says that the keeper's state folder was on this machine and is there no more.
func (k *Keeper) Forgotten() bool {
	me := thisHolder(k.StateDir)
	if k.Host != me.Host && !k.Near(me.Origin) {
		return false
	}
	_, err := os.Stat(k.StateDir)
	return errors.Is(err, fs.ErrNotExist)
}

// GlanceElsewhere is what can be told of a job whose scheduler has, or had, its state in another folder, or in none any more: what that one is, and what the chief and, unless list
// is nil, the backend say now.
func GlanceElsewhere(ctx context.Context, j *job.Job, k *Keeper, list Lister) *Glance {
	until := k.Until.Local().Format("2006-01-02 15:04:05")
	if k.Stopped && !k.Held {
		return &Glance{Job: j.Name, State: StateStopped, Now: time.Now(), Elsewhere: k,
			Says: fmt.Sprintf("it was stopped at %s, by %s; %s", until, k.Words(), ModelWords(j.Checkpoint.Dir, j.Name))}
	}
	says := k.Words() + " looks after it"
	if !k.Held {
		says = fmt.Sprintf("no scheduler looks after it since %s, when %s ended", until, k.Words())
	}
	g := glanceNow(ctx, j, says, unheard{"its chief does not answer", "its chief and the backend do not answer"}, list)
	g.Scheduler, g.Elsewhere = k.Held, k
	return g
}

// GlanceLost is what can be told of a job that its last scheduler left running in a state folder that knows nothing of that any more: what the chief and the backend say now.
// Of one that had stopped it tells where its model is. nil: nothing was ever trained, or a scheduler has it.
func GlanceLost(ctx context.Context, j *job.Job, k *Keeper, list Lister) *Glance {
	switch {
	case k.Held, k.Stopped && !hasSnapshot(CheckpointFolder(j)):
		return nil
	case k.Stopped:
		return &Glance{Job: j.Name, State: StateStopped, Now: time.Now(), Says: fmt.Sprintf("it was stopped at %s, and what the scheduler knew of it was forgotten; %s",
			k.Until.Local().Format("2006-01-02 15:04:05"), ModelWords(j.Checkpoint.Dir, j.Name))}
	}
	lost := ""
	if _, err := os.Stat(k.StateDir); errors.Is(err, fs.ErrNotExist) {
		lost = fmt.Sprintf("its state folder %s is gone, ", k.StateDir)
	}
	s := &Scheduler{job: j, want: &desired{}, seen: &seen{}}
	s.glance(ctx, list)
	n := s.seen
	if n.chiefErr != nil && n.listErr == nil && n.complete && n.alive() == 0 {
		if !hasSnapshot(CheckpointFolder(j)) {
			return nil
		}
		return &Glance{Job: j.Name, State: StateGone, Now: time.Now(), Says: lost + "nothing of it runs any more; " + ModelWords(j.Checkpoint.Dir, j.Name)}
	}
	g := s.glanceOf(lost+"no scheduler looks after it", unheard{"its chief does not answer", "its chief and the backend do not answer"}, true)
	g.Scheduler = false
	return g
}
