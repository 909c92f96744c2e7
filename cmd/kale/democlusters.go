package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kale-sched/kale/cmd/kale/demo"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// demoClusters are what the demo's job can run on, by backend.
var demoClusters = map[string]func() demo.Cluster{
	"local": func() demo.Cluster { return demo.Local{} },
	"nomad": func() demo.Cluster { return &demoNomad{} },
	"slurm": func() demo.Cluster { return &demoSlurm{} },
}

// demoCluster gives the cluster of a backend.
func demoCluster(backend string) (demo.Cluster, error) {
	create, ok := demoClusters[backend]
	if !ok {
		names := slices.Sorted(maps.Keys(demoClusters))
		return nil, usagef("the demo has no backend %q. %sThere are: %s", backend, job.DidYouMean(backend, names), strings.Join(names, ", "))
	}
	return create(), nil
}

// demoNomad is a private Nomad on this machine: a server and two clients of four pretended GPUs each.
type demoNomad struct{ cluster *nomadtest.Cluster }

// Start implements demo.Cluster.
func (n *demoNomad) Start(ctx context.Context, dir string) (demo.Place, error) {
	if why := nomadtest.Missing(); why != "" {
		return demo.Place{}, errors.New(why)
	}
	var err error
	if n.cluster, err = nomadtest.Start(ctx, nomadtest.Options{Clients: 2, GPUs: 4, Dir: dir}); err != nil {
		return demo.Place{}, err
	}
	return demo.Place{
		Backend: "nomad", Checkpoint: filepath.Join(n.cluster.Shared(), "checkpoint"), GPUs: 1,
		Block: fmt.Sprintf("address = %q\nshared_paths = [%q]\n", n.cluster.Address(), n.cluster.Shared()),
	}, nil
}

// Close implements demo.Cluster.
func (n *demoNomad) Close() error {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Stop()
}

// EndLeftover implements demo.Cluster: the agents ended with the process that started them, and what they ran did not.
func (*demoNomad) EndLeftover(_ context.Context, o demo.Options) error {
	return nomadtest.EndLeftover(demo.ClusterDir(o.Dir))
}

// demoSlurm is a private Slurm on this machine: two nodes of four pretended GPUs each.
type demoSlurm struct{ cluster *slurmtest.Cluster }

// Start implements demo.Cluster.
func (s *demoSlurm) Start(ctx context.Context, dir string) (demo.Place, error) {
	if why := slurmtest.Missing(); why != "" {
		return demo.Place{}, errors.New(why)
	}
	var err error
	if s.cluster, err = slurmtest.Start(ctx, slurmtest.Options{Nodes: 2, GPUsPerNode: 4, Dir: dir}); err != nil {
		return demo.Place{}, err
	}
	return demo.Place{
		Backend: "slurm", Checkpoint: filepath.Join(s.cluster.Shared(), "checkpoint"), GPUs: 1,
		Block: fmt.Sprintf("shared_dir = %q\nbin_dir = %q\n", s.cluster.Shared(), s.cluster.Bin()),
	}, nil
}

// Close implements demo.Cluster.
func (s *demoSlurm) Close() error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Close()
}

// EndLeftover implements demo.Cluster: the daemons ended with the process that started them, and the jobs did not.
func (*demoSlurm) EndLeftover(ctx context.Context, o demo.Options) error {
	return slurmtest.EndLeftover(ctx, demo.ClusterDir(o.Dir))
}
