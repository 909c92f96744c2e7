package main

import "github.com/spf13/cobra"

// recordFlags are the flags of commands that hold a job's features against what is in its topic.
type recordFlags struct{ any bool }

func (f *recordFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&f.any, "any-records", false, "go on although the topic's newest records do not fit the features: what is wrong is only a warning")
}
