package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/kale-sched/kale/cmd/internal/guard"
	"github.com/kale-sched/kale/cmd/kale/demo"
)

// demoGuardCommand is the first argument with which kale demo starts its own program as its guard. It is no command for people.
const demoGuardCommand = "demo-guard"

// demoGuardLimit bounds what a guard does once its demo is gone.
const demoGuardLimit = 3 * time.Minute

// guarded is what a guard writes down of its own failure, in the demo's folder.
const guarded = "guard.log"

// guardDemo starts the guard of a demo, which ends what a demo that is killed has started and removes its folder. The caller dismisses it.
func (a *app) guardDemo(o demo.Options, f demoFlags) (*guard.Guard, error) {
	plugin, err := o.Plugin(f.backend)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	log, err := os.Create(filepath.Join(o.Dir, guarded))
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	defer log.Close() // the guard has its own
	g, err := guard.Start(log, a.exe, demoGuardCommand, "-backend", f.backend, "-plugin", plugin, fmt.Sprintf("-keep=%v", f.keep), o.Dir)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return g, nil
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
	if !guard.Orphaned(in) {
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
