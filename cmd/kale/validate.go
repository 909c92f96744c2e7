package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

type validateFlags struct {
	jobFlags
	recordFlags
	offline bool
}

func validateCommand(a *app) *cobra.Command {
	var f validateFlags
	c := &cobra.Command{
		Use: "validate JOB.hcl", Short: "Check a job file, its topic and its backend block",
		Long: `Checks the whole job file and reports every mistake at once, with its place and what to do; then asks the brokers about the
topic and its newest records, tries the trainer, and asks the backend's plugin about its block and whether there is room for the job now. It
changes nothing. A mistake in one part keeps no other from being looked at; what could not be looked at because of one is said at the end.

Brokers or a cluster that do not answer (the latter within 10 s in all) are an error, since nothing is known then of what only they know; of a job that ran here before, and for
kale plan, they are a warning. -offline asks neither.`,
		Args: exactly("JOB.hcl"), ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error { return a.validate(cmd.Context(), args[0], f) },
	}
	f.jobFlags.register(c)
	f.recordFlags.register(c)
	c.Flags().BoolVar(&f.offline, "offline", false, "ask neither the brokers nor the backend's cluster, which may be away")
	a.jsonFlag(c, "print the result as JSON")
	return c
}

func (a *app) validate(ctx context.Context, arg string, f validateFlags) error {
	l, _, diags, err := a.inspect(ctx, arg, f.jobFlags, inspection{recordFlags: f.recordFlags, offline: f.offline, all: true})
	switch {
	case l == nil || ctx.Err() != nil:
		return err
	case a.asJSON && err == nil && !diags.HasErrors():
		return printJSON(a.out, judged{Valid: true, Job: l.Name, Diagnostics: diagnosticsJSON(l.files, diags)})
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
