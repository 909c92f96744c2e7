package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/job"
)

func scaleCommand(a *app) *cobra.Command {
	var f varFlags
	c := &cobra.Command{
		Use: "scale JOB N|auto", Short: "Pin a job's number of workers, or let the policy decide again",
		Long:    "Tells the running scheduler to keep N workers until told otherwise; auto lets the policy decide again.",
		Example: "  kale scale ctr 6\n  kale scale ctr auto",
		Args:    exactly("JOB", "the number of workers (or auto)"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "auto" {
				return a.order(cmd.Context(), args[0], f, core.Order{Kind: "auto"}, "the policy decides again")
			}
			n, err := strconv.ParseUint(args[1], 10, 31) // without a sign: +1 is not one more
			switch _, swapped := strconv.ParseUint(args[0], 10, 31); {
			case err != nil && swapped == nil:
				return usagef("the job comes first: kale scale %s", quoted([]string{args[1], args[0]}))
			case err != nil || n < 1:
				return noNumber(args[1])
			}
			return a.order(cmd.Context(), args[0], f, core.Order{Kind: "scale", Target: int(n)}, fmt.Sprintf("%s from now on, until kale scale %s auto", job.Count(int(n), "worker"), quoted(args[:1])))
		},
	}
	f.register(c)
	a.jsonFlag(c, orderedJSON)
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if m := negative.FindString(err.Error()); m != "" { // a negative number looks like a flag
			return noNumber(m)
		}
		return flagError(cmd, err)
	})
	return c
}

var negative = regexp.MustCompile(`-[0-9.]+$`)

func noNumber(arg string) error {
	return usagef("%q is not a number of workers: want 1 or more, or auto", arg)
}

func pauseCommand(a *app) *cobra.Command {
	var f varFlags
	c := &cobra.Command{
		Use: "pause JOB", Short: "Stop training for a while; workers stay",
		Long: `Tells the job to train nothing until resume. Workers stay, lag grows, and the number of workers is left alone. In mode "observe" too:
Kale touches nothing there by itself, but pause, resume and stop act.`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.order(cmd.Context(), args[0], f, core.Order{Kind: "pause"}, "paused; kale resume "+args[0]+" goes on")
		},
	}
	f.register(c)
	a.jsonFlag(c, orderedJSON)
	return c
}

func resumeCommand(a *app) *cobra.Command {
	var f varFlags
	c := &cobra.Command{
		Use: "resume JOB", Short: "Go on training after pause",
		Args: exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.order(cmd.Context(), args[0], f, core.Order{Kind: "resume"}, "training goes on")
		},
	}
	f.register(c)
	a.jsonFlag(c, orderedJSON)
	return c
}

// ordered is what a person's order came to.
type ordered struct {
	Job     string   `json:"job"`
	Order   string   `json:"order"`             // scale, auto, pause, resume, stop or forget
	Workers int      `json:"workers,omitempty"` // of scale
	Changed bool     `json:"changed"`           // false: it was so already
	Says    []string `json:"says"`              // in words, a line each
}

const orderedJSON = "one JSON object: job, order, changed and what it says"

// done prints what an order came to.
func (a *app) done(o ordered) error {
	if a.asJSON {
		return printJSON(a.out, o)
	}
	for _, line := range o.Says {
		a.answer("%s\n", line)
	}
	return nil
}

// order hands an order to a job's scheduler and says that it was taken.
func (a *app) order(ctx context.Context, arg string, f varFlags, o core.Order, taken string) error {
	name, c, err := a.reachArg(ctx, arg, f)
	if err != nil {
		return err
	}
	defer c.Close()
	before := a.glimpse(ctx, c)
	if err := a.giveWithChief(ctx, name, c, o); err != nil && ended(err) {
		return a.unanswered(ctx, name, o, err)
	} else if err != nil {
		return a.asked(name, err)
	}
	idle := needless(o, before)
	says := cmp.Or(idle, taken) + besidesOrder(o, a.glimpse(ctx, c))
	return a.done(ordered{Job: name, Order: o.Kind, Workers: o.Target, Changed: idle == "", Says: []string{fmt.Sprintf("job %q: %s", name, says)}})
}

// glimpse is a scheduler's picture, nil where it does not give one soon: an order holds, whoever can be asked what comes of it.
func (a *app) glimpse(ctx context.Context, c *api.Client) *core.View {
	ctx, enough := context.WithTimeout(ctx, silentOrder)
	defer enough()
	v, err := c.Status(ctx)
	if err != nil {
		return nil
	}
	return v
}

