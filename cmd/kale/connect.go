package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/state"
)

// jobName is the name of the job that an argument names, as a name or as a job file. The file of a job that ran here is read only for its name, if at all: it may
// lack variables, which are known from that run. Where several of a file's jobs ran here, the variables that are given tell which is meant.
func (a *app) jobName(arg string, f varFlags) (string, error) {
	vars, err := f.parsedVars()
	if err != nil {
		return "", err
	}
	if !isFile(arg) {
		if _, err := a.known(arg); err != nil {
			if _, starts := a.starts(arg); !starts || !errors.Is(err, errNoJob) {
				return "", err
			}
		}
		return arg, nil
	}
	abs, err := filepath.Abs(arg)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", arg, err)
	}
	names, err := a.jobs()
	if err != nil {
		return "", err
	}
	ran := ""
	for _, name := range names {
		if how, err := a.known(name); err == nil && how.File == abs {
			ran = name
			break
		}
	}
	if ran != "" && f.none() {
		return ran, nil
	}
	draft, files, diags := job.Read(arg, vars, f.varFiles)
	if draft.Job != nil && draft.Known("name") {
		if how, err := a.known(draft.Job.Name); err == nil { // as it was run here it can be read without what this file lacks
			if how.File != abs {
				a.given = given(abs, vars, f)
			}
			return draft.Job.Name, nil
		}
	}
	if diags.HasErrors() && ran != "" {
		return ran, nil
	}
	if err := a.diagnose(files, diags); err != nil {
		return "", err
	}
	a.given = given(abs, vars, f)
	return draft.Job.Name, nil
}

// given is a job file with the variables of the command line.
func given(file string, vars map[string]string, f varFlags) invocation {
	return invocation{File: file, Vars: vars, VarFiles: f.varFiles}
}

// errNoScheduler says what to do when nobody answers for a job.
func (a *app) errNoScheduler(name string) error {
	if _, k := a.elsewhere(name); k != nil && k.Bereft() {
		return fmt.Errorf("the scheduler of job %q, %s, cannot be asked: %s", name, k.Words(), a.bereft(k, name))
	} else if k != nil && k.Held {
		return fmt.Errorf("job %q has its scheduler elsewhere: %s. Give the same command there, with -state-dir %s", name, k.Words(), quoted([]string{filepath.Dir(k.StateDir)}))
	}
	if slices.Contains(a.takesUp, name) { // who runs it is not sent to run it
		who := "another process"
		if pid := a.holder(name).pid; pid != 0 {
			who = fmt.Sprintf("process %d", pid)
		}
		return fmt.Errorf("no scheduler answers for job %q, and %s has its state: a kale run that begins, or a kale stop", name, who)
	}
	if run, starts := a.starts(name); starts {
		return fmt.Errorf("no scheduler is running yet for job %q: %s is about to start it: try again in a moment", name, run)
	}
	if h := a.holder(name); h.stops {
		text := fmt.Sprintf("no scheduler is running for job %q, and %s is at work on it", name, h.words())
		if h.suspended {
			text += ". " + h.stuck(a, name)
		}
		return errors.New(text)
	}
	if dir, err := a.jobDir(name); err == nil && !ranIn(dir) {
		if g := a.lost(context.Background(), name); g != nil { // which bounds how long it asks
			return fmt.Errorf("job %q: %s; %s takes it up again", name, strings.Join(append([]string{g.Says}, g.Problems...), "; "), a.runLine(name))
		}
	} else if err == nil {
		if w, err := core.WantedAt(dir); err == nil && w != nil && w.Stopped {
			return fmt.Errorf("job %q is stopped, and has no scheduler: start it again with %s", name, a.runLine(name))
		}
	}
	return fmt.Errorf("no scheduler is running for job %q: start it with %s", name, a.runLine(name))
}

// runLine is the command that runs a job.
func (a *app) runLine(name string) string {
	arg := "JOB.hcl"
	if dir, err := a.jobDir(name); err == nil {
		if how, err := loadInvocation(dir); err == nil {
			arg = quoted(how.names(name)) // run takes the file and the variables from the last run
		} else if a.given.File != "" {
			arg = quoted(a.given.anew())
		}
	}
	return "kale run " + a.stateFlag() + arg
}

