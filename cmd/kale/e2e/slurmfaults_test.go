package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// slurmShares are the cards of what only a Slurm brings about.
var slurmShares = []chaos.Share{
	{Kind: chaos.KillController, Number: 2},
	{Kind: chaos.KillAgent, Number: 1},
	{Kind: chaos.LoseNode, Number: 1},
	{Kind: chaos.DrainNode, Number: 1},
	{Kind: chaos.LateSubmit, Number: 2},
	{Kind: chaos.CancelWork, Number: 1},
	{Kind: chaos.Preempt, Number: 1},
	{Kind: chaos.FillCluster, Number: 1},
	{Kind: chaos.EndWalltime, Number: 1},
}

// twoPartitions let others preempt the job's workloads, which run in the default partition.
var twoPartitions = []string{
	"PreemptType=preempt/partition_prio", "PreemptMode=CANCEL",
	"PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1",
	"PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF",
}

// slurmFaults are what can be done to a Slurm, and by its other users.
func slurmFaults(c *slurmtest.Cluster, late *lateSbatch) map[chaos.Kind]strikes {
	faults := map[chaos.Kind]strikes{}
	for kind, strike := range map[chaos.Kind]func(*slurmStorm, chaos.Fault) (string, func() error, bool){
		chaos.KillController: (*slurmStorm).killController,
		chaos.KillAgent:      (*slurmStorm).killAgent,
		chaos.LoseNode:       (*slurmStorm).loseNode,
		chaos.DrainNode:      (*slurmStorm).drainNode,
		chaos.LateSubmit:     (*slurmStorm).lateSubmit,
		chaos.CancelWork:     (*slurmStorm).cancelWork,
		chaos.Preempt:        (*slurmStorm).preempt,
		chaos.FillCluster:    (*slurmStorm).fill,
		chaos.EndWalltime:    (*slurmStorm).endWalltime,
	} {
		faults[kind] = func(k *storm, f chaos.Fault) (string, func() error, bool) {
			return strike(&slurmStorm{storm: k, slurm: c, late: late}, f)
		}
	}
	return faults
}

// slurmStorm is a storm on a Slurm.
type slurmStorm struct {
	*storm
	slurm *slurmtest.Cluster
	late  *lateSbatch
}

// foreignPrefix begins the names of others' jobs.
const foreignPrefix = "foreign-"

// slurmctld is what a fault takes that keeps slurmctld from answering.
const slurmctld = "slurmctld"

func nodeName(n int) string { return "node " + slurmtest.Node(n) }

var errAway = errors.New("slurmctld is away")

// ask runs one of Slurm's clients, unless slurmctld is away.
func (c *slurmStorm) ask(name string, args ...string) (string, error) {
	if c.busy[slurmctld] {
		return "", errAway
	}
	out, err := c.slurm.Run(context.Background(), name, args...)
	return strings.TrimSpace(out), err
}

// running gives the numbers of the job's own Slurm jobs that run and whose names contain a word, with their names, ordered by number.
func (c *slurmStorm) running(word string, where ...string) (ids, names []string) {
	out, err := c.ask("squeue", append([]string{"--noheader", "--states=RUNNING", "--sort=i", "--format=%i %j"}, where...)...)
	if err != nil {
		return nil, nil // it is tried again
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 && strings.HasPrefix(f[1], "kale:"+jobName+":") && strings.Contains(f[1], word) {
			ids, names = append(ids, f[0]), append(names, f[1])
		}
	}
	return ids, names
}

// killController kills slurmctld, and starts it again. What it had not saved is lost with it, and its jobs are ended by the nodes.
func (c *slurmStorm) killController(chaos.Fault) (what string, undo func() error, void bool) {
	if !c.take(slurmctld) {
		return "", nil, true
	}
	c.slurm.KillController()
	return "slurmctld", func() error {
		if err := c.slurm.StartController(context.Background()); err != nil {
			c.fatalf("%v", err)
		}
		c.busy[slurmctld] = false
		for name, there := range c.busy { // that others' work was cancelled just before is lost too, and it is back
			if strings.HasPrefix(name, foreignPrefix) && !there {
				if _, err := c.ask("scancel", "--name="+name); err != nil {
					return err
				}
			}
		}
		return nil
	}, false
}

// killAgent kills a node's slurmd, and starts it again. What it runs lives on.
func (c *slurmStorm) killAgent(f chaos.Fault) (what string, undo func() error, void bool) {
	n := 1 + f.Of(slurmNodes)
	if !c.take(nodeName(n)) {
		return "", nil, true
	}
	c.slurm.KillDaemon(n)
	return "slurmd of " + nodeName(n), c.nodeReturns(n), false
}

