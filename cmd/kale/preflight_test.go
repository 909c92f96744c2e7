package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/trainer"
)

// produceValues writes records to the first partition of a topic.
func produceValues(t *testing.T, addr, topic string, values ...string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, v := range values {
		cl.Produce(t.Context(), &kgo.Record{Value: []byte(v)}, nil)
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// scaffolded is a job file for a topic with clicks that starts nothing even if it is run by mistake.
func scaffolded(t *testing.T, s *shell, topics ...stream.TopicSpec) (addr, text string) {
	t.Helper()
	addr = broker(t, append(topics, stream.TopicSpec{Name: "clicks", Partitions: 2})...)
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-history", "10s", "-duration", "0", "-peak", "50")
	return addr, changed(t, s.must("init", "-brokers", addr, "-topic", "clicks").out, `mode   = "live"`, `mode   = "observe"`)
}

func write(t *testing.T, text string) (file string) {
	t.Helper()
	return writeIn(t, t.TempDir(), "job.hcl", text)
}

func writeIn(t *testing.T, dir, name, text string) (file string) {
	t.Helper()
	file = filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func changed(t *testing.T, text, from, to string) string {
	t.Helper()
	if !strings.Contains(text, from) {
		t.Fatalf("the job file has no %q:\n%s", from, text)
	}
	return strings.Replace(text, from, to, 1)
}

// A job whose features are not those of the records would train a useless model in silence, so nothing is planned or run with it.
func TestRecordsThatDoNotFit(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	addr, text := scaffolded(t, s, stream.TopicSpec{Name: "empty", Partitions: 1})
	for _, tt := range []struct {
		name, from, to string
		says           []string
	}{
		{"a field", `"user"`, `"usr"`, []string{`error: No record has the field "usr"`, `Did you mean "user"?`}},
		{"no field's name", `"user"`, `"nosuch"`, []string{`error: No record has the field "nosuch"`, "have: age, "}},
		{"the label", `label  = "click"`, `label  = "clik"`, []string{`error: No record has the label "clik"`, `Did you mean "click"?`}},
		{"a label that is a quantity", `label  = "click"`, `label  = "price"`, []string{`error: The label "price" is not 0 or 1`}},
		{"the format", `format = "json"`, `format = "tfexample"`, []string{`error: The records have another format`, `use format = "json"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := changed(t, text, tt.from, tt.to)
			if tt.to == `label  = "price"` {
				text = changed(t, text, `dense  = ["age", "price"]`, `dense  = ["age"]`)
			}
			file := write(t, text)
			for _, command := range []string{"validate", "plan", "run"} {
				r := s.run(command, file)
				if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, file+":") {
					t.Errorf("%s: exit code %d, %q:\n%s", command, r.code, r.out, r.err)
				}
				for _, want := range tt.says {
					if !strings.Contains(r.err, want) {
						t.Errorf("%s does not say %q:\n%s", command, want, r.err)
					}
				}
			}
			if r := s.must("validate", file, "-any-records"); !strings.Contains(r.err, "warning: ") {
				t.Errorf("-any-records says nothing: %s", r.err)
			}
			s.must("validate", file, "-offline")
		})
	}
	file := write(t, changed(t, text, `topic   = "clicks"`, `topic   = "empty"`))
	if r := s.must("validate", file); !strings.Contains(r.err, "warning: The features could not be checked") || !strings.Contains(r.err, `Topic "empty" is empty`) {
		t.Errorf("an empty topic: %s", r.err)
	}
	produceValues(t, addr, "empty", `{"click":1,"user":"u"}`)
	if r := s.must("validate", file); !strings.Contains(r.err, `warning: No record so far has the field "category"`) {
		t.Errorf("a topic with one record: %s", r.err)
	}
}

// A model that a command made is named as the job file has to: relative paths start at the file's folder.
func TestFromFile(t *testing.T) {
	for _, tt := range []struct{ file, path, want string }{
		{"j1/ctr.hcl", "j1/ctr.onnx", "ctr.onnx"}, {"ctr.hcl", "ctr.onnx", "ctr.onnx"}, {"j1/ctr.hcl", "ctr.onnx", "../ctr.onnx"}, {"j1/ctr.hcl", "/m/ctr.onnx", "/m/ctr.onnx"},
		{"", "m/ctr.onnx", "m/ctr.onnx"},
	} {
		args := []string{tt.file}
		if tt.file == "" {
			args = nil
		}
		if got := fromFile(args, tt.path); got != tt.want {
			t.Errorf("%q for %q: %q, want %q", tt.path, tt.file, got, tt.want)
		}
	}
}

// A job that ran before may go on with records that do not fit, but not by a file that says that they have another format.
func TestRecordsOfAJobThatRan(t *testing.T) {
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	for _, tt := range []struct {
		from, to string
		code     int
		says     string
	}{
		{`format = "json"`, `format = "tfexample"`, exitFailed, "error: The records have another format"},
		{`"user"`, `"nosuch"`, 0, `warning: No record has the field "nosuch"`},
	} {
		file := write(t, changed(t, text, tt.from, tt.to))
		dir := filepath.Join(s.env["KALE_STATE_DIR"], "clicks")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "state.db"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if r := s.run("validate", file); r.code != tt.code || !strings.Contains(r.err, tt.says) {
			t.Errorf("exit code %d, want %d and %q:\n%s", r.code, tt.code, tt.says, r.err)
		}
	}
}

// What is said about records is what the trainer's decoder does with them.
func TestRecordsAreJudgedAsTheTrainerDoes(t *testing.T) {
	text := strings.NewReplacer("%BROKER%", "b:1").Replace(lifeJob)
	j, _, diags := job.Parse([]byte(text), "job.hcl", job.Options{Vars: map[string]string{"checkpoints": "c"}})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	d, err := trainer.NewDecoder(core.TrainSpec(j, "").GetFeatures())
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range []string{
		`{"click":1,"user":"u","item":3,"price":0.5}`, `{"click":true,"user":true,"item":"","price":false}`, `{"click":"1","user":"u","item":3,"price":" 7 "}`,
		`{"click":" 0 ","user":"u","item":1e3,"price":1}`, `{"click":1,"user":{},"item":3,"price":0.5}`, `{"click":1,"user":"u","item":[],"price":0.5}`,
		`{"click":1,"user":"u","item":3,"price":"x"}`, `{"click":1,"user":"u","item":3,"price":1e300}`, `{"click":2,"user":"u","item":3,"price":1}`,
		`{"click":"yes","user":"u","item":3,"price":1}`, `{"click":null,"user":"u","item":3,"price":1}`, `{"user":"u","item":3,"price":1}`,
		`{"click":[1],"user":"u","item":3,"price":1}`, `{"click":1,"user":"u","item":3,"price":"NaN"}`, `{"click":1,"user":"u","item":3,"price":"1e300"}`,
		`[1]`, `null`, `{`, ``, `{"click":1,"user":"u","item":3,"price":0.5} x`, `{"click":1,"user":"a","user":"b","item":3,"price":0.5,"other":[{"a":null}]}`,
	} {
		var ex trainer.Example
		decoded := d.Decode([]byte(record), &ex)
		diags := j.RecordDiagnostics([][]byte{[]byte(record)})
		if (decoded != nil) != diags.HasErrors() {
			t.Errorf("%s: the trainer says %v, validate says %v", record, decoded, diags)
		}
	}
}

// A job file that asks its forecast model for more than it can give, or gives it less than it needs, is told so where it does.
func TestForecastModelIsHeldAgainstTheJob(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	before, rest, _ := strings.Cut(changed(t, text, "autoscale {\n", "autoscale {\n    tau = \"1h\"\n"), "  forecast {\n")
	_, after, _ := strings.Cut(rest, "\n  }\n")
	dir := t.TempDir()
	trace, model := filepath.Join(dir, "rates.csv"), filepath.Join(dir, "m.onnx")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	var trained struct{ Input, Horizon int }
	r := s.must("forecast", "train", "-trace", trace, "-interval", "30m", "-horizon", "3h", "-season", "24h", "-o", model, "-json")
	if err := json.Unmarshal([]byte(r.out), &trained); err != nil || trained.Horizon != 6 {
		t.Fatalf("%+v: %v", trained, err)
	}
	needs := job.FormatDuration(time.Duration(trained.Input) * 30 * time.Minute)
	line := strings.Count(before, "\n") + 2
	for _, tt := range []struct {
		horizon, history string
		says             string // "": it is valid
	}{
		{"3h", needs, ""},
		{"3h30m", needs, fmt.Sprintf("%d:16: error: The forecast model does not reach so far | %[1]d | horizon = \"3h30m\" | ^^^^^^^ %s forecasts 3h at most, and forecast.horizon is 3h30m. Set horizon to 3h or less.", line+1, model)},
		{"2h", "25h", fmt.Sprintf("%d:16: error: The forecast model needs more history | %[1]d | history = \"25h\" | ^^^^^ %s forecasts from the last %s, and forecast.history is 25h. Set history to %[3]s or more.", line+2, model, needs)},
	} {
		block := fmt.Sprintf("    interval = \"30m\"\n    horizon  = %q\n    history  = %q\n    season   = \"24h\"\n    model    = %q", tt.horizon, tt.history, model)
		file := write(t, before+"  forecast {\n"+block+"\n  }\n"+after)
		r := s.run("validate", file, "-offline")
		if said := strings.Join(strings.Fields(r.err), " "); (r.code == exitDone) != (tt.says == "") || tt.says != "" && !strings.Contains(said, file+":"+tt.says) {
			t.Errorf("horizon %s, history %s: exit code %d; want %q:\n%s%s", tt.horizon, tt.history, r.code, tt.says, r.out, r.err)
		}
	}
}

// What would let every worker fail, again and again, is refused before one is started.
func TestPreflightOfThisMachine(t *testing.T) {
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	crash := filepath.Join(t.TempDir(), "crash")
	if err := os.WriteFile(crash, []byte("#!/bin/sh\necho some last words >&2\nkill -SEGV $$\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	lacking := filepath.Join(t.TempDir(), "lacking")
	if err := os.WriteFile(lacking, []byte("#!/bin/sh\necho '{\"go\":\"go1\",\"onnxruntime_missing\":\"there is no library\"}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	junk := filepath.Join(t.TempDir(), "junk.onnx")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	foreseen := changed(t, text, "forecast {\n", fmt.Sprintf("forecast {\n    model = %q\n", junk))
	good := write(t, text)
	before, _, _ := strings.Cut(text, `"deepfm"`)
	kind := fmt.Sprintf("%s:%d:13", good, strings.Count(before, "\n")+1) // where the model's kind stands
	const block = "backend \"local\" {\n"
	before, _, _ = strings.Cut(text, block)
	trainerAt := fmt.Sprintf("job.hcl:%d:15", strings.Count(before, "\n")+2) // what an attribute there is, behind its name and blanks
	for _, tt := range []struct {
		name string
		args []string
		env  string // KALE_ONNXRUNTIME
		says string
	}{
		{"the checkpoint folder is a file", []string{write(t, changed(t, text, `dir = "checkpoints"`, fmt.Sprintf("dir = %q", file)))}, "", "error: The checkpoint folder is a file"},
		{"a checkpoint folder that cannot be made", []string{write(t, changed(t, text, `dir = "checkpoints"`, `dir = "/proc/nope"`))}, "", "error: The checkpoint folder cannot be written"},
		{"a forecast model that is none", []string{write(t, foreseen)}, "", "error: The forecast model cannot be used"},
		{"no library", []string{good, "-trainer", lacking}, "", kind + ": error: No worker could train"},
		{"no library, in words", []string{good, "-trainer", lacking}, "", lacking + " cannot use ONNX Runtime: there is no library."},
		{"no trainer", []string{good, "-trainer", filepath.Join(t.TempDir(), "kale-trainer")}, "", "is -trainer right?"},
		{"another program", []string{good, "-trainer", "/bin/true"}, "", "it does not say what it is"},
		{"a trainer that crashes", []string{good, "-trainer", crash}, "", `it crashed (signal: segmentation fault) (it says "some last words")`},
		{"a library that is none", []string{good}, file, kind + ": error: No worker could train"},
		{"a library that is not there", []string{good}, file + "-none", "which is not a file"},
		{"another program in the block", []string{write(t, changed(t, text, block, block+"    trainer = \"/bin/false\"\n"))}, "", trainerAt + ": error: Trainer cannot be used"},
		{"no program in the block", []string{write(t, changed(t, text, block, block+"    trainer = \"/no/such\"\n"))}, "", trainerAt + ": error: Trainer cannot be run"},
		{"two trainers", []string{write(t, changed(t, text, block, block+"    trainer = \"/bin/false\"\n")), "-trainer", "/bin/true"}, "", trainerAt + ": error: Trainer named twice"},
		{"no library in the block's environment", []string{write(t, changed(t, text, block, block+"    env     = { KALE_ONNXRUNTIME = \"/no.so\" }\n"))}, "", trainerAt + ": error: No worker could train"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv(onnx.LibraryEnv, tt.env)
			}
			for _, command := range []string{"validate", "plan", "run"} {
				r := s.run(append([]string{command}, tt.args...)...)
				said := strings.Join(strings.Fields(r.err), " ") // however it is wrapped
				if r.code != exitFailed || r.out != "" || strings.Count(said, tt.says) != 1 || strings.Contains(said, "level=WARN") {
					t.Errorf("%s: exit code %d, %q; want %q:\n%s", command, r.code, r.out, tt.says, r.err)
				}
			}
		})
	}
	var plan struct {
		Valid       bool
		Diagnostics []struct{ Line int }
	}
	many := changed(t, changed(t, text, "gpus = 0", "gpus = 64"), "backend \"local\" {\n", "backend \"local\" {\n    gpus  = \"none\"\n    slots = 2\n")
	for _, bad := range []string{changed(t, text, "min  = 1", "min  = 100"), foreseen, many} {
		r := s.run("plan", write(t, bad), "-json")
		if err := json.Unmarshal([]byte(r.out), &plan); err != nil || r.code != exitFailed || plan.Valid || len(plan.Diagnostics) == 0 || plan.Diagnostics[0].Line == 0 {
			t.Errorf("plan -json of a bad file: %q, %q (%v)", r.out, r.err, err)
		}
	}
	file = write(t, many)
	for _, command := range []string{"validate", "plan", "run"} {
		r := s.run(command, file)
		if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, "error: No node has so many devices") || !strings.Contains(r.err, file+":") {
			t.Errorf("%s of a job that fits on no node: exit code %d, %q:\n%s", command, r.code, r.out, r.err)
		}
	}
	entries, err := os.ReadDir(s.env["KALE_STATE_DIR"])
	if err != nil || len(entries) > 0 {
		t.Errorf("what was refused left %v (%v)", entries, err)
	}
	var v struct{ Valid bool }
	if err := json.Unmarshal([]byte(s.must("validate", good, "-json").out), &v); err != nil || !v.Valid {
		t.Errorf("the job is not valid without any of that: %v", err)
	}
}

// validate and plan say what the backend has no room for, and where that is asked for.
func TestRoom(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	text = changed(t, text, "gpus = 0", "gpus = 1\n    emulate_step = \"1ms\"")
	for _, tt := range []struct{ slots, min, says, why string }{
		{"2", "1", "", ""},
		{"1", "1", "warning: The job could not grow to workers.max now", "needs 2 slots, 1 free"},
		{"1", "2", "warning: The job cannot fit, however long it waits", "has 1 in all"},
	} {
		file := write(t, changed(t, changed(t, text, "backend \"local\" {\n", "backend \"local\" {\n    gpus  = \"none\"\n    slots = "+tt.slots+"\n"), "min  = 1", "min  = "+tt.min))
		for _, command := range []string{"validate", "plan"} {
			r := s.must(command, file)
			if tt.says == "" && strings.Contains(r.err, "warning: The job ") || !strings.Contains(r.err, tt.says) || !strings.Contains(r.err, tt.why) {
				t.Errorf("%s with %s slots for at least %s: want %q: %s", command, tt.slots, tt.min, tt.says, r.err)
			}
		}
	}
}

// Of the trainer and of its environment what the block of this machine's backend says is what is tried: a file that needs it is valid.
func TestTrainerOfTheBlock(t *testing.T) {
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	lib, err := onnx.Locate()
	if err != nil {
		t.Skip(err)
	}
	tried := filepath.Join(t.TempDir(), "tried")
	own := filepath.Join(filepath.Dir(tried), "own")
	script := fmt.Sprintf("#!/bin/sh\necho \"$KALE_ONNXRUNTIME $MINE\" >> %s\nexec %s \"$@\"\n", tried, filepath.Join(binDir, "kale-trainer"))
	if err := os.WriteFile(own, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(onnx.LibraryEnv, "/no/such/library.so")
	file := write(t, changed(t, text, "backend \"local\" {\n", fmt.Sprintf("backend \"local\" {\n    trainer = %q\n    env = { %s = %q, MINE = \"x\" }\n", own, onnx.LibraryEnv, lib)))
	s.must("validate", file)
	r := s.run("doctor", file, "-no-probe")
	if !strings.Contains(r.out, own+", version ") || !strings.Contains(strings.Join(strings.Fields(r.out), " "), "from "+lib+" computes") {
		t.Errorf("doctor says, with exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	got, err := os.ReadFile(tried)
	if want := lib + " x\n"; err != nil || strings.ReplaceAll(string(got), want, "") != "" || len(got) == 0 {
		t.Errorf("the trainer was tried with %q (%v), want %q", got, err, want)
	}
}
