package job

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPolicyParams(t *testing.T) {
	src := strings.Replace(minimal, "workers {", "autoscale {\n policy = \"flink\"\n params {\n  target = 0.8\n  window = \"3m\"\n  guard = 0\n }\n}\nworkers {", 1)
	j, files, diags := Parse([]byte(src), "job.hcl", Options{})
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	if d := cmp.Diff(map[string]float64{"target": 0.8, "window": 3, "guard": 0}, j.Autoscale.Params); d != "" {
		t.Errorf("params (-want +got):\n%s", d)
	}
	if r := j.Range("autoscale.params.window"); r.Start.Line == 0 || r == j.Range("autoscale") {
		t.Errorf("the range of autoscale.params.window is %v", r)
	}
}

// Every default is a value that may be written.
func TestPolicyDefaultsAreValues(t *testing.T) {
	for _, spec := range policies {
		var params strings.Builder
		want := map[string]float64{}
		for _, p := range spec.all() {
			params.WriteString("  " + p.name + " = " + p.standard() + "\n")
			want[p.name] = p.def
		}
		src := strings.Replace(minimal, "workers {", "autoscale {\n policy = \""+spec.name+"\"\n params {\n"+params.String()+" }\n}\nworkers {", 1)
		j, files, diags := Parse([]byte(src), "job.hcl", Options{})
		if diags.HasErrors() {
			t.Errorf("%s: %s", spec.name, rendered(files, diags))
			continue
		}
		if d := cmp.Diff(want, j.Autoscale.Params); d != "" {
			t.Errorf("%s (-want +got):\n%s", spec.name, d)
		}
	}
}

// Who pins the number of workers for a while may leave the policy as it is, and is told that it changes nothing.
func TestPinnedWorkers(t *testing.T) {
	for _, spec := range policies {
		src := strings.Replace(minimal, "workers {", "autoscale {\n policy = \""+spec.name+"\"\n}\nworkers {\n min = 4\n", 1)
		_, files, diags := Parse([]byte(src), "job.hcl", Options{})
		text := rendered(files, diags)
		if diags.HasErrors() {
			t.Errorf("%s: %s", spec.name, text)
		}
		if warned := strings.Contains(text, "warning: Nothing to scale"); warned != (spec.name != PolicyStatic && spec.name != PolicyKale) {
			t.Errorf("%s: warned %v: %s", spec.name, warned, text)
		}
	}
}
