package core

import (
	"errors"
	"slices"
	"strings"
	"testing"

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
		{"no room", 0, nil, "would not find room now", "workers.min"},
		{"no answer", 8, errors.New("the controller is away"), "the controller is away", "backend"},
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
			if err != nil || diags.HasErrors() {
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

	r := newRig(t, rigOptions{slots: 8})
	r.started(8)
	b := fake.New(nil, r.cluster)
	o := r.options("run")
	o.Backend = b
	if _, err := ConfigureBackend(t.Context(), b, r.job, r.state); err != nil {
		t.Fatal(err)
	}
	if diags, err := PlacementDiagnostics(t.Context(), o); err != nil || len(diags) > 0 {
		t.Errorf("a job that has all that it wants: %v, %v", diags, err)
	}
}
