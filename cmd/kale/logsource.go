package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
)

// logSource is where logs come from: a scheduler, or its backend.
type logSource interface {
	// processes names those that there are; unknown says why there may be more, "": there are not.
	processes(ctx context.Context) (names []string, unknown string, err error)
	open(ctx context.Context, process string, o backend.LogOptions) (io.ReadCloser, error)
	close() error
}

// logSource is where a job's logs come from: its scheduler or, where there is none or it does not answer, its backend. What is followed comes from the backend, so
// that no scheduler's end breaks it off; from the scheduler only where this program cannot ask the backend itself.
func (a *app) logSource(ctx context.Context, arg string, f logFlags) (name string, src logSource, err error) {
	if name, err = a.jobName(arg, f.varFlags); err != nil {
		return name, nil, err
	}
	quiet := *a
	quiet.err = io.Discard // the scheduler will do where the job file will not
	c, err := a.answering(ctx, name)
	switch {
	case err == nil && !f.follow:
		return name, &apiLogs{c: c, a: a, job: name, backend: func() (logSource, error) { return quiet.backendLogs(ctx, name, f.jobFlags) }}, nil
	case err == nil:
		if src, err := quiet.backendLogs(ctx, name, f.jobFlags); err == nil {
			c.Close()
			return name, src, nil
		} else {
			return name, &apiLogs{c: c, a: a, job: name, only: fmt.Errorf("the backend cannot be asked without it: %w", a.inJobFile(name, err))}, nil
		}
	case errors.Is(err, api.ErrSilent):
		src, without := a.backendLogs(ctx, name, f.jobFlags)
		if without != nil {
			err = fmt.Errorf("%w. The backend cannot be asked without it: %w", err, without)
			return name, nil, err
		}
		return name, src, nil
	case errors.Is(err, api.ErrNoScheduler):
		src, err := a.backendLogs(ctx, name, f.jobFlags)
		return name, src, err
	}
	return name, nil, err
}

func (a *app) backendLogs(ctx context.Context, name string, f jobFlags) (logSource, error) {
	l, err := a.load(name, f)
	if err != nil {
		return nil, err
	}
	b, err := a.configured(ctx, l, l.dir)
	if err != nil {
		return nil, err
	}
	src := backendLogs{b: b, job: name}
	if g, err := core.GlanceAt(ctx, l.dir, name, nil); err == nil { // else only what the backend lists
		src.last = g.Processes
	}
	return src, nil
}

// apiLogs are logs by way of a job's scheduler. Where that does not give one within the app's patience, since its backend's plugin hangs, the backend is asked itself.
type apiLogs struct {
	c   *api.Client
	a   *app
	job string
	// only says why there is no other source, where one was wanted.
	only error
	// backend makes the other source, direct, when it is needed; nil: there is none. What is followed has none, so that its goroutines do not write here.
	backend func() (logSource, error)
	direct  logSource
	turned  sync.Once
}

func (s *apiLogs) processes(ctx context.Context) (names []string, unknown string, err error) {
	v, err := s.c.Status(ctx)
	if err != nil && s.only != nil {
		err = fmt.Errorf("%w; %w", err, s.only)
	}
	if err != nil {
		return nil, "", err
	}
	return processNames(v), v.Unlisted, nil
}

func processNames(v *core.View) []string {
	var out []string
	for _, p := range v.Servers {
		out = append(out, p.ID)
	}
	for _, p := range v.Workers {
		out = append(out, p.ID)
	}
	return out
}

func (s *apiLogs) open(ctx context.Context, process string, o backend.LogOptions) (io.ReadCloser, error) {
	if s.direct != nil {
		return s.direct.open(ctx, process, o)
	}
	type answer struct {
		log io.ReadCloser
		err error
	}
	asking, enough := context.WithCancel(ctx) // ends with the log
	answered := make(chan answer, 1)
	go func() { // ends with asking, and writes only into its channel
		log, err := s.c.Logs(asking, process, o)
		answered <- answer{log, err}
	}()
	var said answer
	select {
	case said = <-answered:
	case <-time.After(s.a.patience):
		if s.turn() {
			enough()
			if late := <-answered; late.err == nil {
				late.log.Close()
			}
			return s.direct.open(ctx, process, o)
		}
		said = <-answered
	}
	if said.err != nil {
		enough()
		return nil, said.err
	}
	return endedLog{said.log, enough}, nil
}

// turn turns to the backend itself, where that can be asked, and says so, once. Otherwise the scheduler is waited for.
func (s *apiLogs) turn() bool {
	s.turned.Do(func() {
		const silent = "job %q: its scheduler's backend does not answer; "
		if s.backend != nil {
			if src, err := s.backend(); err == nil {
				s.a.advise(silent+"asking it without the scheduler\n", s.job)
				s.direct = src
				return
			}
		}
		s.a.advise(silent+"waiting for it\n", s.job)
	})
	return s.direct != nil
}

func (s *apiLogs) close() error {
	s.c.Close()
	if s.direct == nil {
		return nil
	}
	return s.direct.close()
}

// endedLog is a log that does something more when it is closed.
type endedLog struct {
	io.ReadCloser
	then func()
}

func (l endedLog) Close() error {
	defer l.then()
	return l.ReadCloser.Close()
}

type backendLogs struct {
	b   backend.Backend
	job string
	// last are the processes that there were last: what they wrote is there for a while after they were released.
	last []backend.ID
}

// view is the backend's list as far as names go; where it has nothing, or its cluster does not answer, what there was last.
func (s backendLogs) view(ctx context.Context) (*core.View, error) {
	list, complete, err := s.b.List(ctx, s.job)
	silent := err != nil && backend.CodeOf(err) == backend.Unavailable && len(s.last) > 0 && ctx.Err() == nil
	if err != nil {
		if err = fmt.Errorf("list the processes of job %q: %w", s.job, err); !silent {
			return nil, err
		}
		list, complete = nil, true
	}
	ids := s.last
	if len(list) > 0 {
		ids = nil
	}
	beside := map[backend.ID]bool{}
	for _, st := range list {
		ids = append(ids, st.ID)
		beside[st.ID] = st.Beside
	}
	v := &core.View{Job: s.job}
	switch {
	case silent:
		v.Unlisted = fmt.Sprintf("the backend does not answer, and these are what there was last: %v", err)
	case !complete:
		v.Unlisted = core.ListedInPart(list)
	}
	for _, id := range ids {
		if id.Role == backend.RoleServer {
			v.Servers = append(v.Servers, core.ServerView{ID: id.String(), Beside: beside[id]})
		} else {
			v.Workers = append(v.Workers, core.WorkerView{ID: id.String()})
		}
	}
	return v, nil
}

func (s backendLogs) processes(ctx context.Context) (names []string, unknown string, err error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, "", err
	}
	return processNames(v), v.Unlisted, nil
}

func (s backendLogs) open(ctx context.Context, process string, o backend.LogOptions) (io.ReadCloser, error) {
	id, err := backend.ParseID(process)
	if err != nil {
		v, err := s.view(ctx)
		if err != nil {
			return nil, err
		}
		if id, err = api.Workload(v, process); err != nil {
			return nil, err
		}
	}
	return s.b.Logs(ctx, s.job, id, o)
}

func (s backendLogs) close() error { return s.b.Close() }
