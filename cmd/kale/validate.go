package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/job"
)

type validateFlags struct {
	jobFlags
	recordFlags
	offline, asJSON bool
}

func validateCommand(a *app) *cobra.Command {
	var f validateFlags
	c := &cobra.Command{
		Use: "validate JOB.hcl", Short: "Check a job file, its topic and its backend block",
		Long: `Checks the whole job file and reports every mistake at once, with its place and what to do; then asks the brokers about the
topic and its newest records, tries the trainer, and asks the backend's plugin about its block and whether there is room for the job now. It
changes nothing. A mistake in one part keeps no other from being looked at; what could not be looked at because of one is said at the end.

Brokers that do not answer are an error, as they are for the first kale run of a job; of a job that ran here before, and for kale plan, they are
a warning. -offline does not ask them.`,
		Args: exactly("JOB.hcl"), ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error { return a.validate(cmd.Context(), args[0], f) },
	}
	f.jobFlags.register(c)
	f.recordFlags.register(c)
	c.Flags().BoolVar(&f.offline, "offline", false, "ask neither the brokers nor the backend's cluster, which may be away")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	return c
}

func (a *app) validate(ctx context.Context, arg string, f validateFlags) error {
	l, _, diags, err := a.inspect(ctx, arg, f.jobFlags, inspection{recordFlags: f.recordFlags, offline: f.offline, all: true})
	switch {
	case l == nil || ctx.Err() != nil:
		return err
	case f.asJSON:
		return a.besides(a.validatedJSON(l, diags), err)
	}
	if err := a.besides(a.tell(l, diags), err); err != nil {
		return err
	}
	unasked := ""
	if f.offline {
		unasked = ", as far as can be told without its brokers and its cluster"
	}
	fmt.Fprintf(a.out, "%s: job %q is valid%s\n", l.how.File, l.Name, unasked)
	return nil
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

func (a *app) validatedJSON(l *loaded, diags hcl.Diagnostics) error {
	out := struct {
		Valid       bool             `json:"valid"`
		Job         string           `json:"job,omitempty"`
		Diagnostics []diagnosticJSON `json:"diagnostics"`
		Unchecked   []string         `json:"unchecked,omitempty"` // what was not looked at because of an error
	}{Valid: !diags.HasErrors(), Diagnostics: []diagnosticJSON{}}
	if l.draft.Known("name") {
		out.Job = l.Name
	}
	if !out.Valid {
		out.Unchecked = l.unchecked
	}
	for _, d := range job.Discreet(l.files, diags) {
		v := diagnosticJSON{Severity: "error", Summary: d.Summary, Detail: d.Detail}
		if d.Severity == hcl.DiagWarning {
			v.Severity = "warning"
		}
		if d.Subject != nil {
			v.File, v.Line, v.Column = d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column
		}
		out.Diagnostics = append(out.Diagnostics, v)
	}
	if err := json.NewEncoder(a.out).Encode(out); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	if !out.Valid {
		return errShown
	}
	return nil
}
