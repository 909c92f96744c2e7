// Command kale-cluster starts a private cluster on this machine to try Kale's backends on, and ends it on Ctrl-C:
// `kale-cluster slurm` or `kale-cluster nomad`. It is for people and tests; nothing of Kale needs it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
)

// clusters are the kinds that can be started: each runs one until ctx ends.
var clusters = map[string]func(ctx context.Context, args []string) error{
	"nomad": runNomad,
	"slurm": runSlurm,
}

func main() { os.Exit(run(os.Args[1:])) }

// run gives the exit code: 0, 1 (failed) or 2 (usage).
func run(args []string) int {
	if len(args) > 0 && args[0] == guardCommand {
		if err := guardMain(os.Stdin, args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "kale-cluster: %v\n", err)
			return 1
		}
		return 0
	}
	if len(args) == 0 || clusters[args[0]] == nil {
		var kinds []string
		for kind := range clusters {
			kinds = append(kinds, kind)
		}
		sort.Strings(kinds)
		fmt.Fprintf(os.Stderr, "usage: kale-cluster %v [flags]; kale-cluster KIND -h lists the flags\n", kinds)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := clusters[args[0]](ctx, args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "kale-cluster: %v\n", err)
		return 1
	}
	return 0
}

// reviver is a cluster that starts again what has ended of it.
type reviver interface {
	Revive(ctx context.Context) (names []string, err error)
}

// serve waits until ctx ends. Each SIGUSR1 has the daemons that have ended started again, which the cluster's start text tells (howToRevive).
func serve(ctx context.Context, out io.Writer, c reviver) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
		}
		switch names, err := c.Revive(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			fmt.Fprintf(os.Stderr, "kale-cluster: start again what has ended: %v\n", err)
		case len(names) == 0:
			fmt.Fprintln(out, "Nothing had ended.")
		default:
			fmt.Fprintf(out, "Started again: %s.\n", strings.Join(names, ", "))
		}
	}
}

// howToRevive says how the daemons of a cluster, which are named, come back when they were killed.
func howToRevive(daemons string) string {
	return fmt.Sprintf("A daemon that was killed (%s) comes back with: kill -USR1 %d", daemons, os.Getpid())
}

// leaves says what a cluster leaves when it ends.
func leaves(dir string) string {
	if dir == "" {
		return "leaves nothing"
	}
	return "leaves the folder " + dir + " as it is then"
}

// emptyFolder makes the folder that a cluster is to have where it is not there yet, and refuses one that has something in it; "" is a temporary one.
func emptyFolder(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the cluster (-dir): %w", err)
	}
	has, err := os.ReadDir(dir)
	if err == nil && len(has) > 0 {
		err = fmt.Errorf("%s is not empty (it has %s): name one that is empty or not there yet", dir, has[0].Name())
	}
	if err != nil {
		return fmt.Errorf("read the folder of the cluster (-dir): %w", err)
	}
	return nil
}
