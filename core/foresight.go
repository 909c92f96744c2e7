package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
)

// foresight makes the job's forecasts: the job file's model behind the gate, which falls back to the seasonal forecaster and says so.
type foresight struct {
	lg     *slog.Logger
	steps  int
	step   time.Duration
	season time.Duration // the shortest
	all    []time.Duration
	needed time.Duration // of history, for a forecast to be trusted
	needs  plan.Needs    // of the job's policy
	// outlook is forecast.Outlook, or what remembers its answers.
	outlook func(forecast.Series, []time.Duration) (forecast.Forecast, error)
	// calendar has the job file's events and time zone.
	calendar forecast.Calendar
	outcomes []forecast.EventOutcome // of the calendar's events, in the history of the last forecast
	gate     *forecast.Gate
	model    *forecast.ONNXModel // nil: a forecaster without a file
	path     string              // its file; "ensemble" where that is in use, "" where seasonal is
	fileID   string              // of the job file's model; "ensemble" or, for seasonal, ""
	late     int                 // so many forecasts in a row the model was not there in time
	saidLate bool                // that was told; it is over when the model was there often enough in a row: see inTime
	wasLate  int                 // how often it was told
	gaveNone bool                // the model gave none last, and it is not that it may give one yet
	failing  string              // why the model gave no forecast when that was told last, without its figures; "": it gave one since
	changed  string              // since it was taken note of last: which forecaster is in use now, and why; ""
	warm     bool
	doubt    string // why no forecast is trusted now, whatever the gate says; ""
	last     plan.Forecast
	instead  string  // why the last one was not made by the forecaster that the job names; "": it was
	aside    *beside // asks the gate's first forecaster; nil: there is none, or it is waited for
	opened   asked
	tried    *tryProgress
	fault    time.Time // the newest bin that was said to be a fault of measuring
}

// asked says how a foresight asks its first forecaster.
type asked struct {
	wrap func(forecast.Forecaster) forecast.Forecaster // put in front of each forecaster; nil: nothing
	// spawn, where set, has it asked in another goroutine, for which a decision waits so long.
	spawn    func(func())
	patience time.Duration
	progress func(done, total int) // see forecast.ONNXOptions
	// trying, where set, is told how far one that is waited for has been tried on the past.
	trying func(done, total int)
}

// newForesight opens the job's forecast model. One that cannot be used is an error: the job file names it, and a person must know.
func newForesight(lg *slog.Logger, j *job.Job, saved json.RawMessage) (*foresight, error) {
	return askedForesight(lg, j, saved, asked{})
}

// wrappedForesight is newForesight with something put in front of each of its forecasters.
func wrappedForesight(lg *slog.Logger, j *job.Job, saved json.RawMessage, wrap func(forecast.Forecaster) forecast.Forecaster) (*foresight, error) {
	return askedForesight(lg, j, saved, asked{wrap: wrap})
}

// askedForesight is newForesight with a say in how it asks.
func askedForesight(lg *slog.Logger, j *job.Job, saved json.RawMessage, how asked) (*foresight, error) {
	f := &foresight{lg: lg, steps: int(j.Forecast.Horizon / j.Forecast.Interval), step: j.Forecast.Interval, season: slices.Min(j.Forecast.Season), all: j.Forecast.Season, needed: j.Forecast.Needed(), needs: plan.NeedsOf(j.Autoscale.Policy), outlook: forecast.Outlook, calendar: CalendarOf(j), opened: how, tried: &tryProgress{tell: how.progress}}
	var primary forecast.Forecaster
	if path := j.Forecast.ModelFile(); path != "" {
		m, err := forecast.OpenONNX(path, f.options())
		if err != nil {
			return nil, fmt.Errorf("forecast.model of job %q: %w", j.Name, err)
		}
		f.model, f.path, f.fileID, primary = m, path, m.Info().ID, f.first(m)
	} else if j.Forecast.Model == job.ForecastEnsemble {
		f.path, f.fileID, primary = job.ForecastEnsemble, job.ForecastEnsemble, f.first(forecast.NewSeasonalEnsemble(j.Forecast.Season))
	}
	var err error
	f.gate, err = forecast.NewGate(primary, f.heeding(forecast.NewSeasonal(j.Forecast.Season)), forecast.GateOptions{Window: j.Forecast.GateWindow, Tolerance: j.Forecast.GateTolerance})
	if err != nil {
		return nil, err
	}
	if len(saved) > 0 {
		if err := f.restore(saved); err != nil {
			lg.Warn("what the forecast gate had learnt cannot be used", "err", err)
		}
	}
	return f, nil
}

