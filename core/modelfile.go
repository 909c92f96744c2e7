package core

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/forecast"
)

// The file that forecast.model names may be written anew, or removed, while the model that was read from it is in use. A person is told that, and what is trained
// anew is held against a copy of what is in use, in the state folder.

// inUseFile is the copy's name.
const inUseFile = "forecast-inuse.onnx"

// modelFile is what is known of the file of forecast.model.
type modelFile struct {
	seen, settled os.FileInfo // as it was at the last look, and as it was when it was last read; nil: it was not there
	read          bool
}

// modelFileAt is the file as it is before it is read.
func modelFileAt(path string) (f modelFile) {
	if info, err := os.Stat(path); err == nil {
		f = modelFile{seen: info, settled: info, read: true}
	}
	return f
}

// keepModel copies the job file's model into the state folder. The copy is of use only where it is the model that was read: see [Scheduler.inUse].
func (s *Scheduler) keepModel() error {
	path := s.job.Forecast.ModelFile()
	if path == "" {
		return nil
	}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = backend.WriteFileMode(filepath.Join(s.opt.StateDir, inUseFile), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep a copy of the forecast model of job %q, which those that are trained anew are held against: %w", s.job.Name, err)
	}
	return nil
}

// inUse is a file that has the model in use, as ForecastTraining.Current.
func (s *Scheduler) inUse() (string, error) {
	m := s.foresee.model
	if m == nil {
		return s.foresee.path, nil
	}
	path := s.foresee.path
	if path == s.job.Forecast.ModelFile() {
		path = filepath.Join(s.opt.StateDir, inUseFile)
	}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = s.foresee.fits(raw, m.ID())
	}
	if err != nil {
		return "", fmt.Errorf("the model in use, which it is to be held against, is not to be had: %w", err)
	}
	return path, nil
}

// lookAtModel tells a person that the file of forecast.model has changed, and what that means: nothing, until a scheduler begins anew. A file that changes still is
// looked at later.
func (s *Scheduler) lookAtModel(now time.Time) {
	path := s.job.Forecast.ModelFile()
	if path == "" || s.foresee.model == nil {
		return
	}
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	f := &s.named
	still := sameFile(f.seen, info)
	if f.seen = info; !still || f.read && sameFile(f.settled, info) {
		return
	}
	f.settled, f.read = info, true
	id, what := "", "is not there any more"
	if raw, err := os.ReadFile(path); err == nil {
		if m, err := forecast.ReadModelInfo(raw); err == nil {
			id, what = m.ID, "is another model than the one that was read from it"
		} else {
			what = fmt.Sprintf("cannot be used any more (%v)", err)
		}
	}
	if id == s.foresee.fileID {
		return
	}
	text := fmt.Sprintf("%s, which forecast.model names, %s: kale run goes by what it has read until it begins anew", path, what)
	s.lg.Warn("the forecast model's file has changed", "file", path, "what", what)
	s.want.remember(Note{At: now, Text: text})
}

// sameFile says whether nothing was written between two looks at a file.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
