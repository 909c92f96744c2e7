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
	if len(os.Args) > 1 && os.Args[1] == demoGuardCommand {
		os.Exit(demoGuardMain(os.Stdin, os.Stderr, os.Args[2:]))
	}
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, endings()...)
	go endOn(signals, cancel) // owned by main until the process ends
	os.Exit(a.run(ctx, os.Args[1:]))
}

// endings are the signals that end a command: an interrupt, a polite kill, and a terminal that was closed, save under nohup.
func endings() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

// endOn lets the first signal ask every command to end cleanly; a second one ends it at once. A terminal that closes may say so more than once:
// that is no second one.
func endOn(signals <-chan os.Signal, end func()) {
	<-signals
	end()
	for first := time.Now(); ; {
		if s := <-signals; s != syscall.SIGHUP && time.Since(first) >= bounce {
			break
		}
	}
	fmt.Fprintln(os.Stderr, "\nkale: ended at once by a second signal")
	os.Exit(exitFailed)
}

// outliveReaders makes writes to a pipe that nobody reads any more fail, for a command that has things to end: else such a write ends the process.
// It lasts until the process ends.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) } // what arrives is dropped: the write says it
