package main

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
)

// recordFlags are the flags of commands that hold a job's features against what is in its topic.
type recordFlags struct{ any bool }

func (f *recordFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&f.any, "any-records", false, "go on although the topic's newest records do not fit the features: what is wrong is only a warning")
}

// askBrokers asks the brokers about the job's topics and their newest records, and holds the job against the answer.
func askBrokers(ctx context.Context, j *job.Job, f recordFlags) (job.TopicInfo, hcl.Diagnostics, error) {
	info, diags, err := doctor.CheckTopics(ctx, j)
	if err != nil || diags.HasErrors() {
		return info, diags, err
	}
	_, more, err := doctor.CheckRecords(ctx, j)
	if err != nil {
		return info, diags, err
	}
	if f.any {
		more = warnings(more)
	}
	load, err := doctor.CheckThroughput(ctx, j, time.Now())
	return info, slices.Concat(diags, more, load), err
}

// warnings are diagnostics that forbid nothing.
func warnings(diags hcl.Diagnostics) hcl.Diagnostics {
	out := slices.Clone(diags)
	for i, d := range out {
		w := *d
		w.Severity = hcl.DiagWarning
		out[i] = &w
	}
	return out
}

// preflight is everything that must hold before a job is planned or run: what the brokers say, what this machine has, and that the trainer
// works. It changes nothing.
//
// Brokers that do not answer are an error to whom their answer decides (validate, the first run of a job), save for a job that ran here before: it had a
// good topic and good records, they may come back, and a scheduler that is started meanwhile holds what is. With lenient they are only a warning.
func (a *app) preflight(ctx context.Context, l *loaded, f recordFlags, lenient bool) (job.TopicInfo, hcl.Diagnostics, error) {
	info, diags, err := a.brokers(ctx, l, f, lenient)
	if err != nil {
		return info, nil, err
	}
	if !l.again { // else its start was pinned then
		diags = append(diags, l.StartDiagnostics(time.Now())...)
	}
	return info, slices.Concat(l.lacking, diags, doctor.CheckState(l.dir), core.CheckFolder(l.Job), core.CheckForecast(l.Job)), nil
}

// brokers is the part of preflight that they answer.
func (a *app) brokers(ctx context.Context, l *loaded, f recordFlags, lenient bool) (job.TopicInfo, hcl.Diagnostics, error) {
	f.any = f.any || l.again
	info, diags, err := askBrokers(ctx, l.Job, f)
	if info.Err != nil && (l.again || lenient) {
		diags = warnings(diags)
	}
	return info, diags, err
}
