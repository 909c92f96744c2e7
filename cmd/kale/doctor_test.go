package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/stream"
)

// examined is what kale doctor -json prints.
type examined struct {
	OK       bool `json:"ok"`
	Failed   int  `json:"failed"`
	Warnings int  `json:"warnings"`
	Checks   []struct {
		Check, State, Says, Do string
	} `json:"checks"`
}

func (s *shell) examine(args ...string) (result, examined) {
	s.t.Helper()
	r := s.run(append([]string{"doctor", "-json"}, args...)...)
	var e examined
	if err := json.Unmarshal([]byte(r.out), &e); err != nil {
		s.t.Fatalf("%v: %q %q", err, r.out, r.err)
	}
	if e.OK != (r.code == exitDone) {
		s.t.Errorf("ok is %v and the exit code %d", e.OK, r.code)
	}
	return r, e
}

// A set-up is tried from end to end; each thing that is wrong with it is found, with what to do, and nothing else is.
func TestDoctor(t *testing.T) {
	if _, err := onnx.Locate(); err != nil {
		t.Skipf("ONNX Runtime is missing, so that no set-up is sound: make deps installs it (%v)", err)
	}
	s := newShell(t).withPrograms()
	addr, text := scaffolded(t, s, stream.TopicSpec{Name: "dead", Partitions: 1}, stream.TopicSpec{Name: "ahead", Partitions: 1},
		stream.TopicSpec{Name: "old", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact"}})
	text = changed(t, text, `# dead_letter = "clicks-dead"`, `dead_letter = "dead"`)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	record := &kgo.Record{Topic: "ahead", Timestamp: time.Now().Add(time.Hour), Value: []byte(`{"click":1,"user":"u","item":"i","category":"c","slot":"s","price":1,"age":1}`)}
	if err := cl.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	script := func(name, body string) (folder string) {
		folder = t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	file := filepath.Join(script("file", ""), "file")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const block = "backend \"local\" {\n"
	all := []string{"job file", "broker 0", "topic", "records", "dead-letter topic", "records' clock", "backend plugin", "backend block", "devices",
		"room for 1 worker", "room for 2 workers",
		"nodes", "trainer on HOST", "ONNX Runtime on HOST", "checkpoint folder on nodes", "network of HOST", "trainer", "ONNX Runtime", "checkpoint folder", "state folder", "scheduler's socket", "ports", "clock"}
	for _, tt := range []struct {
		name     string
		from, to string // in the job file
		args     []string
		env      string // KALE_ONNXRUNTIME
		fails    []string
		says     string
	}{
		{"sound", "", "", nil, "", nil, ""},
		{"no such topic", `topic   = "clicks"`, `topic   = "clics"`, nil, "", []string{"topic"}, `Did you mean "clicks"?`},
		{"a compacted topic", `topic   = "clicks"`, `topic   = "old"`, nil, "", []string{"topic"}, "cleanup.policy=delete"},
		{"a field that no record has", `"user"`, `"usr"`, nil, "", []string{"records"}, `Did you mean "user"?`},
		{"no such dead-letter topic", `dead_letter = "dead"`, `dead_letter = "dad"`, nil, "", []string{"dead-letter topic"}, `Did you mean "dead"?`},
		{"records of tomorrow", `topic   = "clicks"`, `topic   = "ahead"`, nil, "", []string{}, "NTP"},
		{"no brokers", addr, "127.0.0.1:1", nil, "", []string{"broker address 127.0.0.1:1"}, "does a broker listen there"},
		{"no plugin", "", "", []string{"-plugin-dir", t.TempDir()}, "", []string{"backend plugin"}, "-plugin-dir"},
		{"a plugin that dies", "", "", []string{"-plugin-dir", script("kale-backend-local", "exit 3")}, "", []string{"backend plugin"}, "Install kale-backend-local"},
		{"a plugin that does not take its block", block, block + "    slots = 0\n", nil, "", []string{"backend block"}, "slots is 0"},
		{"no room", "min  = 1", "min  = 2\n    gpus = 1 #", nil, "", []string{"room for 2 workers"}, "needs 2 slots, 1 free"},
		{"no trainer", "", "", []string{"-trainer", "none"}, "", []string{"trainer"}, "make build"},
		{"a trainer that crashes", "", "", []string{"-trainer", filepath.Join(script("t", "kill -SEGV $$"), "t")}, "", []string{"trainer"}, "it crashed"},
		{"another program in the block", block, block + "    trainer = \"/bin/false\"\n", nil, "", []string{"trainer"}, "Correct trainer in the backend block ("},
		{"no library in the block's environment", block, block + "    env = { KALE_ONNXRUNTIME = \"/no.so\" }\n", nil, "", []string{"ONNX Runtime"}, "in the backend block's env ("},
		{"a broken library", "", "", nil, file, []string{"ONNX Runtime"}, "make deps"},
		{"the checkpoint folder is a file", `dir = "checkpoints"`, fmt.Sprintf("dir = %q", file), nil, "", []string{"checkpoint folder"}, "Move it away"},
		{"the state folder is a file", "", "", []string{"-state-dir", file}, "", []string{"devices", "room for 1 worker", "state folder", "scheduler's socket"}, "$KALE_STATE_DIR"},
		{"a job file with a mistake", "max  = 2", "max  = 0", nil, "", []string{"job file"}, "job.hcl:"},
		{"no job file", "", "", nil, "", []string{"job file"}, "No such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &shell{t: t, env: s.env, exe: s.exe}
			if tt.env != "" {
				t.Setenv(onnx.LibraryEnv, tt.env)
			}
			text := text
			if tt.from != "" {
				text = changed(t, text, tt.from, tt.to)
			}
			if tt.name == "no room" { // slots, so that it does not depend on the machine
				text = changed(t, changed(t, text, block, block+"    gpus  = \"none\"\n    slots = 1\n"), "    gpus = 0\n", "")
			}
			job := write(t, text)
			if tt.name == "no job file" {
				job += "-none.hcl"
			}
			args := append([]string{job}, tt.args...)
			if tt.fails != nil {
				args = append(args, "-no-probe") // it would say the same once more
			}
			r, e := s.examine(args...)
			var checks, fails, advice []string
			for _, c := range e.Checks {
				checks = append(checks, strings.Replace(c.Check, " "+host, " HOST", 1))
				if c.State == "fail" && c.Check != "ONNX Runtime on a GPU" { // which this machine may not have
					fails = append(fails, c.Check)
				}
				if c.State == "fail" || c.State == "warn" {
					advice = append(advice, c.Says, c.Do)
				}
				if (c.State == "fail" || c.State == "warn") && c.Do == "" {
					t.Errorf("%s says %q, and not what to do", c.Check, c.Says)
				}
			}
			if !slices.Equal(fails, tt.fails) || !strings.Contains(strings.Join(advice, " "), tt.says) {
				t.Errorf("failed: %q, want %q; it says %q, want %q", fails, tt.fails, advice, tt.says)
			}
			if tt.name == "a job file with a mistake" { // the rest is tried all the same
				for _, c := range e.Checks {
					if want := map[bool]doctor.State{true: doctor.Skip, false: doctor.OK}[c.Check == "room"]; c.Check != "job file" && c.Check != "clock" && c.State != string(want) {
						t.Errorf("%s is %s, want %s: %s", c.Check, c.State, want, c.Says)
					}
				}
				if !slices.Contains(checks, "broker 0") || !slices.Contains(checks, "ONNX Runtime") || !slices.Contains(checks, "checkpoint folder") || !slices.Contains(checks, "ports") {
					t.Errorf("it tried only %q", checks)
				}
			}
			if tt.fails == nil && !cmp.Equal(all, checks) {
				t.Errorf("checks: %s", cmp.Diff(all, checks))
			}
			if left := under(t, filepath.Dir(job)); len(left) > 1 || r.err != "" && !strings.Contains(r.err, "plugin process exited") {
				t.Errorf("it left %v and said %q", left, r.err)
			}
		})
	}
	if left := under(t, s.env["KALE_STATE_DIR"]); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	good := write(t, text)
	if r := s.must("doctor", good); !strings.Contains(r.out, "ok    broker 0 ") || !strings.Contains(r.out, ", 0 failed\n") {
		t.Errorf("for people: %s", r.out)
	}
	if r := s.run("doctor", good, "-no-probe"); r.code != exitDone || strings.Contains(r.out, "nodes") {
		t.Errorf("without a probe: %d %s", r.code, r.out)
	}
	if r := s.run("doctor", good, "-probe-timeout", "0s"); r.code != exitUsage || !strings.Contains(r.err, "-no-probe") {
		t.Errorf("a probe without time: %d %s", r.code, r.err)
	}
	if r := s.run("doctor", good, "-trainer", "none", "-no-probe"); r.code != exitFailed || !strings.Contains(r.out, "fail  trainer ") || !strings.Contains(r.out, "→ Build it") {
		t.Errorf("for people: %d %s", r.code, r.out)
	}
}

// The table fits the terminal, words whole.
func TestFindingsAreWrapped(t *testing.T) {
	found := []doctor.Finding{
		{Check: "broker address kafka-1.example.com:9092", State: doctor.Fail, Says: "it does not answer: dial tcp: connection refused", Do: strings.Repeat("Do this and that. ", 8)},
		{Check: "clock", State: doctor.OK, Says: "fine", Do: "not shown"},
	}
	for _, width := range []int{60, 80, 120} {
		var b strings.Builder
		if err := writeFindings(&b, found, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns: a line of %d: %q", width, n, line)
			}
		}
		if got := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(got, "dial tcp: connection refused → Do this and that. Do this") || strings.Contains(got, "not shown") {
			t.Errorf("%d columns: %q", width, got)
		}
	}
	var b strings.Builder
	if err := writeFindings(&b, found, 0); err != nil || strings.Count(b.String(), "\n") != 5 {
		t.Errorf("without a width: %v %q", err, b.String())
	}
}
