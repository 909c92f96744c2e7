package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/cmd/kale/view"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// headline is a view in one line.
func headline(v *core.View) string {
	s := v.Sample
	var parts []string
	if v.State == core.StateObserved {
		return fmt.Sprintf("nothing of it runs, it would have %s (%d–%d), %s", job.Count(s.Target, "worker"), v.Min, v.Max, arriving(s))
	}
	target := "target"
	if v.Mode == job.ModeObserve {
		target = "would have"
	}
	if s.Running == nil {
		parts = append(parts, fmt.Sprintf("%s of %d–%d wanted, how many train is unknown", job.Count(s.Target, "worker"), v.Min, v.Max))
	} else {
		parts = append(parts, fmt.Sprintf("%s of %d–%d %s", job.Count(*s.Running, "worker"), v.Min, v.Max, view.Doing(s, v.Manual.Paused)))
		if s.Target != *s.Running {
			parts[0] += fmt.Sprintf(" (%s %d)", target, s.Target)
		}
	}
	if v.Manual.Paused && v.State != core.StatePaused { // which stands before the line
		parts = append(parts, "paused")
	}
	parts = append(parts, "lag "+lag(s), arriving(s))
	if s.Trained != nil && s.Running != nil && *s.Running > 0 && !v.Manual.Paused {
		parts = append(parts, number(*s.Trained)+" trained")
	}
	if p := v.Pool; p != nil && p.Short() > 0 {
		parts = append(parts, fmt.Sprintf("gets %d of %d from %s", p.Goal, p.Ask, poolOf(p)))
	} else if p != nil {
		parts = append(parts, poolOf(p))
	}
	return strings.Join(parts, ", ")
}

// poolOf names a job's pool and, where it has types of GPUs, the job's.
func poolOf(p *core.PoolShare) string {
	if p.Type == "" {
		return "pool " + p.Pool
	}
	return fmt.Sprintf("pool %s (%s)", p.Pool, p.Type)
}

// lag in seconds; unknown is never zero.
func lag(s core.Sample) string {
	if s.Lag == nil {
		return "unknown"
	}
	return job.Length(time.Duration(*s.Lag * float64(time.Second)))
}

// arriving is how many records arrive; unknown is never zero.
func arriving(s core.Sample) string {
	if s.Rate == nil {
		return "arrivals unknown"
	}
	return number(*s.Rate) + " records/s arrive"
}

// waiting is how many records wait, where that is known.
func waiting(s core.Sample) string {
	if s.LagRecords == nil {
		return ""
	}
	if *s.LagRecords == 1 {
		return ", 1 record waits"
	}
	return fmt.Sprintf(", %s records wait", plan.Thousands(*s.LagRecords))
}

// inBrackets is a reason, where there is one.
func inBrackets(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// number is a quantity with thousands set apart, and no more digits than say something.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "unknown"
	case v == 0:
		return "0"
	case math.Abs(v) < 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case math.Abs(v) >= 1e15:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return plan.Thousands(int64(math.Round(v)))
}

// stateWords are a job's state, with what it means where it is not what a job is run for.
func stateWords(v *core.View) string {
	switch {
	case v.State == core.StateObserved:
		return "observed (nothing of it runs, and nothing is started)"
	case v.State == core.StateStarting && v.Trained != nil && *v.Trained > 0:
		return "starting (nothing is trained now)"
	case v.State == core.StateRunning && v.Sample.Unknown != "":
		return "running (by its chief's word; what the backend has is not known)"
	case v.State != core.StatePaused:
		return string(v.State)
	}
	since := "since before this scheduler came"
	if !v.PausedSince.IsZero() {
		since = "since " + clock(v.PausedSince, v.Now)
	}
	return fmt.Sprintf("paused %s (nothing is trained, and no worker comes or goes, until kale resume %s)", since, v.Job)
}

// retrainingWords say what came of the last forecast model that was trained anew, and when the next one is.
func retrainingWords(r *core.Retraining, now time.Time) string {
	next := "a forecast model is being trained anew"
	if !r.Next.IsZero() {
		next = "a forecast model is trained anew at " + clock(r.Next, now)
	}
	if r.Says == "" {
		return next
	}
	return fmt.Sprintf("%s; %s: %s", next, clock(r.Last, now), r.Says)
}

func manualLine(m plan.Manual) string {
	switch {
	case m.Paused && m.Pinned:
		return fmt.Sprintf("paused: nothing is trained until resume; then %s until scale auto", job.Count(m.Target, "worker"))
	case m.Paused:
		return "paused: nothing is trained until resume"
	case m.Pinned:
		return fmt.Sprintf("%s until scale auto", job.Count(m.Target, "worker"))
	}
	return "the policy decides"
}

// listed is "a, b and c".
func listed(names []string) string { return joined(names, " and ") }

// oneOf is "a, b or c".
func oneOf(names []string) string { return joined(names, " or ") }

// joined has names with commas, and another word before the last.
func joined(names []string, last string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + last + names[len(names)-1]
}
