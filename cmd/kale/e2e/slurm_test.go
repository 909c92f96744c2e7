package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/slurm"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// onSlurm is a private Slurm of two nodes with fake GPUs.
var onSlurm = &site{backend: "slurm", shares: []chaos.Share{{Kind: chaos.KillController, Number: 2}, {Kind: chaos.LoseNode, Number: 1}}}

func init() { onSlurm.start = startSlurm } // which refers to it

const slurmNodes = 2

// startSlurm starts one for a rig, or skips the test.
func startSlurm(r *rig) *site {
	r.t.Helper()
	if why := slurmtest.Missing(); why != "" {
		r.t.Skip(why)
	}
	c, err := slurmtest.Start(r.t.Context(), slurmtest.Options{Nodes: slurmNodes, GPUsPerNode: stormWorkers, CPUs: 64})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			r.t.Error(err)
		}
	})
	s := *onSlurm
	shared := filepath.Join(r.dir, "shared")
	// The rig's mark is given to the job's processes alone: the cluster outlives the job.
	s.block = fmt.Sprintf("    shared_dir   = %q\n    shared_paths = [%q]\n    bin_dir      = %q\n    env          = { %s = %q }\n", shared, r.dir, c.Bin(), marker, r.dir)
	s.gpus = 1
	s.look = func(r *rig) backend.Backend {
		b := slurm.New(nil)
		r.t.Cleanup(func() {
			if err := b.Close(); err != nil {
				r.t.Error(err)
			}
		})
		return b
	}
	s.files = func(_ *rig, name string) string { return filepath.Join(shared, jobName, "*-g*", name) }
	s.faults = map[chaos.Kind]strikes{
		chaos.KillController: func(k *storm, _ chaos.Fault) (string, func(), bool) { return k.killSlurm(c) },
		chaos.LoseNode:       func(k *storm, f chaos.Fault) (string, func(), bool) { return k.loseSlurmNode(c, 1+f.Of(slurmNodes)) },
	}
	return &s
}

// killSlurm kills slurmctld, and starts it again. What it had not saved is lost with it, and its jobs are ended by the nodes.
func (c *storm) killSlurm(cluster *slurmtest.Cluster) (what string, undo func(), void bool) {
	if !c.take("slurm") {
		return "", nil, true
	}
	cluster.KillController()
	return "slurmctld", func() {
		if err := cluster.StartController(context.Background()); err != nil {
			c.fatalf("%v", err)
		}
		c.busy["slurm"] = false
	}, false
}

// loseSlurmNode takes a node's power, and gives it back.
func (c *storm) loseSlurmNode(cluster *slurmtest.Cluster, n int) (what string, undo func(), void bool) {
	if !c.take("slurm") { // nodes come back to a slurmctld that answers
		return "", nil, true
	}
	cluster.KillNode(n)
	return fmt.Sprintf("node %s and all that ran on it", slurmtest.Node(n)), func() {
		if err := cluster.StartNode(n); err != nil {
			c.fatalf("%v", err)
		}
		c.busy["slurm"] = false
	}, false
}

// The same job on a real Slurm: by forecast it grows from one worker to six before noon and shrinks to one after it, its first worker trains on through all of it, and every record is trained once.
func TestGrowsAndShrinksOnSlurm(t *testing.T) {
	t.Parallel()
	growsAndShrinks(t, kafkatest.Embedded(t), onSlurm, toSix)
}
