package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
)

type logFlags struct {
	jobFlags
	lines  int
	follow bool
}

func logsCommand(a *app) *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use: "logs JOB [PROCESS]", Short: "What a job's processes wrote",
		Long: `Prints the log of one process of a job, such as worker-3 (its newest generation), worker-3-g2 or ps-0; of all that there are, each
line with its process, when none is named. It works with a running scheduler and, through the backend, without.
Where a process was started again, a line that begins with "[kale] process ended:" says when and how the one before ended.`,
		Example: "  kale logs ctr worker-0 -f\n  kale logs ctr -n 20",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("JOB is missing")
			}
			return upTo(2)(cmd, args)
		},
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.lines < 0 || f.lines > 1_000_000 {
				return usagef("-n %d: want 0 to 1000000 lines", f.lines)
			}
			if f.lines == 0 {
				f.lines = -1 // of the past; to the backend 0 means all
			}
			process := ""
			if len(args) == 2 {
				process = args[1]
			}
			return a.logs(cmd.Context(), args[0], process, f)
		},
	}
	f.register(c)
	c.Flags().IntVarP(&f.lines, "lines", "n", 100, "how many `LINES` of the past")
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with what is written from now on, until Ctrl-C")
	return c
}

// logSource is where logs come from: a scheduler, or its backend.
type logSource interface {
	// processes names those that there are; unknown says why there may be more, "": there are not.
	processes(ctx context.Context) (names []string, unknown string, err error)
	open(ctx context.Context, process string, o backend.LogOptions) (io.ReadCloser, error)
	close() error
}

func (a *app) logs(ctx context.Context, arg, process string, f logFlags) (err error) {
	src, err := a.logSource(ctx, arg, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	o := backend.LogOptions{Tail: f.lines, Follow: f.follow}
	if process != "" {
		if _, err := a.logProcesses(ctx, src); err != nil {
			return err
		}
		return a.copyLog(ctx, src, process, o, lockedWriter{a.out, &sync.Mutex{}}, "")
	}
	return a.allLogs(ctx, src, o)
}

func (a *app) logSource(ctx context.Context, arg string, f logFlags) (logSource, error) {
	name, c, err := a.connectArg(ctx, arg)
	switch {
	case err == nil:
		return apiLogs{c}, nil
	case !errors.Is(err, api.ErrNoScheduler):
		return nil, err
	}
	l, err := a.load(name, f.jobFlags)
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

// newProcessesEvery is how often following all logs looks for processes that have come.
const newProcessesEvery = 2 * time.Second

// How long kale logs waits for a backend that cannot say which processes there are, and how often it asks meanwhile.
const (
	processesPatience = 30 * time.Second
	processesPoll     = 500 * time.Millisecond
)

// logProcesses names the processes that there are. Where none is known and that says nothing, because the backend does not answer (its plugin may have been started
// again just now), it waits for a while.
func (a *app) logProcesses(ctx context.Context, src logSource) ([]string, error) {
	began, told := time.Now(), false
	for {
		names, unknown, err := src.processes(ctx)
		switch {
		case err != nil || len(names) > 0 || unknown == "":
			return names, err
		case time.Since(began) >= processesPatience:
			return nil, fmt.Errorf("which processes there are is unknown, also after %v: %s; try again when the backend answers", processesPatience, unknown)
		case !told:
			told = true
			fmt.Fprintf(a.err, "waiting to see which processes there are: %s\n", unknown)
		}
		if err := wait(ctx, processesPoll); err != nil {
			return nil, err
		}
	}
}

// allLogs prints the logs of all processes, each line with its process; with Follow also of those that come later.
func (a *app) allLogs(ctx context.Context, src logSource, o backend.LogOptions) error {
	w := lockedWriter{a.out, &sync.Mutex{}}
	seen := map[string]bool{}
	var wg sync.WaitGroup // one per process that is followed; ends with ctx or the process
	defer wg.Wait()
	for {
		names, err := a.logProcesses(ctx, src)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if len(names) == 0 && !o.Follow {
			fmt.Fprintln(a.err, "the job has no processes now")
		}
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name] = true
			if !o.Follow {
				if err := a.copyLog(ctx, src, name, o, w, name+" | "); err != nil {
					fmt.Fprintf(a.err, "kale: %v\n", err)
				}
				continue
			}
			wg.Go(func() {
				if err := a.copyLog(ctx, src, name, o, w, name+" | "); err != nil {
					fmt.Fprintf(a.err, "kale: %v\n", err)
				}
			})
		}
		if !o.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(newProcessesEvery):
		}
	}
}

// copyLog prints one log, each line behind a prefix.
func (a *app) copyLog(ctx context.Context, src logSource, process string, o backend.LogOptions, w io.Writer, prefix string) error {
	rc, err := src.open(ctx, process, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer rc.Close()
	defer context.AfterFunc(ctx, func() { rc.Close() })()
	r := bufio.NewReader(rc)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			if _, werr := io.WriteString(w, prefix+strings.TrimSuffix(line, "\n")+"\n"); werr != nil {
				return fmt.Errorf("print the log of %s: %w", process, werr)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("read the log of %s: %w", process, err)
		}
	}
}

// lockedWriter lets several logs write whole lines to one output.
type lockedWriter struct {
	w  io.Writer
	mu *sync.Mutex
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

type apiLogs struct{ c *api.Client }

func (s apiLogs) processes(ctx context.Context) (names []string, unknown string, err error) {
	v, err := s.c.Status(ctx)
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

func (s apiLogs) open(ctx context.Context, process string, o backend.LogOptions) (io.ReadCloser, error) {
	return s.c.Logs(ctx, process, o)
}

func (s apiLogs) close() error { s.c.Close(); return nil }

type backendLogs struct {
	b   *backend.Client
	job string
	// last are the processes that there were last: what they wrote is there for a while after they were released.
	last []backend.ID
}

// view is the backend's list as far as names go; where it has nothing, what there was last.
func (s backendLogs) view(ctx context.Context) (*core.View, error) {
	list, complete, err := s.b.List(ctx, s.job)
	if err != nil {
		return nil, fmt.Errorf("list the processes of job %q: %w", s.job, err)
	}
	ids := s.last
	if len(list) > 0 {
		ids = nil
	}
	for _, st := range list {
		ids = append(ids, st.ID)
	}
	v := &core.View{Job: s.job}
	if !complete {
		v.Unlisted = core.ListedInPart
	}
	for _, id := range ids {
		if id.Role == backend.RoleServer {
			v.Servers = append(v.Servers, core.ServerView{ID: id.String()})
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
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	id, err := api.Workload(v, process)
	if err != nil {
		return nil, err
	}
	return s.b.Logs(ctx, s.job, id, o)
}

func (s backendLogs) close() error { return s.b.Close() }
