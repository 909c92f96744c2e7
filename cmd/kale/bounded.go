package main

import (
	"context"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// bounded is a job's backend that is asked what it knows for askedFor times a.patience in all, from the first question on, and no more once its cluster has not
// answered: who has several questions waits once for one that is away. That it is waited for is said once.
type bounded struct {
	backend.Backend
	a    *app
	job  *job.Job
	says sync.Once

	mu     sync.Mutex
	until  time.Time // zero: it was not asked yet
	silent error     // nil: it has answered so far
}

func (a *app) bounded(b backend.Backend, j *job.Job) *bounded {
	return &bounded{Backend: b, a: a, job: j}
}

// ask asks one question within what is left of the time.
func (b *bounded) ask(ctx context.Context, question func(context.Context) error) error {
	until, silent := b.left()
	if silent != nil {
		return silent
	}
	asking, enough := context.WithDeadline(ctx, until)
	defer enough()
	answered := b.a.awaiting(func() {
		b.says.Do(func() {
			b.a.advise("waiting for the backend %q, which has not answered yet, up to %s\n", b.job.Backend.Name, job.FormatDuration(askedFor*b.a.patience))
		})
	})
	err := question(asking)
	answered()
	if err == nil || ctx.Err() != nil || backend.CodeOf(err) != backend.Unavailable { // who asks has had enough, which says nothing of the cluster
		return err
	}
	if asking.Err() != nil {
		err = backend.Errorf(backend.Unavailable, "it has not answered all that it was asked within %s", job.FormatDuration(askedFor*b.a.patience))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = err
	return err
}

// left is until when the backend may be asked, and why it is not asked any more.
func (b *bounded) left() (until time.Time, silent error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		b.until = time.Now().Add(askedFor * b.a.patience)
	}
	return b.until, b.silent
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
