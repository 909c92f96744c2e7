package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/forecast"
)

// A forecast model grows old as traffic changes. Every forecast.retrain another one is trained from what has arrived (Options.TrainForecast, in a process of its
// own, so that no look and no decision waits for it), measured beside the one in use on recent traffic that neither has seen, and put in its place where it is
// better. The one that is in use is kept in the state folder; the job file's stays as it is, and takes its place again when that file names another model.

// ForecastTraining is what a forecast model is trained from.
type ForecastTraining struct {
	History forecast.Series // without the job file's events
	Horizon int             // bins
	Seasons []time.Duration
	Kind    string // one of forecast.ModelKinds
	Input   int    // bins that the model sees; 0: as many as its kind chooses
	// Current is the file of the model in use, or job.ForecastEnsemble, "": none, and the seasonal forecaster is.
	Current string
	// Out is the file to write.
	Out string
	// Tolerance and the window are those of the job's gate.
	Gate forecast.GateOptions
}

// ForecastTrained is what came of it: the errors (WAPE, a fraction) are over the same bins, which none of them has seen. NaN: not known.
type ForecastTrained struct {
	ID                              string
	Origins                         int
	From                            time.Time
	Step                            time.Duration // of the history's bins
	Model, Current, Seasonal, Naive float64
	// OverCurrent, OverSeasonal and OverNaive are the model's leads over these.
	OverCurrent, OverSeasonal, OverNaive forecast.Lead
	// Silent is why the one in use gave no forecast at all when it was measured; "": it gave one, or there is none.
	Silent string
	// FallsBack: the job's gate would not use it beside the seasonal forecaster.
	FallsBack bool
}

// promotedFile is the name of the model that was promoted last, in the state folder, and spareFile that of a copy of it; candidateFile that of one that is being trained.
const (
	promotedFile  = "forecast.onnx"
	spareFile     = "forecast-spare.onnx"
	candidateFile = "forecast-candidate.onnx"
)

// retraining is what is known of the models that were trained anew, and kept.
type retraining struct {
	// Tried is when one was trained last, or when it was first known that one shall be.
	Tried time.Time `json:"tried,omitzero"`
	// Promoted is the ID of the one in use, "": the job file's is. Over is that of the job file's when it was promoted, "" for "seasonal", "ensemble" for that.
	Promoted string `json:"promoted,omitempty"`
	Over     string `json:"over,omitempty"`
	// Taking is the one that is to be in use as soon as it is open and held to the past; nil: none is.
	Taking *promotion `json:"taking,omitempty"`
	// Begun is how often the training that Tried is of was begun and has come to nothing yet: once, or again where the scheduler ended meanwhile. 0: it has come to something.
	Begun int `json:"begun,omitempty"`
	// Says is what came of the last one, for people.
	Says string `json:"says,omitempty"`
	// Past are the last retrainingsKept, oldest first.
	Past []Retrained `json:"past,omitempty"`
}

// trainingsBegun is how often a training is begun when the scheduler ends while it is under way: not for ever, since it may be what ends it.
const trainingsBegun = 2

// retrainingsKept is of how many trainings it is kept what came of them: a month of days.
const retrainingsKept = 30

// Retrained is what came of one training.
type Retrained struct {
	At       time.Time `json:"at"` // when it had ended
	Promoted bool      `json:"promoted"`
	Says     string    `json:"says"` // for people
}

// keep takes down what came of a training.
func (r *retraining) keep(now time.Time, promoted bool) {
	r.Past = append(slices.Clone(r.Past), Retrained{At: now, Promoted: promoted, Says: r.Says})
	r.Past = r.Past[max(0, len(r.Past)-retrainingsKept):]
}

// RetrainedIn is what came of the last trainings of a forecast model, oldest first, by a job's state.
func RetrainedIn(st *state.Store) ([]Retrained, error) {
	d, err := savedDesired(st)
	if err != nil || d == nil || d.Retraining == nil {
		return nil, err
	}
	return d.Retraining.Past, nil
}

// Retraining is what people are told of it.
type Retraining struct {
	// Next is when a model is trained anew next; zero while one is. Last is when the last one came to something, and Says to what; while that is to be promoted, Last is when its training began.
	Next time.Time `json:"next,omitzero"`
	Last time.Time `json:"last,omitzero"`
	Says string    `json:"says,omitempty"`
	// Model is the ID of the one that was promoted and is in use; "": the job file's is.
	Model string `json:"model,omitempty"`
}

// retrainingNow is for the view; nil: forecast.retrain is not set.
func (s *Scheduler) retrainingNow() *Retraining {
	r := s.want.Retraining
	if s.job.Forecast.Retrain <= 0 || r == nil {
		return nil
	}
	out := &Retraining{Says: r.Says}
	if s.training == nil {
		out.Next = r.Tried.Add(s.job.Forecast.Retrain)
	}
	switch n := len(r.Past); {
	case r.Says == "":
	case n > 0 && r.Taking == nil:
		out.Last = r.Past[n-1].At // while the next is trained, Tried is of that
	default:
		out.Last = r.Tried
	}
	if m := s.foresee.model; m != nil && m.Info().ID == r.Promoted {
		out.Model = r.Promoted
	}
	return out
}

