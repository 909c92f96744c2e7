package nomad

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// Somebody edits and stops our Nomad jobs on the command line: what is said and done depends on the block's drift.
func TestDrift(t *testing.T) {
	for _, tt := range []struct {
		drift string
		// What becomes of the worker whose job was edited, and of the one whose job was stopped.
		edited, stopped func(all []backend.Status) error
	}{
		{
			driftReport,
			want(0, backend.StateRunning, "its Nomad job was changed, and not by Kale: priority 50 → 40"),
			want(1, backend.StateFailed, "its Nomad job was stopped, and not by Kale"),
		},
		{driftRestore, want(0, backend.StateRunning, ""), want(1, backend.StateRunning, "")},
		{driftAdopt, want(0, backend.StateRunning, ""), absentWorker(1)},
	} {
		t.Run(tt.drift, func(t *testing.T) {
			r := newRig(t)
			n := r.configured(t, "j", fmt.Sprintf("  drift = %q\n", tt.drift))
			ensure(t, n, "j", r.workload("j", workerID(0, 1), conformance.Steady), r.workload("j", workerID(1, 1), conformance.Steady))
			for rank := range 2 {
				conformance.WaitFor(t, n, "j", workerID(rank, 1), "runs", in(backend.StateRunning))
			}
			jobs := r.raw(t).Jobs()
			job, _, err := jobs.Info(nomadJob("j", workerID(0, 1)), nil)
			if err != nil {
				t.Fatal(err)
			}
			*job.Priority = 40
			if _, _, err := jobs.Register(job, nil); err != nil {
				t.Fatal(err)
			}
			r.lose(t, "j", workerID(1, 1))
			conformance.Eventually(t, "the drift is met", func() error {
				all, _, err := n.List(t.Context(), "j")
				if err != nil {
					return err
				}
				if err := tt.edited(all); err != nil {
					return err
				}
				return tt.stopped(all)
			})
			if job, _, err = jobs.Info(*job.ID, nil); err != nil {
				t.Fatal(err)
			}
			if restored := *job.Priority == 50; restored != (tt.drift == driftRestore) {
				t.Errorf("the edited job's priority is %d", *job.Priority)
			}
			conformance.Drop(t, n, "j")
		})
	}
}

// want asks for a worker in a state, with a reason that begins so, or none where it is empty.
func want(rank int, state backend.State, reason string) func([]backend.Status) error {
	return func(all []backend.Status) error {
		for _, st := range all {
			if st.ID.Rank != rank {
				continue
			}
			if st.State != state || !strings.HasPrefix(st.Reason, reason) || reason == "" && st.Reason != "" {
				return fmt.Errorf("it is %+v", st)
			}
			return nil
		}
		return fmt.Errorf("worker %d is not listed: %v", rank, all)
	}
}

func absentWorker(rank int) func([]backend.Status) error {
	return func(all []backend.Status) error {
		for _, st := range all {
			if st.ID.Rank == rank {
				return fmt.Errorf("there is %+v", st)
			}
		}
		return nil
	}
}
