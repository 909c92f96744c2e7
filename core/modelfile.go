package core

import (
	"errors"
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
	reading       *modelRead // under way, or not told yet; nil: none
}

// modelRead is one reading of the file, beside the ticks: it may be large. What it came to may be read when done is closed.
type modelRead struct {
	done     chan struct{}
	id, what string // its model, and what became of it, for people
}

// looked is closed when no reading is under way.
func (f *modelFile) looked() <-chan struct{} {
	if f.reading != nil {
		return f.reading.done
	}
	none := make(chan struct{})
	close(none)
	return none
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
	if s.store == nil { // a preview changes nothing: another scheduler may be at it
		return nil
	}
	path := s.job.Forecast.ModelFile()
	if path == "" {
		_ = os.Remove(filepath.Join(s.opt.StateDir, inUseFile)) // of a model that the job file named before
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

// dropModels removes what trainings have left in the state folder of a job that has none any more: a scheduler that was killed leaves it. What was promoted stays, for
// when the job file has forecast.retrain again.
func (s *Scheduler) dropModels() {
	if s.store == nil {
		return
	}
	removeCandidate(filepath.Join(s.opt.StateDir, candidateFile))
	_ = os.Remove(filepath.Join(s.opt.StateDir, inUseFile))
}

// inUse says how the file that has the model in use is found, as ForecastTraining.Current: any goroutine may do it.
func (s *Scheduler) inUse() func() (string, error) {
	path, m, fits := s.foresee.path, s.foresee.model, s.foresee.fits
	if m == nil {
		return func() (string, error) { return path, nil }
	}
	promoted, dir, lg := true, s.opt.StateDir, s.lg
	if path == s.job.Forecast.ModelFile() {
		path, promoted = filepath.Join(dir, inUseFile), false
	}
	return func() (string, error) {
		raw, err := os.ReadFile(path)
		if err == nil {
			err = fits(raw, m.ID())
		}
		if err != nil && promoted {
			_, err = mend(lg, dir, m.ID(), fits, err)
		}
		if errors.As(err, new(alteredError)) {
			err = fmt.Errorf("%s: %w. kale run goes on with what it has read of it: begin it anew, and those that are trained are held against what it uses then", path, err)
		}
		if err != nil {
			return "", fmt.Errorf("the model in use, which it is to be held against, is not to be had: %w", err)
		}
		return path, nil
	}
}

// lookAtModel tells a person that the file of forecast.model has changed, and what that means: nothing, until a scheduler begins anew. A file that changes still is
// looked at later.
func (s *Scheduler) lookAtModel(now time.Time) {
	path := s.job.Forecast.ModelFile()
	if path == "" || s.foresee.model == nil {
		return
	}
	s.tellOfModel(now, path)
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	f := &s.named
	still := sameFile(f.seen, info)
	if f.seen = info; !still || f.read && sameFile(f.settled, info) || f.reading != nil {
		return
	}
	f.settled, f.read = info, true
	r := &modelRead{done: make(chan struct{})}
	f.reading = r
	s.spawn(func() { // ends with the file: Close waits for it
		defer close(r.done)
		raw, err := os.ReadFile(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			r.what = "is not there any more"
			return
		case err != nil:
			r.what = fmt.Sprintf("cannot be read any more (%v)", err)
			return
		}
		m, err := forecast.ReadModelInfo(raw)
		if err != nil {
			r.what = fmt.Sprintf("cannot be used any more (%v)", err)
			return
		}
		r.id, r.what = m.ID, "is another model than the one that was read from it"
	})
	s.tellOfModel(now, path)
}

// tellOfModel tells what a reading of the file of forecast.model has come to, when it has.
func (s *Scheduler) tellOfModel(now time.Time, path string) {
	r := s.named.reading
	if r == nil {
		return
	}
	select {
	case <-r.done:
	default:
		return
	}
	s.named.reading = nil
	if r.id == s.foresee.fileID {
		return
	}
	text := fmt.Sprintf("%s, which forecast.model names, %s: kale run goes by what it has read until it begins anew", path, r.what)
	s.lg.Warn("the forecast model's file has changed", "file", path, "what", r.what)
	s.want.remember(Note{At: now, Text: text})
}

// sameFile says whether nothing was written between two looks at a file.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
