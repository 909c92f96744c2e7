package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/job"
)

// failure is what any command prints on standard output with -json where it fails without a result of its own; its exit code is that without -json.
type failure struct {
	*judged        // where mistakes in job files are the cause
	Error   string `json:"error"`
	Advice  string `json:"advice,omitempty"` // what to do, where Error does not say it
}

// judged is what kale validate -json prints, and with -json every command that meets mistakes in job files.
type judged struct {
	Valid       bool             `json:"valid"`
	Job         string           `json:"job,omitempty"` // left out where several are judged
	Diagnostics []diagnosticJSON `json:"diagnostics"`
	Unchecked   []string         `json:"unchecked,omitempty"` // what was not looked at because of an error
	of          int              // how many jobs
}

// diagnosticJSON is a diagnostic for scripts. Lines and columns count from 1.
type diagnosticJSON struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
}

const (
	severityError   = "error"
	severityWarning = "warning"
)

// jsonFlag gives a command -json.
func (a *app) jsonFlag(c *cobra.Command, says string) {
	c.Flags().BoolVar(&a.asJSON, "json", false, says)
}

// wantsJSON says that a command was asked for JSON, also where its command line could not be read up to there.
func (a *app) wantsJSON(c *cobra.Command, args []string) bool {
	return a.asJSON || c.Flags().Lookup("json") != nil && slices.Contains(args, "--json")
}

// fail tells why a command has ended and gives its exit code. A result that was printed with -json has told scripts already.
func (a *app) fail(ctx context.Context, c *cobra.Command, args []string, err error) int {
	code, f := a.failure(ctx, err)
	if code == exitUsage {
		f.Advice = fmt.Sprintf("See: %s -help", strings.TrimSuffix(c.CommandPath(), " help"))
	}
	if a.wantsJSON(c, args) && (a.printed == nil || !a.printed.begun) {
		f.Error = cmp.Or(f.Error, err.Error())
		if printJSON(a.out, f) == nil {
			return code
		}
	}
	if f.Error != "" {
		fmt.Fprint(a.err, a.complaint(errors.New(f.Error)))
	}
	if f.Advice != "" {
		fmt.Fprintln(a.err, f.Advice)
	}
	return code
}

// failure is what there is to tell of an error that a command has ended with; without -json it says nothing of what was shown.
func (a *app) failure(ctx context.Context, err error) (code int, f failure) {
	code, f = exitFailed, failure{judged: a.judged, Error: job.Shorten(err.Error())}
	var usage usageError
	switch {
	case errors.As(err, &usage):
		code = exitUsage
	case errors.Is(err, errShown):
		f.Error = ""
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		f.Error = "interrupted"
	}
	if f.judged != nil && f.Error == "" {
		f.Error, f.Advice = f.first()
	}
	return code, f
}

// judge takes down what is wrong with a job file, for fail.
func (a *app) judge(diags ...diagnosticJSON) {
	if a.judged == nil {
		a.judged = &judged{}
	}
	a.judged.Diagnostics = append(a.judged.Diagnostics, diags...)
}

// add says which job is judged, and what was not looked at.
func (j *judged) add(l *loaded) {
	if j.of++; j.of == 1 && l.Job != nil && l.draft.Known("name") {
		j.Job = l.Name
	} else {
		j.Job = ""
	}
	j.Unchecked = append(j.Unchecked, l.unchecked...)
}

// first is the first error, where it is and what to do about it.
func (j *judged) first() (says, advice string) {
	n := 0
	for _, d := range j.Diagnostics {
		if d.Severity != severityError {
			continue
		}
		if n++; n == 1 {
			says, advice = d.Summary, d.Detail
			if d.File != "" {
				says = fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Column, d.Summary)
			}
		}
	}
	if n > 1 {
		says += fmt.Sprintf(" (and %s more, see diagnostics)", job.Count(n-1, "error"))
	}
	return strings.TrimSuffix(says, "."), advice
}

// diagnosticsJSON are diagnostics for scripts.
func diagnosticsJSON(files job.Files, diags hcl.Diagnostics) []diagnosticJSON {
	out := []diagnosticJSON{}
	for _, d := range job.Discreet(files, diags) {
		v := diagnosticJSON{Severity: severityError, Summary: d.Summary, Detail: d.Detail}
		if d.Severity == hcl.DiagWarning {
			v.Severity = severityWarning
		}
		if d.Subject != nil {
			v.File, v.Line, v.Column = d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column
		}
		out = append(out, v)
	}
	return out
}

// printed is standard output: it knows whether anything was printed there, and whether it was taken.
type printed struct {
	w     io.Writer
	begun bool
	err   error // the first; a reader that has gone is none: it has read what it wanted
}

func (r *printed) Write(p []byte) (int, error) {
	r.begun = r.begun || len(p) > 0
	n, err := r.w.Write(p)
	if err != nil && r.err == nil && !errors.Is(err, syscall.EPIPE) {
		r.err = err
	}
	return n, err
}
