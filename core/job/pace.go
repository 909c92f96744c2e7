package job

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// How much longer than what it is held against a time of a policy may be before that is told. Published defaults pass at the objective and the day that they are made
// for: Flink's 20 minutes to a decision at Kale's max_lag of as much, Autopilot's window of three days.
const (
	farBeyondLag      = 4   // times slo.max_lag, of what keeps workers from coming
	farBeyondSeason   = 4   // times the job's day, of what keeps workers from going
	farBeyondEmulated = 100 // times slo.max_lag, of the same where steps are emulated: such a job's days are short, too
)

// pace is a time by which a policy acts late.
type pace struct {
	path string // what sets it
	does string // with %s for the time
	span time.Duration
}

// checkPace warns of a policy that acts late by its own times, held against the objective, or against the time in which the job's load comes and goes.
func (d *decoder) checkPace(j *Job) {
	a := j.Autoscale
	if a.Policy == PolicyStatic || j.Workers.Min == j.Workers.Max || !d.ok("autoscale.policy", "slo.max_lag") {
		return
	}
	out, in := paces(a)
	if a.Tick <= j.Forecast.Horizon { // else checkReach has told of it
		out = append(out, pace{"autoscale.tick", "it is %s from one decision to the next", a.Tick})
	}
	told := func(late []pace, than, summary, detail string, args ...any) {
		d.warn(d.written(late[0].path, []string{"autoscale.policy", than}), summary, detail, append(args, said(late), named(late))...)
	}
	lag := j.SLO.MaxLag
	if late := d.longer(out, farBeyondLag*lag); len(late) > 0 {
		told(late, "slo.max_lag", "Too slow for max_lag", "slo.max_lag is %s, and with policy %q %s: what was not expected is answered when the objective is broken. Shorten %s.",
			FormatDuration(lag), a.Policy)
	}
	if !d.ok("forecast.season") || len(j.Forecast.Season) == 0 {
		return
	}
	season := j.Forecast.Season[0]
	if late := d.longer(in, farBeyondSeason*season); len(late) > 0 {
		told(late, "forecast.season", "Workers go too late", "forecast.season is %s, and with policy %q %s: what a peak needs is held through many troughs. Shorten %s.",
			FormatDuration(season), a.Policy)
	} else if late := d.longer(in, farBeyondEmulated*lag); len(late) > 0 && j.Workers.EmulateStep > 0 && d.ok("workers.emulate_step") {
		told(late, "slo.max_lag", "Workers go too late", "Steps are emulated (workers.emulate_step) and slo.max_lag is %s, as on a shortened scale of time; but with policy %q %s. Shorten %s on that scale, too.",
			FormatDuration(lag), a.Policy)
	}
}

// paces are the times by which workers come late, and go late.
func paces(a Autoscale) (out, in []pace) {
	of := func(name, does string) pace {
		return pace{"autoscale.params." + name, does, time.Duration(a.number(name) * float64(time.Minute))}
	}
	switch a.Policy {
	case "hpa", "keda":
		out = append(out, of("up_window", "a scale-out waits until it was wanted for %s"))
		in = append(in, of("down_window", "a scale-in waits until it was wanted for %s"))
	case "autopilot", "autopilot-short":
		window := of("window", "no fewer workers are kept than the usage of the last %s asks for")
		ignored := pace{window.path, "usage that is higher counts once it has lasted for %s (percentile)", ignoredFor(window.span, a.number("percentile"))}
		out, in = append(out, ignored), append(in, window, of("defer", "a scale-in waits until it was wanted for %s"))
	case "flink":
		out = append(out, of("window", "a decision needs metrics of %s, anew after each rescale"), of("stabilisation", "nothing is measured for %s after a rescale"),
			of("catch_up", "a backlog is to be caught up within %s"))
		in = append(in, of("down_interval", "a scale-in waits until it was wanted for %s"))
	case "madu":
		out = append(out, of("every", "it is %s from one plan to the next"))
	}
	if a.number("guard") != 0 {
		out = append(out, pace{"autoscale.cooldown_out", "it is %s from one scale-out to the next", a.CooldownOut})
		in = append(in, pace{"autoscale.cooldown_in", "a scale-in waits for %s after any rescale", a.CooldownIn})
	}
	return out, in
}

// number is what a parameter of the policy is set to, or its default.
func (a Autoscale) number(name string) float64 {
	if v, set := a.Params[name]; set {
		return v
	}
	for _, p := range policyNamed(a.Policy).all() {
		if p.name == name {
			return p.def
		}
	}
	return 0
}

// ignoredFor is how much of Autopilot's window its percentile leaves out, in whole averages: over 5 minutes, or an eighth of it (core/plan).
func ignoredFor(window time.Duration, percentile float64) time.Duration {
	average := min(5*time.Minute, window/8)
	if average <= 0 {
		return 0
	}
	return time.Duration(math.Floor((1-percentile)*float64(window/average)+1e-9)) * average
}

// longer are those that are longer than a limit and could be read, the longest first.
func (d *decoder) longer(all []pace, limit time.Duration) []pace {
	late := slices.DeleteFunc(slices.Clone(all), func(p pace) bool { return p.span <= limit || !d.ok(p.path) })
	slices.SortStableFunc(late, func(a, b pace) int { return cmp.Compare(b.span, a.span) })
	return late
}

// said says what they do; named names what sets them.
func said(all []pace) string {
	var out []string
	for _, p := range all {
		out = append(out, fmt.Sprintf(p.does, FormatDuration(p.span)))
	}
	return strings.Join(out, "; ")
}

func named(all []pace) string {
	var out []string
	for _, p := range all {
		out = append(out, p.path)
	}
	return strings.Join(out, " and ")
}
