// Command kale-trainer is what a job runs on its allocations: a parameter server or a worker. The scheduler starts it through a
// backend; README says how, and `kale-trainer help` what it can be told.
//
// Exit codes: 0 ended as asked (drained, or stopped after a last snapshot), 1 failed, 2 wrong usage, 3 fenced: a newer incarnation has
// taken its place, do not start it again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer"
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitFenced = rpc.ExitFenced
)

// allocEnv names the folder of this process's allocation, in which a process that is started again finds what the one before has left.
const allocEnv = "KALE_ALLOC_DIR"

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	cmd := command()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, trainer.ErrFenced):
		fmt.Fprintln(os.Stderr, "kale-trainer:", err)
		return exitFenced
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "kale-trainer:", err)
		return exitUsage
	}
	fmt.Fprintln(os.Stderr, "kale-trainer:", err)
	return exitFailed
}

type options struct {
	spec, listen, advertise, via string
}

func command() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "kale-trainer", Short: "Parameter server or worker of a Kale job",
		SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	pf := root.PersistentFlags()
	pf.StringVar(&o.spec, "spec", "", "the job's specification, JSON (default: spec.json in the folder that KALE_ALLOC_DIR names)")
	pf.StringVar(&o.listen, "listen", "", "address to listen on, port 0 takes a free one (default: as the specification's network says, without one 127.0.0.1:0)")
	pf.StringVar(&o.via, "interface", os.Getenv(rpc.InterfaceEnv), "interface (ib0) or network (10.0.0.0/8) to listen on, in place of the specification's; also "+rpc.InterfaceEnv)
	pf.StringVar(&o.advertise, "advertise", "", "address that the job's other processes dial (default: the one listened on)")
	root.AddCommand(serverCommand(&o), workerCommand(&o), probeCommand(&o), versionCommand())
	return root
}

func serverCommand(o *options) *cobra.Command {
	var index int
	var generation uint64
	var begun bool
	c := &cobra.Command{
		Use: "ps", Short: "Serve tablets of the model; server 0 also runs the job's chief", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := readSpec(o.spec)
			if err != nil {
				return err
			}
			so := trainer.ServerOptions{Index: index, Generation: generation, Begun: begun, Listen: o.listen, Advertise: o.advertise, Interface: o.via}
			if dir := os.Getenv(allocEnv); dir != "" {
				so.BegunFile = filepath.Join(dir, "begun")
			}
			return trainer.RunServer(cmd.Context(), logger(), spec, so)
		},
	}
	c.Flags().IntVar(&index, "index", 0, "which of the job's parameter servers this is, from 0")
	c.Flags().Uint64Var(&generation, "generation", 1, "which of the processes of this index this is, from 1, as the scheduler counts")
	c.Flags().BoolVar(&begun, "begun", false, "the job has its checkpoint: where that is gone, wait for it and make none anew")
	return c
}

func workerCommand(o *options) *cobra.Command {
	var rank int
	var generation uint64
	c := &cobra.Command{
		Use: "worker", Short: "Train on the stream", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := readSpec(o.spec)
			if err != nil {
				return err
			}
			return trainer.RunWorker(cmd.Context(), logger(), spec, trainer.WorkerOptions{
				Rank: rank, Generation: generation, Listen: o.listen, Advertise: o.advertise, Interface: o.via,
			})
		},
	}
	c.Flags().IntVar(&rank, "rank", 0, "the worker's rank, from 0")
	c.Flags().Uint64Var(&generation, "generation", 1, "the worker's generation: a higher one replaces a lower one of the same rank")
	return c
}

// errBroken says that ONNX Runtime cannot be used, which version has printed.
var errBroken = errors.New("ONNX Runtime cannot be used")

func versionCommand() *cobra.Command {
	var asJSON bool
	var device string
	c := &cobra.Command{
		Use: "version", Short: "What this program is, and whether ONNX Runtime works in it", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := about.This(device, os.Getenv(onnx.LibraryEnv))
			var err error
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			} else {
				err = v.Write(cmd.OutOrStdout(), "kale-trainer")
			}
			if err == nil && v.Broken {
				return errBroken
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	c.Flags().StringVar(&device, "device", onnx.CPU, "where to compute: cpu or cuda")
	return c
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: unexpected argument %q", errUsage, args[0])
	}
	return nil
}

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func readSpec(path string) (*rpc.TrainSpec, error) {
	if path == "" {
		dir := os.Getenv(allocEnv)
		if dir == "" {
			return nil, fmt.Errorf("%w: no specification: give -spec FILE, or set KALE_ALLOC_DIR to the folder with spec.json", errUsage)
		}
		path = filepath.Join(dir, "spec.json")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the job's specification: %w", err)
	}
	spec := &rpc.TrainSpec{}
	if err := protojson.Unmarshal(raw, spec); err != nil {
		return nil, fmt.Errorf("read the job's specification %s: %w", path, err)
	}
	amend(spec)
	return spec, nil
}

// amend changes the specification in builds that are made for a test: see nodedup.go.
var amend = func(*rpc.TrainSpec) {}
