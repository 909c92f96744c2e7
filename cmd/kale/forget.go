package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/state"
)

func forgetCommand(a *app) *cobra.Command {
	var force bool
	var f varFlags
	c := &cobra.Command{
		Use: "forget JOB", Short: "Take a stopped job from this machine's list, and what its backend keeps of it",
		Long: `Removes what is kept of a job that has stopped, and says what that was. On this machine these are its decisions and what was observed of it,
what its policy and its throughput model had learnt, and how it was run: the job is then no longer in kale status. On its cluster
these are the logs and records of its processes, and whose the job's name is: on Slurm the folder shared_dir/JOB, on Nomad the jobs
kale-JOB-… and the variable kale/JOB. Nothing is removed while a process of the job lives there, or may.

-force is for a cluster that is gone for good: the job is taken from this machine's list though its backend does not answer or refuses,
and what stays there is said. Processes that still run there then train on.

The checkpoint stays: kale run JOB.hcl goes on from it. To be rid of the model too, remove the checkpoint folder, which
forget names: with its tablets go the job's token and shape.json, by which a scheduler knows a job that runs.

Where the checkpoint of a job that has trained is gone, as on a volume that is not mounted, no command begins a new model in its place:
forget gives the lost one up.`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.forget(cmd.Context(), args[0], f, force) },
	}
	f.register(c)
	c.Flags().StringVar(&a.plugins, "plugin-dir", "", pluginDirUsage)
	c.Flags().BoolVar(&force, "force", false, "take it from the list though what its backend keeps cannot be removed")
	a.jsonFlag(c, orderedJSON)
	return c
}

func (a *app) forget(ctx context.Context, arg string, f varFlags, force bool) error {
	name, err := a.jobName(arg, f)
	if err != nil {
		return err
	}
	dir, err := a.jobDir(name)
	if err != nil {
		return err
	}
	atWork := func() error {
		if run, starts := a.starts(name); starts {
			return fmt.Errorf("forget job %q: %s is about to start it: kale stop %s%s first", name, run, a.stateFlag(), name)
		}
		return nil
	}
	if err := atWork(); err != nil {
		return err
	}
	if _, err := loadInvocation(dir); errors.Is(err, fs.ErrNotExist) {
		return a.noJob(name)
	}
	defer noteProcess(dir, forgettingFile).end() // who looks for it after this waits, and of who has come since the last look there is a note
	if err := atWork(); err != nil {
		return err
	}
	if pid, stops := noted(dir, stoppingFile); stops {
		if h := holderOf(dir); h.stops && h.suspended {
			return fmt.Errorf("forget job %q: %s is at work on it. %s. Forget it when that is done", name, h.words(), h.stuck(a, name))
		}
		return fmt.Errorf("forget job %q: %s is at work on it: forget it when that is done", name, commandAt("stop", pid))
	}
	v, g, err := a.viewOrGlance(ctx, name, true)
	switch {
	case err != nil:
		return fmt.Errorf("forget job %q: %w", name, err)
	case g != nil && g.Elsewhere != nil && !g.Elsewhere.Bereft():
		if err := a.keepsNothing(ctx, name, dir); err != nil {
			return fmt.Errorf("forget job %q: %w", name, err)
		}
	case v != nil && v.Stopping:
		return fmt.Errorf("forget job %q: its scheduler is stopping it: kale stop %s%s waits until that is done; forget it then", name, a.stateFlag(), name)
	case v == nil && g.Scheduler && holderOf(dir).suspended:
		return fmt.Errorf("forget job %q: its scheduler does not answer. %s. After that, kale stop %s%s, and forget it", name, holderOf(dir).stuck(a, name), a.stateFlag(), name)
	case v == nil && g.Scheduler:
		return fmt.Errorf("forget job %q: %s: kale stop %s%s first", name, g.Says, a.stateFlag(), name)
	case v != nil:
		return fmt.Errorf("forget job %q: its scheduler runs: kale stop %s%s first", name, a.stateFlag(), name)
	case !force && g.State != core.StateStopped && g.State != core.StateNeverStarted && g.State != core.StateGone:
		return fmt.Errorf("forget job %q: it is not known to have stopped (%s): kale stop %s%s first", name, g.Says, a.stateFlag(), name)
	}
	if ended := g.State == core.StateStopped || g.State == core.StateNeverStarted || g.State == core.StateGone; force && !ended {
		if err := a.keepsNothing(ctx, name, dir); err != nil {
			return fmt.Errorf("forget job %q: %w", name, err)
		}
	}
	removed, stays, err := a.forgetThere(ctx, name, force, g.Elsewhere)
	if err != nil {
		return fmt.Errorf("forget job %q: %w", name, err)
	}
	checkpoint := a.checkpointOf(name)
	if g.Elsewhere == nil { // who has it since, or had it last, keeps to what that was ordered
		order, err := a.forgetOrder(name)
		if err != nil {
			return fmt.Errorf("forget job %q: %w", name, err)
		}
		removed = append(removed, order...)
	}
	err = a.removeState(name)
	if errors.Is(err, state.ErrLocked) {
		return fmt.Errorf("forget job %q: what its backend kept is removed; a scheduler has taken the job up meanwhile (process %d): kale stop %s%s first", name, state.Holder(dir), a.stateFlag(), name)
	}
	if err != nil {
		return fmt.Errorf("forget job %q: %w", name, err)
	}
	says := []string{fmt.Sprintf("job %q is forgotten; %s", name, checkpoint)}
	for _, what := range removed {
		says = append(says, "removed: "+what)
	}
	if stays != "" {
		says = append(says, "not removed: "+stays)
	}
	return a.done(ordered{Job: name, Order: "forget", Changed: true, Says: says})
}

