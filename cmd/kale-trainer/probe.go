package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/internal/probe"
)

func probeCommand(o *options) *cobra.Command {
	var run string
	var index int
	var limit time.Duration
	c := &cobra.Command{
		Use: "probe", Short: "Try this node for kale doctor, which starts it", Args: noArgs,
		Long: `Looks at the node as a process of the job would: ONNX Runtime, the brokers, the scheduler, the address to listen on; writes a file into the
checkpoint folder and reads those of the other probes of its run. It prints what it finds as lines of JSON, removes what it wrote, and ends
when it is told to, or after its limit.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if run == "" || limit <= 0 || index < 0 || index >= probe.Most {
				return fmt.Errorf("%w: probe needs -run, an -index below %d and a -limit above 0: kale doctor gives them", errUsage, probe.Most)
			}
			spec, err := readSpec(o.spec)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			return probe.Run(ctx, probe.Options{Spec: spec, Run: run, Index: index, Interface: o.via, Out: cmd.OutOrStdout()})
		},
	}
	c.Flags().StringVar(&run, "run", "", "names the look that this probe belongs to")
	c.Flags().IntVar(&index, "index", 0, "which probe of it this is, from 0")
	c.Flags().DurationVar(&limit, "limit", 0, "how long it looks at most")
	return c
}
