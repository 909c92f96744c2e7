package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
)

type runFlags struct {
	jobFlags
	recordFlags
	plain, live bool
	log, pool   string
	takeOver    bool
}

func runCommand(a *app) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "run JOB.hcl [JOB.hcl …]", SuggestFor: []string{"start", "up", "apply", "submit"}, Short: "Run a job's scheduler in the foreground, or those of several jobs",
		Long: `Runs the scheduler of a job until Ctrl-C, or until its terminal is closed (not under nohup). The scheduler is not on the data path:
when it ends, training goes on, and the next kale run finds everything again. kale stop ends the job itself.

A job that ran here before can be named instead of its file: then it is run as it was the last time, the same variables included. Where the scheduler before is just
ending, or a stop of the job is under way, run waits for that.

Several jobs run side by side, each with a scheduler of its own; what is said of one begins with its name. With -pool they share GPUs, as a file
says:

  pool "main" {
    gpus = 8              # a worker takes workers.gpus of them, or one where that is 0
    job "ctr" {
      priority  = 10      # 0 is usual; beyond the guarantees, the higher is served first
      weight    = 2       # 1 is usual; among jobs of one priority, what a worker of it prevents counts twice
      guarantee = 2       # workers that it gets whenever it wants them; workers.min is usual
      limit     = 6       # workers.max is usual
    }
  }

A job that wants more than is free gets it from those of lower priority, or of the same priority where workers are worth less; these drain first,
keep their guarantees, and have the rest back when it is wanted no more. Who has had no more than its guarantee for an hour (patience = "1h"; "0s": never)
though it asks for more has one worker for a turn of a quarter of that. GPUs of several types are said instead of gpus: type "a100" { gpus = 8 }, one block
each; each job then has a line type = "a100", and its own backend block must ask for that type: in Slurm by gres, constraint or partition, in Nomad by device,
constraint or node_pool. Where gpus is left out, the cluster is asked when the run begins: what the jobs' blocks may have, whoever holds it now, by partition, exclude
and gres in Slurm, by device, datacenters and node_pool in Nomad; what a constraint leaves must be written. kale status and kale explain say what the pool gave or took, and why. All
jobs of a pool must be run by one process: it is their targets that are counted. Name the pool each time: while one that was run in it last trains on, the
others are neither run nor planned without it.

A job has one scheduler, wherever those that reach its checkpoint folder run: beside one that runs with another state folder, as another user or on another
machine, run is refused, and says who has the job. -take-over takes it from that one, which then ends and touches nothing more. A scheduler that was killed
on this machine is no hindrance; of one on another machine that is known after a minute.`,
		Example: "  kale run ctr.hcl\n  kale run ctr.hcl -var 'brokers=[\"kafka-1:9092\"]' -plain\n  kale run ctr.hcl ads.hcl -pool pool.hcl",
		Args:    atLeast("JOB.hcl"), ValidArgsFunction: a.completeMoreJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.plain && f.live {
				return usagef("-plain and -live exclude each other")
			}
			a.ongoing = true
			a.outlive()
			if len(args) > 1 || f.pool != "" {
				return a.runTogether(cmd.Context(), args, f)
			}
			return a.runJob(cmd.Context(), args[0], f)
		},
	}
	f.jobFlags.register(c)
	f.recordFlags.register(c)
	c.Flags().BoolVar(&f.plain, "plain", false, "a line per decision, rescale and problem (default where the output is no terminal)")
	c.Flags().BoolVar(&f.live, "live", false, "a live picture (default on a terminal)")
	registerTakeOver(c, &f.takeOver)
	c.Flags().StringVar(&f.log, "log", "warn", "least level of the log on standard error: "+logLevels)
	c.Flags().StringVar(&f.pool, "pool", "", "`POOL.hcl`, which says how many GPUs the jobs share, and who comes first")
	return c
}

func (a *app) runJob(ctx context.Context, arg string, f runFlags) error {
	if _, err := a.parseLogger(f.log); err != nil {
		return usageError{err}
	}
	l, _, diags, err := a.inspect(ctx, arg, f.jobFlags, inspection{recordFlags: f.recordFlags, starts: true, alone: true, free: !f.takeOver})
	if l != nil {
		defer l.start.end()
	}
	if l != nil && ctx.Err() == nil {
		err = a.besides(a.tell(l, diags), err)
	}
	if ctx.Err() != nil && l != nil && l.Job != nil {
		return a.interrupted(l)
	}
	if err != nil {
		return err
	}
	show, err := a.newScreen(l, f)
	if err != nil {
		return err
	}
	defer show.close()
	s, b, closeAll, err := a.open(ctx, l, core.Options{Log: show.lg, Told: !show.live, Progress: show.step, Problems: a.unheard, TrainForecast: a.trainAnew}, f.takeOver)
	if err != nil && ctx.Err() != nil {
		return a.interrupted(l)
	}
	if err != nil {
		return err
	}
	defer closeAll()
	if err := a.serve(ctx, show, l, b, s); err != nil {
		return err
	}
	a.advise("%v\n", a.farewell(l, s.View(), takeUp{command: a.again()}))
	return nil
}

