package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// A job file takes exactly the policies that there are, with their numbers, defaults and ranges. core/job and core/plan do not know each other, so this is
// where their tables are held together.
func TestJobFilesKnowThePolicies(t *testing.T) {
	if d := cmp.Diff(plan.Names(), job.Policies()); d != "" {
		t.Errorf("policies (-plan +job):\n%s", d)
	}
	for _, info := range plan.Policies() {
		want := []job.PolicyNumber{}
		for _, p := range info.Params {
			want = append(want, job.PolicyNumber{Name: p.Name, Doc: p.Doc, Default: p.Default, Min: p.Min, Max: p.Max, Minutes: p.Unit == plan.UnitMinutes, Whole: p.Whole})
		}
		got, known := job.PolicyNumbers(info.Name)
		if d := cmp.Diff(want, got); d != "" || !known {
			t.Errorf("%s (-plan +job), known %v:\n%s", info.Name, known, d)
		}
	}
}