// alteredError says of a model's file that it is not any more what was written to it, but now what it says.
type alteredError struct{ now string }

func (e alteredError) Error() string { return "the file was changed after it was written: " + e.now }

// fits says whether a model can take the place of the one in use, as an error where it cannot. id is the one that it must have, "": any.
func (f *foresight) fits(raw []byte, id string) error {
	info, err := forecast.ReadModelInfo(raw)
	switch {
	case err != nil && id != "":
		return alteredError{fmt.Sprintf("what it holds now is no model (%v)", err)}
	case err != nil:
		return err
	case id != "" && info.ID != id:
		return alteredError{fmt.Sprintf("it held model %s, and holds model %s now", id, info.ID)}
	case info.Step != f.step || info.Horizon < f.steps:
		return fmt.Errorf("it forecasts %d bins of %v, and the job asks for %d of %v", info.Horizon, info.Step, f.steps, f.step)
	}
	return nil
}

// options are those of a model file. One that is asked beside is taken in beside, too, and left alone for a while where it is too slow; one that is waited for is not asked again then.
func (f *foresight) options() forecast.ONNXOptions {
	return forecast.ONNXOptions{Threads: 1, Progress: f.tried.step, Later: f.opened.spawn != nil, Once: f.opened.spawn == nil}
}

// heeding is a forecaster with the calendar, and what is put in front of it.
func (f *foresight) heeding(of forecast.Forecaster) forecast.Forecaster {
	if f.opened.wrap != nil {
		of = f.opened.wrap(of)
	}
	return f.calendar.With(of)
}

// asked is a forecaster as the gate's first, asked as is wanted; aside is what asks it, nil: it is waited for.
func (f *foresight) asked(of forecast.Forecaster, progress *tryProgress) (first forecast.Forecaster, aside *beside) {
	of = f.heeding(of)
	if f.opened.spawn == nil {
		return of, nil
	}
	aside = &beside{Forecaster: of, spawn: f.opened.spawn, patience: f.opened.patience, progress: progress, closed: make(chan struct{})}
	if _, has := of.(interface{ ID() string }); !has {
		return withoutID{aside}, aside
	}
	return aside, aside
}

// first is the gate's first forecaster.
func (f *foresight) first(of forecast.Forecaster) (first forecast.Forecaster) {
	first, f.aside = f.asked(of, f.tried)
	return first
}

// use puts the model of a file, whose content is raw, in the place of the one in use. It is tried on the past at the next forecast.
func (f *foresight) use(path string, raw []byte) error {
	m, err := forecast.NewONNX(path, raw, f.options())
	if err != nil {
		return err
	}
	f.close()
	f.gate.Replace(f.first(m))
	f.model, f.path, f.warm = m, path, false
	f.punctual()
	return nil
}

// restore gives the gate what it had learnt.
func (f *foresight) restore(saved json.RawMessage) error {
	var st forecast.GateState
	if err := json.Unmarshal(saved, &st); err != nil {
		return err
	}
	return f.gate.Restore(st)
}

// CalendarOf is what a job file knows of the traffic that its past does not tell.
func CalendarOf(j *job.Job) (c forecast.Calendar) {
	c.Zone, c.Holidays = j.Forecast.Zone(), j.Forecast.HolidayCalendar()
	if j.Forecast.EventsFade {
		c.Seasons = j.Forecast.Season
	}
	for _, e := range j.Forecast.Events {
		c.Events = append(c.Events, forecast.Event(e))
	}
	return c
}

// CheckForecast says, as diagnostics of the job file, why its forecast model could not be used.
func CheckForecast(j *job.Job) (diags hcl.Diagnostics) {
	advice := fmt.Sprintf("Train one with kale forecast train, or set model to %q.", job.ForecastSeasonal)
	for _, m := range misfits(j, j.Forecast.Model) {
		text := m.what
		if m.set != "" {
			text += ". " + m.set
		}
		diags = append(diags, j.ErrorAt(m.at, m.title, text+". "+cmp.Or(m.advice, advice)))
	}
	return diags
}

