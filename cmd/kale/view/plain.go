package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

// Plain writes a line for each decision that changes something, each order to pause, resume or stop, each hold for lack of knowledge when it begins, each rescale that ends and each problem that appears or
// goes away, and a status line every Options.Every. It returns nil when ctx ends or Options.EndsWhen is closed,
// a moment later at most, and an error when out fails before that.
func Plain(ctx context.Context, out io.Writer, source func() *core.View, o Options) error {
	err := bounded(ctx, o.EndsWhen, nil, func() error { return plain(ctx, out, source, o) })
	if errors.Is(err, errStuck) || ctx.Err() != nil {
		return nil // also of a terminal that was closed
	}
	return err
}

func plain(ctx context.Context, out io.Writer, source func() *core.View, o Options) error {
	t := time.NewTicker(refresh)
	defer t.Stop()
	p := printer{options: o}
	for {
		if err := p.print(out, source()); err != nil {
			return fmt.Errorf("show the job: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.EndsWhen:
			return p.print(out, source())
		case <-t.C:
		}
	}
}

// printer turns successive views into lines.
type printer struct {
	options  Options
	memory   memory
	status   time.Time // of the last status line
	change   time.Time // of the last decision that was written
	held     bool
	finished time.Time // end of the last rescale that was written
	told     time.Time // of the last line that was written
	problems []string
	shown    map[string][]string // by what is behind a problem: in which ways that was told to show
	notes    []core.Note
	began    time.Time // of the first view: what happened before is no news, however late it is known
}

// print writes what is new in a view. nil, and one that was seen before, is nothing new.
func (p *printer) print(out io.Writer, v *core.View) error {
	for _, line := range p.lines(v) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) lines(v *core.View) []string {
	if v == nil || v == p.memory.view {
		return nil
	}
	before := p.memory.view
	first := before == nil
	p.memory.see(v)
	f := Frame{View: v, Trail: p.memory.trail, Finished: p.memory.finished, Zone: p.options.Zone}
	var out []event
	out = append(out, f.stops(before)...)
	out = append(out, f.pauses(before)...)
	out = append(out, p.decisions(f, before)...)
	out = append(out, p.rescales(f, before)...)
	out = append(out, p.troubles(f)...)
	out = append(out, p.notices(f, first)...)
	every := p.options.Every
	if every <= 0 {
		every = 10 * time.Second
	}
	if p.status.IsZero() || v.Now.Sub(p.status) >= every {
		p.status = v.Now
		out = append(out, event{v.Now, "status", status(v)})
	}
	out = p.ordered(out, v.Now)
	if first {
		out = slices.Insert(out, 0, event{out[0].at, "job", p.opening(v)}) // there is a status line at least
	}
	return f.text(out)
}

// event is what one line tells: when, of what kind, and what.
type event struct {
	at         time.Time
	kind, says string
}

// ordered are events in the order of their times, which are shown in seconds. What becomes known after later lines were written has the time of the view that tells it.
func (p *printer) ordered(events []event, now time.Time) []event {
	for i, e := range events {
		if e.at.Truncate(time.Second).Before(p.told) {
			events[i].at = now
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		return a.at.Truncate(time.Second).Compare(b.at.Truncate(time.Second))
	})
	if n := len(events); n > 0 {
		p.told = events[n-1].at.Truncate(time.Second)
	}
	return events
}

// text is a line for each event.
func (f Frame) text(events []event) (lines []string) {
	for _, e := range events {
		lines = append(lines, fmt.Sprintf("%s  %-8s  %s", f.clock(e.at), e.kind, clean(e.says)))
	}
	return lines
}

func (p *printer) opening(v *core.View) string {
	text := clean(v.Job) + ", mode " + clean(v.Mode)
	if v.Mode == job.ModeObserve {
		text += " (decides and records, and touches nothing)"
	}
	text += fmt.Sprintf(", %d–%d workers, lag objective %s", v.Min, v.Max, job.Length(v.MaxLag))
	if v.Emulated {
		text += ", emulated accelerators"
	}
	return text
}

// stops writes that a stop was ordered, and that a stop became one by force.
func (f Frame) stops(before *core.View) []event {
	v := f.View
	stopped, forced := before != nil && before.Stopping, before != nil && before.Forced
	what := "a stop has been ordered: what runs is drained"
	switch {
	case !v.Stopping || stopped && (forced || !v.Forced):
		return nil
	case stopped:
		what = "the stop is one by force now: what runs ends without being drained"
	case v.Forced:
		what = "a stop by force has been ordered: what runs ends without being drained"
	}
	next := ", and the next run goes on from its last snapshot"
	if v.Stuck != "" {
		next = "; " + clean(v.Stuck) + ", and the job cannot be run again before that is mended"
	}
	return []event{{v.Now, "stop", what + next}}
}

// pauses writes that the job was paused, and that it goes on. Who did is a person: an order does not say which.
func (f Frame) pauses(before *core.View) []event {
	v := f.View
	was, who := before != nil && before.Manual.Paused, "a person paused the job"
	switch {
	case v.PausedSince.IsZero():
		who = "the job was paused before this scheduler came"
	case before == nil:
		who += " " + job.Length(max(0, v.Now.Sub(v.PausedSince))) + " ago"
	}
	switch {
	case v.Stopping:
	case v.Manual.Paused && !was:
		return []event{{v.Now, "pause", fmt.Sprintf("%s: nothing is trained, and no worker comes or goes, until kale resume %s", who, v.Job)}}
	case was && !v.Manual.Paused:
		return []event{{v.Now, "resume", "a person resumed the job: training goes on, and so do decisions"}}
	}
	return nil
}

// decisions writes changes that are new, and a hold that begins because the scheduler does not know enough; holds for a cooldown or a rescale
// under way are everyday. What a scheduler before this one decided is no news.
func (p *printer) decisions(f Frame, before *core.View) []event {
	var out []event
	v := f.View
	if v.LastChange != nil && v.LastChange.Decision.At.After(p.change) {
		for _, c := range p.changes(v, before) {
			out = append(out, event{c.Decision.At, "decision", Decided(c, c.Decision.Reason)})
		}
		p.change = v.LastChange.Decision.At
	}
	if v.Decision == nil {
		return out
	}
	held := v.Decision.Decision.Kind == plan.KindHold && v.Decision.Observation.Hold.Unknown && !v.Decision.Decision.At.Before(v.Started)
	if held && !p.held {
		out = append(out, event{v.Decision.Decision.At, "decision", Decided(v.Decision, p.holds(v))})
	}
	p.held = held
	return out
}

// holds is why the decision of now holds for lack of knowledge.
func (p *printer) holds(v *core.View) string {
	return HeldReason(v.Decision, v.Decision.Decision.Reason, slices.Concat(p.problems, v.Problems))
}

// HeldReason is a decision's reason without what is not known, where that is among the problems, which have lines of their own.
func HeldReason(r *core.Record, reason string, problems []string) string {
	why := r.Observation.Hold.Reason
	short, ends := strings.CutSuffix(reason, ": "+why)
	told := slices.ContainsFunc(problems, func(problem string) bool {
		return Same(problem, why) || core.Behind(why) != "" && core.Behind(problem) == core.Behind(why)
	})
	if !ends || !told || why == "" {
		return reason
	}
	return short + ": a problem says why"
}

// changes are the decisions between two views that changed something, in order.
func (p *printer) changes(v, before *core.View) (out []*core.Record) {
	switch {
	case before == nil && v.LastChange.Decision.At.Before(v.Started):
		return nil
	case before == nil:
		return []*core.Record{v.LastChange}
	}
	for _, r := range since[core.Record](p.options.Store, state.Decisions, before.Now) {
		if at := r.Decision.At; r.Changes() && at.After(p.change) && at.Before(v.LastChange.Decision.At) {
			out = append(out, &r)
		}
	}
	return append(out, v.LastChange)
}

// rescales writes those that ended between two views, in order.
func (p *printer) rescales(f Frame, before *core.View) (out []event) {
	last := f.Finished
	if last == nil || !last.Done.After(p.finished) {
		return nil
	}
	if before != nil {
		ended := since[core.Rescale](p.options.Store, state.Rescales, before.Now)
		for _, r := range append(slices.DeleteFunc(ended, func(r core.Rescale) bool { return !r.Decided.Before(last.Decided) || !r.Done.After(p.finished) }), *last) {
			out = append(out, event{r.Done, "rescale", RescaleWords(r, f.Trail, f.horizon())})
		}
	}
	p.finished = last.Done
	return out
}

// since are the entries of a log from a moment on. None where they cannot be read: a view has the last of them.
func since[T any](st *state.Store, l state.Log, at time.Time) (out []T) {
	if st == nil {
		return nil
	}
	if err := state.Scan(st, l, at, func(v T) bool { out = append(out, v); return true }); err != nil {
		return nil
	}
	return out
}

// troubles writes problems that came and those that are seen no longer, which a stop mends as little as a process that another one replaces. One whose
// numbers change is the same problem; of one that shows now in one way and now in another, each cause is told once. One whose subject's trouble is told in other
// words at the same look, such as worse or wider ones, goes on.
func (p *printer) troubles(f Frame) []event {
	var out []event
	var news []subject
	now := make([]string, len(f.View.Problems))
	shown := map[string][]string{}
	for i, problem := range f.View.Problems {
		now[i] = clean(problem)
		told := p.problems
		what := core.Behind(now[i])
		if what != "" {
			if shown[what] == nil {
				shown[what] = slices.Clip(p.shown[what])
			}
			told = shown[what]
		}
		if !Told(told, now[i]) {
			out = append(out, event{f.View.Now, "problem", now[i]})
			news = append(news, subjectOf(now[i]))
			if what != "" {
				shown[what] = append(told, now[i])
			}
		}
	}
	for _, problem := range p.problems {
		what := core.Behind(problem)
		if f.View.Stopping || what != "" && shown[what] != nil || slices.ContainsFunc(now, func(s string) bool { return Same(s, problem) }) {
			continue
		}
		if strings.HasSuffix(problem, core.RepairEnds) {
			continue // a note has its last word, with its numbers
		}
		if what == "" && slices.ContainsFunc(news, subjectOf(problem).meets) {
			continue
		}
		happened, _, _ := strings.Cut(problem, core.LogEnds) // the log's end was told with the problem
		if what != "" {
			happened = what
		}
		out = append(out, event{f.View.Now, "gone", happened})
	}
	p.problems, p.shown = now, shown
	return out
}

// notices writes what has happened since the last view; what happened before the first is no news. Of one whose text changes, the last word is written once; one that is under way is a problem.
func (p *printer) notices(f Frame, first bool) []event {
	var out []event
	if first {
		p.began = f.View.Now
	}
	for _, n := range f.View.Notes {
		if !first && !n.UnderWay && (!n.At.Before(p.began) || slices.ContainsFunc(p.notes, func(o core.Note) bool { return o.At.Equal(n.At) })) && !slices.ContainsFunc(p.notes, func(o core.Note) bool { return o.At.Equal(n.At) && o.Text == n.Text && !o.UnderWay }) {
			out = append(out, event{n.At, "note", n.Text})
		}
	}
	p.notes = f.View.Notes
	return out
}

// Same tells whether two problems differ in their numbers, and in what a process wrote, at most. Of two processes with nothing in common each has its own.
func Same(a, b string) bool {
	x, y := subjectOf(a), subjectOf(b)
	if x.processes() && y.processes() && !x.meets(y) {
		return false
	}
	a, _, _ = strings.Cut(a, core.LogEnds)
	b, _, _ = strings.Cut(b, core.LogEnds)
	return wordless(a) == wordless(b)
}

// Told tells whether a problem is one of those that were told: the same, or another way in which the same thing behind it shows, for the same cause.
func Told(told []string, problem string) bool {
	what := core.Behind(problem)
	return slices.ContainsFunc(told, func(s string) bool {
		return Same(s, problem) || what != "" && core.Behind(s) == what && Same(cause(s), cause(problem))
	})
}

// cause is the last part of a problem: who does not answer one question answers others as little, for the same reason.
func cause(problem string) string { return problem[strings.LastIndex(problem, ": ")+1:] }

// Cause is the last part of a problem, without what helps.
func Cause(problem string) string {
	says, _, _ := strings.Cut(strings.TrimSpace(cause(problem)), "; ")
	return says
}

// numbers are figures, lengths of time and sizes in whatever unit ("58s", "1m3s", "2.1GiB"), and which partitions.
var numbers = regexp.MustCompile(`\bpartitions? [0-9–, ]+|[0-9][0-9.,]*([KMGT]?i?B|ns|µs|ms|[dhms])?`)

func wordless(s string) string { return numbers.ReplaceAllString(s, "") }

// status is a view in one line.
func status(v *core.View) string {
	s := v.Sample
	text := "workers unknown"
	if s.Running != nil {
		text = job.Count(*s.Running, "worker")
	}
	switch {
	case v.Mode == job.ModeObserve && s.Running != nil && s.Target != *s.Running:
		text += fmt.Sprintf(", would have %d", s.Target)
	case s.Pending == nil && s.Running != nil:
		text += ", others unknown"
	case s.Pending != nil && *s.Pending > 0:
		text += fmt.Sprintf(" +%d starting", *s.Pending)
	}
	if s.Draining > 0 {
		text += fmt.Sprintf(", %d leaving", s.Draining)
	}
	if v.Manual.Paused {
		text += ", paused"
	}
	text += "  arrivals " + maybe(s.Rate, perSecond) + ", trained " + maybe(s.Trained, perSecond) + ", capacity " + maybe(s.Capacity, perSecond)
	if s.Lag == nil {
		text += "  lag unknown" + waiting(s)
	} else {
		text += "  lag " + seconds(*s.Lag)
		if *s.Lag > v.MaxLag.Seconds() {
			text += " OVER " + job.Length(v.MaxLag)
		}
	}
	if v.AUC != nil {
		text += fmt.Sprintf("  AUC so far %.4f", *v.AUC)
	}
	if v.Lost != nil && *v.Lost > 0 {
		text += fmt.Sprintf("  %s offsets LOST to retention", plan.Thousands(*v.Lost))
	}
	if v.CutOff != nil && *v.CutOff > 0 {
		text += fmt.Sprintf("  %s offsets CUT OFF the log's end once trained", plan.Thousands(*v.CutOff))
	}
	if v.Dead != nil && *v.Dead > 0 {
		switch n := plan.Thousands(*v.Dead); {
		case v.Skips:
			text += fmt.Sprintf("  %s skipped that could not be decoded", n)
		case v.DeadLetter != "":
			text += fmt.Sprintf("  %s in topic %s that could not be decoded", n, v.DeadLetter)
		}
	}
	return text
}
