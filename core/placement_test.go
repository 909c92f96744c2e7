package core

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
)

// What a job lacks to run, or to grow, is said at the line that asks for it; what runs of it already counts. Asking changes nothing.
func TestPlacement(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots int
		fail  error
		says  string // and at which path of the job file
		path  string
	}{
		{"room for all", 8, nil, "", ""},
		{"room for some", 3, nil, "could not grow to workers.max now: ", "workers.max"},
		{"no room", 0, nil, "would not find room now: For its servers and 1 worker (workers.min) backend", "workers.min"},
		{"no answer", 8, errors.New("the controller is away"), ClusterSilent + ": ask backend", "backend"},
		{"a backend that cannot tell", 8, backend.Errorf(backend.Unsupported, "no dry run here"), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigOptions{slots: 8})
			o := r.options("run")
			r.backend = fake.New(nil, fake.NewCluster(c.slots))
			o.Backend = r.backend
			if _, err := ConfigureBackend(t.Context(), o.Backend, r.job, r.state); err != nil {
				t.Fatal(err)
			}
			if c.fail != nil {
				r.backend.FailNext(fake.OpPlan, c.fail)
			}
			diags, err := PlacementDiagnostics(t.Context(), o)
			if silent := c.path == "backend"; err != nil || diags.HasErrors() != silent {
				t.Fatal(diags, err)
			}
			if c.says == "" {
				if len(diags) > 0 {
					t.Errorf("it says %v", diags)
				}
				return
			}
			if len(diags) != 1 || !strings.Contains(diags[0].Summary+": "+diags[0].Detail, c.says) || *diags[0].Subject != r.job.Range(c.path) {
				t.Errorf("it says %v; want %q at %s", diags, c.says, c.path)
			}
			if calls := r.backend.Calls(); slices.ContainsFunc(calls, func(c fake.Call) bool { return c.Op == fake.OpEnsure || c.Op == fake.OpRelease }) {
				t.Errorf("asking did something: %v", calls)
			}
		})
	}

	// More than there is in all is not a matter of waiting.
	r := newRig(t, rigOptions{slots: 8})
	o := r.options("run")
	many := *r.job
	many.Workers.Min, many.Workers.Max = 9, 9
	o.Job, o.Backend = &many, fake.New(nil, fake.NewCluster(8))
	if _, err := ConfigureBackend(t.Context(), o.Backend, o.Job, r.state); err != nil {
		t.Fatal(err)
	}
	diags, err := PlacementDiagnostics(t.Context(), o)
	if err != nil || len(diags) != 1 || !strings.Contains(diags[0].Summary, "cannot fit") || !strings.Contains(diags[0].Detail, "ask for 9, and backend") || !strings.Contains(diags[0].Detail, "has 8 in all") {
		t.Errorf("more workers than the cluster has devices: %v, %v", diags, err)
	}

	// A backend that could not look everywhere says why, and what was not checked is named.
	r = newRig(t, rigOptions{slots: 8})
	o = r.options("run")
	r.backend = fake.New(nil, fake.NewCluster(8))
	o.Backend = r.backend
	if _, err := ConfigureBackend(t.Context(), o.Backend, r.job, r.state); err != nil {
		t.Fatal(err)
	}
	r.backend.PartialNext(worker(0, 1)) // of the look for whose the name is, and of that for what runs
	r.backend.PartialNext(worker(0, 1))
	r.backend.FailNext(fake.OpPlan, backend.Errorf(backend.Unavailable, "no such socket"))
	diags, err = PlacementDiagnostics(t.Context(), o)
	if err != nil || len(diags) != 1 || !strings.Contains(diags[0].Detail, "no such socket") || !strings.Contains(diags[0].Detail, "were not checked") {
		t.Errorf("a cluster that does not answer: %v, %v", diags, err)
	}
	// One that waits for a person says itself for what.
	r.backend.FailNext(fake.OpPlan, backend.Errorf(backend.Blocked, "put the folder back"))
	diags, err = PlacementDiagnostics(t.Context(), o)
	if err != nil || len(diags) != 1 || !strings.Contains(diags[0].Detail, "put the folder back") || strings.Contains(diags[0].Detail, "the cluster is up") {
		t.Errorf("a cluster that waits for a person: %v, %v", diags, err)
	}

	r = newRig(t, rigOptions{slots: 8})
	r.started(8)
	b := fake.New(nil, r.cluster)
	o = r.options("run")
	o.Backend = b
	if _, err := ConfigureBackend(t.Context(), b, r.job, r.state); err != nil {
		t.Fatal(err)
	}
	if diags, err := PlacementDiagnostics(t.Context(), o); err != nil || len(diags) > 0 {
		t.Errorf("a job that has all that it wants: %v, %v", diags, err)
	}
	// Of a list in part it is not known whether it has: what waits for a place may be in it as unknown.
	for range 2 { // whose the name is, and what runs
		b.UnansweredNext(backend.Errorf(backend.Unavailable, "squeue has not answered"))
	}
	diags, err = PlacementDiagnostics(t.Context(), o)
	if err != nil || !diags.HasErrors() || !strings.Contains(diags[0].Detail, "squeue has not answered") || diags[0].Summary != ClusterSilent {
		t.Errorf("a job that is seen in part: %v, %v", diags, err)
	}
}

