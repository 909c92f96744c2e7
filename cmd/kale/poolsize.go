package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// sizePool asks the backends of jobs how many GPUs there are, of each type of which the pool file does not say it: those that the blocks of the type's jobs may
// have, whoever holds them now. jobs were read without mistakes. What is not known is a mistake in the pool file. errShown: of some it is not known for what was told already,
// or is wrong with the block of one, which is told with the job.
func (a *app) sizePool(ctx context.Context, rules *job.Pool, jobs []*loaded) (diags hcl.Diagnostics, told error) {
	for _, typ := range rules.Unsized() {
		unknown := func(why string, args ...any) {
			diags = append(diags, rules.UnsizedAt(typ, "How many GPUs there are is not known", fmt.Sprintf(why, args...)+" Write gpus = … here."))
		}
		of := slices.DeleteFunc(slices.Clone(jobs), func(l *loaded) bool { return rules.Of(l.Job).Type != typ })
		slots := slices.IndexFunc(of, func(l *loaded) bool { return l.Workers.GPUs == 0 })
		switch {
		case len(of) == 0:
			unknown("No job runs on this type, whose backend could be asked.")
			continue
		case slots >= 0:
			unknown("Workers of job %q take no GPUs (workers.gpus), so that this is of slots, which only you can count.", of[slots].Name)
			continue
		}
		n, err := a.countGPUs(ctx, of)
		switch {
		case ctx.Err() != nil:
			return diags, err
		case errors.Is(err, errShown):
			told = err
			continue
		case err != nil:
			unknown("%v.", err)
			continue
		case n == 0:
			unknown("Backend %s has none that %s may have.", backendsOf(of), listed(namesOf(of)))
			continue
		}
		rules.Size(typ, n)
		what := "pool " + fmt.Sprintf("%q", rules.Name)
		if typ != "" {
			what = fmt.Sprintf("type %q of %s", typ, what)
		}
		a.advise("%s has %s: what backend %s has for %s now\n", what, job.Count(n, "GPU"), backendsOf(of), listed(namesOf(of)))
	}
	return diags, told
}

// backendsOf names the backends of jobs.
func backendsOf(jobs []*loaded) string {
	var names []string
	for _, l := range jobs {
		if name := fmt.Sprintf("%q", l.Backend.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

// countGPUs is how many GPUs the backends of jobs have for them, each counted once. errShown: a plugin is not there, which was told, or there is a mistake in a block, which is not told here.
func (a *app) countGPUs(ctx context.Context, jobs []*loaded) (n int, err error) {
	plugins := map[string]*backend.Client{} // by name; each knows all of its jobs, so that it counts what several may have once
	defer func() {
		for _, b := range plugins {
			err = errors.Join(err, b.Close())
		}
	}()
	var order []*loaded // the first of each
	for _, l := range jobs {
		b := plugins[l.Backend.Name]
		if b == nil {
			if b, err = a.launch(ctx, a.logger("warn"), l); err != nil {
				return 0, err
			}
			plugins[l.Backend.Name], order = b, append(order, l)
		}
		answered := a.awaitBackend(l.Job)
		diags, err := core.ConfigureBackend(ctx, b, l.Job, l.dir)
		answered()
		if err != nil {
			return 0, err
		}
		if diags.HasErrors() {
			l.wrongBlock = true
			return 0, errShown
		}
	}
	for _, l := range order {
		inv, err := a.bounded(plugins[l.Backend.Name], l.Job).Inventory(ctx)
		if err != nil {
			return 0, fmt.Errorf("backend %q does not say what it has: %w", l.Backend.Name, err)
		}
		n += inv.Total
	}
	return n, nil
}
