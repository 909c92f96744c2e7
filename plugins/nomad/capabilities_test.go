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
	rules := func(pairs ...string) (out []rule) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, rule{pairs[i], strings.Fields(pairs[i+1])})
		}
		return out
	}
	for name, tt := range map[string]struct {
		rules []rule
		want  []string
	}{
		"none":                     {nil, nil},
		"another's":                {rules("ml", "read-fs"), nil},
		"its own":                  {rules("ml-a", "read-fs", "*", "read-logs"), []string{"read-fs"}},
		"of two policies":          {rules("ml-a", "read-fs", "ml-a", "read-logs"), []string{"read-fs", "read-logs"}},
		"the closest pattern":      {rules("*", "a", "ml-*", "b", "m*", "c"), []string{"b"}},
		"any":                      {rules("*", "a"), []string{"a"}},
		"denied by one of two":     {rules("ml-a", "read-fs", "ml-a", "deny"), nil},
		"denied for others":        {rules("*", "deny", "ml-a", "read-fs"), []string{"read-fs"}},
		"of a pattern like a name": {rules("ml-?", "a"), nil},
	} {
		if diff := cmp.Diff(tt.want, effective(tt.rules, "ml-a")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Of rules for variables the namespace and the path count as one name, and a pattern goes over slashes.
func TestEffectiveOnVariables(t *testing.T) {
	const path = "nomad/jobs/kale-ctr-worker-0-g1/kale"
	for name, tt := range map[string]struct {
		rules []rule
		want  []string
	}{
		"all of the job's":             {[]rule{{variable("ml", "nomad/jobs/kale-*"), []string{"read"}}}, []string{"read"}},
		"the closest":                  {[]rule{{variable("ml", "nomad/*"), []string{"read"}}, {variable("ml", "nomad/jobs/*"), []string{"list"}}}, []string{"list"}},
		"of many namespaces":           {[]rule{{variable("*", "nomad/*"), []string{"read"}}}, []string{"read"}},
		"its own name":                 {[]rule{{variable("ml", path), []string{"write"}}, {variable("ml", "nomad/*"), []string{"read"}}}, []string{"write"}},
		"another namespace's":          {[]rule{{variable("ops", "nomad/*"), []string{"read"}}}, nil},
		"another path's":               {[]rule{{variable("ml", "kale/*"), []string{"read"}}}, nil},
		"a star between":               {[]rule{{variable("ml", "nomad/*/kale"), []string{"read"}}}, []string{"read"}},
		"a star between, other's ends": {[]rule{{variable("ml", "nomad/*/other"), []string{"read"}}}, nil},
		"denied":                       {[]rule{{variable("ml", "nomad/*"), []string{"write", "deny"}}}, nil},
	} {
		if diff := cmp.Diff(tt.want, effective(tt.rules, variable("ml", path))); diff != "" {
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