// trainingRun is a training under way.
type trainingRun struct {
	began  time.Time
	what   ForecastTraining
	cancel context.CancelFunc
	done   chan struct{} // closed when got and err are there
	got    ForecastTrained
	err    error
}

// retrain begins a training when it is due, and takes in what has come of one.
func (s *Scheduler) retrain(ctx context.Context, now time.Time) error {
	every := s.job.Forecast.Retrain
	if every <= 0 || s.opt.TrainForecast == nil || s.want.Stopping {
		s.endTraining()
		return nil
	}
	if t := s.training; t != nil {
		select {
		case <-t.done:
			s.training = nil
			return s.trained(now, t)
		default:
			return nil
		}
	}
	r := s.want.Retraining
	if r == nil {
		s.want.Retraining = &retraining{Tried: now}
		return s.save()
	}
	if r.Taking != nil {
		return s.promote(now)
	}
	cut := r.Begun > 0 && r.Begun < trainingsBegun
	if now.Sub(r.Tried) < every && !cut || s.missed.history() != nil {
		return nil
	}
	if !cut {
		r.Begun = 0
	}
	r.Tried, r.Begun = now, r.Begun+1
	s.train(ctx, now)
	return s.save()
}

// train begins a training.
func (s *Scheduler) train(ctx context.Context, now time.Time) {
	f := s.job.Forecast
	what := ForecastTraining{
		History: s.foresee.calendar.Plain(s.history(now)), Horizon: s.foresee.steps, Seasons: f.Season, Kind: forecast.Linear,
		Out: filepath.Join(s.opt.StateDir, candidateFile), Gate: forecast.GateOptions{Window: f.GateWindow, Tolerance: f.GateTolerance},
	}
	if m := s.foresee.model; m != nil && slices.Contains(forecast.ModelKinds(), m.Info().Name) {
		what.Kind = m.Info().Name
		if what.Kind != forecast.Linear && what.Kind != forecast.SparseTSF { // these see the more, the longer the history is
			what.Input = m.Info().Input
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.trainingMost())
	t := &trainingRun{began: now, what: what, cancel: cancel, done: make(chan struct{})}
	s.training = t
	current := s.inUse()
	s.spawn(func() { // ends with ctx, at the latest with the scheduler: endTraining
		defer close(t.done)
		if t.what.Current, t.err = current(); t.err == nil {
			t.got, t.err = s.opt.TrainForecast(ctx, t.what)
		}
	})
}

// trainingMost is how long a training may take.
func (s *Scheduler) trainingMost() time.Duration { return max(s.job.Forecast.Retrain, time.Minute) }

// endTraining ends one that is under way; what it has come to is dropped.
func (s *Scheduler) endTraining() {
	t := s.training
	if t == nil {
		return
	}
	t.cancel()
	<-t.done
	s.training = nil
	removeCandidate(t.what.Out)
}

// trained takes in what a training has come to: a better model is to be promoted.
func (s *Scheduler) trained(now time.Time, t *trainingRun) error {
	t.cancel()
	r := s.want.Retraining
	r.Begun = 0
	took := job.Length(now.Sub(t.began))
	if s.foresee.failing == "" { // it does answer here: that it did not there, in a process that has less, says nothing of it
		t.got.Silent = ""
	}
	t.got.Step = t.what.History.Step
	better, why := t.got.better(s.foresee.rival())
	if quiet, mean, usual := t.what.History.Quiet(t.got.From); quiet {
		better, why = false, fmt.Sprintf("too little traffic to tell: since %s %s records/s arrived on average, of %s usually", t.got.From.Local().Format(stampOf(t.what.History.Step)), wholeRate(mean), wholeRate(usual))
	}
	switch {
	case t.err != nil && errors.Is(t.err, forecast.ErrShortHistory):
		r.Says = "not trained anew: " + t.err.Error()
		s.lg.Info("the forecast model was not trained anew", "why", t.err)
	case errors.Is(t.err, context.DeadlineExceeded):
		r.Says = fmt.Sprintf("could not be trained anew within %s, which is how long it may take: set forecast.retrain longer, or use a model that is smaller", job.Length(s.trainingMost()))
		s.lg.Warn("the forecast model could not be trained anew in time; the one in use stays", "most", s.trainingMost())
		s.want.remember(Note{At: now, Text: "the forecast model " + r.Says})
	case t.err != nil:
		r.Says = "could not be trained anew: " + t.err.Error()
		s.lg.Warn("the forecast model could not be trained anew; the one in use stays", "err", t.err)
		s.want.remember(Note{At: now, Text: "the forecast model " + r.Says})
	case !better:
		r.Says = "one that was trained anew was not taken: " + why
		s.lg.Info("a forecast model that was trained anew is not taken", "took", took, "why", why)
		s.want.remember(Note{At: now, Text: "of forecast models, " + r.Says, Routine: true})
	default:
		r.Taking = &promotion{ID: t.got.ID, Over: s.foresee.fileID, Took: took, Why: why}
		r.Says = fmt.Sprintf("trained anew in %s, and is better: it is used as soon as it is open and held to the past; %s", took, why)
		s.lg.Info("a forecast model that was trained anew is to be promoted", "id", t.got.ID, "took", took, "why", why)
		if err := s.save(); err != nil {
			return err
		}
		return s.promote(now)
	}
	r.keep(now, false)
	removeCandidate(t.what.Out)
	return s.save()
}

// removeCandidate removes a model that was trained, and what its training has left beside it, whose names begin with its own. The next one would write them anew.
func removeCandidate(path string) {
	beside, _ := os.ReadDir(filepath.Dir(path)) // what cannot be read is not removed either
	for _, e := range beside {
		if strings.HasPrefix(e.Name(), filepath.Base(path)) {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// stampOf is how a moment between bins of a length is written for people: to the second where bins are no whole minutes.
func stampOf(step time.Duration) string {
	if step%time.Minute != 0 {
		return time.DateTime
	}
	return "2006-01-02 15:04"
}

// besideRival is the error of a model and of its rival for people, in percent. Two that look alike are as good; where the lead is sure, as many digits as show it.
func besideRival(model, rival float64, name string, sure bool) string {
	most := 2
	if sure {
		most = 6
	}
	ours, theirs := job.Percents(model, rival, 2, most)
	if ours == theirs {
		return fmt.Sprintf("it is as good as %s, the error of both is %s %%", name, ours)
	}
	return fmt.Sprintf("its error is %s %%, that of %s %s %%", ours, name, theirs)
}

// rival is what a model that is trained anew would take the place of: the zero value is the seasonal forecaster, where nothing else is named.
type rival struct {
	name  string // of a model or the ensemble, for people; "": there is none
	rests bool   // it is there and not in use: the seasonal forecaster is
}

// rival is that of the forecaster in use.
func (f *foresight) rival() (r rival) {
	switch {
	case f.path == "":
		return r
	case f.path == job.ForecastEnsemble:
		r.name = "the ensemble, which the job file names"
	case f.model.ID() == f.fileID:
		r.name = "the job file's model"
	default:
		r.name = "the model that was promoted before"
	}
	r.rests = f.rests()
	return r
}

// better says whether the model is to take the place of its rival, and why or why not. Its lead has to be more than chance
// (forecast.Lead): else, of two that are as good as each other, every second training would put one in the place of the other.
// Where the rival rests the seasonal forecaster is in use, and the model's leads over both have to be.
// One that gives no forecast cannot be measured: the seasonal forecaster stands in for it, and the model's leads over that and over seasonal naive have to be.
func (t ForecastTrained) better(r rival) (bool, string) {
	if r.name != "" && t.Silent != "" {
		better, why := t.better(rival{})
		if better && !t.OverNaive.Sure() {
			better, why = false, why+": its lead over seasonal naive may be chance"
		}
		return better, fmt.Sprintf("the one in use gives no forecast (%s), so that seasonal forecasts instead; of the one that was trained anew %s", t.Silent, why)
	}
	least, name, lead, also := t.Seasonal, "seasonal", t.OverSeasonal, ""
	all := t.Model + t.Seasonal + t.Naive
	switch {
	case r.rests:
		name, also = "seasonal, in use,", fmt.Sprintf(", of %s, not in use, %.2f %%", r.name, 100*t.Current)
		all += t.Current
	case r.name != "":
		least, name, lead, also = t.Current, "the one in use", t.OverCurrent, fmt.Sprintf(", of seasonal %.2f %%", 100*t.Seasonal)
		all += t.Current
	}
	if math.IsNaN(all) || math.IsInf(all, 0) {
		return false, "too little is known of recent traffic to compare it"
	}
	errs := besideRival(t.Model, least, name, lead.Sure()) + also
	errs += fmt.Sprintf(", of seasonal naive %.2f %%, over %d forecasts since %s", 100*t.Naive, t.Origins, t.From.Local().Format(stampOf(t.Step)))
	if t.Model >= 1 { // as where next to nothing arrived
		return false, errs + ": no better than to expect nothing, whose error is 100 %"
	}
	switch {
	case !(t.Model < least && t.Model < t.Naive):
		return false, errs
	case t.FallsBack:
		return false, errs + "; seasonal is so much better that it would be used instead (forecast.gate_tolerance)"
	case lead.Sure() && r.rests && !(t.Model < t.Current && t.OverCurrent.Sure()):
		return false, fmt.Sprintf("%s: it is better than seasonal, and its lead over %s, which may come to be in use again, may be chance", errs, r.name)
	case lead.Sure():
		return true, errs
	case math.IsNaN(lead.SE):
		return false, errs + ": these are too few to tell that from chance"
	}
	return false, fmt.Sprintf("%s: that may be chance, which a lead of more than %.2g points over these forecasts would not be", errs, 100*lead.Margin())
}

// noteForecaster remembers, for people, that another forecaster is in use.
func (s *Scheduler) noteForecaster(now time.Time) {
	if text := s.foresee.changed; text != "" {
		s.foresee.changed = ""
		s.want.remember(Note{At: now, Text: text})
	}
}