// forgetThere removes what the job's backend keeps of it. stays is what it does not, and why, where that is no error.
func (a *app) forgetThere(ctx context.Context, name string, force bool, elsewhere *core.Keeper) (removed []string, stays string, err error) {
	if elsewhere != nil {
		return nil, "what its backend keeps, which is of the scheduler " + elsewhere.Words(), nil
	}
	err = a.onBackend(ctx, name, func(b backend.Backend) (err error) {
		if removed, err = b.Forget(ctx, name, ""); err == nil {
			stays = leftProbes(ctx, b, name)
		}
		return err
	})
	switch {
	case err == nil:
		return removed, stays, nil
	case backend.CodeOf(err) == backend.Unsupported:
		return nil, fmt.Sprintf("what its backend keeps: the plugin is of an older Kale, which cannot forget (%v)", err), nil
	case force:
		return nil, forcedOver(err), nil
	}
	var e *backend.Error
	if errors.As(err, &e) { // what was attempted, the caller says
		err = errors.New(e.Own())
	}
	return nil, "", fmt.Errorf("%w. Where its cluster is gone for good: kale forget -force %s%s", err, a.stateFlag(), name)
}

// forcedOver says what a backend keeps although a job was forgotten, and in short why: all of that was said when it was refused.
func forcedOver(err error) string {
	why := "its backend refuses"
	switch backend.CodeOf(err) {
	case backend.Unavailable:
		why = "its cluster does not answer"
	case backend.Blocked:
		why = "not all of it has ended"
	}
	if _, stays, told := strings.Cut(backend.AsError(err).Message, backend.StaysThere); told {
		return fmt.Sprintf("what its backend keeps, since %s: %s", why, stays)
	}
	return "what its backend keeps, since " + why
}

// leftProbes says what is kept of probes of kale doctor that were left on nodes that are away; "": nothing.
func leftProbes(ctx context.Context, b backend.Backend, name string) string {
	list, _, err := b.List(ctx, name)
	if err != nil {
		return "" // what there was is removed
	}
	var left []string
	for _, st := range list {
		if st.LeftProbe() {
			left = append(left, fmt.Sprintf("%s on node %s", st.ID, st.Node))
		}
	}
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf("what is kept of probes of kale doctor that were left on a node which does not answer: %s. They end with their node's return, and the next kale doctor of a job of this name removes that",
		strings.Join(left, ", "))
}

// keepsNothing says why the state folder of a job that may not have stopped cannot be removed: the job's processes are kept in it.
func (a *app) keepsNothing(ctx context.Context, name, dir string) error {
	quiet := *a
	quiet.err = io.Discard
	l, err := quiet.load(name, jobFlags{})
	if err != nil {
		return err
	}
	h, err := backend.ReadHome(backend.HomePath(l.Checkpoint.Dir, name, job.BackendLocal))
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(dir, h.Dir); err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	list, complete, err := a.list(ctx, name)
	switch {
	case err != nil:
		return err
	case !complete || anyLive(list):
		return fmt.Errorf("its processes are kept in this state folder, %s, and live: kale stop %s%s first", dir, a.stateFlag(), name)
	}
	return nil
}

// checkpointOf says where a job's checkpoint stays.
func (a *app) checkpointOf(name string) string {
	quiet := *a
	quiet.err = io.Discard
	l, err := quiet.load(name, jobFlags{})
	if err != nil {
		return "its checkpoint stays in the folder that its job file names"
	}
	folder := core.CheckpointFolder(l.Job)
	if !exists(folder) {
		return fmt.Sprintf("it has no checkpoint: there is no %s", folder)
	}
	return fmt.Sprintf("its checkpoint stays in %s", folder)
}

// forgetOrder removes the number of workers that was ordered of a job, which stays in its checkpoint folder unless it is stopped, and says so.
func (a *app) forgetOrder(name string) (removed []string, err error) {
	quiet := *a
	quiet.err = io.Discard
	l, err := quiet.load(name, jobFlags{})
	if err != nil {
		return nil, nil // which is told of the checkpoint
	}
	file, err := core.ForgetOrder(l.Job)
	if err != nil {
		return nil, fmt.Errorf("remove the number of workers that was ordered: %w", err)
	}
	if file == "" {
		return nil, nil
	}
	return []string{"the number of workers that was ordered, " + file}, nil
}

// removeState removes a job's state folder while it holds the state, so that no scheduler starts in it.
func (a *app) removeState(name string) error {
	dir, err := a.jobDir(name)
	if err != nil {
		return err
	}
	socket, err := api.SocketPath(dir)
	if err != nil {
		return err
	}
	st, err := state.Open(dir)
	if err != nil {
		return err
	}
	err = os.RemoveAll(dir)
	if e := os.Remove(socket); e != nil && !errors.Is(e, os.ErrNotExist) { // one outside the folder, of a scheduler that ended badly
		err = errors.Join(err, e)
	}
	return errors.Join(err, st.Close())
}
