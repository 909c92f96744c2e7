package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

func runNomad(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("kale-cluster nomad", flag.ContinueOnError)
	clients := flags.Int("clients", 2, "how many client nodes")
	gpus := flags.Int("gpus", 4, "fake GPUs of each node")
	acl := flags.Bool("acl", false, "with access control")
	dir := flags.String("dir", "", "an empty `FOLDER` for the cluster, made where it is not there (default: a temporary one, removed at the end)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if why := nomadtest.Missing(); why != "" {
		return errors.New(why)
	}
	if err := emptyFolder(*dir); err != nil {
		return err
	}
	folder, err := clusterFolder(*dir)
	if err != nil {
		return err
	}
	g, err := startGuard(folder, *dir == "")
	if err != nil {
		return err
	}
	defer g.Dismiss()
	if *dir == "" {
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	}
	c, err := nomadtest.Start(ctx, nomadtest.Options{Clients: *clients, GPUs: *gpus, ACL: *acl, Dir: folder})
	if err != nil {
		return err
	}
	apart := "a folder of its own on every node"
	if !c.IsPrivate() {
		apart = "the same folder on every node, since this is not root"
	}
	fmt.Printf("A private Nomad runs: %d clients with %d fake GPUs each. In another terminal:\n\n  export NOMAD_ADDR=%s\n  alias nomad=%s\n", *clients, *gpus, c.Address(), c.Program())
	if c.Token() != "" {
		fmt.Printf("  export NOMAD_TOKEN=%s\n", c.Token())
	}
	fmt.Printf(`
and a job file with

  backend "nomad" {
    shared_paths = [%q]
  }

%s is shared by all nodes: the place for checkpoint.dir.
%s is %s.
%s.
Ctrl-C ends it and %s.
`, c.Shared(), c.Shared(), c.Private(), apart, howToRevive("the server, the client of a node"), leaves(*dir))
	serve(ctx, os.Stdout, c)
	return c.Stop()
}

// clusterFolder is the absolute path of the folder that was asked for; "" asks for a temporary one.
func clusterFolder(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.MkdirTemp("", "kale-nomad-")
	if err != nil {
		return "", fmt.Errorf("make the cluster's folder: %w", err)
	}
	return dir, nil
}