// needless says of an order that it changed nothing, "" where it did or where that is not known. v is the picture before it.
func needless(o core.Order, v *core.View) string {
	switch {
	case v == nil:
	case o.Kind == "pause" && v.Manual.Paused && !v.PausedSince.IsZero():
		return fmt.Sprintf("it is paused already, since %s; kale resume %s goes on", clock(v.PausedSince, v.Now), v.Job)
	case o.Kind == "pause" && v.Manual.Paused:
		return fmt.Sprintf("it is paused already; kale resume %s goes on", v.Job)
	case o.Kind == "resume" && !v.Manual.Paused:
		return "it is not paused, and goes on as before"
	case o.Kind == "scale" && v.Manual.Pinned && v.Manual.Target == o.Target:
		return fmt.Sprintf("%s already, until kale scale %s auto", job.Count(o.Target, "worker"), v.Job)
	case o.Kind == "auto" && !v.Manual.Pinned:
		return "the policy decides already"
	}
	return ""
}

// besidesOrder is what an order of a number of workers meets, as the end of a sentence. v is the picture after it.
func besidesOrder(o core.Order, v *core.View) (says string) {
	if v == nil || o.Kind != "scale" && o.Kind != "auto" {
		return ""
	}
	switch {
	case v.Manual.Paused:
		says = fmt.Sprintf("; the job is paused, so that no worker comes or goes before kale resume %s", v.Job)
	case v.Unlisted != "":
		what, until := core.Behind(v.Unlisted), "does"
		if what == "" { // of a part it did
			what, _, _ = strings.Cut(v.Unlisted, ":")
		}
		if !strings.HasSuffix(what, " does not answer") {
			until = "can"
		}
		says = fmt.Sprintf("; %s, so that no worker comes or goes until it %s", what, until)
	}
	if i := slices.IndexFunc(v.Problems, func(p string) bool { return strings.HasPrefix(p, core.NoPlace) }); i >= 0 && o.Kind == "scale" && o.Target > len(v.Workers) {
		says += "; " + v.Problems[i]
	}
	if o.Kind == "scale" && v.Manual.Target == o.Target {
		if less := v.Pool.Keeps(o.Target); less != "" {
			says += "; " + less
		}
	}
	return says
}

// silentOrder is when it is said that an order waits for its scheduler.
const silentOrder = 2 * time.Second

// give hands over an order, and says so when the scheduler does not take it at once.
func (a *app) give(ctx context.Context, name string, c *api.Client, o core.Order) error {
	taken := make(chan error, 1)
	go func() { taken <- c.Order(ctx, o) }() // bounded by Order, and waited for
	select {
	case err := <-taken:
		return err
	case <-time.After(silentOrder):
	}
	fmt.Fprintf(a.err, "the scheduler of job %q has not taken the order %q yet: it is in the middle of something, or hangs; waiting\n", name, o.Kind)
	return <-taken
}

// chiefComes is for how long an order waits for a chief that does not answer: one that is new, or has moved, does within that.
const (
	chiefComes = 10 * time.Second
	chiefPoll  = 250 * time.Millisecond
)

// giveWithChief hands over an order that may be for the chief too, which is waited for a moment.
func (a *app) giveWithChief(ctx context.Context, name string, c *api.Client, o core.Order) error {
	began, said := time.Now(), false
	for {
		err := a.give(ctx, name, c, o)
		refused := new(api.Error)
		if !errors.As(err, &refused) || !refused.ChiefSilent() || time.Since(began) > chiefComes {
			return err
		}
		if !said && time.Since(began) > silentOrder {
			fmt.Fprintf(a.err, "the chief of job %q, which the order %q is for, does not answer: waiting for it, %s at most\n", name, o.Kind, job.Length(chiefComes))
			said = true
		}
		if err := wait(ctx, chiefPoll); err != nil {
			return err
		}
	}
}

// unanswered says whether an order holds whose scheduler ended before it had answered.
func (a *app) unanswered(ctx context.Context, name string, o core.Order, err error) error {
	g, v, lost := a.awaitLetGo(ctx, name)
	if lost != nil {
		return fmt.Errorf("the scheduler of job %q ended before it had answered the order %q, and whether the order holds could not be seen (%w): kale status %s%s tells",
			name, o.Kind, lost, a.stateFlag(), name)
	}
	again := "kale " + quoted(a.args)
	if v != nil {
		return fmt.Errorf("the scheduler of job %q ended before it had answered the order %q (%w), and another one has taken the job up: kale status %s%s shows the orders that it found; where this is not among them, give it again: %s",
			name, o.Kind, err, a.stateFlag(), name, again)
	}
	if g.Holds(o) {
		return fmt.Errorf("the scheduler of job %q ended before it had answered the order %q; it had written it down, so that the order holds, and the next scheduler follows it: %s",
			name, o.Kind, a.runLine(name))
	}
	return fmt.Errorf("the scheduler of job %q ended before it had taken the order %q, which does not hold: %s starts it again; then %s",
		name, o.Kind, a.runLine(name), again)
}