// connect speaks with the scheduler of a job. api.ErrNoScheduler is in the error's chain when there is none.
func (a *app) connect(ctx context.Context, name string) (*api.Client, error) {
	dir, err := a.jobDir(name)
	if err != nil {
		return nil, err
	}
	path, err := api.SocketPath(dir)
	if err != nil {
		return nil, err
	}
	c, err := api.Dial(ctx, path)
	if errors.Is(err, api.ErrNoScheduler) {
		return nil, noScheduler{a, name}
	}
	return c, err
}

// wanted is what a job's scheduler wants to run: as the one that runs says, or else the last one wrote down. nil: nothing.
func (a *app) wanted(ctx context.Context, name, dir string) (*core.Wanted, error) {
	w, err := core.WantedAt(dir)
	if !errors.Is(err, state.ErrLocked) {
		return w, err
	}
	c, err := a.answering(ctx, name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, enough := context.WithTimeout(ctx, 2*a.patience)
	defer enough()
	w, err = c.Wanted(ctx)
	return w, a.asked(name, err)
}

// noScheduler is api.ErrNoScheduler with advice, which is looked for when somebody is to read it.
type noScheduler struct {
	a    *app
	name string
}

func (e noScheduler) Error() string { return e.a.errNoScheduler(e.name).Error() }

func (noScheduler) Is(target error) bool { return target == api.ErrNoScheduler }

// silentPatience is for how long a command waits for a scheduler whose process runs and does not answer, as on a machine that is busy.
const silentPatience = 20 * time.Second

// reach is connect to a scheduler that answers. One that does not within a.patience is waited for, which is said, unless its process is suspended.
// api.ErrSilent: it does not answer.
func (a *app) reach(ctx context.Context, name string) (*api.Client, error) {
	c, err := a.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	for began, told := time.Now(), false; a.isSilent(ctx, c); told = true {
		if a.holder(name).suspended || time.Since(began) > silentPatience || ctx.Err() != nil {
			c.Close()
			return nil, a.asked(name, api.ErrSilent)
		}
		if !told {
			a.advise("job %q: %s; waiting for it up to %s\n", name, a.holder(name).silence(), silentPatience)
		}
	}
	return c, nil
}

// answering is connect to a scheduler that answers within a.patience, for who can do without it. api.ErrSilent: it does not.
func (a *app) answering(ctx context.Context, name string) (*api.Client, error) {
	c, err := a.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	if a.isSilent(ctx, c) {
		c.Close()
		return nil, a.asked(name, api.ErrSilent)
	}
	return c, nil
}

// isSilent says that a scheduler has not answered within a.patience. Whatever else went wrong shows when it is asked for something.
func (a *app) isSilent(ctx context.Context, c *api.Client) bool {
	ctx, enough := context.WithTimeout(ctx, a.patience)
	defer enough()
	return errors.Is(c.Alive(ctx), api.ErrSilent)
}

// awaitBrokers says that brokers are waited for, and how long, where they have not answered within a.patience. The caller calls answered when they have, or
// when it gives up.
func (a *app) awaitBrokers(brokers []string, limit time.Duration) (answered func()) {
	return a.await("waiting for the brokers at %s, which have not answered yet, up to %s\n", strings.Join(brokers, ", "), limit)
}

// awaitBackend says that a job's backend is waited for, as awaitBrokers does of brokers. What it asks of its cluster is bounded by itself.
func (a *app) awaitBackend(j *job.Job) (answered func()) {
	return a.await("waiting for the backend %q, which has not answered yet\n", j.Backend.Name)
}

// await advises what is waited for, where that takes longer than a.patience. The caller calls done when the wait is over.
func (a *app) await(format string, args ...any) (done func()) {
	return a.awaiting(func() { a.advise(format, args...) })
}

// awaiting is await for who says it otherwise.
func (a *app) awaiting(say func()) (done func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with done, which waits for it
		defer close(ended)
		select {
		case <-over:
		case <-time.After(a.patience):
			say()
		}
	}()
	return sync.OnceFunc(func() { close(over); <-ended })
}

