package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

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
		Use: "validate JOB.hcl [JOB.hcl …]", Short: "Check a job file, its topic and its backend block",
		Long: `Checks the whole job file and reports every mistake at once, with its place and what to do; then asks the brokers about the
topic and its newest records, tries the trainer, and asks the backend's plugin about its block and whether there is room for the job now. It
changes nothing. A mistake in one part keeps no other from being looked at; what could not be looked at because of one is said at the end.

Brokers or a cluster that do not answer (the latter within 10 s in all) are an error, since nothing is known then of what only they know; of a job that ran here before, and for
kale plan, they are a warning. -offline asks neither, and needs none of this machine's GPUs.

Of several files each is checked by itself; it fails where one of them has a mistake.`,
		Args: atLeast("JOB.hcl"), ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error { return a.validate(cmd.Context(), args, f) },
	}
	f.jobFlags.register(c)
	f.recordFlags.register(c)
	c.Flags().BoolVar(&f.offline, "offline", false, "ask neither the brokers nor the backend's cluster, which may be away")
	a.jsonFlag(c, "print the result as JSON, of several files as an array")
	return c
}

func (a *app) validate(ctx context.Context, args []string, f validateFlags) error {
	if len(args) > 1 {
		return a.validateEach(ctx, args, f)
	}
	valid, err := a.validateOne(ctx, args[0], f)
	if err == nil && a.asJSON {
		err = printJSON(a.out, valid)
	}
	return err
}

// validateEach validates several jobs, whatever is wrong with one of them. What is said of each on standard error has its file's name before it.
func (a *app) validateEach(ctx context.Context, args []string, f validateFlags) error {
	if a.silent == nil {
		a.silent = map[string]error{} // brokers that are silent for one are not waited for again
	}
	var results []any
	var failed error
	space := ""
	for _, arg := range args {
		own, says := *a, &headed{w: a.err, head: space + arg + ":\n"}
		own.err = says
		valid, err := own.validateOne(ctx, arg, f)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			code, wrong := own.failure(ctx, err)
			if code == exitUsage {
				return err
			}
			if !a.asJSON && wrong.Error != "" {
				fmt.Fprint(own.err, own.complaint(errors.New(wrong.Error)))
			}
			results, failed = append(results, wrong), errShown
		} else {
			results = append(results, valid)
		}
		if says.begun {
			space = "\n"
		}
	}
	if a.asJSON {
		return cmp.Or(printJSON(a.out, results), failed)
	}
	return failed
}

// validateOne says what is wrong with a job or, without -json, that nothing is.
func (a *app) validateOne(ctx context.Context, arg string, f validateFlags) (*judged, error) {
	l, _, diags, err := a.inspect(ctx, arg, f.jobFlags, inspection{recordFlags: f.recordFlags, offline: f.offline, all: true})
	switch {
	case l == nil || ctx.Err() != nil:
		return nil, err
	case a.asJSON && err == nil && !diags.HasErrors():
		return &judged{Valid: true, Job: l.Name, Diagnostics: diagnosticsJSON(l.files, diags)}, nil
	}
	if err := a.besides(a.tell(l, diags), err); err != nil {
		return nil, err
	}
	unasked := ""
	if f.offline {
		unasked = ", as far as can be told without its brokers and its cluster"
	}
	fmt.Fprintf(a.out, "%s: job %q is valid%s\n", l.how.File, l.Name, unasked)
	return nil, nil
}

// headed writes a head before what is written to w first, if anything is.
type headed struct {
	w     io.Writer
	head  string
	begun bool
}

func (h *headed) Write(p []byte) (int, error) {
	if !h.begun && len(p) > 0 {
		h.begun = true
		if _, err := io.WriteString(h.w, h.head); err != nil {
			return 0, err
		}
	}
	return h.w.Write(p)
}
