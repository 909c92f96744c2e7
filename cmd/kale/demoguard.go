package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kale-sched/kale/cmd/kale/demo"
)

// demoGuardCommand is the first argument with which kale demo starts its own program as its guard. It is no command for people.
const demoGuardCommand = "demo-guard"

// demoGuardLimit bounds what a guard does once its demo is gone.
const demoGuardLimit = 3 * time.Minute

// demoGuard is a process that outlives a demo which is killed, and then ends what that has started and removes its folder. It waits at a pipe, the other end of which
// only the demo holds.
type demoGuard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// guarded is what a guard writes down of its own failure, in the demo's folder.
const guarded = "guard.log"

// guardDemo starts the guard of a demo, in a session of its own, so that what ends the demo's does not end it. The caller dismisses it.
func (a *app) guardDemo(o demo.Options, f demoFlags) (*demoGuard, error) {
	failed := func(err error) (*demoGuard, error) {
		return nil, fmt.Errorf("demo: start the process that cleans up should this one be killed: %w", err)
	}
	plugin, err := o.Plugin(f.backend)
	if err != nil {
		return failed(err)
	}
	log, err := os.Create(filepath.Join(o.Dir, guarded))
	if err != nil {
		return failed(err)
	}
	defer log.Close() // the guard has its own
	cmd := exec.Command(a.exe, demoGuardCommand, "-backend", f.backend, "-plugin", plugin, fmt.Sprintf("-keep=%v", f.keep), o.Dir)
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = "/", log, &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return failed(err)
	}
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	return &demoGuard{cmd, pipe}, nil
}

// dismiss ends the guard of a demo that has cleaned up by itself.
func (g *demoGuard) dismiss() {
	if g == nil {
		return
	}
	_, _ = g.pipe.Write([]byte{'.'}) // a guard that is gone needs no word
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}

// demoGuardMain is the guard's process. It gives its exit code.
func demoGuardMain(in io.Reader, complain io.Writer, args []string) int {
	flags := flag.NewFlagSet("kale "+demoGuardCommand, flag.ContinueOnError)
	flags.SetOutput(complain)
	name, plugin, keep := flags.String("backend", "", ""), flags.String("plugin", "", ""), flags.Bool("keep", false, "")
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 {
		fmt.Fprintln(complain, "kale "+demoGuardCommand+" is started by kale demo.")
		return exitUsage
	}
	if word, err := io.ReadAll(in); err != nil || len(word) > 0 {
		return exitDone
	}
	cluster, err := demoCluster(*name)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), demoGuardLimit)
		defer cancel()
		err = demo.EndLeftover(ctx, demo.Options{
			Cluster: cluster, Dir: flags.Arg(0), Log: slog.New(slog.NewTextHandler(complain, &slog.HandlerOptions{Level: slog.LevelError})),
			Plugin: func(backend string) (string, error) {
				if backend != *name {
					return "", errors.New("the demo has no backend " + backend)
				}
				return *plugin, nil
			},
		}, *keep)
	}
	if err != nil {
		fmt.Fprintf(complain, "kale %s: %v\n", demoGuardCommand, err)
		return exitFailed
	}
	return exitDone
}
