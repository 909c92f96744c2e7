package job

import (
	"fmt"
	"strings"
)

// farTooMany is what a policy may ask for of what is there, before it is told that it asks for workers.max at once: as much as doubles twice. [ours]
const farTooMany = 4

// idleBy is a parameter by which a policy never acts within the limits.
type idleBy struct{ name, summary, detail string }

// What a policy that never acts does not do.
const (
	neverOut    = "Workers never come"
	neverIn     = "Workers never go"
	alwaysAtMax = "As good as always workers.max"
)

// checkInert warns of a policy that by its own numbers never acts between workers.min and workers.max.
func (d *decoder) checkInert(j *Job) {
	if j.Workers.Min >= j.Workers.Max || !d.ok("autoscale.policy", "workers.min", "workers.max") {
		return
	}
	least, most := float64(max(j.Workers.Min, 1)), float64(j.Workers.Max)
	for _, i := range append(j.Autoscale.inert(most/least), j.Autoscale.swamped(least, most)...) {
		if path := "autoscale.params." + i.name; d.ok(path) {
			d.warn(d.written(path, []string{"autoscale.policy"}), i.summary, "%s", i.detail)
		}
	}
}

// inert are the parameters by which workers never come, or never go; span is how many times workers.min workers.max are.
func (a Autoscale) inert(span float64) (out []idleBy) {
	say := func(name, summary, format string, args ...any) {
		out = append(out, idleBy{name, summary, fmt.Sprintf(format, args...)})
	}
	target, tolerance := a.number("target"), a.number("tolerance")
	const full = 1e-9 // of what is rounded
	switch a.Policy {
	case "hpa":
		if demand := a.number("demand") != 0; demand && 1+tolerance >= span {
			say("tolerance", neverOut, "By tolerance = %g usage would have to be %.4g times the target, and workers.max is %.4g times workers.min: a scale-out comes only when more arrives than workers.max train. "+
				"Lower it: the HPA's is 0.1.", tolerance, 1+tolerance, span)
		} else if !demand && 1/target-1 <= tolerance+full {
			say("tolerance", neverOut, "By tolerance = %g usage would have to be more than %.4g times the target of %g, and workers are never more than 100 %% busy. Lower tolerance or target.", tolerance, 1+tolerance, target)
		}
	case "autopilot", "autopilot-short":
		if margin := a.number("margin"); a.number("demand") == 0 && (1+margin)/target <= 1+full {
			say("target", neverOut, "By target = %g and margin = %g workers that are all 100 %% busy ask for no more of them. Lower target, or give a margin.", target, margin)
		}
	case "flink":
		if boundary := a.number("boundary"); boundary >= target-full {
			say("boundary", neverIn, "By boundary = %g and target = %g usage would have to fall below 0 for a scale-in. Keep boundary below target.", boundary, target)
		}
	}
	if (a.Policy == "hpa" || a.Policy == "keda") && tolerance >= 1 {
		of := "usage"
		if a.Policy == "keda" {
			of = "the backlog"
		}
		say("tolerance", neverIn, "By tolerance = %g even %s of nothing is as good as the target. Keep it below 1: the HPA's is 0.1.", tolerance, of)
	}
	return out
}

// swamped are the parameters by which what keeps the least workers busy asks for more than the most.
func (a Autoscale) swamped(least, most float64) []idleBy {
	margin, target := a.number("margin"), 1.0
	var names []string
	if margin > 0 {
		names = append(names, "margin")
	}
	switch a.Policy {
	case "follow":
	case "hpa", "autopilot", "autopilot-short", "madu", "flink":
		if target = a.number("target"); target < 1 {
			names = append(names, "target")
		}
	default:
		return nil
	}
	asks := (1 + margin) / target
	if asks < farTooMany || asks*least <= most {
		return nil
	}
	by := make([]string, len(names))
	for i, name := range names {
		by[i] = fmt.Sprintf("%s = %g", name, a.number(name))
	}
	return []idleBy{{names[0], alwaysAtMax, fmt.Sprintf("By %s it asks for %.4g times the workers that what arrives keeps busy: whatever keeps workers.min = %g busy asks for more than workers.max = %g.",
		strings.Join(by, " and "), asks, least, most)}}
}
