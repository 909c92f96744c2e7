package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
)

// newProcessesEvery is how often following logs looks for processes that have come, and how soon it takes up one that broke off.
const newProcessesEvery = 2 * time.Second

// following prints what processes of a job write as they come and go.
type following struct {
	a       *app
	src     logSource
	process string // of one of them, with or without its generation; "": of all
	fail    context.CancelCauseFunc
	seen    map[string]bool
	open    atomic.Int32 // how many are being printed
	all     sync.WaitGroup
	mu      sync.Mutex // of the output: lines are written whole; and of told
	told    reasons
}

// followLogs prints the last lines of the logs of a job's processes, or of one, and goes on until ctx ends, nobody reads them any more, the job has stopped, or the
// one has ended that was named with its generation. What comes later is printed from its first line.
func (a *app) followLogs(ctx context.Context, src logSource, job, process string, past int) error {
	ctx, done := whileRead(ctx, a.out)
	defer done()
	printing, fail := context.WithCancelCause(ctx)
	f := &following{a: a, src: src, process: process, fail: fail, seen: map[string]bool{}, told: reasons{}}
	err := f.follow(printing, job, past)
	if cause := context.Cause(printing); cause != nil {
		err = cause // of what else went wrong
	}
	fail(nil)
	f.all.Wait()
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it usually ends, or a reader that has read enough
	}
	return err
}

func (f *following) follow(ctx context.Context, job string, past int) error {
	names, _, err := f.a.logProcesses(ctx, f.src)
	if err != nil {
		return err
	}
	begin := f.wanted(names)
	if f.process != "" && len(begin) == 0 {
		rc, err := f.src.open(ctx, f.process, backend.LogOptions{Tail: -1}) // says that there is none, and which there are
		if err != nil {
			return err
		}
		rc.Close()
		begin = []string{f.process}
	}
	if f.process != "" { // in those before the newest there is nothing to follow
		for _, name := range begin[:len(begin)-1] {
			f.seen[name] = true
		}
		begin = begin[len(begin)-1:]
	}
	f.start(ctx, begin, past)
	told := ""
	for {
		if err := wait(ctx, newProcessesEvery); err != nil {
			return err
		}
		if f.open.Load() == 0 {
			if ctx.Err() != nil { // which has ended them
				return ctx.Err()
			}
			if over, err := f.ended(ctx, job); over || err != nil {
				return err
			}
		}
		names, unknown, err := f.src.processes(ctx)
		if err != nil {
			unknown = err.Error()
		}
		if unknown != told && unknown != "" && ctx.Err() == nil {
			f.a.advise("kale: whether more processes have come is unknown: %s; trying again\n", unknown)
		}
		told = unknown
		later := f.wanted(names)
		if f.process != "" && len(later) > 0 && !f.seen[later[len(later)-1]] {
			f.a.advise("%s goes on as %s\n", f.process, later[len(later)-1])
		}
		f.start(ctx, later, 0)
	}
}

// wanted are those of some processes that are to be printed, by rank and generation.
func (f *following) wanted(names []string) []string {
	var ids []backend.ID
	for _, name := range names {
		if id, err := backend.ParseID(name); err == nil && (f.process == "" || f.process == name || f.process == fmt.Sprintf("%s-%d", id.Role, id.Rank)) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, backend.ID.Compare)
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// start begins to print the logs that are not printed yet.
func (f *following) start(ctx context.Context, names []string, past int) {
	for _, name := range names {
		if f.seen[name] {
			continue
		}
		f.seen[name] = true
		f.open.Add(1)
		f.all.Go(func() { // ends with ctx or the process
			defer f.open.Add(-1)
			f.print(ctx, name, past)
		})
	}
}

// ended says, when no process writes, whether none will: the job has stopped, or the process was named with its generation.
func (f *following) ended(ctx context.Context, job string) (bool, error) {
	if _, err := backend.ParseID(f.process); err == nil {
		f.a.advise("%s has ended\n", f.process)
		return true, nil
	}
	_, g, err := f.a.viewOrGlance(ctx, job, false)
	if err != nil || g == nil || g.State != core.StateStopped {
		return false, err
	}
	var names []string
	for _, id := range g.Processes {
		names = append(names, id.String())
	}
	f.start(ctx, f.wanted(names), 0) // those that came and went since the last look
	f.all.Wait()
	f.a.advise("job %q has stopped: its processes write no more\n", job)
	return true, nil
}

// lastPrinted bounds what is kept of what was printed last, to find it again in the log. Lines carry their time, so that one place alone is like it.
const lastPrinted = 4 << 10

// print prints the log of one process to its end. Where it breaks off (a plugin that died, a cluster that is away for a moment) it is taken up again there.
func (f *following) print(ctx context.Context, name string, past int) {
	var last []byte
	told := false
	for {
		err := f.copy(ctx, name, past, &last)
		switch {
		case err == nil, ctx.Err() != nil:
			return
		case backend.CodeOf(err) == backend.Gone:
			f.a.advise("kale: %v\n", err)
			return
		case !told:
			told = true
			f.say(name, err)
		}
		if wait(ctx, newProcessesEvery) != nil {
			return
		}
	}
}

// say tells why a log is not printed yet, where that was not told of another one.
func (f *following) say(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told.isNew(name, err) {
		f.a.advise("kale: %v; trying again\n", err)
	}
}

// copy prints a log behind what was printed of it last, which it keeps up.
func (f *following) copy(ctx context.Context, name string, past int, last *[]byte) error {
	rc, err := f.after(ctx, name, past, *last)
	if err != nil {
		return err
	}
	defer rc.Close()
	defer context.AfterFunc(ctx, func() { rc.Close() })()
	prefix := ""
	if f.process == "" {
		prefix = name + " | "
	}
	r := bufio.NewReader(rc)
	for {
		line, err := r.ReadString('\n')
		if line != "" && (err == nil || errors.Is(err, io.EOF)) { // where it broke off, the line comes again
			if err := f.line(prefix, line); err != nil {
				err = fmt.Errorf("print the log of %s: %w", name, err)
				f.fail(err)
				return err
			}
			*last = append(*last, line...)
			*last = (*last)[max(0, len(*last)-lastPrinted):]
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the log of %s: %w", name, err)
		}
	}
}

func (f *following) line(prefix, line string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return printLine(f.a.out, prefix, line)
}

// after opens a log behind what was printed of it last; where that is not in it any more, at its begin: the rest came later.
func (f *following) after(ctx context.Context, name string, past int, last []byte) (io.ReadCloser, error) {
	if len(last) == 0 {
		return f.src.open(ctx, name, backend.LogOptions{Tail: past, Follow: true})
	}
	rc, err := f.src.open(ctx, name, backend.LogOptions{})
	if err != nil {
		return nil, err
	}
	all, err := io.ReadAll(rc)
	if err := cmp.Or(err, rc.Close()); err != nil {
		return nil, err
	}
	skip := 0
	if at := bytes.LastIndex(all, last); at >= 0 {
		skip = at + len(last)
	}
	if rc, err = f.src.open(ctx, name, backend.LogOptions{Follow: true}); err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, rc, int64(skip)); err != nil {
		rc.Close()
		return nil, err
	}
	return rc, nil
}
