package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/report"
	"github.com/kale-sched/kale/core/state"
)

type reportFlags struct {
	jobFlags
	out string
}

func reportCommand(a *app) *cobra.Command {
	var f reportFlags
	c := &cobra.Command{
		Use: "report JOB", Short: "One HTML page with charts of what a job did and why",
		Long: `Writes one self-contained HTML file: traffic, forecast and capacity, workers, lag, accelerators, and the decisions with their
arithmetic. It works with a running scheduler and, from the job's state, without or beside one that is suspended.`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.report(cmd.Context(), args[0], f) },
	}
	f.register(c)
	c.Flags().StringVarP(&f.out, "out", "o", "", "`FILE` to write (default: JOB.html; - is standard output)")
	return c
}

func (a *app) report(ctx context.Context, arg string, f reportFlags) error {
	name, err := a.jobName(arg, f.varFlags)
	if err != nil {
		return err
	}
	if f.out == "" {
		f.out = name + ".html"
	}
	if f.out != "-" {
		if err := checkOut(f.out, a.filesOf(arg, f.jobFlags)...); err != nil {
			return err
		}
	}
	var page bytes.Buffer
	if err := a.reportPage(ctx, name, f.jobFlags, &page); err != nil {
		return err
	}
	if f.out == "-" {
		_, err := a.out.Write(page.Bytes())
		return err
	}
	if err := backend.WriteFileMode(f.out, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	fmt.Fprintln(a.out, f.out)
	return nil
}

func (a *app) reportPage(ctx context.Context, name string, f jobFlags, w io.Writer) error {
	c, err := a.reach(ctx, name)
	if err == nil {
		defer c.Close()
		return a.asked(name, c.Report(ctx, w))
	}
	_, g, _ := a.viewOrGlance(ctx, name, false) // without it the page has what was, and not what stands in the job's way now
	st, err := a.storeWithout(name, "report", err)
	if err != nil {
		return err
	}
	var problems []string
	if g != nil {
		problems = g.Problems
	}
	l, err := a.load(name, f)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	return errors.Join(writeReport(w, l.Job, st, problems), st.Close())
}

func writeReport(w io.Writer, j *job.Job, st *state.Store, problems []string) error {
	meta := report.MetaOf(j)
	meta.Outlook, meta.Generated, meta.Version = true, time.Now(), about.Build().Version
	in, err := report.FromStore(st, meta)
	if err != nil {
		return err
	}
	in.Problems = problems
	return report.Write(w, in)
}

// reportHandler serves a running job's report.
func reportHandler(j *job.Job, st *state.Store, view func() *core.View) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var page bytes.Buffer
		var problems []string
		if v := view(); v != nil {
			problems = v.Problems
		}
		if err := writeReport(&page, j, st, problems); err != nil {
			api.Fail(w, http.StatusInternalServerError, err)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if _, err := page.WriteTo(w); err != nil {
			return // the client is gone
		}
	})
}
