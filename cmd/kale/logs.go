package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
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
line with its process, when none is named. It works with a running scheduler and, through the backend, without. While the cluster does
not answer, which is said, Slurm's logs are still there, in shared_dir, of the processes that there were last; Nomad's are on its nodes.

-f goes on whether schedulers come or go, with processes that come later (of worker-3: with its next generations), and ends when the job has stopped.

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
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with what is written from now on, until the job has stopped, or Ctrl-C")
	return c
}

func (a *app) logs(ctx context.Context, arg, process string, f logFlags) (err error) {
	name, src, err := a.logSource(ctx, arg, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	if f.follow {
		return a.asked(name, a.followLogs(ctx, src, name, process, f.lines))
	}
	return a.asked(name, a.printLogs(ctx, src, process, f.lines))
}

// printLogs prints the last lines of the log of a process, or of all, each line with its process.
func (a *app) printLogs(ctx context.Context, src logSource, process string, lines int) error {
	o := backend.LogOptions{Tail: lines}
	if _, err := backend.ParseID(process); err == nil { // which others there are does not matter
		return a.printLog(ctx, src, process, o, "", time.Now().Add(openPatience))
	}
	names, unknown, err := a.logProcesses(ctx, src)
	if err != nil {
		return err
	}
	if unknown != "" && ctx.Err() == nil {
		a.advise("kale: whether there are other processes is unknown: %s\n", unknown)
	}
	giveUp := time.Now().Add(openPatience)
	if process != "" {
		return a.printLog(ctx, src, process, o, "", giveUp)
	}
	if len(names) == 0 {
		fmt.Fprintln(a.err, "the job has no processes now")
	}
	unread, again, told := 0, "", reasons{}
	for i, name := range names {
		err := a.printLog(ctx, src, name, o, name+" | ", giveUp)
		if err == nil {
			continue
		}
		if goneLog(err) || told.isNew(name, err) {
			fmt.Fprintf(a.err, "kale: %v\n", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !goneLog(err) {
			unread++
		}
		if unansweredLog(err) {
			again = "; try again when the backend answers: kale doctor says whether it does"
			if !time.Now().Before(giveUp) { // each of the others would be waited for as long
				unread += len(names) - 1 - i
				break
			}
		}
	}
	if unread > 0 {
		return fmt.Errorf("%s of %d could not be read to the end, as said above%s", job.Count(unread, "log"), len(names), again)
	}
	return nil
}

// reasons are why logs could not be read: what is the same for several processes is told once.
type reasons map[string]bool

// isNew says that this reason was not told yet, of whatever process.
func (r reasons) isNew(process string, err error) bool {
	why := strings.ReplaceAll(err.Error(), process, "")
	told := r[why]
	r[why] = true
	return !told
}

// openPatience is how long kale logs goes on to open logs of a backend that does not answer, all together: a plugin that did not answer is started again in less.
const openPatience = 10 * time.Second

// goneLog says that a log is not there any more, nor will be.
func goneLog(err error) bool {
	if said := new(api.Error); errors.As(err, &said) {
		return said.Status == http.StatusNotFound
	}
	return backend.CodeOf(err) == backend.Gone
}

// unansweredLog says that the backend did not answer, which may be so for a moment.
func unansweredLog(err error) bool {
	if said := new(api.Error); errors.As(err, &said) {
		return said.Status == http.StatusBadGateway
	}
	said := new(backend.Error)
	return errors.As(err, &said) && said.Code == backend.Unavailable
}

// printLog prints one log. A backend that does not answer is asked again until giveUp.
func (a *app) printLog(ctx context.Context, src logSource, process string, o backend.LogOptions, prefix string, giveUp time.Time) error {
	for told := false; ; told = true {
		rc, err := src.open(ctx, process, o)
		if err == nil {
			return copyLog(ctx, rc, process, a.out, prefix)
		}
		if !unansweredLog(err) || ctx.Err() != nil || !time.Now().Before(giveUp) {
			return err
		}
		if !told {
			fmt.Fprintf(a.err, "trying again: %v\n", err)
		}
		if err := wait(ctx, processesPoll); err != nil {
			return err
		}
	}
}

// How long kale logs waits for a backend that cannot say which processes there are, and how often it asks meanwhile.
const (
	processesPatience = 30 * time.Second
	processesPoll     = 500 * time.Millisecond
)

// logProcesses names the processes that there are. Where none is known and that says nothing, because the backend does not answer (its plugin may have been started
// again just now), it waits for a while. unknown says why there may be others, "": there are not.
func (a *app) logProcesses(ctx context.Context, src logSource) (names []string, unknown string, err error) {
	began, told := time.Now(), false
	for {
		names, unknown, err := src.processes(ctx)
		switch {
		case err != nil || len(names) > 0 || unknown == "":
			return names, unknown, err
		case time.Since(began) >= processesPatience:
			return nil, "", fmt.Errorf("which processes there are is unknown, also after %v: %s; try again when the backend answers", processesPatience, unknown)
		case !told:
			told = true
			fmt.Fprintf(a.err, "waiting to see which processes there are: %s\n", unknown)
		}
		if err := wait(ctx, processesPoll); err != nil {
			return nil, "", err
		}
	}
}

// copyLog prints one log that is open, each line behind a prefix, and closes it.
func copyLog(ctx context.Context, rc io.ReadCloser, process string, w io.Writer, prefix string) error {
	defer rc.Close()
	defer context.AfterFunc(ctx, func() { rc.Close() })()
	r := bufio.NewReader(rc)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			if err := printLine(w, prefix, line); err != nil {
				return fmt.Errorf("print the log of %s: %w", process, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the log of %s: %w", process, err)
		}
	}
}

// printLine writes a line of a log, the end of which may be missing, as one write.
func printLine(w io.Writer, prefix, line string) error {
	_, err := io.WriteString(w, prefix+strings.TrimSuffix(line, "\n")+"\n")
	return err
}
