// Package fake is a backend that runs nothing: workloads are entries in a table. It works as the contract says, and a
// test scripts what goes wrong: the next error, a call that hangs, a list that is partial, a crash after the work was
// done. It keeps a log of the calls.
//
// A Cluster is what outlives backends; a Backend is one connection to it. What a workload does follows from its
// argv, so that scripts work through a plugin too: {"run"} runs until released, {"exit", "N"} ends with code N,
// {"crash"} crashes once and then runs, {"stubborn"} ignores a drain until it is forced, reaped or its grace is over, {"echo"} prints
// the file "hello" and the variable GREETING and ends well. Anything else cannot be started.
package fake

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// Op names a method of backend.Backend, to script and to log it.
type Op string

// The operations.
const (
	OpConfigure Op = "configure"
	OpPlan      Op = "plan"
	OpEnsure    Op = "ensure"
	OpList      Op = "list"
	OpRelease   Op = "release"
	OpLogs      Op = "logs"
	OpInventory Op = "inventory"
	OpWatch     Op = "watch"
	OpForget    Op = "forget"
)

// Call is one line of the call log.
type Call struct {
	Op  Op
	Job string
	IDs []backend.ID
	How backend.How // of a release
}

// script is what happens to one call of an operation.
type script struct {
	fail  error
	hang  bool
	crash func() // after the work is done, before the answer
}

// Backend is one connection to a Cluster. It is safe for concurrent use.
type Backend struct {
	cluster *Cluster
	lg      *slog.Logger

	mu      sync.Mutex
	jobs    map[string]bool          // configured
	owners  map[string]backend.Owner // as configured
	scripts map[Op][]script
	partial []partial // the scripted lists that are not complete
	calls   []Call
	wrong   backend.Diagnostics // what every Plan says of the block
	closed  bool
}

var _ backend.Backend = (*Backend)(nil)

// New gives a backend over the cluster. lg may be nil.
func New(lg *slog.Logger, cluster *Cluster) *Backend {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	return &Backend{cluster: cluster, lg: lg, jobs: map[string]bool{}, owners: map[string]backend.Owner{}, scripts: map[Op][]script{}}
}

// FailNext makes the next unscripted call of op fail with err, without effect.
func (b *Backend) FailNext(op Op, err error) { b.script(op, script{fail: err}) }

// HangNext makes the next unscripted call of op wait, without effect, until its context ends.
func (b *Backend) HangNext(op Op) { b.script(op, script{hang: true}) }

// CrashNext makes the next unscripted call of op do its work, then call crash (which may end the process; nil does
// nothing), then fail with Unavailable, as if the answer had been lost.
func (b *Backend) CrashNext(op Op, crash func()) {
	if crash == nil {
		crash = func() {}
	}
	b.script(op, script{crash: crash})
}

// Mistake makes every later Plan report the mistakes.
func (b *Backend) Mistake(mistakes ...backend.Diagnostic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = mistakes
}

// PartialNext makes the next List leave out the given IDs and say that it is not complete.
func (b *Backend) PartialNext(hidden ...backend.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.partial = append(b.partial, partial{hidden: hidden})
}

// UnansweredNext makes the next List tell of what lives only that it is unknown, and why, and say that it is not complete.
func (b *Backend) UnansweredNext(why *backend.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.partial = append(b.partial, partial{why: why})
}

// partial is a list that is not complete: some are left out, or none and what lives is unknown.
type partial struct {
	hidden []backend.ID
	why    *backend.Error
}

func (p partial) of(all []backend.Status) []backend.Status {
	var seen []backend.Status
	for _, st := range all {
		if slices.Contains(p.hidden, st.ID) {
			continue
		}
		if p.why != nil && st.State.Live() {
			st = backend.Status{ID: st.ID, State: backend.StateUnknown, Reason: "the cluster does not answer", Err: p.why}
		}
		seen = append(seen, st)
	}
	return seen
}

func (b *Backend) script(op Op, s script) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scripts[op] = append(b.scripts[op], s)
}

// Calls gives the log of the calls so far, oldest first.
func (b *Backend) Calls() []Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Call(nil), b.calls...)
}

// enter logs a call and plays what is scripted for it. after must run when the work is done; it gives the error of a
// scripted crash.
func (b *Backend) enter(ctx context.Context, call Call) (after func() error, err error) {
	b.mu.Lock()
	b.calls = append(b.calls, call)
	var s script
	if q := b.scripts[call.Op]; len(q) > 0 {
		s, b.scripts[call.Op] = q[0], q[1:]
	}
	closed, configured := b.closed, b.jobs[call.Job]
	b.mu.Unlock()
	if closed {
		return nil, backend.Errorf(backend.Unavailable, "%s: the fake backend is closed", call.Op)
	}
	if s.hang {
		<-ctx.Done()
	}
	if err := b.cluster.await(ctx); err != nil {
		return nil, backend.Errorf(backend.Unavailable, "%s: %w", call.Op, err)
	}
	if s.fail != nil {
		return nil, s.fail
	}
	if needsJob := call.Op != OpConfigure && call.Op != OpInventory; needsJob && !configured {
		return nil, backend.Errorf(backend.Blocked, "%s: job %q is not configured; configure it first", call.Op, call.Job)
	}
	return func() error {
		if s.crash == nil {
			return nil
		}
		s.crash()
		return backend.Errorf(backend.Unavailable, "%s: the fake backend crashed before it answered", call.Op)
	}, nil
}

// Info implements backend.Backend.
func (b *Backend) Info(context.Context) (backend.Info, error) {
	beside := false
	err := b.cluster.with(func(t *table) error { beside = t.Beside; return nil })
	return backend.Info{Name: "fake", Version: "1", Drains: true, GPUs: false, Survives: true, Beside: beside}, err
}

