// Command kale-backend-local is the backend plugin for one machine. The scheduler starts it; it starts itself again,
// with the argument "supervise", once for each process that it runs.
package main

import (
	"fmt"
	"os"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/plugins/local"
)

func main() { os.Exit(run(os.Args[1:])) }

// run gives the exit code: 0, 1 (failed) or 2 (usage).
func run(args []string) int {
	switch {
	case len(args) == 0:
		backend.Serve(local.New)
		return 0
	case len(args) == 2 && args[0] == local.SuperviseCommand:
		if err := local.Supervise(args[1]); err != nil {
			fmt.Fprintf(os.Stderr, "kale-backend-local: supervise %s: %v\n", args[1], err)
			return 1
		}
		return 0
	}
	fmt.Fprintln(os.Stderr, "kale-backend-local is started by kale, for jobs with backend \"local\"; it takes no arguments.")
	return 2
}