// silentScheduler is api.ErrSilent with what the scheduler's process does and what helps.
type silentScheduler struct{ text string }

func (e silentScheduler) Error() string { return e.text }

func (silentScheduler) Is(target error) bool { return target == api.ErrSilent }

// asked is the error of a question to a job's scheduler; where that does not answer, with what its process does and what helps.
func (a *app) asked(name string, err error) error {
	if !errors.Is(err, api.ErrSilent) || errors.As(err, new(silentScheduler)) {
		return err
	}
	h, end := a.holder(name), ""
	switch {
	case h.suspended:
		end = "; " + h.ends(a, name)
	case h.pid != 0:
		end = ": " + h.ends(a, name)
	}
	return silentScheduler{fmt.Sprintf("job %q: %s; kale status %s%s tells what its chief says%s", name, h.silence(), a.stateFlag(), name, end)}
}

// storeWithout is a job's state for who could not reach its scheduler: none runs, or it is suspended, and then how old what it knew is, is said; or
// the job was taken over from another state folder, and that this one is older is. why is what reach said, command who asks.
func (a *app) storeWithout(name, command string, why error) (*state.Store, error) {
	suspended := a.holder(name).suspended
	if !errors.Is(why, api.ErrNoScheduler) && (!errors.Is(why, api.ErrSilent) || !suspended) {
		return nil, why
	}
	dir, err := a.jobDir(name)
	if err != nil {
		return nil, err
	}
	if !exists(filepath.Join(dir, "state.db")) { // opening it would create it
		return nil, a.errNoScheduler(name)
	}
	if errors.Is(why, api.ErrNoScheduler) {
		st, err := state.Open(dir)
		if err == nil {
			a.adviseOlder(name, dir, command)
		}
		return st, err
	}
	says := a.holder(name).silence()
	st, err := state.OpenCopy(dir)
	if err != nil {
		return nil, errors.Join(why, err)
	}
	if !a.holder(name).suspended { // it may have written meanwhile
		return nil, errors.Join(why, st.Close())
	}
	seen, err := state.Last[core.Sample](st, state.Samples, 1)
	if err != nil {
		return nil, errors.Join(why, err, st.Close())
	}
	age := "it had seen nothing yet"
	if len(seen) > 0 {
		now := time.Now()
		age = fmt.Sprintf("this is what it knew %s ago, at %s", job.Length(now.Sub(seen[0].At).Round(time.Second)), clock(seen[0].At, now))
	}
	a.advise("job %q: %s; %s\n", name, says, age)
	return st, nil
}

// adviseOlder says, of a job that a scheduler with another state folder has taken over, that what this one knows is older.
func (a *app) adviseOlder(name, dir, command string) {
	_, k := a.elsewhere(name)
	if k == nil {
		return
	}
	has := "had it last"
	if k.Held {
		has = "looks after it"
	}
	text := fmt.Sprintf("job %q: %s %s; %s", name, k.Words(), has, isOlder(dir))
	if !k.Bereft() && !k.Forgotten() {
		text += ": " + there(command, k, name) + " tells more"
	}
	a.advise("%s\n", text)
}

// reachArg is reach for a command's argument.
func (a *app) reachArg(ctx context.Context, arg string, f varFlags) (string, *api.Client, error) {
	name, err := a.jobName(arg, f)
	if err != nil {
		return "", nil, err
	}
	c, err := a.reach(ctx, name)
	return name, c, err
}

// completeJobs offers the jobs of this machine, and job files, as a command's first argument.
func (a *app) completeJobs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := a.jobs()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names, cobra.ShellCompDirectiveDefault
}

// completeMoreJobs is completeJobs for any argument.
func (a *app) completeMoreJobs(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.completeJobs(cmd, nil, word)
}

// completeFiles offers job files as each of a command's arguments.
func completeFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"hcl"}, cobra.ShellCompDirectiveFilterFileExt
}

// exists says that a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
