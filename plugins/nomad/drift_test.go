package nomad

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

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
			for rank, says := range []string{"(priority 50 → 40); Kale restored it at ", "(it was stopped); Kale restored it at "} {
				wantRemarks(t, n, workerID(rank, 1), tt.drift == driftRestore, says)
			}
			conformance.Drop(t, n, "j")
		})
	}
}

// wantRemarks asks for one remark of a worker, or for none. It is there for the next plugin too.
func wantRemarks(t *testing.T, n *nomad, id backend.ID, one bool, says string) {
	t.Helper()
	var seen backend.Remark
	for _, who := range []string{"this plugin", "the next"} {
		conformance.Eventually(t, "what others did is remarked on by "+who, func() error {
			all, _, err := n.List(t.Context(), "j")
			if err != nil {
				return err
			}
			at := slices.IndexFunc(all, func(st backend.Status) bool { return st.ID == id })
			switch {
			case !one && at >= 0 && len(all[at].Remarks) > 0:
				t.Errorf("%s remarks %+v", who, all[at].Remarks)
			case !one:
			case at < 0 || len(all[at].Remarks) != 1:
				return fmt.Errorf("statuses are %+v", all)
			case !strings.HasPrefix(all[at].Remarks[0].Text, "somebody changed its Nomad job at ") || !strings.Contains(all[at].Remarks[0].Text, says):
				t.Errorf("%s remarks %q", who, all[at].Remarks[0].Text)
			case !seen.At.IsZero() && seen != all[at].Remarks[0], time.Since(all[at].Remarks[0].At).Abs() > time.Minute:
				t.Errorf("%s remarks %+v after %+v", who, all[at].Remarks[0], seen)
			default:
				seen = all[at].Remarks[0]
			}
			return nil
		})
		n.mu.Lock()
		clear(n.known)
		n.mu.Unlock()
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

// A worker that somebody has stopped is restored, and until it runs again no list says that it has ended: nothing is to be started in its place.
func TestRestoredIsNotReplaced(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", fmt.Sprintf("  drift = %q\n", driftRestore))
	id := workerID(0, 1)
	ensure(t, n, "j", r.workload("j", id, conformance.Steady))
	conformance.WaitFor(t, n, "j", id, "runs", in(backend.StateRunning))
	r.started(t, "j", id, 1)
	r.lose(t, "j", id)
	conformance.Eventually(t, "it has ended", func() error {
		allocs, _, err := r.raw(t).Jobs().Allocations(nomadJob("j", id), true, nil)
		if err == nil && (len(allocs) != 1 || allocs[0].ClientStatus != api.AllocClientStatusComplete) {
			err = fmt.Errorf("%d allocations, the first is %s", len(allocs), allocs[0].ClientStatus)
		}
		return err
	})
	conformance.WaitFor(t, n, "j", id, "runs again", func(st backend.Status) bool {
		if !st.State.Live() {
			t.Errorf("it is said to have ended: %v: %s", st, st.Reason)
		}
		return st.State == backend.StateRunning && st.Restarts == 1
	})
	r.started(t, "j", id, 2)
	conformance.Drop(t, n, "j")
}

// However often a Nomad job is changed, it is what was submitted that is restored, also when Nomad remembers only later versions; and then it is left alone.
func TestRestoresWhatWasSubmitted(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", fmt.Sprintf("  drift = %q\n", driftRestore))
	id := workerID(0, 1)
	ensure(t, n, "j", r.workload("j", id, conformance.Steady))
	conformance.WaitFor(t, n, "j", id, "runs", in(backend.StateRunning))
	jobs := r.raw(t).Jobs()
	restored := func() (version uint64) {
		t.Helper()
		conformance.Eventually(t, "it is restored", func() error {
			if _, _, err := n.List(t.Context(), "j"); err != nil {
				return err
			}
			job, _, err := jobs.Info(nomadJob("j", id), nil)
			if err != nil {
				return err
			}
			if version = *job.Version; *job.Priority != 50 {
				return fmt.Errorf("version %d has the priority %d", version, *job.Priority)
			}
			return nil
		})
		return version
	}
	var version uint64
	for _, edits := range []int{2, 1, 1, 1} {
		for i := range edits {
			job, _, err := jobs.Info(nomadJob("j", id), nil)
			if err != nil {
				t.Fatal(err)
			}
			*job.Priority = 40 + i
			if _, _, err := jobs.Register(job, nil); err != nil {
				t.Fatal(err)
			}
		}
		version = restored()
	}
	for range 3 {
		if now := restored(); now != version {
			t.Errorf("version %d was well, and now there is %d", version, now)
		}
	}
	conformance.Drop(t, n, "j")
}

// What Kale itself has stopped since a look at it is nobody's change, and stays stopped.
func TestOwnStopIsNoDrift(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", fmt.Sprintf("  drift = %q\n", driftRestore))
	id := workerID(0, 1)
	ensure(t, n, "j", r.workload("j", id, conformance.Steady))
	conformance.WaitFor(t, n, "j", id, "runs", in(backend.StateRunning))
	s, err := n.jobs.Of(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.look(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Release(t.Context(), "j", []backend.ID{id}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	clear(n.known) // as where the look is the first that shows a change
	if found := n.meetDrift(t.Context(), s, "j", before); found[id].text != "" || found[id].back {
		t.Errorf("it is taken for somebody's: %+v", found[id])
	}
	if job, _, err := r.raw(t).Jobs().Info(nomadJob("j", id), nil); err != nil || !*job.Stop {
		t.Errorf("it is not stopped any more (%v)", err)
	}
	conformance.Drop(t, n, "j")
}

// A Nomad job of ours that somebody scales to none is as one that was stopped: it is told of, restored, or adopted; and who restores or adopts it never says that it
// has ended by itself.
func TestScaledToNone(t *testing.T) {
	for _, tt := range []struct {
		drift string
		want  func(all []backend.Status) error
	}{
		{driftReport, want(0, backend.StateFailed, "its Nomad job was scaled to 0, and not by Kale")},
		{driftRestore, want(0, backend.StateRunning, "")},
		{driftAdopt, absentWorker(0)},
	} {
		t.Run(tt.drift, func(t *testing.T) {
			r := newRig(t)
			n := r.configured(t, "j", fmt.Sprintf("  drift = %q\n", tt.drift))
			id := workerID(0, 1)
			ensure(t, n, "j", r.workload("j", id, conformance.Steady))
			conformance.WaitFor(t, n, "j", id, "runs", in(backend.StateRunning))
			jobs := r.raw(t).Jobs()
			if _, _, err := jobs.Scale(nomadJob("j", id), groupName, ptr(0), "by hand", false, nil, nil); err != nil {
				t.Fatal(err)
			}
			conformance.Eventually(t, "Nomad has ended it", func() error {
				allocs, _, err := jobs.Allocations(nomadJob("j", id), true, nil)
				if err == nil && (len(allocs) != 1 || allocs[0].ClientStatus != api.AllocClientStatusComplete) {
					err = fmt.Errorf("%d allocations, the first is %s", len(allocs), allocs[0].ClientStatus)
				}
				return err
			})
			conformance.Eventually(t, "that is met", func() error {
				all, _, err := n.List(t.Context(), "j")
				if err != nil {
					return err
				}
				for _, st := range all {
					if !st.State.Live() && tt.drift != driftReport {
						t.Errorf("it is said to have ended: %v", st)
					}
				}
				return tt.want(all)
			})
			conformance.Eventually(t, "its next start is submitted", func() error { // asked again, as the scheduler does, where Nomad is busy ending the last
				all, err := n.Ensure(t.Context(), "j", []backend.Workload{r.workload("j", workerID(0, 2), conformance.Steady)})
				if err == nil && all[0].Err != nil {
					return all[0].Err
				}
				return err
			})
			conformance.WaitFor(t, n, "j", workerID(0, 2), "takes its place", in(backend.StateRunning))
			conformance.Drop(t, n, "j")
		})
	}
}

// Of the meta data what differs is named, and no more.
func TestDifferencesOfMeta(t *testing.T) {
	job := func(meta map[string]string) *api.Job {
		return &api.Job{Meta: meta, TaskGroups: []*api.TaskGroup{{Tasks: []*api.Task{{}}}}}
	}
	ours := map[string]string{"kale_job": "ctr", "kale_grace": "15s"}
	theirs := map[string]string{"kale_job": "ctr", "kale_grace": "1s", "owner": "CI"}
	for _, c := range []struct {
		before, now map[string]string
		want        []string
	}{
		{ours, ours, nil},
		{ours, theirs, []string{`meta.kale_grace "15s" → "1s"`, `meta.owner null → "CI"`}},
		{theirs, ours, []string{`meta.kale_grace "1s" → "15s"`, `meta.owner "CI" → null`}},
		{nil, ours, []string{`meta.kale_grace null → "15s"`, `meta.kale_job null → "ctr"`}},
	} {
		if diff := cmp.Diff(c.want, differences(job(c.before), job(c.now))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A Nomad job of ours whose metadata somebody has taken away is ours; what only has such a name is not.
func TestWithoutMetadata(t *testing.T) {
	l := ledger{entries: map[string]entry{"worker-0": {Generation: 2}}}
	for _, c := range []struct {
		name string
		meta map[string]string
		ours bool
	}{
		{"kale-ctr-worker-0-g2", map[string]string{metaJob: "ctr", metaID: "worker-0-g2"}, true},
		{"kale-ctr-worker-0-g2", nil, true},
		{"kale-ctr-worker-0-g1", nil, true},
		{"kale-ctr-worker-0-g3", nil, false},
		{"kale-ctr-worker-1-g1", nil, false},
		{"kale-ctr-worker-1-g1", map[string]string{metaJob: "ctr", metaID: "worker-1-g1"}, true},
		{"kale-ctr-worker-0-g2", map[string]string{metaJob: "other", metaID: "worker-0-g2"}, false},
		{"kale-ctr-nightly", nil, false},
	} {
		id, ours := idOf("ctr", l, &api.JobListStub{ID: c.name, Meta: c.meta})
		if ours != c.ours || ours && nomadJob("ctr", id) != c.name {
			t.Errorf("%s with %v: %v, ours %v", c.name, c.meta, id, ours)
		}
	}
}
