package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core/onnx"
)

// Mistakes of the file itself, of its topic, its records, its folders, its forecast model and its backend block are told at once, each once, and what no answer
// was to be had for is said.
func TestMistakesOfEveryPartAtOnce(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	addr, text := scaffolded(t, s)
	dir := t.TempDir()
	for name, content := range map[string]string{"model.onnx": "no model", "taken": "a file"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	head, _, found := strings.Cut(text, `  backend "local"`)
	if !found {
		t.Fatal(text)
	}
	head = changed(t, head, `topic   = "clicks"`, "topic   = \"clicks\"\n    dead_letter = \"dead\"")
	head = changed(t, head, `label  = "click"`, `label  = "clack"`)
	head = changed(t, head, "autoscale {\n", "autoscale {\n    policyy = \"kale\"\n")
	head = withLine(t, head, "checkpoint", "dir", `"`+filepath.Join(dir, "taken")+`"`)
	head = withLine(t, head, "forecast", "model", `"`+filepath.Join(dir, "model.onnx")+`"`)
	whole := write(t, head+"  backend \"local\" {\n    slotz = 3\n    gpus  = \"all\"\n  }\n}\n")
	each := []string{`Unknown attribute "policyy"`, `Topic "dead" does not exist`, `No record has the label "clack"`, "The checkpoint folder is a file",
		"The forecast model cannot be used", "slotz", "Unknown way to use GPUs"}
	for _, command := range []string{"validate", "plan", "run"} {
		r := s.run(command, whole)
		if r.code != exitFailed || r.out != "" {
			t.Errorf("%s: exit code %d, %q", command, r.code, r.out)
		}
		last := 0
		for _, says := range each {
			if n := strings.Count(r.err, "error: "+says); n != 1 && (says != "slotz" || strings.Count(r.err, "\"slotz\"") != 1) {
				t.Errorf("%s says %q %d times:\n%s", command, says, n, r.err)
			}
			last = max(last, strings.Index(r.err, says))
		}
		if at := strings.Index(r.err, "Not checked until this is mended: whether the backend has what its block names, and room for the job.\n"); at < last {
			t.Errorf("%s does not say at the end what was not checked:\n%s", command, r.err)
		}
	}

	// A topic that is not there hides its records alone, and an address that is none the topic.
	for _, tt := range []struct{ from, to, says, unchecked string }{
		{`topic   = "clicks"`, `topic   = "clics"`, `Topic "clics" does not exist`, "mended: the features against the topic's records; whether"},
		{`"` + addr + `"`, `"nowhere"`, "", "mended: the topic; the features against the topic's records; whether"},
		{`max  = `, `maxx = `, "", "mended: whether workers.max can train what arrives; whether the backend has what its block names, and room"},
	} {
		r := s.run("validate", write(t, changed(t, read(t, whole), tt.from, tt.to)))
		if r.code != exitFailed || !strings.Contains(r.err, tt.says) || !strings.Contains(strings.Join(strings.Fields(r.err), " "), tt.unchecked) {
			t.Errorf("%s: exit code %d, want %q and %q in\n%s", tt.to, r.code, tt.says, tt.unchecked, r.err)
		}
		for _, says := range []string{"The checkpoint folder is a file", "The forecast model cannot be used", "slotz"} {
			if !strings.Contains(r.err, says) {
				t.Errorf("%s hides %q:\n%s", tt.to, says, r.err)
			}
		}
	}
}

// What a mistake leaves nothing to be asked about is named as not checked; nothing is said of the cluster or of a GPU that follows from the mistake.
func TestNothingFollowsFromAMistake(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	if _, err := onnx.Locate(); err != nil {
		t.Skipf("ONNX Runtime is missing: make deps installs it (%v)", err)
	}
	_, text := scaffolded(t, s)
	for _, tt := range []struct{ name, block, from, to, says, unchecked string }{
		{"another kind", "model", "kind", `"deepfn"`, `Unknown value "deepfn"`, "whether a worker could train here; whether the backend has what its block names, and room for the job."},
		{"no kind", "model", "kind", "5", `Unknown value "5"`, "whether a worker could train here; whether the backend has what its block names, and room for the job."},
		{"misspelt", "workers", "gpus", "1\n    gpuz = 0", `Unknown attribute "gpuz"`, "whether a worker could train on a GPU; whether the backend has what its block names, and room for the job."},
		{"a feature without a value", "features", "sparse", `[env("KALE_TEST_NOPE")]`, "Error in function call", "the features against the topic's records."},
		{"features that are no names", "features", "sparse", `["category", 7]`, "A string is needed here", "the features against the topic's records."},
	} {
		text := withLine(t, text, tt.block, tt.from, tt.to)
		if tt.name == "misspelt" {
			text = changed(t, text, "    gpus = 1\n", "")
		}
		for _, command := range []string{"validate", "plan"} {
			r := s.run(command, write(t, text))
			said := strings.Join(strings.Fields(r.err), " ")
			if r.code != exitFailed || strings.Count(r.err, "error: ") != 1 || strings.Contains(r.err, "warning: ") || !strings.Contains(r.err, "error: "+tt.says) {
				t.Errorf("%s: %s: exit code %d:\n%s", tt.name, command, r.code, r.err)
			}
			if !strings.Contains(said, "Not checked until this is mended: ") || !strings.HasSuffix(said, tt.unchecked) {
				t.Errorf("%s: %s does not say that it did not check %s:\n%s", tt.name, command, tt.unchecked, r.err)
			}
		}
	}
}

// withLine gives an attribute of a block of a scaffolded job file another value.
func withLine(t *testing.T, text, block, name, value string) string {
	t.Helper()
	before, rest, found := strings.Cut(text, "\n  "+block+" {\n")
	if !found {
		t.Fatalf("no block %s in\n%s", block, text)
	}
	body, after, _ := strings.Cut(rest, "\n  }")
	var lines []string
	for _, line := range strings.Split(body, "\n") {
		if first, _, _ := strings.Cut(strings.TrimSpace(line), " "); first != name {
			lines = append(lines, line)
		}
	}
	lines = append(lines, "    "+name+" = "+value)
	return before + "\n  " + block + " {\n" + strings.Join(lines, "\n") + "\n  }" + after
}

// Where ONNX Runtime cannot compute on a GPU, a job that wants that is refused at the line that asks for one, and not left to workers that die in a loop.
func TestNoCUDA(t *testing.T) {
	s := newShell(t).withPrograms()
	lib, err := onnx.Locate()
	if err != nil {
		t.Skipf("ONNX Runtime is missing: make deps installs it (%v)", err)
	}
	v, err := doctor.TryTrainer(t.Context(), filepath.Join(binDir, "kale-trainer"), map[string]string{onnx.LibraryEnv: lib}, onnx.CUDA)
	if err != nil || v.NoONNX == "" {
		t.Skipf("this machine computes with CUDA (%v)", err)
	}
	_, text := scaffolded(t, s)
	file := write(t, changed(t, text, "gpus = 0", "gpus = 1"))
	for _, command := range []string{"validate", "plan", "run"} {
		r := s.run(command, file)
		if r.code != exitFailed || r.out != "" || strings.Count(r.err, "error: No worker could train on a GPU") != 1 || !strings.Contains(r.err, "| "+"    gpus = 1") {
			t.Errorf("%s: exit code %d, %q:\n%s", command, r.code, r.out, r.err)
		}
	}
	// Without the cluster nothing is known of its devices: a job may be checked where it will not run.
	if r := s.must("validate", file, "-offline"); !strings.Contains(r.out, "is valid, as far as can be told") || strings.Contains(r.err, "GPU") {
		t.Errorf("validate -offline asks for a GPU: %+v", r)
	}
	emulated := write(t, changed(t, text, "gpus = 0", "gpus = 1\n    emulate_step = \"1ms\""))
	if r := s.run("validate", emulated); strings.Contains(r.err, "GPU could") || strings.Contains(r.err, "No worker could train") {
		t.Errorf("an emulated accelerator needs no CUDA:\n%s", r.err)
	}
}
