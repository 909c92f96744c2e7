package nomad

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
)

// Which rules count for a namespace is Nomad's to say (acl.matchingNamespaceCapabilitySet): its name, else the closest pattern; and one denial denies.
func TestEffectiveCapabilities(t *testing.T) {
	rules := func(pairs ...string) (out []namespaceRules) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, namespaceRules{Name: pairs[i], Capabilities: strings.Fields(pairs[i+1])})
		}
		return out
	}
	for name, tt := range map[string]struct {
		rules []namespaceRules
		want  []string
	}{
		"none":                     {nil, nil},
		"another's":                {rules("ml", "read-fs"), nil},
		"its own":                  {rules("ml-a", "read-fs", "*", "read-logs"), []string{"read-fs"}},
		"of two policies":          {rules("ml-a", "read-fs", "ml-a", "read-logs"), []string{"read-fs", "read-logs"}},
		"the closest pattern":      {rules("*", "a", "ml-*", "b", "m*", "c"), []string{"b"}},
		"any":                      {rules("*", "a"), []string{"a"}},
		"denied for others":        {rules("*", "deny", "ml-a", "read-fs"), []string{"read-fs"}},
		"of a pattern like a name": {rules("ml-?", "a"), nil},
	} {
		var got []string
		for _, r := range effective(tt.rules, "ml-a") {
			got = append(got, r.Capabilities...)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Of rules for variables the closest counts too, and * stands for slashes.
func TestVariablesOfAJob(t *testing.T) {
	rules := func(pairs ...string) []namespaceRules {
		var r namespaceRules
		r.Variables = &struct{ Paths []variableRules }{}
		for i := 0; i < len(pairs); i += 2 {
			r.Variables.Paths = append(r.Variables.Paths, variableRules{pairs[i], strings.Fields(pairs[i+1])})
		}
		return []namespaceRules{{Name: "ml"}, r}
	}
	for name, tt := range map[string]struct {
		rules []namespaceRules
		want  []string
	}{
		"none":                {nil, nil},
		"another's":           {rules("kale/*", "write"), nil},
		"below it":            {rules("nomad/jobs/kale-*", "write destroy"), []string{"write", "destroy"}},
		"all":                 {rules("*", "write"), []string{"write"}},
		"the closest":         {rules("*", "destroy", "nomad/*", "write"), []string{"write"}},
		"its own":             {rules("nomad/jobs/kale-ads/g", "read", "nomad/jobs/kale-ads/*", "write"), []string{"read"}},
		"with one in between": {rules("nomad/*/g", "write"), []string{"write"}},
		"denied":              {rules("nomad/*", "write deny"), nil},
	} {
		if diff := cmp.Diff(tt.want, ofVariable(tt.rules, "nomad/jobs/kale-ads/g")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// wantLacking plans with a token, which is to be all right but for the capabilities named.
func (r rig) wantLacking(t *testing.T, token, summary string) {
	t.Helper()
	report := r.planWith(t, fmt.Sprintf("token = %q\nnamespace = %q\n", token, r.namespace))
	if summary == "" {
		if len(report.Mistakes) > 0 {
			t.Errorf("Plan with all that is needed: %+v", report.Mistakes)
		}
		return
	}
	if len(report.Mistakes) != 1 || !report.Fits() || len(report.Placements) != 1 {
		t.Fatalf("%+v; want one warning: %s", report, summary)
	}
	m := report.Mistakes[0]
	if m.Severity != backend.SeverityWarning || m.Summary != summary || m.Start.Line != 42 || m.Start.Column != 9 || !strings.Contains(m.Detail, `namespace "`+r.namespace+`"`) {
		t.Errorf("Plan says %+v; want %q", m, summary)
	}
}