// loseNode takes a node's power, and gives it back. It acts until nothing that went with the node is said to run any more: Slurm may take a node that is back
// at once for one that was never away, and then only the silence of the processes tells.
func (c *slurmStorm) loseNode(f chaos.Fault) (what string, undo func() error, void bool) {
	n := 1 + f.Of(slurmNodes)
	if !c.take(nodeName(n)) {
		return "", nil, true
	}
	lost, away := time.Now().Truncate(time.Second), true // Slurm's times have no fractions
	c.slurm.KillNode(n)
	return nodeName(n) + " and all that ran on it", func() error {
		if away {
			if err := c.slurm.StartNode(n); err != nil {
				c.fatalf("%v", err)
			}
			away = false
		}
		out, err := c.ask("squeue", "--noheader", "--states=RUNNING", "--nodelist="+slurmtest.Node(n), "--format=%j %S")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			name, began, _ := strings.Cut(strings.TrimSpace(line), " ")
			at, err := time.ParseInLocation(slurmTime, began, time.Local)
			if err == nil && strings.HasPrefix(name, "kale:"+jobName+":") && at.Before(lost) {
				return fmt.Errorf("Slurm says that %s, which ended with its node, runs", name)
			}
		}
		c.busy[nodeName(n)] = false
		return nil
	}, false
}

// slurmTime is how Slurm's clients write and read times.
const slurmTime = "2006-01-02T15:04:05"

func (c *slurmStorm) nodeReturns(n int) func() error {
	return c.freeing(nodeName(n), func() {
		if err := c.slurm.StartNode(n); err != nil {
			c.fatalf("%v", err)
		}
	})
}

// drainNode takes a node out of use: what runs goes on, nothing new starts.
func (c *slurmStorm) drainNode(f chaos.Fault) (what string, undo func() error, void bool) {
	n := 1 + f.Of(slurmNodes)
	if c.busy[slurmctld] || !c.take(nodeName(n)) {
		return "", nil, true
	}
	if err := c.slurm.Drain(context.Background(), n); err != nil {
		c.busy[nodeName(n)] = false
		return "", nil, true
	}
	return nodeName(n), func() error {
		if c.busy[slurmctld] {
			return errAway
		}
		if err := c.slurm.Resume(context.Background(), n); err != nil {
			// A slurmctld that was killed may have forgotten the drain.
			if state, asked := c.ask("sinfo", "--noheader", "--Node", "--nodes="+slurmtest.Node(n), "--format=%T"); asked != nil || strings.Contains(state, "drain") {
				return err
			}
		}
		c.busy[nodeName(n)] = false
		return nil
	}, false
}

// cancelWork cancels one of the job's Slurm jobs, as a person would.
func (c *slurmStorm) cancelWork(f chaos.Fault) (what string, undo func() error, void bool) {
	what, void = c.cancelOne(f, "")
	return what, nil, void
}

func (c *slurmStorm) cancelOne(f chaos.Fault, word string) (what string, void bool) {
	ids, names := c.running(word)
	if len(ids) == 0 {
		return "", true
	}
	i := f.Of(len(ids))
	if _, err := c.ask("scancel", ids[i]); err != nil {
		return "", true
	}
	return "Slurm job " + ids[i] + ", " + names[i], false
}

// cancelWorker cancels a worker, so that it is submitted again.
func (c *slurmStorm) cancelWorker(f chaos.Fault) (what string) {
	if what, void := c.cancelOne(f, "worker"); !void {
		return what
	}
	return "no worker ran any more"
}

// foreign submits work of others, which holds its places until it is cancelled.
func (c *slurmStorm) foreign(f chaos.Fault, args ...string) (undo func() error, err error) {
	name := fmt.Sprint(foreignPrefix, f.Number)
	if _, err := c.ask("sbatch", append([]string{"--no-requeue", "--job-name=" + name, "--output=/dev/null", "--chdir=/", "--wrap=exec sleep 1000"}, args...)...); err != nil {
		return nil, err
	}
	c.busy[name] = true
	return func() error {
		_, err := c.ask("scancel", "--name="+name) // none is left where slurmctld has lost it
		c.busy[name] = err != nil
		return err
	}, nil
}

