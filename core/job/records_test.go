package job

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecords renders what is said about a job whose topic has records of many kinds.
func TestRecords(t *testing.T) {
	src := strings.Replace(minimal, `sparse = ["user", "item"]`, `sparse = ["user", "item"]`+"\n    dense  = [\"price\"]", 1)
	of := func(n int, record func(i int) string) [][]byte {
		out := make([][]byte, n)
		for i := range out {
			out[i] = []byte(record(i))
		}
		return out
	}
	good := func(i int) string {
		return fmt.Sprintf(`{"click":%d,"user":"u%d","item":%d,"price":0.5,"ts":1}`, i%2, i, i)
	}
	replaced := func(from, to string, every int) func(i int) string {
		return func(i int) string {
			if i%every > 0 {
				return good(i)
			}
			return strings.Replace(good(i), from, to, 1)
		}
	}
	var examples [][]byte
	for i := range 30 {
		examples = append(examples, example(map[string]any{"click": i % 2, "user": "u", "item": i, "price": 0.5}, i%3 == 0))
	}
	var out strings.Builder
	for _, c := range []struct {
		name    string
		change  [2]string // of the job file
		samples [][]byte
	}{
		{"fine", [2]string{}, of(40, good)},
		{"fine, tf.train.Example", [2]string{`label  =`, "format = \"tfexample\"\n    label  ="}, examples},
		{"empty", [2]string{}, nil},
		{"a field that no record has", [2]string{`"user", "item"`, `"nosuch", "itm"`}, of(40, good)},
		{"of few records", [2]string{`"user", "item"`, `"user", "itm"`}, of(3, good)},
		{"of one record", [2]string{`"user", "item"`, `"user", "itm"`}, of(1, good)},
		{"a rare field", [2]string{}, of(40, replaced(`"item"`, `"itm"`, 2))},
		{"null is absent", [2]string{}, of(40, replaced(`"price":0.5`, `"price":null`, 1))},
		{"a label that no record has", [2]string{`"click"`, `"clik"`}, of(40, good)},
		{"a label that is not 0 or 1", [2]string{`label  = "click"`, `label  = "ts2"`}, of(40, replaced(`"ts":1`, `"ts2":17`, 1))},
		{"labels that texts are", [2]string{}, of(40, replaced(`"click":0`, `"click":" 1"`, 2))},
		{"some labels are missing", [2]string{}, of(40, replaced(`"click":0,`, ``, 4))},
		{"some labels are wrong, and there is a dead-letter topic", [2]string{`topic   = "clicks"`, "topic   = \"clicks\"\n    dead_letter = \"dead\""}, of(40, replaced(`"click":0`, `"click":"no"`, 4))},
		{"a list in a field", [2]string{}, of(40, replaced(`"item":`, `"item":[1],"x":`, 1))},
		{"a list in some", [2]string{}, of(40, replaced(`"item":`, `"item":{"a":1},"x":`, 4))},
		{"a text in a quantity", [2]string{}, of(40, replaced(`0.5`, `"cheap"`, 1))},
		{"an infinite quantity in some", [2]string{}, of(40, replaced(`0.5`, `1e300`, 4))},
		{"tf.train.Example is taken for JSON", [2]string{}, examples},
		{"JSON is taken for tf.train.Example", [2]string{`label  =`, "format = \"tfexample\"\n    label  ="}, of(40, good)},
		{"neither", [2]string{}, of(40, func(int) string { return "click,1,user,u" })},
		{"some are neither", [2]string{}, of(40, func(i int) string { return strings.Repeat("x", (i+1)%2) + good(i) })},
		{"null", [2]string{}, of(40, func(int) string { return "null" })},
	} {
		job, files, diags := Parse([]byte(strings.Replace(src, c.change[0], c.change[1], 1)), "job.hcl", Options{})
		if diags.HasErrors() {
			t.Fatal(rendered(files, diags))
		}
		diags = job.RecordDiagnostics(c.samples)
		located(t, files, diags)
		out.WriteString("== " + c.name + "\n" + rendered(files, diags))
		job.Model.Kind = ModelCounting
		if diags := job.RecordDiagnostics(c.samples); len(diags) > 0 {
			t.Errorf("%s: a counting job looks into no record: %v", c.name, diags)
		}
	}
	golden(t, filepath.Join("testdata", "records.diag"), out.String())
}

// Whatever is in a topic, it is judged without a panic.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"click":1,"user":[1]}`), false)
	f.Add(example(map[string]any{"click": 1, "user": "u", "item": 3}, true), true)
	f.Fuzz(func(t *testing.T, record []byte, tf bool) {
		src := minimal
		if tf {
			src = strings.Replace(src, "label  =", "format = \"tfexample\"\n label =", 1)
		}
		job, files, diags := Parse([]byte(src), "job.hcl", Options{})
		if diags.HasErrors() {
			t.Fatal(rendered(files, diags))
		}
		located(t, files, job.RecordDiagnostics([][]byte{record, record}))
	})
}

// Of a label that the job file does not have nothing is said of the records.
func TestRecordsWithoutALabel(t *testing.T) {
	j := &Job{Stream: Stream{Topic: "t"}, Features: Features{Format: FormatJSON, Sparse: []string{"user"}}}
	if diags := j.RecordDiagnostics([][]byte{[]byte(`{"click":1,"user":"u"}`), []byte(`{"click":0,"user":"v"}`)}); len(diags) > 0 {
		t.Errorf("it says %v", diags)
	}
}
