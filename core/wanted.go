package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/kale-sched/kale/core/state"
)

// Wanted is what a job's scheduler wants to run, and what it knows of what runs, as it wrote it down before it acted on it: what a job file that was changed since is
// held against, and what a preview decides from. It has no secret. A nil one says that nothing is known to be wanted.
type Wanted desired

// WantedAt reads what is wanted in a job's state folder; nil: nothing was written there. state.ErrLocked: a scheduler has it open, and can be asked (core/api).
func WantedAt(dir string) (*Wanted, error) {
	st, err := state.OpenReader(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w, err := WantedIn(st)
	return w, errors.Join(err, st.Close())
}

// WantedIn is WantedAt for who has the state open.
func WantedIn(st *state.Store) (*Wanted, error) {
	d, err := savedDesired(st)
	if err != nil || d == nil {
		return nil, err
	}
	d.Token = ""
	return (*Wanted)(d), nil
}

// savedDesired reads the desired state; nil: there is none.
func savedDesired(st *state.Store) (*desired, error) {
	var d desired
	found, err := st.Get(desiredKey, &d)
	if err != nil || !found {
		return nil, err
	}
	if d.migrate(); d.Version != desiredVersion {
		return nil, fmt.Errorf("the job's state is of version %d and this program knows %d: use the program that wrote it", d.Version, desiredVersion)
	}
	return &d, nil
}

// copy makes d what is wanted by w's word, nothing of which d shares then; nil: d stays as it is.
func (d *desired) copy(w *Wanted) error {
	if w == nil {
		return nil
	}
	raw, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("copy what the job's scheduler wants: %w", err)
	}
	return json.Unmarshal(raw, d)
}

// Runs says that the job is wanted to run.
func (w *Wanted) Runs() bool { return w != nil && w.Target > 0 }
