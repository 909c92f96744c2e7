package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// eachAttribute visits the schema in its order.
func eachAttribute(b *block, path string, visit func(path string, b *block, a *attribute)) {
	for i := range b.attrs {
		visit(join(path, b.attrs[i].name), b, &b.attrs[i])
	}
	for _, child := range b.blocks {
		eachAttribute(child, join(path, child.name), visit)
	}
}

// TestTableOfDefaults holds the table in doc.go against the schema. -update rewrites it.
func TestTableOfDefaults(t *testing.T) {
	var table strings.Builder
	eachAttribute(schema, "", func(path string, _ *block, a *attribute) {
		if standard, ok := strings.CutPrefix(a.standard(), "default "); ok && a.later == "" {
			fmt.Fprintf(&table, "//\t%-40s %s\n", path, standard)
		}
	})
	src, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(src), "//\tattribute")
	header, rest, found2 := strings.Cut(rest, "\n")
	end := strings.Index(rest, "//\n")
	if !found || !found2 || end < 0 {
		t.Fatal("doc.go has no table of defaults")
	}
	if *update {
		updated := before + "//\tattribute" + header + "\n" + table.String() + rest[end:]
		if err := os.WriteFile("doc.go", []byte(updated), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table.String(), rest[:end]); diff != "" {
		t.Errorf("doc.go differs from the schema (-schema +doc.go; go test -update rewrites it):\n%s", diff)
	}
}

// TestDefaultsAreValues writes every default of the schema into a job file and expects the job that a file without
// them gives: a default is a value that a user could have written.
func TestDefaultsAreValues(t *testing.T) {
	for _, optimiser := range modelBlock.child("optimiser").labels {
		plain := strings.Replace(minimal, "workers {", fmt.Sprintf("model {\n optimiser %q {\n}\n}\nworkers {", optimiser), 1)
		want, files, diags := Parse([]byte(plain), "job.hcl", Options{})
		if diags.HasErrors() {
			t.Fatal(rendered(files, diags))
		}
		var src strings.Builder
		writeDefaults(&src, schema, optimiser)
		got, files, diags := Parse([]byte(src.String()), "job.hcl", Options{})
		if diags.HasErrors() {
			t.Fatalf("%s\n%s", rendered(files, diags), src.String())
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Job{}), cmpopts.IgnoreFields(Backend{}, "Source", "Start")); diff != "" {
			t.Errorf("optimiser %s (-left out +written):\n%s", optimiser, diff)
		}
	}
}

// writeDefaults writes a job in which each attribute with a default has it, and each that is required has minimal's.
func writeDefaults(src *strings.Builder, b *block, optimiser string) {
	required := map[string]string{"brokers": `["localhost:9092"]`, "topic": `"clicks"`, "label": `"click"`, "max": "4", "theta": "[0.0002, 0, 0]", "dir": `"cp"`}
	label := map[string]string{"job": "ctr", "stream": "kafka", "optimiser": optimiser, "backend": "local"}[b.name]
	if label != "" {
		label = fmt.Sprintf("%q ", label)
	}
	fmt.Fprintf(src, "%s %s{\n", b.name, label)
	for _, a := range b.attrs {
		value := a.fallback
		switch {
		case a.name == "sparse":
			value = `["user", "item"]`
		case a.required:
			value = required[a.name]
		case a.byLabel != nil:
			value = a.byLabel[optimiser]
		}
		if value != "" {
			fmt.Fprintf(src, "%s = %s\n", a.name, value)
		}
	}
	for _, child := range b.blocks {
		if !child.optional {
			writeDefaults(src, child, optimiser)
		}
	}
	src.WriteString("}\n")
}

// TestDerivedDefaults pins the defaults that follow from other values.
func TestDerivedDefaults(t *testing.T) {
	job, files, diags := Parse([]byte(minimal), "job.hcl", Options{})
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	if job.Workers.Queue != 4*job.Model.Batch || job.Forecast.GateWindow != 4*job.Forecast.Horizon || job.Autoscale.Fallback.LagOver != job.SLO.MaxLag/2 {
		t.Errorf("queue %d, gate window %s, lag over %s", job.Workers.Queue, job.Forecast.GateWindow, job.Autoscale.Fallback.LagOver)
	}
}

// TestSchemaIsComplete checks what the decoder and Reference take for granted.
func TestSchemaIsComplete(t *testing.T) {
	seen := map[string]bool{}
	eachAttribute(schema, "", func(path string, b *block, a *attribute) {
		if seen[path] {
			t.Errorf("%s is there twice", path)
		}
		seen[path] = true
		if a.later != "" {
			return
		}
		if a.field == nil || a.doc == "" || !strings.HasSuffix(a.doc, ".") && !strings.HasSuffix(a.doc, "].") {
			t.Errorf("%s: no field, or a description that is no sentence: %q", path, a.doc)
		}
		if a.required && (a.fallback != "" || a.derived != "" || a.byLabel != nil) {
			t.Errorf("%s is required and has a default", path)
		}
		if b.doc == "" {
			t.Errorf("block of %s has no description", path)
		}
	})
}

func TestReference(t *testing.T) {
	golden(t, filepath.Join("testdata", "reference.golden"), Reference(96))
	eachAttribute(schema, "", func(path string, _ *block, a *attribute) {
		if a.later == "" && !strings.Contains(Reference(96), a.name) {
			t.Errorf("%s is not in the reference", path)
		}
	})
}

// TestReferenceJobNamesEveryBlock keeps examples/ctr.hcl complete: every block and every attribute with a default
// stands in it, in a comment at least.
func TestReferenceJobNamesEveryBlock(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(examples, "ctr.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range schema.blocks {
		if !strings.Contains(string(src), "\n  "+b.name+" ") {
			t.Errorf("examples/ctr.hcl has no block %s", b.name)
		}
		for _, a := range b.attrs {
			if a.later == "" && a.fallback != "" && !strings.Contains(string(src), a.name+" ") && a.name != "emulate_step" {
				t.Errorf("examples/ctr.hcl does not name %s.%s", b.name, a.name)
			}
		}
	}
}
