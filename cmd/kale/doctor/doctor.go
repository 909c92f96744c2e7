// Package doctor tries what a job needs: its brokers, topics and records, its backend's plugin, the trainer, ONNX Runtime, its folders, ports
// and this machine's clock.
//
// Input: a job, and which programs would run it. Output: one Finding for each thing that was tried, in an order that does not depend on which
// answered first, with what to do about what is not well. What it says of a program or a service is what that did, not what it should do. It
// starts no process of the job and leaves nothing behind; probes (nodes.go) try the backend's nodes from inside, and are released. The commands that come before a job (validate, plan, run, init) use parts of it.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// State says how a thing is.
type State string

// The states.
const (
	OK   State = "ok"
	Warn State = "warn" // the job runs, but a person should know
	Fail State = "fail" // the job will not run, or not for long
	Skip State = "skip" // not tried, because of what failed before
)

// Finding is what came of one trial.
type Finding struct {
	Check string        // what was tried, short
	State State         //
	Says  string        // what was found
	Do    string        // what to do about it; empty where there is nothing to do
	Took  time.Duration // of the trial that it came from
}

// MarshalJSON gives the time in seconds.
func (f Finding) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Check string  `json:"check"`
		State State   `json:"state"`
		Says  string  `json:"says"`
		Do    string  `json:"do,omitempty"`
		Took  float64 `json:"took_s"`
	}{f.Check, f.State, f.Says, f.Do, f.Took.Seconds()})
}

func ok(check, says string, args ...any) Finding {
	return Finding{Check: check, State: OK, Says: fmt.Sprintf(says, args...)}
}

// but gives a finding another state, and what to do.
func (f Finding) but(s State, do string) Finding {
	f.State, f.Do = s, do
	return f
}

// trial tries one thing.
type trial struct {
	check string
	limit time.Duration // after which it counts as failed
	ends  time.Duration // the part of limit for what comes after its answer, such as the end of what it started
	try   func(ctx context.Context) []Finding
	vital bool     // when it fails, those after it in its group cannot be tried
	needs []string // the parts of the job file that it rests on
	// faultsOnly: it has findings only where something is wrong, so that it is not said that it was not tried either.
	faultsOnly bool
}

// group is trials that build on each other, in order. end frees what they made.
type group struct {
	trials []trial
	end    func()
}

// run makes all groups' trials, the groups at the same time, and gives what they found in the groups' order.
func run(ctx context.Context, groups []group, waits Waits) []Finding {
	found := make([][]Finding, len(groups))
	var wg sync.WaitGroup // each goroutine has its own element of found; a group ends by its trials' limits
	for i, g := range groups {
		wg.Go(func() { found[i] = g.run(ctx, waits) })
	}
	wg.Wait()
	var out []Finding
	for _, f := range found {
		out = append(out, f...)
	}
	return out
}

func (g group) run(ctx context.Context, waits Waits) (out []Finding) {
	if g.end != nil {
		defer g.end()
	}
	broken := ""
	for _, t := range g.trials {
		if broken != "" && t.faultsOnly {
			continue
		}
		if broken != "" {
			out = append(out, Finding{Check: t.check, State: Skip, Says: fmt.Sprintf("not tried, because of %q above", broken)})
			continue
		}
		over := waits.begin(t)
		found := t.bounded(ctx)
		over()
		for _, f := range found {
			if f.State == Fail && t.vital {
				if broken = t.check; t.faultsOnly {
					broken = f.Check
				}
			}
		}
		out = append(out, found...)
	}
	return out
}

// Waits is told what is tried, for how long at most an answer is waited for, and how much longer what was started for it may take to end; it gives what is called when
// that is over. Trials of several groups are under way at once. nil: nobody asks.
type Waits func(check string, answer, end time.Duration) (over func())

func (w Waits) begin(t trial) (over func()) {
	if w == nil {
		return func() {}
	}
	return w(t.check, t.limit-t.ends, t.ends)
}

// bounded makes a trial within its limit. One that does not heed its context, such as a write to a file server that is away, is left behind:
// its goroutine ends when the system call does, or with the process, and what it finds is dropped.
func (t trial) bounded(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	began := time.Now()
	done := make(chan []Finding, 1)
	go func() { done <- t.try(ctx) }()
	// A trial that heeds its context says more when it ends by that than we can: it gets a moment for it.
	late := time.AfterFunc(t.limit+time.Second, func() {
		done <- []Finding{ok(t.check, "no answer within %v", t.limit).but(Fail, "find out what it waits for: a file server, a name server or a firewall that answers nothing")}
	})
	defer late.Stop()
	found := <-done
	for i := range found {
		found[i].Took = time.Since(began)
	}
	return found
}

// Failed says that one of the findings is a failure.
func Failed(fs []Finding) bool { return Count(fs, Fail) > 0 }

// Count is how many of the findings are so.
func Count(fs []Finding, s State) (n int) {
	for _, f := range fs {
		if f.State == s {
			n++
		}
	}
	return n
}
