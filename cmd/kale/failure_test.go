package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/onnx"
)

// failed is what a script reads of a command that failed.
type failed struct {
	Error, Advice string
	Valid         *bool
	Diagnostics   []diagnosticJSON
	Unchecked     []string
	OK            *bool // kale doctor's
	Broken        bool  `json:"onnxruntime_broken"`
}

// failed runs a command line with -json that has to fail, and reads the one object that it prints.
func (s *shell) failed(code int, args ...string) (f failed) {
	s.t.Helper()
	r := s.run(args...)
	if r.code != code {
		s.t.Errorf("kale %s: exit code %d, want %d", quoted(args), r.code, code)
	}
	if err := json.Unmarshal([]byte(r.out), &f); err != nil || strings.Count(r.out, "\n") != 1 {
		s.t.Errorf("kale %s does not print one line of JSON: %v: %q; standard error: %q", quoted(args), err, r.out, r.err)
	}
	if r.err != "" {
		s.t.Errorf("kale %s says on standard error too: %s", quoted(args), r.err)
	}
	return f
}

// jsonCommands are all commands with -json.
func jsonCommands(c *cobra.Command) (names []string) {
	if c.Flags().Lookup("json") != nil {
		names = append(names, strings.TrimPrefix(c.CommandPath(), "kale "))
	}
	for _, sub := range c.Commands() {
		names = append(names, jsonCommands(sub)...)
	}
	return names
}

// With -json a failure is one JSON object on standard output, of every command that has -json, and the exit code is that without.
func TestFailuresAreJSONWhereAsked(t *testing.T) {
	s := newShell(t)
	t.Setenv("PATH", "") // there are no other programs
	file := filepath.Join("..", "..", "core", "job", "testdata", "misspelt.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	another := filepath.Join(t.TempDir(), "another.hcl")
	if err := os.WriteFile(another, bytes.Replace(text, []byte(`"ctr"`), []byte(`"another"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	const none, mistakes = `no job "nojob" is known on this machine`, "misspelt.hcl:"
	lines := map[string][]struct{ args, says string }{
		"status":         {{"nojob", none}, {"none.hcl", "none.hcl"}, {file, mistakes}},
		"explain":        {{"nojob", none}, {"nojob -all", none}, {file, mistakes}},
		"audit":          {{"nojob", none}, {file, mistakes}},
		"profile show":   {{"nojob", none}, {file, mistakes}},
		"profile":        {{"nojob", none}, {file + " -dry", mistakes}},
		"plan":           {{"nojob", none}, {file, mistakes}, {file + " " + another, mistakes}},
		"validate":       {{"nojob", none}, {file + " -offline", mistakes}},
		"doctor":         {{"nojob", none}},
		"broker":         {{"-listen nowhere", "want host:port"}},
		"produce":        {{"-topic t -curve none.csv", "none.csv"}, {"-brokers 127.0.0.1:1 -topic t", "connection refused"}},
		"demo":           {{"", "kale-backend-local"}},
		"forecast train": {{"-trace none.csv -o x.onnx", "none.csv"}, {file + " -o x.onnx", mistakes}},
		"forecast eval":  {{"-trace none.csv", "none.csv"}},
		"forecast show":  {{"nojob", none}, {file, mistakes}},
		"replay":         {{"-trace none.csv", "none.csv"}, {"-synthetic week -job " + file, mistakes}},
		"scale":          {{"nojob 2", none}},
		"pause":          {{"nojob", none}},
		"resume":         {{"nojob", none}},
		"stop":           {{"nojob", none}},
		"forget":         {{"nojob", none}},
		"version":        nil, // below
	}
	names := jsonCommands(rootCommand(s.app(&buffer{}, &buffer{})))
	if known := slices.Sorted(maps.Keys(lines)); !slices.Equal(slices.Sorted(slices.Values(names)), known) {
		t.Fatalf("commands with -json: %q; this test knows %q", names, known)
	}
	for name, tests := range lines {
		for _, tt := range tests {
			t.Run(name+" "+tt.args, func(t *testing.T) {
				s := *s
				s.t = t
				args := append(strings.Fields(name+" "+tt.args), "-json")
				f := s.failed(exitFailed, args...)
				if !strings.Contains(f.Error, tt.says) {
					t.Errorf("the error is %q; want %q", f.Error, tt.says)
				}
				if tt.says == mistakes && (f.Valid == nil || *f.Valid || len(f.Diagnostics) == 0 || f.Advice == "") {
					t.Errorf("mistakes in the job file are %+v", f)
				}
			})
		}
		t.Run(name+" of another usage", func(t *testing.T) {
			s := *s
			s.t = t
			for _, wrong := range [][]string{{"-json", "-nonsense"}, {"-nonsense", "-json"}} {
				f := s.failed(exitUsage, append(strings.Fields(name), wrong...)...)
				if !strings.Contains(f.Error, "unknown flag: -nonsense") || f.Advice != "See: kale "+name+" -help" {
					t.Errorf("%+v", f)
				}
			}
		})
	}
	if f := s.failed(exitFailed, "doctor", file, "-json"); f.OK == nil || *f.OK {
		t.Errorf("doctor's result does not say that something failed: %+v", f)
	}
	t.Setenv(onnx.LibraryEnv, "none.so")
	if f := s.failed(exitFailed, "version", "-json"); !f.Broken {
		t.Errorf("version's result does not say that the library cannot be used: %+v", f)
	}
}