// CheckForecaster says why a forecaster that stands in forecast.model without the job file naming it, called what, could not be used, and what can be done; nil:
// nothing is against it.
func CheckForecaster(j *job.Job, what string) error {
	var errs []error
	for _, m := range misfits(j, what) {
		do := fmt.Sprintf("train one with kale forecast train -interval %s -horizon %s", job.FormatDuration(j.Forecast.Interval), job.FormatDuration(j.Forecast.Horizon))
		if m.want != "" {
			do = fmt.Sprintf("give a job file with %s in its forecast block, or %s", m.want, do)
		}
		errs = append(errs, fmt.Errorf("%s: %s", m.what, do))
	}
	return errors.Join(errs...)
}

// misfit is why a forecast model cannot serve a job.
type misfit struct {
	at, title, what string // the attribute of the job file that it is said of
	set             string // what can be done in a job file that names the model, as a sentence without its full stop; ""
	want            string // the attribute with which it could; ""
	advice          string // where it is another than to train one
}

// misfits says what is against the job's forecast model, called name; none without a file.
func misfits(j *job.Job, name string) (out []misfit) {
	path := j.Forecast.ModelFile()
	if path == "" {
		return nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return []misfit{{at: "forecast.model", title: "No such file", what: path + " does not exist", advice: fmt.Sprintf(
			"Relative paths start at the job file's folder. Make it from the topic's history: kale forecast train %s -o %s; or set model to %q.", backend.Quoted(j.Range("forecast.model").Filename), backend.Quoted(path), job.ForecastSeasonal)}}
	}
	if err != nil {
		return []misfit{{at: "forecast.model", title: "The forecast model cannot be read", what: err.Error()}}
	}
	info, err := forecast.ReadModelInfo(raw)
	f, step := &j.Forecast, job.FormatDuration(info.Step)
	switch {
	case err != nil:
		return []misfit{{at: "forecast.model", title: "The forecast model cannot be used", what: fmt.Sprintf("%s: %v", path, err)}}
	case info.Step != f.Interval:
		return []misfit{{at: "forecast.model", title: "The forecast model is for another interval", want: fmt.Sprintf("interval = %q", step),
			what: fmt.Sprintf("%s was trained on bins of %s, and forecast.interval is %s", path, step, job.FormatDuration(f.Interval))}}
	}
	if most := time.Duration(info.Horizon) * info.Step; f.Horizon > most {
		m := job.FormatDuration(most)
		out = append(out, misfit{at: "forecast.horizon", title: "The forecast model does not reach so far", set: fmt.Sprintf("Set horizon to %s or less", m), want: fmt.Sprintf("horizon = %q", m),
			what: fmt.Sprintf("%s forecasts %s at most, and forecast.horizon is %s", name, m, job.FormatDuration(f.Horizon))})
	}
	if least := time.Duration(info.Input) * info.Step; f.History > 0 && f.Past() < least {
		m := job.FormatDuration(least)
		out = append(out, misfit{at: "forecast.history", title: "The forecast model needs more history", set: fmt.Sprintf("Set history to %s or more", m), want: fmt.Sprintf("history = %q", m),
			what: fmt.Sprintf("%s forecasts from the last %s, and forecast.history is %s", name, m, job.FormatDuration(f.History))})
	}
	return out
}

// prepare tries the forecasters on the past, where that is to be done, and says whether the first of them is still at it: then it has no forecast.
func (f *foresight) prepare(history forecast.Series) (trying bool) {
	if f.aside != nil {
		if e := f.aside.tried(); e != nil {
			f.takeTrial(e, history)
		}
	}
	if !f.warm && history.Known() > 0 && (f.aside == nil || f.aside.free()) {
		f.warm = true
		f.tryOn(history)
	}
	return f.aside.trying() != nil
}

