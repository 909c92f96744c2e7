package main

import "github.com/spf13/cobra"

// recordFlags are the flags of commands that hold a job's features against what is in its topic.
type recordFlags struct {
	any   bool
	again bool // the job has trained such records before: only a file that names another format than theirs is wrong
}

func (f *recordFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&f.any, "any-records", false, "go on although the topic's newest records do not fit the features: what is wrong is only a warning")
}