// preempt lets others have all GPUs of a node on which workers run, by a partition of a higher priority.
func (c *slurmStorm) preempt(f chaos.Fault) (what string, undo func() error, void bool) {
	first := f.Of(slurmNodes)
	for i := range slurmNodes {
		node := slurmtest.Node(1 + (first+i)%slurmNodes)
		ids, names := c.running("worker", "--nodelist="+node)
		if len(ids) == 0 {
			continue
		}
		undo, err := c.foreign(f, "--partition=high", "--nodelist="+node, fmt.Sprintf("--gres=gpu:%d", stormWorkers))
		if err != nil {
			return "", nil, true
		}
		return fmt.Sprintf("all GPUs of node %s, from %v", node, names), undo, false
	}
	return "", nil, true
}

// fill lets others have every free GPU, and wait for those that come free before the job does; and a worker is cancelled, which then finds no place.
func (c *slurmStorm) fill(f chaos.Fault) (what string, undo func() error, void bool) {
	if ids, _ := c.running("worker"); len(ids) == 0 || !c.take("places") {
		return "", nil, true
	}
	free, err := c.foreign(f, "--gres=gpu:1", fmt.Sprintf("--array=1-%d", slurmNodes*stormWorkers))
	if err != nil {
		c.busy["places"] = false
		return "", nil, true
	}
	return "every GPU; and " + c.cancelWorker(f), func() error {
		if err := free(); err != nil {
			return err
		}
		c.busy["places"] = false
		return nil
	}, false
}

// endWalltime sets the end of one of the job's Slurm jobs to a minute from now.
func (c *slurmStorm) endWalltime(f chaos.Fault) (what string, undo func() error, void bool) {
	ids, names := c.running("")
	if len(ids) == 0 {
		return "", nil, true
	}
	i := f.Of(len(ids))
	at := time.Now().Add(time.Minute).Format(slurmTime)
	if _, err := c.ask("scontrol", "update", "JobId="+ids[i], "EndTime="+at); err != nil {
		return "", nil, true // it may have ended just now
	}
	return fmt.Sprintf("Slurm job %s, %s, ends at %s", ids[i], names[i], at), nil, false
}

// lateSubmit makes the next submission one that Slurm accepts and whose answer is lost; and a worker is cancelled, so that there is one.
func (c *slurmStorm) lateSubmit(f chaos.Fault) (what string, undo func() error, void bool) {
	if ids, _ := c.running("worker"); len(ids) == 0 || !c.take("submission") {
		return "", nil, true
	}
	how := []string{"fails", "hangs"}[f.Of(2)]
	if err := c.late.arm(how); err != nil {
		c.fatalf("%v", err)
	}
	again := func() string { return c.cancelWorker(f) }
	return fmt.Sprintf("the next sbatch %s after it has submitted; %s", how, again()), c.untilTaken(func() bool { return !c.late.armed() }, again), false
}

// lateSbatch is an sbatch that can lose what Slurm answers.
type lateSbatch struct{ dir string }

// wrapSbatch makes a folder of Slurm's clients with such an sbatch.
func wrapSbatch(r *rig, c *slurmtest.Cluster) *lateSbatch {
	r.t.Helper()
	l := &lateSbatch{dir: filepath.Join(r.dir, "slurm-bin")}
	err := os.Mkdir(l.dir, 0o755)
	for _, name := range []string{"squeue", "scontrol", "scancel", "sinfo"} {
		if err == nil {
			err = os.Symlink(filepath.Join(c.Bin(), name), filepath.Join(l.dir, name))
		}
	}
	// The token is taken by one submission alone, and given back where Slurm did not accept it. Real clients give up by themselves, too.
	script := fmt.Sprintf(`#!/bin/sh
token='%s'
if mv "$token" "$token.$$" 2>/dev/null; then
  how=$(cat "$token.$$")
  '%s' "$@" >/dev/null || { rc=$?; mv "$token.$$" "$token"; exit $rc; }
  [ "$how" = hangs ] && exec sleep 20
  echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
  exit 1
fi
exec '%[2]s' "$@"
`, l.token(), filepath.Join(c.Bin(), "sbatch"))
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, "sbatch"), []byte(script), 0o755)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func (l *lateSbatch) token() string { return filepath.Join(l.dir, "late") }

// arm makes the next submission that Slurm accepts look as if it had failed ("fails") or hang until its caller loses patience ("hangs").
func (l *lateSbatch) arm(how string) error { return os.WriteFile(l.token(), []byte(how), 0o600) }

// armed says whether that is still to come.
func (l *lateSbatch) armed() bool {
	_, err := os.Stat(l.token())
	return err == nil
}