// tryOn tries the forecasters on the past: one that is asked beside is not waited for.
func (f *foresight) tryOn(history forecast.Series) {
	if f.aside != nil {
		f.aside.hush = true
	}
	tell := func(int, int) {}
	if f.model != nil && f.opened.trying != nil {
		tell = f.opened.trying
	}
	n, err := f.gate.WarmTold(history, f.steps, tell)
	if f.aside != nil {
		f.aside.hush = false
	}
	if err != nil {
		f.lg.Warn("the forecasters could not be tried on the past", "err", err)
		return
	}
	f.lg.Info("forecasters tried on the past", "origins", n)
	if f.aside == nil {
		return
	}
	f.aside.try(history, f.steps, f.gate.Lacking(history))
	if e := f.aside.tried(); e != nil {
		f.takeTrial(e, history)
	}
}

// takeTrial takes in what a trial has come to. The model's forecasts of the time that it took are lacking then, few as they are.
func (f *foresight) takeTrial(e *errand, history forecast.Series) {
	for _, fc := range append(e.past, e.f) {
		f.gate.Fill(fc)
	}
	for _, at := range f.gate.Lacking(history) {
		if e.err != nil || !at.After(e.f.At) {
			continue
		}
		fc, err := f.aside.Forecast(history.Until(at), f.steps)
		if errors.Is(err, forecast.ErrNotReady) {
			break // it is not quick enough: the others are scored without them
		}
		if err == nil {
			f.gate.Fill(fc)
		}
	}
	if e.err != nil {
		f.lg.Info("the forecast model has no forecast yet", "why", e.err, "took", e.took.Round(time.Millisecond))
		return
	}
	f.lg.Info("the forecast model was held to the past", "moments", len(e.past), "took", e.took.Round(time.Millisecond))
}

// forecast is what is expected for the bins after the history, with the gate's verdict.
func (f *foresight) forecast(now time.Time, history forecast.Series) plan.Forecast {
	f.prepare(history)
	f.sayFault(history)
	f.outcomes = f.calendar.Outcomes(history)
	fc, v, err := f.gate.Forecast(now, history, f.steps)
	short := f.short(history)
	f.instead = v.Why
	if err != nil {
		f.instead = err.Error()
		f.last = plan.Forecast{At: history.End(), Step: history.Step, Source: v.Using, Reason: v.Reason}
		if short != "" {
			f.last.Reason = short
		}
		return f.last
	}
	if v.Changed {
		f.lg.Warn("another forecaster is in use", "using", v.Using, "why", v.Change)
		f.changed = v.Change
		if f.model != nil && !v.FallenBack {
			f.changed += "; its file is " + f.path
		}
	}
	f.sayFailing(v)
	reason := v.Reason
	if v.FallenBack {
		reason = fc.Note + "; " + v.Reason
	}
	if short != "" && (f.model == nil || v.FallenBack || !v.Trusted) { // a model may look back on less than a season
		v.Trusted, v.Scored, reason = false, false, short
	}
	f.last = f.planned(fc)
	if events := f.calendar.Within(fc.At, fc.End(), f.outcomes); events != "" {
		reason += "; " + events
	}
	f.last.Trusted, f.last.Reason, f.last.Calibrated = v.Trusted, reason, v.Scored && fc.Calibrated()
	if f.doubt != "" {
		f.last.Trusted, f.last.Calibrated, f.last.Reason = false, false, f.doubt
	}
	f.last.Beyond = f.beyond(history)
	return f.last
}

// figures are what differs from one moment to the next in why a model gives no forecast.
var figures = regexp.MustCompile(`[-+]?[0-9][0-9.,e+:-]*`)

// lateForecasts is how many forecasts in a row a model is not there in time, for that to be told: one or two are a machine that had other things to do.
const lateForecasts = 5

// sayFailing says that the model gives no forecast, once for each reason until it gives one: one that never gave any was never in use, so that nothing changes with it. A
// history that it needs more of is no fault of its.
func (f *foresight) sayFailing(v forecast.Verdict) {
	f.sayLate(v)
	if !errors.Is(v.Failed, forecast.ErrNotReady) {
		f.gaveNone = v.Failed != nil
	}
	switch {
	case v.Failed == nil:
		f.failing = ""
		return
	case errors.Is(v.Failed, forecast.ErrNotReady) || errors.Is(v.Failed, forecast.ErrShortHistory):
		return
	}
	before := f.failing
	if f.failing = figures.ReplaceAllString(v.Failed.Error(), "0"); f.failing == before || v.Changed { // of a change it was said
		return
	}
	f.lg.Warn("the forecast model gives no forecast", "using", v.Using, "why", v.Failed)
	f.changed = fmt.Sprintf("forecasts are made by %s instead of %s: %s", v.Using, f.gate.First(), v.Why)
}

