package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/report"
)

// workerTable lists the workers where there is room: an empty line, a head and a line for each, the first ones when there are more.
func (f Frame) workerTable(room, width int) []string {
	workers := f.View.Workers
	if room < 4 || len(workers) == 0 || width < 72 {
		return nil
	}
	const form = "%-10s%-14s %-11s %-11s %11s %6s %7s  %s"
	out := []string{"", f.dim(fmt.Sprintf(form, "", "worker", "allocation", "member", "records/s", "busy", "queue", "partitions"))}
	shown := min(len(workers), room-2)
	if shown < len(workers) {
		shown--
	}
	for _, w := range workers[:shown] {
		trains, busy, queue := "-", "-", "-"
		if w.Rate != nil && w.Busy != nil && w.Queue != nil {
			trains, busy, queue = rate(*w.Rate), percent(*w.Busy), rate(float64(*w.Queue))
		}
		out = append(out, strings.TrimRight(fmt.Sprintf(form, "", clean(w.ID), clean(w.Backend), clean(w.Member), trains, busy, queue, Partitions(w.Partitions)), " "))
	}
	if more := len(workers) - shown; more > 0 {
		out = append(out, f.dim(fmt.Sprintf("%-10sand %d more: kale status lists them", "", more)))
	}
	return out
}

// Partitions writes a worker's sorted partitions as ranges: 0-3,6. One without any is fed by the others.
func Partitions(p []int32) string {
	if len(p) == 0 {
		return "-"
	}
	var parts []string
	for i := 0; i < len(p); {
		j := i
		for j+1 < len(p) && p[j+1] == p[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(p[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", p[i], p[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// lateSettled is how much later than it was done a rescale is settled that something held up: more than from one look to the next.
const lateSettled = 3 * time.Second

// gapWords say for how long a rescale interrupted training somewhere, with what goes before; a start interrupts nothing.
func gapWords(r core.Rescale) string {
	switch {
	case r.From < 1:
		return ""
	case !r.GapKnown:
		return ", gap unknown"
	case r.Gap > r.Done.Sub(r.Decided):
		return ", gap " + job.Length(r.Gap) + " (a partition waited on after that)"
	}
	return ", gap " + job.Length(r.Gap)
}

// RescaleWords says how a finished rescale went: what it changed, how long it took, the gap in training, and whether the new workers trained
// before the load that needed them, as far as samples tell. samples are by time; horizon is the forecast's.
func RescaleWords(r core.Rescale, samples []core.Sample, horizon time.Duration) string {
	what := "scale-out"
	switch {
	case r.From < 1:
		what = "start"
	case r.Kind == plan.KindIn:
		what = "scale-in"
	}
	text := fmt.Sprintf("%s %d → %d", what, r.From, r.To)
	if r.Unfinished != "" {
		given := " given up after " + job.Length(r.Done.Sub(r.Decided)) + ": " + clean(r.Unfinished)
		if r.CameAbout {
			return text + " has come about since; it had been" + given
		}
		return text + given
	}
	if r.Aborted {
		return text + " replaced by another decision after " + job.Length(r.Done.Sub(r.Decided))
	}
	text += " took " + job.Length(r.Done.Sub(r.Decided))
	if later := r.Settled.Sub(r.Done); later >= lateSettled {
		text += ", settled " + job.Length(later) + " later"
	}
	if r.Join != nil && r.Join.Idle {
		text += ", " + r.Join.Worker + " has got nothing to train yet"
	}
	text += gapWords(r)
	if ahead := report.Ahead(r, samples, horizon); ahead != nil {
		if *ahead >= 0 {
			text += ", " + job.Length(*ahead) + " ahead of the load"
		} else {
			text += ", " + job.Length(-*ahead) + " after the load came"
		}
	}
	return text
}
