package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/profile"
)

// profileFile keeps a job's profile in its state folder: beside state.db, which a scheduler holds while it runs.
const profileFile = "profile.json"

// Beside it are the profile that it replaced, and the last one that told less and did not replace it.
const (
	previousFile = "profile.previous.json"
	narrowFile   = "profile.narrow.json"
)

// better is the stored profile's extent as far as the job has so many workers, where it holds for the job as it is; of nothing where it does not, or there is none.
func better(l *loaded) (profile.Extent, *profile.Profile) {
	p, err := readProfile(l.dir)
	if err != nil || p.Emulated != (l.Workers.EmulateStep > 0) || len(p.Changed(conditions(l.Job))) > 0 {
		return profile.Extent{}, nil
	}
	return p.Extent(l.Workers.Max), p
}

// promised is how much a run tells if all goes well.
func promised(o profile.Options) profile.Extent {
	return profile.Extent{Points: len(o.Servers) * (len(o.Workers) + o.Extra), Least: o.Workers[0], Most: o.Workers[len(o.Workers)-1]}
}

// worthStoring refuses to measure what would not be stored.
func (f profileFlags) worthStoring(l *loaded, o profile.Options) error {
	has, p := better(l)
	if will := promised(o); !f.force && will.Less(has) {
		return usagef("the stored profile of job %q, of %s, has %s, and this would be %s: it would tell less of the same job. Measure as much, without -workers for all; "+
			"or replace it with -force, which keeps it beside as %s", l.Name, p.At.Local().Format("2006-01-02 15:04"), has, will, previousFile)
	}
	return nil
}

// storeProfile stores what was measured, and keeps what it replaces; beside the stored profile, where that tells more. It returns where.
func (a *app) storeProfile(l *loaded, p *profile.Profile, o profile.Options, force bool) (file string, err error) {
	got := p.Extent(l.Workers.Max)
	got.Points += max(0, promised(o).Points-len(p.Points)) // what would have told nothing more is not missed
	if has, old := better(l); !force && got.Less(has) {
		a.advise("Of this measurement only %s could be had, and the stored profile, of %s, has %s: it stays. What was measured now is in %s; -force would have put it in its place.\n",
			p.Extent(l.Workers.Max), old.At.Local().Format("2006-01-02 15:04"), has, filepath.Join(l.dir, narrowFile))
		return filepath.Join(l.dir, narrowFile), writeProfileTo(l.dir, narrowFile, p)
	}
	if raw, err := os.ReadFile(filepath.Join(l.dir, profileFile)); err == nil {
		previous := filepath.Join(l.dir, previousFile)
		if err := backend.WriteFileMode(previous, raw, 0o644); err != nil {
			return "", fmt.Errorf("keep the profile that is stored: %w", err)
		}
		a.advise("The profile before this one is kept in %s; to have it back, move it to %s.\n", previous, profileFile)
	}
	return filepath.Join(l.dir, profileFile), writeProfile(l.dir, p)
}

func writeProfile(dir string, p *profile.Profile) error { return writeProfileTo(dir, profileFile, p) }

func writeProfileTo(dir, name string, p *profile.Profile) error {
	raw, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = backend.WriteFileMode(filepath.Join(dir, name), append(raw, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("store the profile: %w", err)
	}
	return nil
}

// readProfile reads a job's profile. os.ErrNotExist is in the error's chain where there is none.
func readProfile(dir string) (*profile.Profile, error) {
	path := filepath.Join(dir, profileFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("read the profile: %s is a folder: remove it; kale profile measures anew", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	p := &profile.Profile{}
	if err = json.Unmarshal(raw, p); err == nil {
		err = p.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("read the profile %s: %w; kale profile measures anew", path, err)
	}
	return p, nil
}
