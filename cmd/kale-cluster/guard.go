package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// guardCommand is the first argument with which kale-cluster starts its own program as the guard of a Nomad. It is no command for people.
const guardCommand = "guard-nomad"

// guard is a process that outlives a kale-cluster which is killed, and then ends what its Nomad has run: the agents end with kale-cluster, and their tasks do
// not. It waits at a pipe, the other end of which only kale-cluster holds.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard starts the guard of the cluster in a folder, in a session of its own, so that what ends kale-cluster's does not end it. remove: the folder goes too.
func startGuard(dir string, remove bool) (*guard, error) {
	failed := func(err error) (*guard, error) {
		return nil, fmt.Errorf("start the process that cleans up should this one be killed: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return failed(err)
	}
	cmd := exec.Command(exe, guardCommand, fmt.Sprintf("-remove=%v", remove), dir)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return failed(err)
	}
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	return &guard{cmd, pipe}, nil
}

// dismiss ends the guard of a cluster that has been ended in order.
func (g *guard) dismiss() {
	_, _ = g.pipe.Write([]byte{'.'}) // a guard that is gone needs no word
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
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
	if word, err := io.ReadAll(in); err != nil || len(word) > 0 {
		return err
	}
	err := nomadtest.EndLeftover(flags.Arg(0))
	if *remove {
		err = errors.Join(err, os.RemoveAll(flags.Arg(0)))
	}
	return err
}
