package job

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"80ms": 80 * time.Millisecond, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour, "0.5d": 12 * time.Hour, "1.5s": 1500 * time.Millisecond,
		"0s": 0, " 20 m ": 20 * time.Minute, "1d 2h": 26 * time.Hour,
	} {
		if got, err := ParseDuration(strings.TrimSpace(text)); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "m", "5x", "5 m 3", "1.2.3s", "-5m", "200000d", "5m-", "1e3s", "∞"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestFormatDurationIsReadBack(t *testing.T) {
	for _, d := range []time.Duration{0, time.Millisecond, 1500 * time.Microsecond, time.Second, 90 * time.Minute, 24 * time.Hour, 36 * time.Hour, 168 * time.Hour, 25*time.Hour + 3*time.Millisecond, 99998240 * time.Microsecond, 3*time.Hour + time.Nanosecond} {
		if got, err := ParseDuration(FormatDuration(d)); err != nil || got != d {
			t.Errorf("%v is written as %q and read as %v, %v", d, FormatDuration(d), got, err)
		}
	}
}

// Each unit is written once, and a fraction in the last.
func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"1m39.99824s": 99998240 * time.Microsecond, "1.5ms": 1500 * time.Microsecond, "1.5s": 1500 * time.Millisecond, "250ms": 250 * time.Millisecond, "25h3ms": 25*time.Hour + 3*time.Millisecond,
		"7d": 168 * time.Hour, "36h": 36 * time.Hour, "1h30m": 90 * time.Minute, "0.001ms": time.Microsecond, "-1m500ms": -60500 * time.Millisecond,
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v is written as %q, want %q", d, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"512MiB": 512 << 20, "2GiB": 2 << 30, "1.5 GB": 1500000000, "1TiB": 1 << 40, "10B": 10} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2", "GiB", "2Gi", "2GiB3", "2gib", "9000000TiB", "-2GiB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestStart(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]struct {
		at time.Time
		ok bool
	}{
		"latest": {}, "earliest": {},
		"-10m":                 {now.Add(-10 * time.Minute), true},
		"2026-01-31T06:00:00Z": {time.Date(2026, 1, 31, 6, 0, 0, 0, time.UTC), true},
	} {
		src := strings.Replace(minimal, `topic   = "clicks"`, "topic = \"clicks\"\n start = \""+text+`"`, 1)
		job, files, diags := Parse([]byte(src), "job.hcl", Options{})
		if diags.HasErrors() {
			t.Fatal(rendered(files, diags))
		}
		if at, ok := job.Stream.Start.At(now); ok != want.ok || !at.Equal(want.at) {
			t.Errorf("%s: %v, %v; want %v", text, at, ok, want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"stream", "slo", "servers", "tau", "rho", "label", "l2", "min", "max", "run", "logs"}
	for given, want := range map[string]string{
		"steam": "stream", "SLO": "slo", "server": "servers", "taw": "tau", "completely": "", "rhoo": "rho", "lable": "label", "mxa": "max", "strema": "stream",
		"lag": "", "dim": "", "up": "", "ps": "", "kail": "", "nosuch": "", "bogus": "", "": "", // what is as far away as it is long was not meant
	} {
		if got := Nearest(given, names); got != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
}

// TestVariables checks which of several values wins, and that values get their variable's type.
func TestVariables(t *testing.T) {
	src := `
variable "topic"  { default = "from-default" }
variable "hidden" { default = [64, 32] }
variable "max"    { type = number }
variable "spare"  { default = null }
` + strings.NewReplacer(`"clicks"`, "var.topic", "max = 4", "max = var.max\n min = var.spare", "features {", "model {\n hidden = var.hidden\n}\nfeatures {").Replace(minimal)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first, second := write("first.hcl", "topic = \"from-first\"\nmax = 3\n"), write("second.hcl", "topic = \"from-second\"\n")
	for _, c := range []struct {
		name   string
		vars   map[string]string
		files  []string
		topic  string
		max    int
		hidden []int
	}{
		{"default", map[string]string{"max": "2"}, nil, "from-default", 2, []int{64, 32}},
		{"file", nil, []string{first}, "from-first", 3, []int{64, 32}},
		{"later file", nil, []string{first, second}, "from-second", 3, []int{64, 32}},
		{"-var", map[string]string{"topic": "from-var", "max": "1 + 1", "hidden": "[8, 4, 2]"}, []string{first, second}, "from-var", 2, []int{8, 4, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			job, files, diags := Parse([]byte(src), "job.hcl", Options{Vars: c.vars, VarFiles: c.files})
			if len(diags) > 0 {
				t.Fatal(rendered(files, diags))
			}
			got := []any{job.Stream.Topic, job.Workers.Max, job.Workers.Min, job.Model.Hidden}
			if diff := cmp.Diff([]any{c.topic, c.max, 1, c.hidden}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A word that is given to a number, or to a truth value, is told what is wanted: quotes would not help.
func TestVariablesOfAnotherType(t *testing.T) {
	src := strings.Replace(minimal, "max = 4", "max = var.m", 1)
	file := filepath.Join(t.TempDir(), "x.vars")
	if err := os.WriteFile(file, []byte("m = abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind string
		opt  Options
		says string
	}{
		{"number", Options{Vars: map[string]string{"m": "abc"}}, "declared as number: a number is required"},
		{"number", Options{Vars: map[string]string{"m": "8 workers"}}, "declared as number: a number is required"},
		{"number", Options{Vars: map[string]string{"m": "true"}}, "declared as number: a number is required"},
		{"number", Options{VarFiles: []string{file}}, "declared as number: a number is required"},
		{"bool", Options{Vars: map[string]string{"m": "yes"}}, "declared as bool: a bool is required"},
		{"list(string)", Options{Vars: map[string]string{"m": "[abc]"}}, `Text needs quotes: "abc"`},
	} {
		_, files, diags := Parse([]byte(fmt.Sprintf("variable \"m\" { type = %s }\n", c.kind)+src), "job.hcl", c.opt)
		if got := rendered(files, diags); len(diags) != 1 || !strings.Contains(got, c.says) {
			t.Errorf("%s of %+v: want %q:\n%s", c.kind, c.opt, c.says, got)
		}
	}
}

// TestFunctions evaluates expressions in the place of a topic's name.
func TestFunctions(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "name.txt"), []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"TOPIC": "from-env", "EMPTY": ""}
	lookup := func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	for expr, want := range map[string]string{
		`trimspace(file("name.txt"))`:                     "from-file",
		`env("TOPIC")`:                                    "from-env",
		`env("NONE", null, "fallback")`:                   "fallback",
		`"${upper("a")}-${lower("B")}"`:                   "A-b",
		`join("-", ["a", "b"])`:                           "a-b",
		`format("%s-%03d", "a", 7)`:                       "a-007",
		`jsondecode("{\"t\": \"json\"}").t`:               "json",
		`coalesce(null, "first")`:                         "first",
		`"t${max(1, 3)}${min(1, 3)}"`:                     "t31",
		`true ? "yes" : "no"`:                             "yes",
		`join("-", [for s in ["a", "b"] : upper(s)])`:     "A-B",
		`replace("a.b", ".", "-")`:                        "a-b",
		`"n${length(split(",", "a,b,c"))}"`:               "n3",
		`lookup({ a = "x" }, "b", "absent")`:              "absent",
		`contains(["a"], "a") ? "in" : "out"`:             "in",
		`"v${ceil(1.2)}${floor(1.8)}${abs(-3)}"`:          "v213",
		`values(merge({ a = "x" }, { a = "merged" }))[0]`: "merged",
	} {
		src := strings.Replace(minimal, `"clicks"`, expr, 1)
		job, files, diags := Parse([]byte(src), filepath.Join(dir, "job.hcl"), Options{LookupEnv: lookup})
		if diags.HasErrors() {
			t.Errorf("%s:\n%s", expr, rendered(files, diags))
		} else if job.Stream.Topic != want {
			t.Errorf("%s = %q, want %q", expr, job.Stream.Topic, want)
		}
	}
	for _, expr := range []string{`format("%99999s", "a")`, `file("/dev/zero")`, `env("NONE")`, `env("EMPTY")`} {
		src := strings.Replace(minimal, `"clicks"`, expr, 1)
		if job, _, diags := Parse([]byte(src), "job.hcl", Options{LookupEnv: lookup}); !diags.HasErrors() {
			t.Errorf("%s is accepted as %q", expr, job.Stream.Topic)
		}
	}
}

// TestBackendBody decodes the body as a plugin does: values are in, and positions are those of the job file.
func TestBackendBody(t *testing.T) {
	const body = `
    slots = var.slots # a comment
    plain = "as it is ${1 + 1}"
    token = join("", [
      env("A"),
      "b",
    ])
    node "x" {
      tags  = { for t in ["a"] : t => var.slots }
      wrong = nothing
    }
  `
	src := "variable \"slots\" { default = 3 }\n" + strings.Replace(minimal, "backend \"local\" {\n  ", `backend "local" {`+body, 1)
	job, files, diags := Parse([]byte(src), "job.hcl", Options{LookupEnv: func(string) (string, bool) { return "\"${a}\n", true }})
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	b := job.Backend
	file, diags := hclsyntax.ParseConfig(b.Source, b.Filename, b.Start)
	if diags.HasErrors() {
		t.Fatalf("%v\n%s", diags, b.Source)
	}
	decoded := file.Body.(*hclsyntax.Body)
	want := map[string]string{"slots": "3", "plain": "as it is 2", "token": "\"${a}\nb"}
	for name, text := range want {
		value, diags := decoded.Attributes[name].Expr.Value(nil)
		if diags.HasErrors() {
			t.Fatalf("%s: %v", name, diags)
		}
		if got, p := asString(value); p != nil || got != text {
			t.Errorf("%s = %q, want %q", name, got, text)
		}
	}
	wrong := decoded.Blocks[0].Body.Attributes["wrong"].NameRange
	if line := strings.Split(src, "\n")[wrong.Start.Line-1]; line[wrong.Start.Column-1:][:5] != "wrong" {
		t.Errorf("the plugin would point at %v: %q", wrong, line)
	}
	tags, diags := decoded.Blocks[0].Body.Attributes["tags"].Expr.Value(nil)
	if diags.HasErrors() || tags.GetAttr("a").AsBigFloat().String() != "3" {
		t.Errorf("tags = %v, %v", tags, diags)
	}
}

func TestRanges(t *testing.T) {
	job, files, diags := Parse([]byte(minimal), "job.hcl", Options{})
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	text := func(r hcl.Range) string { return string(r.SliceBytes([]byte(minimal))) }
	for path, want := range map[string]string{
		"stream.topic":          `"clicks"`,
		"stream.brokers[0]":     `"localhost:9092"`,
		"features.sparse[1]":    `"item"`,
		"features.sparse[7]":    `["user", "item"]`,
		"stream.start":          `stream "kafka"`,
		"stream.tls.ca_file":    `stream "kafka"`,
		"slo.max_lag":           `job "ctr"`,
		"backend":               `backend "local"`,
		"backend.anything.else": `backend "local"`,
		"":                      `job "ctr"`,
		"no.such.path":          `job "ctr"`,
	} {
		if got := text(job.Range(path)); got != want {
			t.Errorf("%q is at %q, want %q", path, got, want)
		}
	}
	if d := job.WarningAt("stream.topic", "s", "d"); d.Severity != hcl.DiagWarning || text(*d.Subject) != `"clicks"` {
		t.Errorf("%+v", d)
	}
}

// TestFingerprint checks which changes make an old checkpoint useless, and which do not.
func TestFingerprint(t *testing.T) {
	load := func(old, replacement string) *Job {
		t.Helper()
		src := strings.Replace(minimal, old, replacement, 1)
		if src == minimal && old != "" {
			t.Fatalf("%q is not in the job", old)
		}
		job, files, diags := Parse([]byte(src), "job.hcl", Options{})
		if diags.HasErrors() {
			t.Fatal(rendered(files, diags))
		}
		return job
	}
	base := load("", "")
	if base.Fingerprint() != "8167bfb1ef70ed66" {
		t.Errorf("the fingerprint of the minimal job is %s: a change refuses every checkpoint there is", base.Fingerprint())
	}
	for _, c := range []struct{ old, replacement, change string }{
		{`"clicks"`, `"views"`, `stream.topic was "clicks" and is "views"`},
		{`["user", "item"]`, `["item", "user"]`, `features.sparse was ["user","item"] and is ["item","user"]`},
		{`workers {`, "model {\n hidden = [8]\n}\nworkers {", `model.hidden was [64,32] and is [8]`},
		{`workers {`, "model {\n optimiser \"sgd\" {\n}\n}\nworkers {", `model.optimiser was "adagrad" and is "sgd"`},
		{`workers {`, "model {\n tablets = 8\n}\nworkers {", `model.tablets was 64 and is 8`},
		{`workers {`, "model {\n kind = \"lr\"\n}\nworkers {", `model.kind was "deepfm" and is "lr"`}, // which has no embeddings and no layers
		{`max = 4`, "max = 5\n gpus = 0", ""},
		{`workers {`, "model {\n batch = 64\n optimiser \"adagrad\" {\n learning_rate = 0.1\n}\n}\nworkers {", ""},
	} {
		changed := load(c.old, c.replacement)
		if got := strings.Join(changed.Shape().Changes(base.Shape()), "; "); got != c.change {
			t.Errorf("%q: changes %q, want %q", c.replacement, got, c.change)
		}
		if same := changed.Fingerprint() == base.Fingerprint(); same != (c.change == "") {
			t.Errorf("%q: same fingerprint %v", c.replacement, same)
		}
	}
	counting := func(features, model string) *Job {
		return load("    sparse = [\"user\", \"item\"]\n  }", features+"\n  }\n  model {\n    kind = \"counting\"\n"+model+"\n  }")
	}
	plain := counting("", "")
	for model, same := range map[string]bool{"hidden = [8]": true, "embedding_dim = 4": true, "optimiser \"sgd\" {\n}": true, "hidden = []": true, "tablets = 8": false} {
		if got := counting("sparse = [\"user\"]", model).Fingerprint() == plain.Fingerprint(); got != same {
			t.Errorf("counting with %s: same fingerprint %v", model, got)
		}
	}
	var stored Shape
	encoded, err := json.Marshal(base.Shape())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &stored); err != nil || len(base.Shape().Changes(stored)) > 0 {
		t.Errorf("a stored shape differs: %v, %v", base.Shape().Changes(stored), err)
	}
}

// An element of a list that has no value hides nothing of what is wrong with the others.
func TestListWithAnElementWithoutValue(t *testing.T) {
	src := strings.NewReplacer(`brokers = ["`, `brokers = [env("NOPE"), "no port", "`, `sparse = [`, `sparse = [env("NONE"), "twin", "twin", `).Replace(minimal)
	_, files, diags := Parse([]byte(src), "job.hcl", Options{LookupEnv: func(string) (string, bool) { return "", false }})
	text := rendered(files, diags)
	for _, want := range []string{"environment variable NOPE is not set", `Unsuitable value "no port"`, "environment variable NONE is not set", `"twin"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := strings.Count(text, ": error: "); n != 4 {
		t.Errorf("%d mistakes, want 4:\n%s", n, text)
	}
	located(t, files, diags)
}

// A URL is not made a folder's name below the job file's.
func TestURLIsNoPath(t *testing.T) {
	for _, dir := range []string{"s3://bucket/x", "hdfs://h:1/x", "file:///x"} {
		_, _, diags := Parse([]byte("job \"j\" {\ncheckpoint {\n  dir = \""+dir+"\"\n}\n}\n"), "job.hcl", Options{})
		var got []string
		for _, d := range diags {
			if d.Subject != nil && strings.HasPrefix(d.Detail, fmt.Sprintf("%q is a URL", dir)) && strings.Contains(d.Detail, "mount") {
				got = append(got, fmt.Sprintf("%s:%d:%d", d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column))
			}
		}
		if len(got) != 1 || got[0] != "job.hcl:3:9" {
			t.Errorf("%s is refused at %q: %v", dir, got, diags)
		}
	}
}
