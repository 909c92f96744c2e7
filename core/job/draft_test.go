package job

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

func draftOf(t *testing.T, replace ...string) (*Draft, hcl.Diagnostics) {
	t.Helper()
	d, _, diags := draft([]byte(strings.NewReplacer(replace...).Replace(minimal)), "job.hcl", Options{})
	return d, diags
}

// A mistake makes its own place unsound, and what stands around that, and nothing else.
func TestDraft(t *testing.T) {
	all := []string{"name", "stream", "stream.topic", "features", "workers", "throughput", "checkpoint.dir", "backend"}
	for _, tt := range []struct {
		name     string
		replace  []string
		unsound  []string
		unknown  []string
		excepted string // with it excepted, its block is sound
	}{
		{"none", nil, nil, nil, ""},
		{"unknown attribute", []string{`max = 4`, "max = 4\n    maxx = 3"}, []string{"workers"}, nil, ""},
		{"unknown block", []string{`workers {`, "workerz { }\n  workers {"}, nil, nil, ""},
		{"wrong topic", []string{`topic   = "clicks"`, `topic   = "a b"`}, []string{"stream", "stream.topic"}, []string{"stream.topic"}, "stream.topic"},
		{"misspelt topic", []string{`topic   = "clicks"`, `topik   = "clicks"`}, []string{"stream", "stream.topic"}, []string{"stream.topic"}, ""},
		{"name", []string{`job "ctr"`, `job "C T R"`}, []string{"name"}, []string{"name"}, ""},
		{"variable without a value", []string{`topic   = "clicks"`, `topic   = var.none`}, []string{"stream", "stream.topic"}, []string{"stream.topic"}, "stream.topic"},
		{"two values that do not agree", []string{`max = 4`, "min = 9\n    max = 4"}, []string{"workers"}, nil, ""},
	} {
		d, diags := draftOf(t, tt.replace...)
		if d.Job == nil || d.Torn || diags.HasErrors() != (tt.replace != nil) {
			t.Fatalf("%s: %+v, %v", tt.name, d.Job, diags)
		}
		for _, path := range all {
			if want := !slices.Contains(tt.unsound, path); d.Sound(path) != want {
				t.Errorf("%s: Sound(%q) is %v", tt.name, path, !want)
			}
			if want := !slices.Contains(tt.unknown, path); d.Known(path) != want {
				t.Errorf("%s: Known(%q) is %v", tt.name, path, !want)
			}
		}
		if tt.excepted != "" && !d.Sound("stream", tt.excepted) {
			t.Errorf("%s: not sound without it", tt.name)
		}
		for _, diag := range diags {
			if !d.Told(*diag.Subject) {
				t.Errorf("%s: %v was not told", tt.name, diag)
			}
		}
		if d.Told(d.Job.Range("throughput.theta")) {
			t.Errorf("%s: of theta something was told", tt.name)
		}
	}
	if d, diags := draftOf(t, "{", "["); d.Job != nil || !d.Torn || !diags.HasErrors() {
		t.Errorf("a file that is no HCL: %+v", d)
	}
	if d, _, diags := draft(nil, "job.hcl", Options{}); d.Job != nil || d.Torn || !diags.HasErrors() {
		t.Errorf("an empty file: %+v", d)
	}
}

// What the backend's block lacks a value for was told where that is missing: the plugin's complaint is not news.
func TestDraftOfABackendBlockWithAnUnknownValue(t *testing.T) {
	d, diags := draftOf(t, "backend \"local\" {\n  }", "backend \"local\" {\n slots = var.none\n}")
	if !diags.HasErrors() || !d.Known("backend") || len(d.values) != 1 || !d.Told(d.values[0]) {
		t.Errorf("%+v, %v", d, diags)
	}
}
