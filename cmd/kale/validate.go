package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
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
changes nothing.

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
	how, err := a.invocation(arg, f.jobFlags)
	if err != nil {
		return err
	}
	j, files, diags := job.Load(how.File, how.Vars, how.VarFiles)
	if !diags.HasErrors() {
		dir, err := a.jobDir(j.Name)
		if err != nil {
			return err
		}
		changed, lacking := profiled(j, dir)
		diags = slices.Concat(diags, changed, lacking)
		more, err := a.askAround(ctx, &loaded{Job: j, files: files, how: how, dir: dir, again: ranIn(dir)}, f)
		if err != nil {
			return err
		}
		diags = append(diags, more...)
	}
	if f.asJSON {
		return a.validatedJSON(j, diags)
	}
	if err := a.diagnose(files, diags); err != nil {
		return err
	}
	unasked := ""
	if f.offline {
		unasked = ", as far as can be told without its brokers and its cluster"
	}
	fmt.Fprintf(a.out, "%s: job %q is valid%s\n", how.File, j.Name, unasked)
	return nil
}

// askAround asks those who know more than the file tells: the backend's plugin and, unless offline, the brokers and the backend's cluster.
func (a *app) askAround(ctx context.Context, l *loaded, f validateFlags) (hcl.Diagnostics, error) {
	var diags hcl.Diagnostics
	if !f.offline {
		_, found, err := a.brokers(ctx, l, f.recordFlags, false)
		if err != nil {
			return nil, err
		}
		diags = append(diags, found...)
	}
	if !exists(filepath.Join(l.dir, "state.db")) { // else its start was pinned when it ran
		diags = append(diags, l.StartDiagnostics(time.Now())...)
	}
	diags = slices.Concat(diags, doctor.CheckState(l.dir), core.CheckFolder(l.Job), core.CheckForecast(l.Job))
	more, err := a.askBackend(ctx, l, !f.offline)
	return append(diags, more...), err
}

// askBackend asks the backend's plugin about its block and, where the cluster may be asked, whether the job would find room now. It starts nothing.
func (a *app) askBackend(ctx context.Context, l *loaded, cluster bool) (hcl.Diagnostics, error) {
	lg := a.logger("warn")
	path, diags := a.plugin(l)
	if diags.HasErrors() {
		return diags, nil
	}
	b, err := backend.Launch(ctx, lg, path, backend.Options{SocketDir: l.dir})
	if err != nil {
		return nil, err
	}
	o := core.Options{Job: l.Job, StateDir: l.dir, Backend: b}
	if o.Trainer, o.Env, diags, err = a.trainer(ctx, lg, l); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	more, err := core.ConfigureBackend(ctx, b, l.Job, l.dir)
	diags = append(diags, more...)
	if err == nil && !more.HasErrors() && cluster {
		more, err = core.PlacementDiagnostics(ctx, o)
		diags = append(diags, more...)
	}
	return diags, errors.Join(err, b.Close())
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

func (a *app) validatedJSON(j *job.Job, diags hcl.Diagnostics) error {
	out := struct {
		Valid       bool             `json:"valid"`
		Job         string           `json:"job,omitempty"`
		Diagnostics []diagnosticJSON `json:"diagnostics"`
	}{Valid: !diags.HasErrors(), Diagnostics: []diagnosticJSON{}}
	if j != nil {
		out.Job = j.Name
	}
	for _, d := range diags {
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
