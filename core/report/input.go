package report

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

// Input is all that a report shows.
type Input struct {
	Meta
	Samples []core.Sample
	// Rescales are the finished ones, by time.
	Rescales []Rescale
	// Losses are records that were not trained.
	Losses []core.Loss
	// Decisions are shown with their arithmetic, by time.
	Decisions []core.Record
	// Outlook is a forecast that is drawn beyond the last sample; the zero value draws none.
	Outlook plan.Forecast
	// Summary is shown first, in this order; without one, [Summarise]'s is.
	Summary []Tile
	// Problems are what stands in the job's way when the report is made; they are shown before all else.
	Problems []string
	// Notes are sentences under the summary.
	Notes []string
}

// Meta says whose report it is and what its measures are.
type Meta struct {
	Job string
	// Title is the heading; "" is the job's name.
	Title string
	// From and To bound what is read from a store. Zero: all that there is.
	From, To time.Time
	// CountedFrom and CountedTo bound what the summary is of, where that is a part of what is shown; zero: all.
	CountedFrom, CountedTo time.Time
	// Mode and Policy are those of the job file's autoscale block.
	Mode, Policy string
	MaxLag       time.Duration
	// Horizon is how far ahead the job forecasts.
	Horizon  time.Duration
	Min, Max int
	// GPUs is what one worker holds; 0: a slot.
	GPUs int
	// Emulated says that workers have emulated accelerators.
	Emulated bool
	// Outlook asks for the newest forecast beyond the last sample.
	Outlook bool
	// Generated and Version stand in the last line.
	Generated time.Time
	Version   string
}

// MetaOf is what a job file says.
func MetaOf(j *job.Job) Meta {
	return Meta{
		Job: j.Name, Mode: j.Autoscale.Mode, Policy: j.Autoscale.Policy, MaxLag: j.SLO.MaxLag, Horizon: j.Forecast.Horizon,
		Min: j.Workers.Min, Max: j.Workers.Max, GPUs: j.Workers.GPUs, Emulated: j.Workers.EmulateStep > 0,
	}
}

// Tile is one fact of the summary, as it is to be read: "99.98 %", and in Note "of 120 s".
type Tile struct {
	Name  string
	Value string
	Note  string
	// Verdict colours the tile.
	Verdict Verdict
}

// Verdict says whether a fact is what it should be.
type Verdict int

// The verdicts.
const (
	Neutral Verdict = iota
	Good
	Bad
)

// Rescale is a change of the number of workers, and whether it came before the load that needed it.
type Rescale struct {
	core.Rescale
	// Ahead is how long before that load the first new worker trained (negative: after it); nil when the load never came, and for a scale-in.
	Ahead *time.Duration
}

// Bounds of what [FromStore] takes from the log of decisions.
const (
	shownChanges = 200 // the newest that changed something
	shownOthers  = 10  // the newest of the rest
)

// FromStore reads a job's report from its state. From and To of the result are those of the samples.
func FromStore(st *state.Store, m Meta) (Input, error) {
	in := Input{Meta: m}
	err := state.Scan(st, state.Samples, m.From, func(s core.Sample) bool {
		s.Applied = nil
		if m.within(s.At) {
			in.Samples = append(in.Samples, s)
		}
		return m.To.IsZero() || !s.At.After(m.To)
	})
	if err != nil {
		return Input{}, fmt.Errorf("report of job %q: %w", m.Job, err)
	}
	err = state.Scan(st, state.Rescales, m.From, func(r core.Rescale) bool {
		if m.within(r.Done) {
			in.Rescales = append(in.Rescales, Rescale{Rescale: r})
		}
		return m.To.IsZero() || !r.Done.After(m.To)
	})
	if err != nil {
		return Input{}, fmt.Errorf("report of job %q: %w", m.Job, err)
	}
	rollbacks, err := core.Rollbacks(st, m.From)
	if err != nil {
		return Input{}, fmt.Errorf("report of job %q: %w", m.Job, err)
	}
	for _, r := range rollbacks {
		if m.within(r.At) {
			in.Notes = append(in.Notes, moment(r.At, time.Time{})+" UTC: "+r.String()+".")
		}
	}
	losses, err := core.Losses(st, time.Time{})
	if err != nil {
		return Input{}, fmt.Errorf("report of job %q: %w", m.Job, err)
	}
	for _, l := range losses {
		if m.within(l.Until) {
			in.Losses = append(in.Losses, l)
			in.Notes = append(in.Notes, moment(l.At, time.Time{})+" to "+moment(l.Until, l.At)+" UTC: "+l.String()+".")
		}
	}
	if err := in.readDecisions(st); err != nil {
		return Input{}, fmt.Errorf("report of job %q: %w", m.Job, err)
	}
	if len(in.Samples) > 0 {
		in.From, in.To = in.Samples[0].At, in.Samples[len(in.Samples)-1].At
	}
	for i := range in.Rescales {
		in.Rescales[i].Ahead = Ahead(in.Rescales[i].Rescale, in.Samples, m.Horizon)
	}
	in.Summary = Summarise(in)
	return in, nil
}

func (m Meta) within(t time.Time) bool { return !t.Before(m.From) && (m.To.IsZero() || !t.After(m.To)) }

// readDecisions keeps the newest changes and the newest few of the rest; memory stays bounded however long the log is.
func (in *Input) readDecisions(st *state.Store) error {
	var changes, others []core.Record
	var newest *core.Record
	err := state.Scan(st, state.Decisions, in.From, func(r core.Record) bool {
		at := r.Decision.At
		if !in.within(at) {
			return in.To.IsZero() || !at.After(in.To)
		}
		newest = &r
		if r.Changes() {
			changes = keep(changes, r, shownChanges)
		} else {
			others = keep(others, r, shownOthers)
		}
		return true
	})
	if err != nil {
		return err
	}
	in.Decisions = slices.Concat(changes, others)
	slices.SortStableFunc(in.Decisions, func(a, b core.Record) int { return a.Decision.At.Compare(b.Decision.At) })
	if in.Meta.Outlook && newest != nil {
		in.Outlook = newest.Observation.Forecast.Band()
	}
	return nil
}

func keep(list []core.Record, r core.Record, n int) []core.Record {
	if len(list) == n {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, r)
}

// check says why nothing can be drawn, and brings the samples in order.
func (in *Input) check() error {
	if len(in.Samples) == 0 {
		err := errors.New("no samples: the scheduler has not looked at the job in this time")
		return fmt.Errorf("report of job %q: %w; run the job first, or choose another time", in.Job, err)
	}
	byTime := func(a, b core.Sample) int { return a.At.Compare(b.At) }
	if !slices.IsSortedFunc(in.Samples, byTime) {
		in.Samples = slices.Clone(in.Samples)
		slices.SortStableFunc(in.Samples, byTime)
	}
	return nil
}