// Close implements backend.Backend.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *Backend) owner(job string) backend.Owner {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owners[job]
}

// Plan implements backend.Backend.
func (b *Backend) Plan(ctx context.Context, job string, ws []backend.Workload) (backend.Report, error) {
	after, err := b.enter(ctx, Call{Op: OpPlan, Job: job, IDs: idsOf(ws)})
	if err != nil {
		return backend.Report{}, err
	}
	report, err := b.cluster.plan(b.owner(job), job, ws)
	if err != nil {
		return backend.Report{}, err
	}
	b.mu.Lock()
	report.Mistakes = b.wrong
	b.mu.Unlock()
	return report, after()
}

// Ensure implements backend.Backend.
func (b *Backend) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	after, err := b.enter(ctx, Call{Op: OpEnsure, Job: job, IDs: idsOf(ws)})
	if err != nil {
		return nil, err
	}
	statuses, err := b.cluster.ensure(b.owner(job), job, ws)
	if err != nil {
		return nil, err
	}
	if err := after(); err != nil {
		return nil, err
	}
	return statuses, nil
}

// List implements backend.Backend.
func (b *Backend) List(ctx context.Context, job string) ([]backend.Status, bool, error) {
	after, err := b.enter(ctx, Call{Op: OpList, Job: job})
	if err != nil {
		return nil, false, err
	}
	all, err := b.cluster.list(b.owner(job), job)
	if err == nil {
		err = after()
	}
	if err != nil {
		return nil, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.partial) == 0 {
		return all, true, nil
	}
	p := b.partial[0]
	b.partial = b.partial[1:]
	return p.of(all), false, nil
}

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, job string, ids []backend.ID, how backend.How) error {
	after, err := b.enter(ctx, Call{Op: OpRelease, Job: job, IDs: append([]backend.ID(nil), ids...), How: how})
	if err != nil {
		return err
	}
	if how != backend.Drained && how != backend.Forced {
		return backend.Invalidf("how", "release %d workloads of job %q: %v is no way to release", len(ids), job, how)
	}
	if err := b.cluster.release(b.owner(job), job, ids, how); err != nil {
		return err
	}
	return after()
}

// Forget implements backend.Backend.
func (b *Backend) Forget(ctx context.Context, job, role string) ([]string, error) {
	after, err := b.enter(ctx, Call{Op: OpForget, Job: job})
	if err != nil {
		return nil, err
	}
	removed, err := b.cluster.forget(b.owner(job), job, role)
	if err != nil {
		return nil, err
	}
	return removed, after()
}

// Logs implements backend.Backend.
func (b *Backend) Logs(ctx context.Context, job string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	after, err := b.enter(ctx, Call{Op: OpLogs, Job: job, IDs: []backend.ID{id}})
	if err != nil {
		return nil, err
	}
	if err := after(); err != nil {
		return nil, err
	}
	return b.cluster.logs(ctx, job, id, opts)
}

// Inventory implements backend.Backend.
func (b *Backend) Inventory(ctx context.Context) (backend.Inventory, error) {
	after, err := b.enter(ctx, Call{Op: OpInventory})
	if err != nil {
		return backend.Inventory{}, err
	}
	inv, err := b.cluster.inventory()
	if err != nil {
		return backend.Inventory{}, err
	}
	return inv, after()
}

// Watch implements backend.Backend.
func (b *Backend) Watch(ctx context.Context, job string) (<-chan backend.Event, error) {
	after, err := b.enter(ctx, Call{Op: OpWatch, Job: job})
	if err != nil {
		return nil, err
	}
	if err := after(); err != nil {
		return nil, err
	}
	events := make(chan backend.Event)
	// Ends with ctx; owns events; reads the cluster.
	go func() {
		defer close(events)
		seen := map[backend.ID]backend.State{}
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			all, _ := b.cluster.list(b.owner(job), job) // a hint: a failure shows in the caller's own List
			for _, s := range all {
				if seen[s.ID] == s.State {
					continue
				}
				seen[s.ID] = s.State
				select {
				case events <- backend.Event{ID: s.ID, State: s.State}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events, nil
}

// watchEvery is how often a watch looks at the table.
const watchEvery = 20 * time.Millisecond

func idsOf(ws []backend.Workload) []backend.ID {
	var ids []backend.ID
	for _, w := range ws {
		ids = append(ids, w.ID)
	}
	return ids
}

// Configure implements backend.Backend. The block may hold slots (a number, replaces the cluster's), and crash_on or
// hang_on (an Op): the first such call after a Configure that sees no file named once crashes the process, or hangs;
// the file is made first, so that it happens one time only.
func (b *Backend) Configure(ctx context.Context, cfg backend.Config) (backend.Diagnostics, error) {
	after, err := b.enter(ctx, Call{Op: OpConfigure, Job: cfg.Job})
	if err != nil {
		return nil, err
	}
	if err := backend.ValidJob(cfg.Job); err != nil {
		return nil, err
	}
	blk, diags := decode(cfg)
	if diags.HasErrors() {
		return diags, nil
	}
	if blk.Slots != nil {
		if err := b.cluster.setSlots(*blk.Slots); err != nil {
			return nil, err
		}
	}
	if blk.Once != nil {
		if err := b.arm(blk); err != nil {
			return nil, fmt.Errorf("script the fake for job %q: %w", cfg.Job, err)
		}
	}
	b.mu.Lock()
	b.jobs[cfg.Job], b.owners[cfg.Job] = true, cfg.Owner
	b.mu.Unlock()
	return diags, after()
}
