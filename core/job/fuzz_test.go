package job

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzParse checks that whatever a job file holds, there is a job or an error, every diagnostic points into a file, and
// rendering it does not fail.
func FuzzParse(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*.hcl")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range append(seeds, filepath.Join(examples, "ctr.hcl"), filepath.Join(examples, "demo.hcl")) {
		src, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte(minimal))
	f.Add([]byte(strings.Repeat("(", 1000)))
	f.Add([]byte("\ufeffjob \"a\" {\r\n}\r\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		opt := Options{Vars: map[string]string{"brokers": "localhost:9092", "dir": string(src[:min(len(src), 40)])},
			LookupEnv: func(name string) (string, bool) { return name, len(name)%2 == 0 }}
		job, files, diags := Parse(src, "job.hcl", opt)
		if (job == nil) != diags.HasErrors() {
			t.Fatalf("job %v with %v", job, diags)
		}
		located(t, files, diags)
		for _, width := range []int{0, 40, 100} {
			if err := Render(&bytes.Buffer{}, files, diags, width, true); err != nil {
				t.Error(err)
			}
		}
		if job != nil {
			_ = job.Fingerprint()
			located(t, files, job.TopicDiagnostics(TopicInfo{}))
		}
	})
}

// TestHostileSources checks sources that would exhaust a parser without bounds.
func TestHostileSources(t *testing.T) {
	for name, src := range map[string]string{
		"deep brackets":  "a = " + strings.Repeat("[", 50000),
		"deep blocks":    strings.Repeat("a {\n", 20000),
		"deep templates": "a = " + strings.Repeat(`"${`, 20000),
		"long negation":  "a = " + strings.Repeat("!", 20000) + "true",
		"long ternary":   "a = " + strings.Repeat("true ? ", 5000),
		"too large":      strings.Repeat("# comment\n", 100000),
		"zero bytes":     "a = \"\x00\"\n",
		"CR alone":       "job \"ctr\" {\r}\r",
		"not UTF-8":      "a = \"\xff\xfe\"\n",
	} {
		job, files, diags := Parse([]byte(src), "job.hcl", Options{})
		if job != nil || !diags.HasErrors() {
			t.Errorf("%s is accepted", name)
		}
		located(t, files, diags)
	}
}

func TestLoadSaysWhatItCannotRead(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "absent.hcl"), t.TempDir(), os.DevNull} {
		job, _, diags := Load(path, nil, nil)
		if job != nil || len(diags) != 1 || diags[0].Subject == nil || !strings.Contains(diags[0].Summary, path) {
			t.Errorf("%s: %v", path, diags)
		}
	}
	job, _, diags := Parse([]byte(minimal), "job.hcl", Options{VarFiles: []string{"absent.hcl"}})
	if job != nil || len(diags) != 1 || !strings.Contains(diags[0].Summary, "variable file absent.hcl") {
		t.Errorf("%v", diags)
	}
}
