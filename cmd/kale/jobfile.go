package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/profile"
)

// varFlags give a job file's variables: of every command that may be given such a file.
type varFlags struct {
	vars     []string
	varFiles []string
}

func (f *varFlags) register(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.vars, "var", nil, "`NAME=VALUE` of a variable of the job file; may be repeated")
	c.Flags().StringArrayVar(&f.varFiles, "var-file", nil, "`FILE` of NAME = VALUE for the job file's variables; may be repeated")
}

// none says that no variable was given.
func (f varFlags) none() bool { return len(f.vars)+len(f.varFiles) == 0 }

// jobFlags are the flags of commands that read a job file.
type jobFlags struct {
	varFlags
	plugins string
	trainer string
}

const pluginDirUsage = "`FOLDER` with the backend plugins (default: beside kale, then $PATH)"

func (f *jobFlags) register(c *cobra.Command) {
	f.varFlags.register(c)
	c.Flags().StringVar(&f.plugins, "plugin-dir", "", pluginDirUsage)
	c.Flags().StringVar(&f.trainer, "trainer", "", "`PATH` of kale-trainer on the allocations (default: beside kale, then $PATH)")
}

func (f varFlags) parsedVars() (map[string]string, error) {
	vars := map[string]string{}
	for _, v := range f.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, usagef("-var %q: want NAME=VALUE", v)
		}
		vars[name] = value
	}
	return vars, nil
}

// loaded is a job file that was read, and how to read it again. Only who looks for mistakes (inspect.go) meets one that has some.
type loaded struct {
	*job.Job
	draft     *job.Draft // which parts of the job can be relied on
	unchecked []string   // what was not looked at because of mistakes
	tried     *triedTrainer
	files     job.Files
	how       invocation
	dir       string // the job's state folder
	// profile is what its throughput was taken from; nil: the file's own holds.
	profile *profile.Profile
	// lacking says why nothing that needs its throughput can be done with it; unmeasured that theta stands in for a profile that is not there, to those
	// who go by it.
	lacking, unmeasured hcl.Diagnostics
	// anyOwner: what runs under the job's name is ended, whoever's it is.
	anyOwner bool
	again    bool // it ran here before
	// want is what its scheduler wants to run; unread says why that is not known.
	want   *core.Wanted
	unread error
	start  *starting
	// wrongBlock: its backend has found mistakes in its block, which nobody has told yet.
	wrongBlock bool
	// offline: the machines' devices are not asked for, as the brokers and the cluster are not.
	offline bool
}

// invocation is how the job that an argument names is to be read: a file, or a job that was run before, with the variables of that run
// under those of the flags.
func (a *app) invocation(arg string, f jobFlags) (invocation, error) {
	how := invocation{File: arg}
	vars, err := f.parsedVars()
	if err != nil {
		return how, err
	}
	if !isFile(arg) {
		if how, err = a.known(arg); err != nil {
			return how, err
		}
		how.Pool, how.With = "", nil // each run says its own
	}
	if how.Vars == nil {
		how.Vars = map[string]string{}
	}
	for name, value := range vars {
		how.Vars[name] = value
	}
	if len(f.varFiles) > 0 {
		how.VarFiles = f.varFiles
	}
	if f.plugins != "" {
		how.Plugins = f.plugins
	}
	if f.trainer != "" {
		how.Trainer = f.trainer
	}
	return how, nil
}

// filesOf are the files that an argument's job is read from, those of its variables too.
func (a *app) filesOf(arg string, f jobFlags) []string {
	files := append([]string{arg}, f.varFiles...)
	if how, err := a.invocation(arg, f); err == nil {
		files = append(append(files, how.File), how.VarFiles...)
	}
	return files
}

// load reads a job. Diagnostics are printed; errShown says that they forbid to go on. Of a job that is named, whose file is gone or has mistakes by now, it is
// what the file said when the job was started: so that a job which runs can always be looked at and stopped.
func (a *app) load(arg string, f jobFlags) (*loaded, error) {
	how, err := a.invocation(arg, f)
	if err != nil {
		return nil, err
	}
	l, diags, err := a.read(how)
	if err == nil && diags.HasErrors() && !isFile(arg) {
		if was, more := a.asStarted(arg, how); was != nil {
			l, diags = was, more
		}
	}
	if err == nil {
		err = a.tell(l, diags)
	}
	if err != nil {
		return nil, err
	}
	if !isFile(arg) && l.Name != arg { // what runs is of the name under which it was started
		l.Name = arg
		l.dir, err = a.jobDir(arg)
	}
	return l, err
}

