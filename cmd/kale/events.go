package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

// pollEvery is how often the plain picture looks for news.
const pollEvery = 200 * time.Millisecond

// plainPicture writes one line for each change: decisions that scale, rescales, problems. A decision that holds without a change is no news.
func plainPicture(ctx context.Context, a *app, s pictured) error {
	e := &events{out: a.out, since: time.Now(), problems: map[string]string{}}
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		if err := e.follow(s); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return e.follow(s)
		case <-t.C:
		}
	}
}

// events turns successive views into lines.
type events struct {
	out      io.Writer
	since    time.Time // what happened before is not news
	begun    bool
	decided  time.Time         // of the last change that was written
	rescaled time.Time         // end of the last rescale that was written
	problems map[string]string // by what they say without their numbers
	manual   plan.Manual
	trained  uint64
	stopping bool
	stopped  bool
}

func (e *events) follow(s pictured) error {
	v := s.View()
	if v == nil {
		return nil
	}
	done, err := state.Last[core.Rescale](s.Store(), state.Rescales, 8)
	if err != nil {
		return err
	}
	e.take(v, done)
	return nil
}

// take writes what is new in a view and among the finished rescales.
func (e *events) take(v *core.View, done []core.Rescale) {
	if !e.begun {
		e.begun, e.decided, e.rescaled, e.manual = true, e.since, e.since, v.Manual
		e.line(v.Now, "start", "%s", headline(v))
	}
	if r := v.LastChange; r != nil && r.Decision.At.After(e.decided) {
		e.decided = r.Decision.At
		e.line(r.Decision.At, verb(r.Decision.Kind), "%d → %d: %s%s", r.Decision.Current, r.Decision.Target, r.Decision.Reason, observeOnly(r.ObserveOnly))
	}
	for _, r := range done {
		if r.Done.After(e.rescaled) {
			e.rescaled = r.Done
			e.line(r.Done, "rescaled", "%s", rescaleLine(r))
		}
	}
	if v.Manual != e.manual {
		e.manual = v.Manual
		e.line(v.Now, "order", "%s", manualLine(v.Manual))
	}
	if !v.Stopping && !v.Stopped { // what a stop takes away is no problem
		e.takeProblems(v)
	}
	e.trained = max(e.trained, v.Trained) // the last views come after the chief has ended
	if v.Stopping && !e.stopping {
		e.stopping = true
		e.line(v.Now, "stopping", "workers drain, then a last snapshot is written")
	}
	if v.Stopped && !e.stopped {
		e.stopped = true
		e.line(v.Now, "stopped", "nothing of the job runs any more; %s records are trained", whole(e.trained))
	}
}

// takeProblems writes problems that came or went. One whose numbers change is the same problem.
func (e *events) takeProblems(v *core.View) {
	now := map[string]string{}
	for _, p := range v.Problems {
		now[withoutNumbers(p)] = p
	}
	for _, p := range v.Problems {
		if _, known := e.problems[withoutNumbers(p)]; !known {
			e.problems[withoutNumbers(p)] = p
			e.line(v.Now, "problem", "%s", p)
		}
	}
	for _, key := range sortedKeys(e.problems) {
		if _, still := now[key]; !still {
			e.line(v.Now, "resolved", "%s", e.problems[key])
			delete(e.problems, key)
		}
	}
}

func (e *events) line(at time.Time, what, format string, args ...any) {
	fmt.Fprintf(e.out, "%s  %-9s %s\n", at.Local().Format("15:04:05"), what, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

func withoutNumbers(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

func verb(k plan.Kind) string {
	switch k {
	case plan.KindOut:
		return "scale out"
	case plan.KindIn:
		return "scale in"
	}
	return string(k)
}

func observeOnly(yes bool) string {
	if yes {
		return " (observed only)"
	}
	return ""
}

// rescaleLine says how a rescale went.
func rescaleLine(r core.Rescale) string {
	s := fmt.Sprintf("%d → %d in %s", r.From, r.To, shortDuration(r.Done.Sub(r.Decided)))
	if r.Aborted {
		return s + ", then another decision took its place"
	}
	if r.GapKnown {
		return s + fmt.Sprintf("; the longest wait of a partition was %s above the usual", shortDuration(r.Gap))
	}
	return s
}

func manualLine(m plan.Manual) string {
	switch {
	case m.Paused:
		return "paused: nothing is trained until resume"
	case m.Pinned:
		return fmt.Sprintf("%s until scale auto", count(m.Target, "worker"))
	}
	return "the policy decides"
}