// sayLate says that the model takes longer than a decision waits, when it does again and again, and that it does no more: for the gate nothing changes with it. That it is held to the past
// is no fault of its.
func (f *foresight) sayLate(v forecast.Verdict) {
	var why notReadyError
	late := errors.As(v.Failed, &why)
	switch {
	case late && !why.late || v.Failed != nil && !late:
		return
	case late == f.saidLate:
		f.late = 0
		return
	}
	most := lateForecasts
	if !late {
		most = f.inTime()
	}
	if f.late++; f.late < most {
		return
	}
	f.late, f.saidLate = 0, late
	if !late {
		f.lg.Info("the forecast model is in time again", "using", v.Using)
		f.changed = fmt.Sprintf("%s gives its forecasts in time again, %d in a row: forecasts are made by %s", f.gate.First(), most, v.Using)
		return
	}
	f.wasLate++
	f.lg.Warn("the forecast model takes longer than a decision waits", "using", v.Using, "why", v.Failed, "in_a_row", lateForecasts)
	f.changed = fmt.Sprintf("forecasts are made by %s instead of %s, which was not in time for %d decisions in a row: %s", v.Using, f.gate.First(), lateForecasts, v.Why)
}

// inTime is for how many forecasts in a row a model that was told to be late has to be there in time for that to be told: twice as many each time, since one that is now late and now in
// time would be told of again and again.
func (f *foresight) inTime() int { return lateForecasts << min(max(f.wasLate-1, 0), 6) }

// punctual forgets what was said of a model that is not in use any more.
func (f *foresight) punctual() {
	f.late, f.saidLate, f.wasLate, f.failing, f.gaveNone = 0, false, 0, "", false
}

// rests says whether the forecaster that is named is not in use, but seasonal is: the gate has set it aside, or it gives no forecast. That one was late is no such thing, unless it is again and again,
// and was the last time.
func (f *foresight) rests() bool {
	return f.saidLate && f.instead != "" || f.gaveNone || f.gate.FallenBack()
}

// band90 are the quantiles between which 90 % of what comes should lie, which kale forecast show holds against it.
func band90(fc forecast.Forecast) (levels []float64, rows []plan.Values) {
	var own [][]float64
	for i, level := range fc.Levels {
		if level == 0.05 || level == 0.95 {
			levels, own = append(levels, level), append(own, fc.Quantiles[i])
		}
	}
	return levels, rounded(own)
}

// sayFault says once of a bin that forecasts do not go by it, when what came after it has shown that.
func (f *foresight) sayFault(history forecast.Series) {
	faults := history.Faults(int(f.season / f.step))
	if n := len(faults); n > 0 && faults[n-1] == len(history.Values)-1 {
		faults = faults[:n-1]
	}
	if len(faults) == 0 {
		return
	}
	newest := faults[len(faults)-1]
	if at := history.At(newest); at.After(f.fault) {
		f.fault = at
		what := "a rate is no traffic but a fault of measuring, or records sent again: forecasts do not go by it"
		if history.Fell(newest) {
			what = "a rate is no traffic but a fault of measuring, or a bin of which not all was measured: forecasts do not go by it"
		}
		f.lg.Warn(what, "bin", at, "records_per_second", history.Values[newest])
	}
}

// planned is a forecast as policies take it. Quantiles, save those of the band of 90 %, and scenarios go only to a policy that uses them, since every decision is recorded
// with all that it was made from; for the same reason they are rounded to five digits.
func (f *foresight) planned(fc forecast.Forecast) plan.Forecast {
	out := plan.Forecast{
		At: fc.At, Step: fc.Step, Mean: plan.Values(fc.Mean), Lower: plan.Values(fc.Lower), Upper: plan.Values(fc.Upper), Source: fc.Source, Outcomes: fc.Outcomes,
	}
	if !f.needs.Spread {
		out.Levels, out.Quantiles = band90(fc)
		return out
	}
	out.Levels, out.Quantiles, out.Scenarios = fc.Levels, rounded(fc.Quantiles), rounded(fc.Scenarios)
	return out
}

