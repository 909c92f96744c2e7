package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

func runSlurm(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("kale-cluster slurm", flag.ContinueOnError)
	nodes := flags.Int("nodes", 4, "how many nodes")
	gpus := flags.Int("gpus", min(8, slurmtest.MostGPUs()), "fake GPUs of each node")
	cpus := flags.Int("cpus", 64, "CPUs that each node claims to have, with 1000 MB of memory for each")
	accounting := flags.Bool("accounting", false, "with slurmdbd and a database of its own, so that sacct works, and accounts and QOS are enforced (needs slurmdbd and mariadb-server)")
	rest := flags.Bool("rest", false, "with slurmrestd on a unix socket (needs slurmrestd and slurm-wlm-jwt-plugin)")
	dir := flags.String("dir", "", "an empty `FOLDER` for the cluster, made where it is not there (default: a temporary one, removed at the end)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if err := emptyFolder(*dir); err != nil {
		return err
	}
	o := slurmtest.Options{Nodes: *nodes, GPUsPerNode: *gpus, CPUs: *cpus, Dir: *dir, Accounting: *accounting, Rest: *rest}
	if *accounting {
		o.Conf = []string{"AccountingStorageEnforce=associations,limits,qos"}
	}
	c, err := slurmtest.Start(ctx, o)
	if err != nil {
		return err
	}
	apart := "a folder of its own on every node"
	if !c.Apart() {
		apart = "the same folder on every node, since this is not root"
	}
	through := ""
	if *rest {
		through = fmt.Sprintf("    # or through slurmrestd:\n    # rest       = %q\n    # token_file = %q\n", c.Rest(), c.TokenFile())
	}
	if *accounting {
		through += "    # account = \"kale\" and qos = \"normal\" is what there is; sacctmgr adds others\n"
	}
	fmt.Printf(`A private Slurm runs: %d nodes with %d fake GPUs each. In another terminal:

  export SLURM_CONF=%s
  sinfo

and a job file with

  checkpoint {
    dir = "%[4]s/checkpoint"
  }
  backend "slurm" {
    shared_dir = "%[4]s"
%[7]s  }

%[4]s is shared by all nodes; %s is %s.
%[9]s.
Ctrl-C ends it and %[8]s.
`, *nodes, *gpus, c.Conf(), c.Shared(), c.Private(), apart, through, leaves(*dir), howToRevive("slurmctld, the slurmd of a node"))
	serve(ctx, os.Stdout, c)
	return c.Close()
}