// open launches the backend's plugin and opens the job's scheduler over it. o says what the job does not: Log, Progress, Stop. closeAll undoes
// both; what runs goes on. takeOver takes the job from the scheduler that has it.
func (a *app) open(ctx context.Context, l *loaded, o core.Options, takeOver bool) (s *core.Scheduler, b *backend.Client, closeAll func(), err error) {
	if o.Stop { // which starts no trainer but for a server that is gone and whose last snapshot is wanted
		if o.Trainer, o.Env, err = a.findTrainer(o.Log, l); err != nil {
			o.Log.Warn("a parameter server that is gone could not be started again for its last snapshot", "err", err)
		}
	} else {
		var diags hcl.Diagnostics
		if o.Trainer, o.Env, diags, err = a.trainer(ctx, o.Log, l); err == nil {
			err = a.diagnose(l.files, diags)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	if b, err = a.launch(ctx, o.Log, l); err != nil {
		return nil, nil, nil, err
	}
	o.Job, o.StateDir, o.Backend = l.Job, l.dir, b
	o.ShutOut = func(servers int) error { return shutOut(l.Job, servers) }
	s, diags, err := a.openFree(ctx, o, takeOver)
	if err == nil {
		err = a.diagnose(l.files, diags)
	}
	if s == nil && err == nil {
		err = errShown
	}
	if err != nil {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
		return nil, nil, nil, errors.Join(err, b.Close())
	}
	closeAll = func() {
		if err := errors.Join(s.Close(), b.Close()); err != nil {
			o.Log.Warn("closing the scheduler", "err", err)
		}
	}
	return s, b, closeAll, nil
}

// serve runs a job's loop, its API and its picture until ctx ends, the picture is closed or the job has stopped.
func (a *app) serve(ctx context.Context, show *screen, l *loaded, b backend.Backend, s *core.Scheduler) error {
	how, err := l.durable()
	if err != nil {
		return err
	}
	if err := saveInvocation(l.dir, how); err != nil {
		return err
	}
	if err := l.keepStarted(); err != nil {
		return err
	}
	listener, err := listen(l.dir)
	if err != nil {
		return err
	}
	l.start.end() // a stop that waited for it finds whom to ask
	a.advise("the scheduler of job %q runs; its state is in %s\n", l.Name, l.dir)

	ctx, end := context.WithCancel(ctx)
	defer end()
	apiCtx, endAPI := context.WithCancel(context.WithoutCancel(ctx))
	defer endAPI()
	var g errgroup.Group // the API and the picture: waited for below, ended by endAPI and end
	g.Go(func() error {
		defer end()
		return api.Serve(apiCtx, show.lg, listener, s, apiOptions(l, b, s))
	})
	g.Go(func() error {
		defer end()
		return show.show(ctx, s)
	})
	err = s.Run(ctx) // whoever waits for a stop reads its result from the state when we have let go of it
	end()
	endAPI()
	return errors.Join(err, g.Wait())
}

// apiOptions are what a scheduler's API serves beside it.
func apiOptions(l *loaded, b backend.Backend, s *core.Scheduler) api.Options {
	return api.Options{
		Logs: func(ctx context.Context, id backend.ID, o backend.LogOptions) (io.ReadCloser, error) {
			return b.Logs(ctx, l.Name, id, o)
		},
		Report: reportHandler(l.Job, s.Store(), s.View),
	}
}

// listen opens the socket on which the scheduler answers that has its job's state in a folder.
func listen(dir string) (net.Listener, error) {
	socket, err := api.SocketPath(dir)
	if err != nil {
		return nil, err
	}
	return api.Listen(socket)
}

// interrupted says what runs of a job whose scheduler was ended before its first look: nothing of this run.
func (a *app) interrupted(l *loaded) error {
	before := ""
	if l.again {
		before = fmt.Sprintf(", and what ran of it before goes on (kale status %s%s tells)", a.stateFlag(), l.Name)
	}
	return fmt.Errorf("interrupted before the scheduler of job %q had looked at it: this run has started nothing%s\n  kale %s\nstarts it", l.Name, before, quoted(a.args))
}

// stateFlag repeats -state-dir where it was given.
func (a *app) stateFlag() string {
	if a.stateDir == "" {
		return ""
	}
	return "-state-dir " + quoted([]string{a.stateDir}) + " "
}

// again is what this command was called with, without some of its jobs, for whoever takes the job up again: nobody has to be sent away then.
func (a *app) again(without ...string) string {
	return quoted(slices.DeleteFunc(slices.Clone(a.args), func(s string) bool {
		return strings.HasPrefix(s, "-") && strings.HasPrefix(strings.TrimLeft(s, "-"), "take-over") || slices.Contains(without, s)
	}))
}

// quoted is backend.Quoted of a list.
func quoted(args []string) string { return backend.Quoted(args...) }
