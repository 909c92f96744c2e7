package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/kale-sched/kale/cmd/internal/guard"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// guardCommand is the first argument with which kale-cluster starts its own program as the guard of a Nomad. It is no command for people.
const guardCommand = "guard-nomad"

// startGuard starts the guard of the cluster in a folder: the agents end with kale-cluster, and their tasks do not. remove: the folder goes too.
func startGuard(dir string, remove bool) (*guard.Guard, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find kale-cluster's own program: %w", err)
	}
	return guard.Start(nil, exe, guardCommand, fmt.Sprintf("-remove=%v", remove), dir)
}

// guardMain is the guard's process.
func guardMain(in io.Reader, args []string) error {
	flags := flag.NewFlagSet("kale-cluster "+guardCommand, flag.ContinueOnError)
	remove := flags.Bool("remove", false, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New(guardCommand + " is started by kale-cluster nomad")
	}
	if !guard.Orphaned(in) {
		return nil
	}
	err := nomadtest.EndLeftover(flags.Arg(0))
	if *remove {
		err = errors.Join(err, os.RemoveAll(flags.Arg(0)))
	}
	return err
}
