package slurmtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// errTaken: somebody listened on a port of the cluster before its daemon did. It was free when it was chosen, and others choose too.
var errTaken = errors.New("another process took a port of the cluster before its daemon listened there")

// inUse is how a daemon's log says that its port is taken: strerror(EADDRINUSE).
const inUse = "Address already in use"

// untilTaken is ctx until a daemon finds its port taken: what was started is given up then, since nothing mends that daemon. A client that asks whoever
// listens there instead would wait for long. end releases it.
func (c *Cluster) untilTaken(ctx context.Context) (until context.Context, end func()) {
	until, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { // ends with until
		for until.Err() == nil {
			if err := c.taken(); err != nil {
				cancel(err)
			}
			select {
			case <-until.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return until, func() { cancel(nil); watch.Wait() }
}

// taken is errTaken where a daemon's log says so.
func (c *Cluster) taken() error {
	logs, _ := filepath.Glob(c.log("*")) // the pattern is a good one
	for _, path := range logs {
		if raw, _ := os.ReadFile(path); strings.Contains(string(raw), inUse) { // not yet written: not said
			return errTaken
		}
	}
	return nil
}

// clear removes what lay and the daemons have made in a folder that was given, but for what a job may have written: there was none yet.
func (c *Cluster) clear() error {
	var errs []error
	for _, name := range []string{"state", "log", "dev", "nodes", "db", "rest"} {
		errs = append(errs, os.RemoveAll(filepath.Join(c.dir, name)))
	}
	return errors.Join(errs...)
}