// rounded copies rows, each value to five significant digits, which keeps their order.
func rounded(rows [][]float64) []plan.Values {
	out := make([]plan.Values, len(rows))
	for i, row := range rows {
		out[i] = make(plan.Values, len(row))
		for h, v := range row {
			out[i][h] = v
			if v > 0 {
				unit := math.Pow(10, math.Floor(math.Log10(v))-4)
				out[i][h] = math.Round(v/unit) * unit
			}
		}
	}
	return out
}

// beyond is what is expected after the horizon, for a policy that looks there. One that cannot be made is left out: the policy then
// ends its plan with the forecast.
func (f *foresight) beyond(history forecast.Series) *plan.Forecast {
	if !f.needs.Beyond {
		return nil
	}
	fc, err := f.calendar.Forecast(history, len(history.Values), func(s forecast.Series, _ int) (forecast.Forecast, error) { return f.outlook(s, f.all) })
	if err != nil {
		return nil
	}
	out := f.planned(fc)
	out.Trusted = true
	return &out
}

// short says, where the known history is too short for the season, until when that lasts, what happens meanwhile and what can be done; else "".
// The text stays the same while time passes: it stands in decisions.
func (f *foresight) short(history forecast.Series) string {
	const stamp = "2006-01-02 15:04"
	known := slices.IndexFunc(history.Values, func(v float64) bool { return !math.IsNaN(v) })
	meanwhile := "workers are added as traffic demands, and none is let go"
	switch {
	case known < 0:
		return fmt.Sprintf("no arrivals are known yet, and a season of %s needs about %s of them: until then %s", job.FormatDuration(f.season), job.FormatDuration(f.needed), meanwhile)
	case history.End().Sub(history.At(known)) >= f.needed:
		return ""
	}
	since := history.At(known).Local()
	return fmt.Sprintf("arrivals are known only since %s, and a season of %s needs about %s of them: until about %s %s (older records in the topic, or a shorter forecast.season, end that sooner)",
		since.Format(stamp), job.FormatDuration(f.season), job.FormatDuration(f.needed), since.Add(f.needed+time.Minute-1).Format(stamp), meanwhile)
}

// state is what the gate remembers, to survive a restart.
func (f *foresight) state() json.RawMessage {
	raw, err := json.Marshal(f.gate.State())
	if err != nil {
		f.lg.Warn("the forecast gate's memory cannot be saved", "err", err)
		return nil
	}
	return raw
}

// at is what the last forecast expects for a moment; see [BandAt].
func (f *foresight) at(t time.Time) *Band {
	return BandAt(f.last, t)
}

// BandAt is what a forecast expects for a moment, nil when it does not reach there or has a hole.
func BandAt(f plan.Forecast, t time.Time) *Band {
	if f.Step <= 0 || t.Before(f.At) {
		return nil
	}
	i := int(t.Sub(f.At) / f.Step)
	if i >= len(f.Mean) {
		return nil
	}
	b := &Band{Mean: f.Mean[i], Lower: f.Mean[i], Upper: f.Mean[i]}
	if i < len(f.Lower) && i < len(f.Upper) {
		b.Lower, b.Upper = f.Lower[i], f.Upper[i]
	}
	if finite(b.Mean) != b.Mean || finite(b.Lower) != b.Lower || finite(b.Upper) != b.Upper {
		return nil
	}
	return b
}

// closeOn closes the model that is in use now, if one is, when ctx ends: what it is asked ends then. done waits for that.
func (f *foresight) closeOn(ctx context.Context) (done func()) {
	if f.model == nil {
		return func() {}
	}
	return f.model.CloseOn(ctx)
}

func (f *foresight) close() {
	switch {
	case f.aside != nil:
		f.aside.close(f.model)
	case f.model != nil:
		_ = f.model.Close()
	}
}