// A job whose workers fit on no node is refused when it is planned and when it is first run, at the line that asks for the devices, before anything is
// written or started. One that runs is taken up all the same, since its nodes may come back, and one that was stopped is refused again.
func TestWorkersThatFitOnNoNode(t *testing.T) {
	r := newRig(t, rigOptions{slots: 8})
	r.started(1)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	few := *r.job
	many := few
	many.Workers.GPUs = 9
	r.job = &many
	r.open("run") // it runs
	r.order("stop", 0)
	r.until("the job has stopped", func() error {
		if !r.s.want.Stopped {
			return errors.New("not yet")
		}
		return nil
	})
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"first run": filepath.Join(t.TempDir(), "state"), "run after a stop": r.state} {
		t.Run(name, func(t *testing.T) {
			o := r.options("run")
			o.StateDir = dir
			s, diags, err := Open(t.Context(), o)
			if err != nil || s != nil || !diags.HasErrors() {
				t.Fatalf("opened: %v, %v, %v", s, diags, err)
			}
			if d := diags[len(diags)-1]; *d.Subject != many.Range("workers.gpus") || !strings.Contains(d.Detail, "has more than 8") {
				t.Errorf("it says %v", d)
			}
			if _, err := os.Stat(dir); dir != r.state && err == nil {
				t.Error("a folder was made for a job that was refused")
			}
			more, err := PlacementDiagnostics(t.Context(), o)
			if err != nil || len(more) != 1 || more[0].Detail != diags[len(diags)-1].Detail {
				t.Errorf("what is said before a run is %v (%v)", more, err)
			}
			o.Stop = true // it can be stopped whatever its file says
			if s, diags, err = Open(t.Context(), o); err != nil || diags.HasErrors() {
				t.Fatal(diags, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the cluster says is wrong in the block is an error at its place for who validates, previews or opens, before anything starts; not for who stops, and
// not once the job runs: it must not be left without its scheduler because a site has changed something.
func TestMistakesOfTheBlock(t *testing.T) {
	r := newRig(t, rigOptions{slots: 8})
	wrong := backend.Diagnostic{
		Severity: backend.SeverityError, Summary: "No such partition", Detail: "There is gpu.", Filename: "job.hcl",
		Start: backend.Position{Line: 7, Column: 3, Byte: 90}, End: backend.Position{Line: 7, Column: 9, Byte: 96},
	}
	o := r.options("run")
	b := fake.New(nil, fake.NewCluster(8))
	b.Mistake(wrong)
	o.Backend = b
	if _, err := ConfigureBackend(t.Context(), b, r.job, r.state); err != nil {
		t.Fatal(err)
	}
	for _, silent := range []bool{false, true} {
		if silent { // for what is wrong in the block
			b.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "no such socket")) // of the look for whose the name is
			b.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "no such socket")) // of that for what runs
		}
		if diags, err := PlacementDiagnostics(t.Context(), o); err != nil || len(diags) != 1 || !diags.HasErrors() || diags[0].Subject.Start.Line != 7 {
			t.Errorf("PlacementDiagnostics = %v, %v; the cluster lists nothing: %v", diags, err, silent)
		}
	}
	apart := *r.job // the rig's scheduler has the other one
	apart.Checkpoint.Dir = t.TempDir()
	o.Job, o.StateDir = &apart, t.TempDir()
	s, diags, err := Open(t.Context(), o)
	if err != nil || s != nil || !diags.HasErrors() || diags[0].Subject.Start.Column != 3 {
		t.Errorf("Open = %v, %v", diags, err)
	}
	for _, c := range b.Calls() {
		if c.Op == fake.OpEnsure {
			t.Errorf("it started %v", c.IDs)
		}
	}
	o.Stop = true
	if s, diags, err = Open(t.Context(), o); err != nil || diags.HasErrors() {
		t.Fatalf("to stop it: %v, %v", diags, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	// One that runs is taken up all the same.
	r.started(2)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	larger := *r.job
	larger.Workers.Min = 3 // so that there is something to ask for
	o = r.options("run")
	o.Job, o.Backend = &larger, b
	if s, diags, err = Open(t.Context(), o); err != nil || diags.HasErrors() {
		t.Fatalf("to go on: %v, %v", diags, err)
	}
	o.Job = r.job // of which all runs
	for _, ask := range []func() (hcl.Diagnostics, error){
		func() (hcl.Diagnostics, error) { return PlacementDiagnostics(t.Context(), o) },
		func() (hcl.Diagnostics, error) { return BlockMistakes(t.Context(), o, 1) },
	} {
		if diags, err := ask(); err != nil || !diags.HasErrors() || diags[0].Subject.Start.Line != 7 {
			t.Errorf("asked about a job that runs: %v, %v", diags, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// What has a place counts, on whatever rank it is; what waits in the cluster's queue for one does not.
func TestPlacedIsWhatHasAPlace(t *testing.T) {
	r := newRig(t, rigOptions{slots: 8})
	r.started(4)
	could := func(workers int) int {
		t.Helper()
		report, err := CouldPlace(t.Context(), r.s.opt, workers)
		if err != nil {
			t.Fatal(err)
		}
		return len(report.Placements)
	}
	for _, rank := range []int{0, 1} {
		if err := r.cluster.Exit("ctr", worker(rank, 1), 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := could(2); n != 0 {
		t.Errorf("workers 2 and 3 run, and %d places are looked for", n)
	}
	if n := could(3); n != 1 {
		t.Errorf("workers 2 and 3 run of three that are asked for, and %d places are looked for", n)
	}
	if err := r.cluster.SetState("ctr", worker(3, 1), backend.StatePending, "Resources"); err != nil {
		t.Fatal(err)
	}
	if n := could(2); n != 1 {
		t.Errorf("of two workers that are asked for one waits, and %d places are looked for", n)
	}
}
