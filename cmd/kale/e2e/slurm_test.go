package e2e_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/slurm"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// onSlurm is a private Slurm of two nodes with fake GPUs.
var onSlurm = &site{backend: "slurm", always: true, shares: slurmShares}

func init() { onSlurm.start = startSlurm } // which refers to it

const slurmNodes = 2

// startSlurm starts one for a rig, or skips the test.
func startSlurm(r *rig) *site {
	r.t.Helper()
	s, c, late := slurmOf(r, slurmtest.Options{Nodes: slurmNodes, GPUsPerNode: stormWorkers, CPUs: 64, Conf: twoPartitions})
	s.faults = slurmFaults(c, late)
	return s
}

// slurmOf starts one of a size.
func slurmOf(r *rig, o slurmtest.Options) (*site, *slurmtest.Cluster, *lateSbatch) {
	r.t.Helper()
	if why := slurmtest.Missing(); why != "" {
		r.t.Skip(why)
	}
	c, err := slurmtest.Start(r.t.Context(), o)
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
	late := wrapSbatch(r, c)
	// The rig's mark is given to the job's processes alone: the cluster outlives the job.
	s.block = fmt.Sprintf("    shared_dir   = %q\n    shared_paths = [%q]\n    bin_dir      = %q\n    env          = { %s = %q }\n", shared, r.dir, late.dir, marker, r.dir)
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
	return &s, c, late
}

// The same job on a real Slurm: by forecast it grows from one worker to six before noon and shrinks to one after it, its first worker trains on through all of it, and every record is trained once.
func TestGrowsAndShrinksOnSlurm(t *testing.T) {
	t.Parallel()
	growsAndShrinks(t, kafkatest.Embedded(t), onSlurm, toSix)
}