// asStarted is a job as its file was when it was started last; nil: that is not kept, or cannot be used any more either.
func (a *app) asStarted(name string, how invocation) (*loaded, hcl.Diagnostics) {
	dir, err := a.jobDir(name)
	if err != nil {
		return nil, nil
	}
	src, err := os.ReadFile(filepath.Join(dir, startedFile))
	if err != nil {
		return nil, nil
	}
	draft, files, diags := job.ReadText(src, how.File, how.Vars, how.VarFiles)
	l, diags, err := a.drafted(how, draft, files, diags)
	if err != nil || diags.HasErrors() {
		return nil, nil
	}
	what := "is not there any more"
	if exists(how.File) {
		what = "has mistakes, which kale validate shows"
	}
	a.advise("%s %s; the job is taken as it was when it was started\n", how.File, what)
	return l, diags
}

// renamed says that a job which was run from the same file under another name runs still, or has stopped and is not the one that the file describes now. Of a file
// that describes several jobs, by its variables, the others that have stopped are none of this one's business.
func (a *app) renamed(ctx context.Context, l *loaded, arg string) hcl.Diagnostics {
	if !isFile(arg) && l.Name != arg {
		return hcl.Diagnostics{l.ErrorAt("name", fmt.Sprintf("The file of job %q describes job %q now", arg, l.Name),
			fmt.Sprintf("Undo the change; or stop the job, with kale stop %s%s, and then run the file: kale run %s.", a.stateFlag(), arg, backend.Quoted(l.how.File)))}
	}
	file, err := filepath.Abs(l.how.File)
	if err != nil {
		return nil
	}
	names, _ := a.jobs() // whoever needs the state folder says what is wrong with it
	var stopped hcl.Diagnostics
	for _, name := range names {
		how, err := a.known(name)
		dir, e := a.jobDir(name)
		if err != nil || e != nil || name == l.Name || how.File != file {
			continue
		}
		want, _ := a.wanted(ctx, name, dir) // what is not known is not told
		if want.Runs() {
			return hcl.Diagnostics{l.WarningAt("name", fmt.Sprintf("Job %q, which this file described before, is not stopped", name),
				fmt.Sprintf("Job %q is another one, which begins without a checkpoint. kale stop %s%s ends the first.", l.Name, a.stateFlag(), name))}
		}
		if want != nil && want.LastCheckpoint != "" && !l.again && maps.Equal(how.Vars, l.how.Vars) && slices.Equal(how.VarFiles, l.how.VarFiles) {
			stopped = append(stopped, l.WarningAt("name", fmt.Sprintf("This file described job %q before", name), fmt.Sprintf(
				"Job %q is another one, and begins anew; what job %q has trained stays with it, in %s. To go on with that, undo the change; kale forget %s%s ends this warning.",
				l.Name, name, filepath.Join(want.LastCheckpoint, name), a.stateFlag(), name)))
		}
	}
	return stopped
}

// ranIn says that a job ran with this state folder before.
func ranIn(dir string) bool { return exists(filepath.Join(dir, "state.db")) }

// known is how a job of a name was last run.
func (a *app) known(name string) (invocation, error) {
	if backend.ValidJob(name) != nil {
		return invocation{}, a.noJob(name)
	}
	dir, err := a.jobDir(name)
	if err != nil {
		return invocation{}, err
	}
	how, err := loadInvocation(dir)
	if errors.Is(err, fs.ErrNotExist) && a.given.File != "" {
		how = a.given
		how.Vars = maps.Clone(how.Vars)
		return how, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return how, a.noJob(name)
	}
	if err == nil && a.given.File == "" && how.movedTo(dir) {
		return how, a.wasMoved(how.Job, dir)
	}
	return how, err
}

// durable is the invocation with all paths absolute.
func (l *loaded) durable() (invocation, error) {
	how := l.how
	var err error
	abs := func(path string) string {
		if path == "" || err != nil {
			return path
		}
		var full string
		full, err = filepath.Abs(path)
		return full
	}
	how.File, how.Plugins, how.Pool = abs(how.File), abs(how.Plugins), abs(how.Pool)
	how.VarFiles = nil
	for _, f := range l.how.VarFiles {
		how.VarFiles = append(how.VarFiles, abs(f))
	}
	return how, err
}

// diagnose prints diagnostics, by whichever command in the same order (inOrder). errShown: there are errors among them; with -json they are printed as the command ends (fail).
func (a *app) diagnose(files job.Files, diags hcl.Diagnostics) error {
	if len(diags) == 0 {
		return nil
	}
	diags = inOrder(slices.Clone(diags))
	if a.asJSON && diags.HasErrors() {
		a.judge(diagnosticsJSON(files, diags)...)
		return errShown
	}
	if err := job.Render(a.err, files, diags, textWidth(a.err), a.coloured(a.err)); err != nil {
		return fmt.Errorf("print diagnostics: %w", err)
	}
	if diags.HasErrors() {
		return errShown
	}
	return nil
}
