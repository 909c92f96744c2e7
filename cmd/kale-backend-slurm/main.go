// Command kale-backend-slurm is the backend plugin for Slurm. The scheduler starts it.
package main

import (
	"fmt"
	"os"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/plugins/slurm"
)

func main() { os.Exit(run(os.Args[1:])) }

// run gives the exit code: 0 or 2 (usage).
func run(args []string) int {
	if len(args) == 0 {
		backend.Serve(slurm.New)
		return 0
	}
	fmt.Fprintln(os.Stderr, "kale-backend-slurm is started by kale, for jobs with backend \"slurm\"; it takes no arguments.")
	return 2
}
