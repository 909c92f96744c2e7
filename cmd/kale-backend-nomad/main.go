// Command kale-backend-nomad is the backend plugin for a Nomad cluster. The scheduler starts it.
package main

import (
	"fmt"
	"os"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/plugins/nomad"
)

func main() { os.Exit(run(os.Args[1:])) }

// run gives the exit code: 0 or 2 (usage).
func run(args []string) int {
	if len(args) > 0 {
		fmt.Fprintln(os.Stderr, "kale-backend-nomad is started by kale, for jobs with backend \"nomad\"; it takes no arguments.")
		return 2
	}
	backend.Serve(nomad.New)
	return 0
}
