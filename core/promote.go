package core

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

// A model that was trained anew, and is better, takes the place of the one in use when all that takes long is done: a file of tens of megabytes is a quarter of a second to read, check
// and open on a quick disk, and holding it to the past takes seconds. Both are done beside the ticks, while forecasts go on to be made by the one in use. What is to be
// promoted is written down first, and a scheduler that begins anew in the middle goes on with it.

// promotion is a model that is to take the place of the one in use. Its file is the candidate's until it has.
type promotion struct {
	ID   string `json:"id"`
	Over string `json:"over,omitempty"` // as retraining.Over
	Took string `json:"took"`           // the training, for people
	Why  string `json:"why"`            // it is better, for people
}

// comer is the model of a promotion while it is made ready.
type comer struct {
	opened chan struct{} // closed when model or err is there
	model  *forecast.ONNXModel
	err    error
	first  forecast.Forecaster // the model as the gate's first forecaster; nil: it is not held to the past yet
	aside  *beside             // which asks it; nil: it is waited for
	tried  *tryProgress
}

// await opens the model of a file that is to have an ID, beside.
func (f *foresight) await(path, id string, spawn func(func())) *comer {
	c := &comer{opened: make(chan struct{}), tried: &tryProgress{tell: f.opened.progress}}
	fits := f.fits // of what does not change
	spawn(func() { // ends with the file: [comer.end] waits for it
		defer close(c.opened)
		raw, err := durable(path)
		if err == nil {
			if err = fits(raw, id); err != nil {
				err = fmt.Errorf("%s, the file that its training has written: %w", path, err)
			}
		}
		if err == nil {
			c.model, err = forecast.NewONNX(path, raw, forecast.ONNXOptions{Threads: 1, Progress: c.tried.step})
		}
		c.err = err
	})
	return c
}

