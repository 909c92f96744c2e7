// Package conformance is the test of what core/backend's contract says: every backend runs it, in this repository or
// outside it. Input: a Harness, which knows how to reach the backend and how to write its workloads. Output: a
// failed or passed test for each rule of the contract.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// Program is what a workload of the suite must do.
type Program int

// The programs. Each prints the line "started" each time that it starts.
const (
	Steady   Program = iota // runs until it is asked to stop, then ends with code 0
	ExitZero                // ends with code 0 at once
	Fenced                  // ends with code 3 at once: what a process that has been replaced does
	Crash                   // the first time, ends with code 1: when Harness.Crash says so, or by itself; then does as Steady
	Stubborn                // ignores the request to stop
	Echo                    // prints the file "hello" of its allocation folder and the variable GREETING, ends with code 0: when Harness.Crash says so, or by itself
	Missing                 // a program that does not exist; a backend that queues may find that out late
)

// Harness lets the suite reach a backend. All of it belongs to one test and one cluster, empty at first.
type Harness struct {
	// Open gives a new Backend over the cluster, not configured. The suite closes it, and may open several.
	Open func(t testing.TB) backend.Backend
	// Config gives the configuration for a job.
	Config func(job string) backend.Config
	// BadConfig gives one with exactly one mistake, and the line of Filename that the mistake is on.
	BadConfig func(job string) (backend.Config, int)
	// Workload gives a workload that runs the program. The suite sets what else it needs.
	Workload func(job string, id backend.ID, p Program) backend.Workload
	// Starts says how often a process of the workload was started, as the processes themselves count it.
	Starts func(t testing.TB, job string, id backend.ID) int
	// Crash lets the first process of a workload that runs Crash or Echo end. Nil when it ends by itself, at once: then what it wrote must be in its log all the same.
	Crash func(t testing.TB, job string, id backend.ID)
	// Slots is how many workloads with Resources.GPUs = 1 the cluster holds; at least 3.
	Slots int
	// Kill ends the process that runs the backend as kill -9 does, and returns once that is noticed or sure to be.
	// Nil when the backend runs inside the test.
	Kill func(t testing.TB, b backend.Backend)

	// Keeps gives the folders in which the backend and its nodes keep files, all of which the test may read. Nil where there are none, or they cannot be read.
	Keeps func() []string

	// What clusters do. Each is nil where the harness cannot bring it about; its rules are then skipped, which the test says.

	// Stall makes the cluster accept requests and answer none, for all that Open gave or will give, until heal is called.
	Stall func(t testing.TB) (heal func())
	// Lose ends a workload that runs behind the backend's back, for good, as another user or a node that dies does.
	Lose func(t testing.TB, job string, id backend.ID)
	// Obscure makes the state of a workload that runs impossible to tell until heal is called. The workload itself goes on.
	Obscure func(t testing.TB, job string, id backend.ID) (heal func())
}

// patience bounds each wait of the suite, and wholePatience one test with all its waits; a backend that is right needs a small part of them, on a machine that
// has nothing else to do.
const (
	patience      = 2 * time.Minute
	wholePatience = 10 * time.Minute
)

// Run runs the suite. newHarness makes a fresh, empty cluster for each test.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(*suite)
	}{
		{"Info", (*suite).info},
		{"Configure", (*suite).configure},
		{"InvalidRequests", (*suite).invalid},
		{"EnsureTwiceIsOneProcess", (*suite).idempotent},
		{"FirstSpecificationWins", (*suite).firstWins},
		{"Generations", (*suite).generations},
		{"Beside", (*suite).beside},
		{"PartialFailure", (*suite).partialFailure},
		{"Capacity", (*suite).capacity},
		{"UnknownIsNotEmpty", (*suite).unknown},
		{"ReleaseDrained", (*suite).drained},
		{"ReleaseForced", (*suite).forced},
		{"StopGrace", (*suite).stopGrace},
		{"FinalExit", (*suite).finalExit},
		{"RestartAfterCrash", (*suite).crash},
		{"FilesAndEnvironment", (*suite).filesAndEnv},
		{"SecretsEnd", (*suite).secretsEnd},
		{"Logs", (*suite).logs},
		{"Watch", (*suite).watch},
		{"JobsAreApart", (*suite).jobsApart},
		{"NameHasOneOwner", (*suite).owned},
		{"Forget", (*suite).forgotten},
		{"FoundAgain", (*suite).foundAgain},
		{"BackendKilled", (*suite).killed},
		{"BackendKilledInMidCall", (*suite).killedMidCall},
		{"HangingCluster", (*suite).hanging},
		{"SlowCluster", (*suite).slow},
		{"LostBehindItsBack", (*suite).lost},
		{"UnknownState", (*suite).obscured},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), wholePatience)
			defer cancel()
			s := &suite{T: t, Harness: newHarness(t), ctx: ctx, job: "conformance"}
			s.b = s.open(s.job)
			defer s.sweep()
			tt.run(s)
			s.cleanUp()
		})
	}
}

// suite is one test of the suite: its cluster, its backend and its job.
type suite struct {
	*testing.T
	Harness
	ctx context.Context // of the test; its deadline bounds every wait
	job string
	b   backend.Backend
}

