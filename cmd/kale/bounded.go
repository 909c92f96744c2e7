package main

import (
	"context"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// askedFor is for how many times a.patience a cluster may answer what is asked of it in all, before a job is looked at without it.
const askedFor = 5

// bounded is a job's backend that is asked what it knows for askedFor times a.patience in all: who has several questions waits once
// for a cluster that hangs. What is done between the questions, such as to ask a forecast model that is slow, is none of the cluster's time. That it is waited for is said once.
type bounded struct {
	backend.Backend
	a    *app
	job  *job.Job
	says sync.Once

	mu     sync.Mutex // guards what follows
	asking int        // questions that are under way
	since  time.Time  // asking is more than none
	spent  time.Duration
}

func (a *app) bounded(b backend.Backend, j *job.Job) *bounded {
	return &bounded{Backend: b, a: a, job: j}
}

// begin is the beginning of a question: until when it may take. end is its end.
func (b *bounded) begin() (until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.asking == 0 {
		b.since = now
	}
	b.asking++
	return b.since.Add(askedFor*b.a.patience - b.spent)
}

func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asking--; b.asking == 0 {
		b.spent += time.Since(b.since)
	}
}

// ask asks one question within what is left of the time.
func (b *bounded) ask(ctx context.Context, question func(context.Context) error) error {
	asking, enough := context.WithDeadline(ctx, b.begin())
	defer b.end()
	defer enough()
	answered := b.a.awaiting(func() {
		b.says.Do(func() {
			b.a.advise("waiting for the backend %q, which has not answered yet, up to %s\n", b.job.Backend.Name, job.FormatDuration(askedFor*b.a.patience))
		})
	})
	err := question(asking)
	answered()
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		return backend.Errorf(backend.Unavailable, "it has not answered all that it was asked within %s", job.FormatDuration(askedFor*b.a.patience))
	}
	return err
}

// List implements backend.Backend.
func (b *bounded) List(ctx context.Context, name string) (list []backend.Status, complete bool, err error) {
	err = b.ask(ctx, func(ctx context.Context) (err error) {
		list, complete, err = b.Backend.List(ctx, name)
		return err
	})
	return list, complete, err
}

// Plan implements backend.Backend.
func (b *bounded) Plan(ctx context.Context, name string, ws []backend.Workload) (report backend.Report, err error) {
	err = b.ask(ctx, func(ctx context.Context) (err error) {
		report, err = b.Backend.Plan(ctx, name, ws)
		return err
	})
	return report, err
}

// Inventory implements backend.Backend.
func (b *bounded) Inventory(ctx context.Context) (inv backend.Inventory, err error) {
	err = b.ask(ctx, func(ctx context.Context) (err error) {
		inv, err = b.Backend.Inventory(ctx)
		return err
	})
	return inv, err
}