// durable reads a file that is to be there after a failure of the machine, and for nobody else.
func durable(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(file.Chmod(0o600), file.Sync(), file.Close())
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// ready says whether the model is open and held to a history, which begins when it is open.
func (f *foresight) ready(c *comer, history forecast.Series) bool {
	select {
	case <-c.opened:
	default:
		return false
	}
	if c.err != nil {
		return true
	}
	if c.first == nil {
		c.first, c.aside = f.asked(c.model, c.tried)
		if c.aside != nil && history.Known() > 0 {
			c.aside.begin(history, f.steps, f.gate.Moments(history))
		}
	}
	run := c.aside.trying()
	if run == nil {
		return true
	}
	select {
	case <-run:
		c.err = f.refused(c, history)
		return true
	default:
		return false
	}
}

// refused is why a model that was held to a history would not be used in place of the one in use; nil: it would be. What was learnt is judged by the gate's window too, though the
// model has learnt all of that by now: what does badly even there is not to be used.
func (f *foresight) refused(c *comer, history forecast.Series) error {
	e := c.aside.run
	if errors.Is(e.err, forecast.ErrShortHistory) { // as where it has too few bins to be scored by: nothing is against it
		return nil
	}
	if e.err != nil {
		return e.err
	}
	rests := f.path == "" || f.rests()
	takes, own, usual := f.gate.Takes(c.first, slices.Concat(e.past, []forecast.Forecast{e.f}), history, f.steps, rests)
	if takes {
		return nil
	}
	ours, theirs := job.Percents(own.WAPE, usual.WAPE, 2, 6)
	role := "seasonal, which would be used instead (forecast.gate_tolerance),"
	if rests {
		role = "seasonal, which is in use and stays it,"
	}
	return fmt.Errorf("held to the last %d bins its error is %s %%, that of %s %s %%", own.Distinct, ours, role, theirs)
}

// settle puts a model that is ready in the place of the one in use; path is where its file will be.
func (f *foresight) settle(c *comer, path string, history forecast.Series) {
	f.close()
	f.gate.Replace(c.first)
	f.model, f.path, f.aside, f.tried = c.model, path, c.aside, c.tried
	f.punctual()
	if c.aside == nil {
		f.warm = false
		return
	}
	if e := c.aside.tried(); e != nil {
		f.takeTrial(e, history)
	} else {
		f.warm = false
	}
}

// end gives up a model that has not taken its place.
func (c *comer) end() {
	if c == nil {
		return
	}
	<-c.opened
	switch {
	case c.aside != nil:
		c.aside.close(c.model)
	case c.model != nil:
		_ = c.model.Close()
	}
}

// promote goes on with the promotion of a model, where one is to be: it is told when the model has taken its place, or could not.
func (s *Scheduler) promote(now time.Time) error {
	r := s.want.Retraining
	p := r.Taking
	file := filepath.Join(s.opt.StateDir, candidateFile)
	if s.coming == nil && p.Over != s.foresee.fileID {
		return s.notPromoted(now, file, errors.New("forecast.model has changed meanwhile, over which it was to be taken"))
	}
	if s.coming == nil {
		s.coming = s.foresee.await(file, p.ID, s.spawn)
	}
	history := s.history(now)
	if !s.foresee.ready(s.coming, history) {
		return nil
	}
	c := s.coming
	s.coming = nil
	if c.err != nil {
		c.end()
		return s.notPromoted(now, file, c.err)
	}
	path := filepath.Join(s.opt.StateDir, promotedFile)
	s.foresee.settle(c, path, history)
	r.Taking, r.Promoted, r.Over = nil, p.ID, p.Over
	r.Says = fmt.Sprintf("trained anew in %s, and promoted: %s", p.Took, p.Why)
	r.keep(now, true)
	s.lg.Info("a forecast model that was trained anew is promoted", "id", p.ID, "took", p.Took, "why", p.Why)
	s.want.remember(Note{At: now, Text: "a forecast model that was trained anew is in use: " + p.Why})
	if err := s.save(); err != nil {
		return err
	}
	if err := os.Rename(file, path); err != nil { // promoted looks for it under both names
		s.lg.Warn("the forecast model that is in use cannot be kept in its place", "err", err)
	}
	s.keepSpare(p.ID)
	return nil
}

// keepSpare has a copy of the promoted model beside it, from which it is written anew when it is damaged. It is written beside the ticks.
func (s *Scheduler) keepSpare(id string) {
	path, spare, fits, lg := filepath.Join(s.opt.StateDir, promotedFile), filepath.Join(s.opt.StateDir, spareFile), s.foresee.fits, s.lg
	s.sparing.Add(1)
	s.spawn(func() { // ends with the files: Close waits for it
		defer s.sparing.Done()
		if raw, err := os.ReadFile(spare); err == nil && fits(raw, id) == nil {
			return
		}
		raw, err := os.ReadFile(path)
		if err == nil {
			if err = fits(raw, id); err == nil {
				err = backend.WriteFileMode(spare, raw, 0o600)
			}
		}
		if err != nil {
			lg.Warn("the promoted forecast model has no copy: where its file is damaged it is lost", "err", err)
		}
	})
}

// mend writes the promoted model's file, which has become what err says, anew from its copy, and returns what is in it. Any goroutine may do it.
func mend(lg *slog.Logger, dir, id string, fits func([]byte, string) error, err error) ([]byte, error) {
	raw, e := os.ReadFile(filepath.Join(dir, spareFile))
	if e != nil || fits(raw, id) != nil {
		return nil, err
	}
	path := filepath.Join(dir, promotedFile)
	if e := backend.WriteFileMode(path, raw, 0o600); e != nil {
		return nil, errors.Join(err, fmt.Errorf("write it anew from its copy: %w", e))
	}
	lg.Warn("the promoted forecast model's file was damaged, and is written anew from its copy", "file", path, "was", promotedTrouble(err))
	return raw, nil
}

// notPromoted takes down that the model of a promotion could not take its place.
func (s *Scheduler) notPromoted(now time.Time, file string, why error) error {
	r := s.want.Retraining
	r.Taking, r.Says = nil, "one that was trained anew could not be taken: "+why.Error()
	s.lg.Warn("a forecast model that was trained anew could not be taken; what is in use stays", "err", why)
	s.want.remember(Note{At: now, Text: "of forecast models, " + r.Says})
	r.keep(now, false)
	removeCandidate(file)
	return s.save()
}

// takePromoted uses the model that was promoted by a scheduler before, where the job file's is the one that it was promoted over and it still fits.
func (s *Scheduler) takePromoted() {
	r, f := s.want.Retraining, s.foresee
	if r == nil || r.Promoted == "" || r.Over != f.fileID {
		return
	}
	raw, err := s.promoted(r.Promoted)
	if err == nil {
		err = f.use(filepath.Join(s.opt.StateDir, promotedFile), raw)
	}
	if err == nil && len(s.want.Gate) > 0 {
		err = f.restore(s.want.Gate)
	}
	if err == nil && s.store != nil {
		s.keepSpare(r.Promoted)
	}
	if err != nil {
		path := filepath.Join(s.opt.StateDir, promotedFile)
		f.gate.Lost("the file of which cannot be used: " + promotedTrouble(err))
		s.lg.Warn("the forecast model that was trained anew cannot be used; the job file's is", "file", path, "err", err)
		s.want.remember(Note{At: time.Now(), Text: fmt.Sprintf("of forecast models, the promoted one, %s, cannot be used: %s. The job file's is used instead, until one that is trained anew is better: put the file back from a copy and begin kale run anew, or let it be", path, promotedTrouble(err))})
	}
}

// promotedTrouble is what became of the promoted file, for people.
func promotedTrouble(err error) string {
	var altered alteredError
	switch {
	case errors.As(err, &altered):
		return "it was changed after its promotion: " + altered.now
	case errors.Is(err, os.ErrNotExist):
		return "it was removed after its promotion"
	}
	return err.Error()
}

// promoted is the file of the model that was promoted, with an ID. It still is the candidate's where the scheduler that promoted it ended before it could move it.
func (s *Scheduler) promoted(id string) ([]byte, error) {
	path, late := filepath.Join(s.opt.StateDir, promotedFile), filepath.Join(s.opt.StateDir, candidateFile)
	raw, err := os.ReadFile(path)
	if err == nil {
		err = s.foresee.fits(raw, id)
	}
	if err == nil {
		return raw, nil
	}
	raw, errLate := os.ReadFile(late)
	if errLate != nil || s.foresee.fits(raw, id) != nil {
		if s.store == nil { // a preview changes nothing
			if raw, e := os.ReadFile(filepath.Join(s.opt.StateDir, spareFile)); e == nil && s.foresee.fits(raw, id) == nil {
				return raw, nil
			}
			return nil, err
		}
		return mend(s.lg, s.opt.StateDir, id, s.foresee.fits, err)
	}
	if s.store != nil { // a preview changes nothing
		return raw, os.Rename(late, path)
	}
	return raw, nil
}