// open gives a backend that is configured for the jobs.
func (s *suite) open(jobs ...string) backend.Backend {
	s.Helper()
	b := s.Open(s.T)
	s.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	for _, job := range jobs {
		diags, err := b.Configure(s.ctx, s.Config(job))
		if err != nil || diags.HasErrors() {
			s.Fatalf("Configure(%q) = %v, %v", job, diags, err)
		}
	}
	return b
}

// cleanUp releases all that the test left, and proves that nothing remains.
func (s *suite) cleanUp() {
	s.Helper()
	var ids []backend.ID
	for _, st := range s.list() {
		ids = append(ids, st.ID)
	}
	if err := s.b.Release(s.ctx, s.job, ids, backend.Forced); err != nil {
		s.Errorf("Release(forced) of all that is left: %v", err)
	}
	s.eventually("List is empty after all is released", func() error {
		if left := s.list(); len(left) > 0 {
			return fmt.Errorf("there is still %v", left)
		}
		return nil
	})
}

// sweep releases what a rule that is broken has left running, as far as the backend can.
func (s *suite) sweep() {
	if !s.Failed() {
		return
	}
	list, _, err := s.b.List(s.ctx, s.job)
	var ids []backend.ID
	for _, st := range list {
		ids = append(ids, st.ID)
	}
	if len(ids) > 0 {
		err = errors.Join(err, s.b.Release(s.ctx, s.job, ids, backend.Forced))
	}
	if err != nil {
		s.Logf("what the rule has left may run on: %v", err)
	}
}

func worker(rank int, generation uint64) backend.ID {
	return backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: generation}
}

func (s *suite) workload(id backend.ID, p Program) backend.Workload {
	w := s.Workload(s.job, id, p)
	w.ID = id
	return w
}

// ensure asks for the workloads and requires that each is accepted.
func (s *suite) ensure(ws ...backend.Workload) []backend.Status {
	s.Helper()
	statuses, err := s.b.Ensure(s.ctx, s.job, ws)
	if err != nil {
		s.Fatalf("Ensure: %v", err)
	}
	if len(statuses) != len(ws) {
		s.Fatalf("Ensure gave %d statuses for %d workloads", len(statuses), len(ws))
	}
	for i, st := range statuses {
		if st.ID != ws[i].ID {
			s.Fatalf("Ensure: status %d is of %s, want %s: statuses come in the order of the workloads", i, st.ID, ws[i].ID)
		}
		if st.Err != nil {
			s.Fatalf("Ensure refused %s: %v", st.ID, st.Err)
		}
	}
	return statuses
}

// refused asks for one workload and requires that it is refused with the code.
func (s *suite) refused(w backend.Workload, want backend.Code) {
	s.Helper()
	statuses, err := s.b.Ensure(s.ctx, s.job, []backend.Workload{w})
	if err != nil {
		s.Fatalf("Ensure: %v; a refusal of one workload belongs in its status", err)
	}
	if st := statuses[0]; st.Err == nil || st.Err.Code != want {
		s.Fatalf("Ensure(%s) = %+v, want an error with code %q", w.ID, st, want)
	}
}

// list gives all that is listed. A list that is not complete is no answer, such as a busy cluster gives: it is asked again.
func (s *suite) list() (statuses []backend.Status) {
	s.Helper()
	s.eventually("List gives all", func() error {
		all, complete, err := s.b.List(s.ctx, s.job)
		if err != nil {
			s.Fatalf("List: %v", err)
		}
		if statuses = all; !complete {
			return errors.New("it says that its list is not complete")
		}
		return nil
	})
	return statuses
}

// find gives the status of id, which must be listed.
func (s *suite) find(id backend.ID) (backend.Status, error) {
	for _, st := range s.list() {
		if st.ID == id {
			return st, nil
		}
	}
	return backend.Status{}, fmt.Errorf("%s is not listed", id)
}

// waitFor waits until id is in the state, and gives that status.
func (s *suite) waitFor(id backend.ID, want backend.State) backend.Status {
	s.Helper()
	var got backend.Status
	s.eventually(fmt.Sprintf("%s is %s", id, want), func() (err error) {
		if got, err = s.find(id); err == nil && got.State != want {
			err = fmt.Errorf("it is %+v", got)
		}
		return err
	})
	return got
}

// waitGone waits until id is listed no more.
func (s *suite) waitGone(id backend.ID) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s is gone", id), func() error {
		if st, err := s.find(id); err == nil {
			return fmt.Errorf("it is %+v", st)
		}
		return nil
	})
}

// waitStarts waits until the workload has counted so many starts; a count above it fails at once.
func (s *suite) waitStarts(id backend.ID, want int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has started %d times", id, want), func() error {
		got := s.Starts(s.T, s.job, id)
		if got > want {
			s.Fatalf("%s was started %d times, want %d", id, got, want)
		}
		if got < want {
			return fmt.Errorf("it was started %d times", got)
		}
		return nil
	})
}

// eventually polls cond until it gives nil, within the time of the test.
func (s *suite) eventually(what string, cond func() error) {
	s.Helper()
	eventually(s.ctx, s.T, what, cond)
}
