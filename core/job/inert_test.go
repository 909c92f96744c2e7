package job

import (
	"fmt"
	"strings"
	"testing"
)

// A policy that by its own numbers never acts within the limits is warned of where the number stands; no policy is by its defaults.
func TestPoliciesThatNeverActAreWarnedOf(t *testing.T) {
	of := func(policy, params string, least, most int) string {
		src := strings.Replace(minimal, "workers {", fmt.Sprintf("autoscale {\npolicy = %q\nparams {\n%s\n}\n}\nworkers {\nmin = %d\n", policy, params, least), 1)
		src = strings.Replace(src, "max = 4", fmt.Sprintf("max = %d", most), 1)
		_, files, diags := Parse([]byte(src), "job.hcl", Options{})
		text := strings.Join(strings.Fields(rendered(files, diags)), " ") // whatever the lines
		if diags.HasErrors() {
			t.Errorf("%s: %s", src, text)
		}
		return text
	}
	for _, c := range []struct {
		policy, params string
		min, max       int
		want           []string // none: nothing is said
	}{
		{"hpa", "demand = 1\ntolerance = 5", 1, 4, []string{neverOut, neverIn, "usage would have to be 6 times the target, and workers.max is 4 times workers.min"}},
		{"hpa", "demand = 1\ntolerance = 0.5", 1, 4, nil},
		{"hpa", "demand = 1\ntolerance = 0.5", 4, 6, []string{neverOut, "usage would have to be 1.5 times the target"}},
		{"hpa", "tolerance = 0.25", 1, 28, []string{neverOut, "more than 1.25 times the target of 0.8, and workers are never more than 100 % busy"}},
		{"hpa", "tolerance = 0.24", 1, 28, nil},
		{"hpa", "target = 0.1", 1, 6, []string{alwaysAtMax, "By target = 0.1 it asks for 10 times"}},
		{"hpa", "target = 0.1", 1, 10, nil},
		{"keda", "tolerance = 1", 1, 6, []string{neverIn, "even the backlog of nothing"}},
		{"keda", "tolerance = 0.9", 1, 6, nil},
		{"follow", "margin = 10", 1, 6, []string{alwaysAtMax, "margin = 10 it asks for 11 times the workers that what arrives keeps busy: whatever keeps workers.min = 1 busy asks for more than workers.max = 6."}},
		{"follow", "margin = 10", 1, 28, nil},
		{"follow", "margin = 0.5", 4, 5, nil}, // it acts below workers.min's whole load
		{"follow", "margin = 10", 6, 6, nil},  // nothing is to be done there
		{"autopilot", "target = 1", 1, 6, []string{neverOut, "By target = 1 and margin = 0 workers that are all 100 % busy ask for no more"}},
		{"autopilot", "target = 1\ndemand = 1", 1, 6, nil},
		{"autopilot-short", "margin = 9", 1, 6, []string{alwaysAtMax}},
		{"flink", "boundary = 0.7", 1, 6, []string{neverIn, "Keep boundary below target"}},
		{"flink", "boundary = 0.6", 1, 6, nil},
		{"madu", "target = 0.1", 1, 6, []string{alwaysAtMax}},
	} {
		text := of(c.policy, c.params, c.min, c.max)
		for _, what := range []string{neverOut, neverIn, alwaysAtMax} {
			if said, wanted := strings.Contains(text, "warning: "+what), strings.Contains(strings.Join(c.want, " "), what); said != wanted {
				t.Errorf("%s with %q of %d to %d: says %q: %v, want %v: %s", c.policy, c.params, c.min, c.max, what, said, wanted, text)
			}
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s with %q: it lacks %q: %s", c.policy, c.params, want, text)
			}
		}
	}
	for i := range policies {
		if text := of(policies[i].name, "", 1, 2); strings.Contains(text, neverOut) || strings.Contains(text, neverIn) || strings.Contains(text, alwaysAtMax) {
			t.Errorf("%s by its defaults: %s", policies[i].name, text)
		}
	}
}
