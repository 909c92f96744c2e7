package core

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/estimator"
)

// A job file may name every form that the estimator knows, and the two agree on what a form needs: core/job may not import the estimator.
func TestJobFileKnowsEveryForm(t *testing.T) {
	for _, form := range estimator.Forms() {
		theta := strings.TrimSuffix(strings.Repeat("1, ", form.Terms()), ", ")
		batch := ""
		if form.NeedsBatch() {
			batch = "\n    batch = 1024"
		}
		block := fmt.Sprintf("form = %q\n    theta = [%s]%s", form, theta, batch)
		parse := func(block string) (*job.Job, string) {
			text := fmt.Sprintf(rigJob, "localhost:9092", rigTopic, job.ModeLive, t.TempDir())
			j, _, diags := job.Parse([]byte(strings.Replace(text, "theta = [0.001, 0, 0]", block, 1)), "ctr.hcl", job.Options{})
			return j, diags.Error()
		}
		j, why := parse(block)
		if j == nil {
			t.Errorf("%s: %s", form, why)
			continue
		}
		if err := Prior(j).Validate(); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		if j, _ := parse(strings.Replace(block, "theta = [1", "theta = [1, 1", 1)); j != nil {
			t.Errorf("%s: a coefficient too many was accepted", form)
		}
		if batch == "" {
			block += "\n    batch = 1024"
		} else {
			block = strings.TrimSuffix(block, batch)
		}
		if j, _ := parse(block); j != nil {
			t.Errorf("%s: accepted %s", form, block)
		}
	}
}
