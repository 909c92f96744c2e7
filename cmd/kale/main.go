// Command kale keeps online training jobs within their lag with the fewest GPUs: the scheduler (kale run) and everything an engineer asks of it.
//
// Every subcommand is one file: flags, a call into a package, text or JSON. Results go to standard output; progress, advice and logs to
// standard error. Exit codes: 0 done, 1 failed, 2 wrong usage. Commands that only look (validate, plan, doctor, status, explain) change nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// bounce is how soon after the first signal a second one is taken for the same: some tools send one to the process and one to its group.
const bounce = 500 * time.Millisecond

func main() {
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Owned by main until the process ends: the first signal asks every command to end cleanly, a second one ends it at once.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		for first := time.Now(); time.Since(first) < bounce; {
			<-signals
		}
		fmt.Fprintln(os.Stderr, "\nkale: ended at once by a second signal")
		os.Exit(exitFailed)
	}()
	os.Exit(a.run(ctx, os.Args[1:]))
}
